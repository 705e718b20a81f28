"""From a text to the first messages of a run: `input`, `before_agent_start`, and what waited for a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from agent_session.hooks import BeforeAgentStart, Input
from agent_session.parts import Parts
from agent_session.tools.images import ImageSource, check_sources, read_images
from session_store.ids import now_ms
from session_store.messages import ImageContent, Message, TextContent, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a user says, its images not yet read. Relative paths of images begin in `folder`.

    Raises:
        TypeError: the text is no text, or an image is nothing that `images=` takes.
        ValueError: neither text nor an image, or an image is an address.
    """

    text: str
    images: Sequence[ImageSource]
    folder: Path

    def __post_init__(self) -> None:
        _check(self.text, check_sources(self.images))

    async def message(self) -> UserMessage:
        """Reads image files in a thread, and waits for nothing where there are none. Raises: see `read_images`."""
        if not self.images:
            return user_message(self.text)
        read = partial(read_images, self.images, self.folder)
        return user_message(self.text, await anyio.to_thread.run_sync(read, abandon_on_cancel=True))

    def message_now(self) -> UserMessage:
        """The same for verbs that nobody awaits: image files are read here and now. Raises: see `read_images`."""
        return user_message(self.text, read_images(self.images, self.folder))


def user_message(text: str, images: Sequence[ImageContent] = ()) -> UserMessage:
    """A message of the user.

    Raises:
        TypeError: the text is no text, or an image no `ImageContent`.
        ValueError: neither text nor an image.
    """
    _check(text, images)
    blocks = (TextContent(text),) if text else ()
    return UserMessage(content=(*blocks, *images), timestamp=now_ms())


def _check(text: object, images: Sequence[ImageSource]) -> None:
    if not isinstance(text, str):
        raise TypeError(f"a prompt is text, not {type(text).__name__}")
    if not text.strip() and not images:
        raise ValueError("the prompt is empty: give it some text or an image")


async def open_run(parts: Parts, prompt: UserMessage | None) -> list[Message] | None:
    """What the run records first; None where an extension handled the input itself.

    `prompt` None: the run was started by the queue, whose messages come on their own.
    """
    if prompt is not None:
        images = tuple(block for block in prompt.content if isinstance(block, ImageContent))
        asked = await parts.dispatcher.decide(Input(text=prompt.text, images=images))
        if asked.handled is not None:
            return None
        if (asked.text, asked.images) != (prompt.text, images):
            prompt = user_message(asked.text, asked.images)
    event = await parts.dispatcher.decide(BeforeAgentStart(prompt=prompt, system_prompt=parts.shape.base_system_prompt))
    parts.shape.override_system_prompt(event.system_prompt)
    return [*([prompt] if prompt is not None else ()), *event.messages]
