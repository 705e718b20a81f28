"""From a text to the first messages of a run: `input`, `before_agent_start`, and what waited for a prompt."""

from __future__ import annotations

from collections.abc import Sequence

from agent_session.hooks import BeforeAgentStart, Input
from agent_session.parts import Parts
from session_store.ids import now_ms
from session_store.messages import ImageContent, Message, TextContent, UserMessage


def user_message(text: str, images: Sequence[ImageContent] = ()) -> UserMessage:
    """A message of the user.

    Raises:
        TypeError: the text is no text, or an image no `ImageContent`.
        ValueError: neither text nor an image.
    """
    if not isinstance(text, str):
        raise TypeError(f"a prompt is text, not {type(text).__name__}")
    if not text.strip() and not images:
        raise ValueError("the prompt is empty: give it some text or an image")
    for image in images:
        if not isinstance(image, ImageContent):
            raise TypeError(f"an image is an ImageContent (data, mime_type), not {type(image).__name__}")
    blocks = (TextContent(text),) if text else ()
    return UserMessage(content=(*blocks, *images), timestamp=now_ms())


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
