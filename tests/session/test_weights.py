"""When a session compacts depends on what its messages weigh, not on how many or how long they are."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

from agent_session import CompactionEnd, ThinkingContent, ToolContext, ToolResult, tool
from agent_session.compaction.tokens import IMAGE_TOKENS, estimate_message_tokens
from agent_session.testing import call, reply
from session_store import SessionManager
from session_store.messages import AssistantMessage, UserMessage, as_content
from tests.session.scene import scene, words

NOTHING = (0, 0, 0, 0)
"""A provider that reports no usage."""


def picture(size: int) -> bytes:
    """A PNG of one pixel with so many bytes in it."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    header = (1).to_bytes(4) + (1).to_bytes(4) + bytes([8, 0, 0, 0, 0])
    body = chunk(b"IHDR", header) + chunk(b"tEXt", b"Comment\0" + b"x" * size) + chunk(b"IDAT", zlib.compress(b"\0\0"))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


async def test_a_picture_of_megabytes_is_in_the_first_request_and_compacts_nothing(tmp_path: Path) -> None:
    # Mutation: in `_content_tokens` count an image by the length of its base64.
    image = picture(3 * 1024 * 1024)  # 4 MiB as base64
    async with scene(tmp_path, [reply("I see.", usage=NOTHING)], window=200_000, reserve=16_384) as stage:
        await stage.session.prompt("See?", images=[image])
        assert stage.outcomes == []
        [request] = stage.chat_requests
        assert base64.b64encode(image) in request.raw
        assert IMAGE_TOKENS <= stage.session.context_usage().tokens < IMAGE_TOKENS + 100


async def test_korean_fills_the_window_at_its_real_weight_and_so_does_what_is_kept(tmp_path: Path) -> None:
    # Mutation: in `estimate_text_tokens` count four characters a token.
    korean, keep = "대화는 창을 채우고 요약이 필요하다 " * 105, 4_000  # 19 characters, of which 15 are a token or more
    steps = [reply(korean, usage=NOTHING) for _ in range(10)]
    async with scene(tmp_path, steps, window=30_000, reserve=3_000, keep=keep) as stage:
        for _ in range(10):
            await stage.session.prompt(korean)
        assert stage.outcomes[:1] == ["applied"]
        kept = [message for message in stage.session.messages if isinstance(message, UserMessage | AssistantMessage)]
        # No tokenizer needs less than a token for a syllable, nor more than two for one of these.
        first = stage.compactions[0]
        assert first.tokens_after is not None
        assert first.tokens_after <= 1.5 * keep + 1_000
        assert all(estimate_message_tokens(message) > 15 * 105 for message in kept)


async def test_a_few_large_messages_are_too_much_and_many_small_ones_are_not(tmp_path: Path) -> None:
    # Mutation: in `is_over` count messages.
    large = [reply("ok", usage=NOTHING)] * 3
    async with scene(tmp_path, large, window=2_000, keep=500) as stage:
        for _ in range(3):
            await stage.session.prompt(words(800))
        assert stage.outcomes == ["applied"]
    (tmp_path / "other").mkdir()
    small = [reply("ok", usage=NOTHING)] * 40
    async with scene(tmp_path / "other", small, window=2_000, keep=500) as stage:
        for _ in range(40):
            await stage.session.prompt("go on")
        assert stage.outcomes == []


async def test_a_long_thought_that_was_reported_counts_once_and_compacts_nothing(tmp_path: Path) -> None:
    # Mutation: in `measure` add what an answer's output weighs to what was reported of it.
    thoughtful = reply("Yes.", thinking="hm " * 40_000, usage=(20_000, 0, 0, 50_000))
    async with scene(tmp_path, [thoughtful, reply("No.", usage=(70_050, 0, 0, 5))], window=100_000) as stage:
        await stage.session.prompt("Is it?")
        assert stage.session.context_usage().tokens == 70_000
        await stage.session.prompt("And now?")
        assert stage.outcomes == []


async def test_a_signature_that_is_sent_again_fills_the_window(tmp_path: Path) -> None:
    # Mutation: in `_content_tokens` leave signatures out.
    with SessionManager.create(tmp_path, session_dir=tmp_path / "sessions") as log:
        log.append_model_change("openai", "scripted")
        for _ in range(3):
            log.append_message(UserMessage(content=as_content("Go on.")))
            signed = ThinkingContent("hm", thinking_signature=base64.b64encode(bytes(range(256)) * 150).decode())
            log.append_message(
                AssistantMessage(content=(signed, *as_content("Done.")), provider="openai", model="scripted")
            )
        path = log.path
    assert path is not None
    steps = [reply("ok", usage=NOTHING)]
    async with scene(tmp_path, steps, manager=SessionManager.open(path), window=100_000, reserve=30_000) as stage:
        assert stage.session.context_usage().tokens > 3 * 20_000
        await stage.session.prompt("Well?")
        assert stage.outcomes == ["applied"]


async def test_an_extension_that_compacts_earlier_and_the_runtime_never_meet(tmp_path: Path) -> None:
    # Mutation: in `is_over` take half of the threshold; in `Run._check` let what a handler asked for wait for the end.
    asked: list[int] = []

    @tool
    async def work(at: str, context: ToolContext) -> ToolResult:
        """Do some work."""
        return ToolResult(words(90, at))

    def early(api: Any) -> None:
        @api.on("turn_end")
        def half(event: Any, ctx: Any) -> None:
            usage = ctx.context_usage()
            if usage.tokens > usage.window // 2:
                asked.append(usage.tokens)
                ctx.request_compaction()

    steps = [*(call("work", at=f"step {number}") for number in range(20)), reply("done")]
    async with scene(tmp_path, steps, tools=[work], extensions=[early], window=1_200, keep=200) as stage:
        assert str(await stage.session.prompt("Begin.")) == "done"
        told = [name for name in stage.names if name in ("before_compact", "compaction_end")]
        assert told == ["before_compact", "compaction_end"] * (len(told) // 2)
        assert asked
        applied = [end.outcome for end in stage.of(CompactionEnd) if end.outcome.status == "applied"]
        assert len(stage.compactions) == len(applied) == len({entry.id for entry in stage.compactions})
        assert {outcome.reason for outcome in applied} == {"manual"}
