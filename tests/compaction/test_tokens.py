"""What messages and requests weigh, and the ledger that counts each once."""

from __future__ import annotations

import base64
import random
from dataclasses import replace
from types import MappingProxyType

import pytest
from typing_extensions import override

from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.tokens import (
    IMAGE_TOKENS,
    TokenLedger,
    estimate_fixed_request_tokens,
    estimate_message_tokens,
)
from agent_session.llm.client import ToolDefinition
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    CompactionSummaryMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UnknownMessage,
    Usage,
    UserMessage,
)

NOISE = random.Random(7)


def user(*blocks: TextContent | ImageContent | UnknownContent) -> UserMessage:
    return UserMessage(content=blocks)


def answer(*blocks: TextContent | ThinkingContent | ToolCall, usage: Usage | None = None) -> AssistantMessage:
    return AssistantMessage(content=blocks, usage=usage or Usage(estimated=True))


# Mutation: leave out thinking, one of the signatures, the name or the arguments.
@pytest.mark.parametrize(
    "heavy",
    [
        ThinkingContent("word " * 8_000),
        ThinkingContent("", thinking_signature="s" * 40_000),
        TextContent("", text_signature="s" * 40_000),
        ToolCall("c1", "read", {}, thought_signature="s" * 40_000),
        ToolCall("c1", "n" * 40_000, {}),
        ToolCall("c1", "write", {"content": "word " * 8_000}),
        ToolCall("c1", "write", {"half": "\ud83d" + "word " * 8_000}),
        ToolCall("c1", "write", {"number": 2**70, "content": "word " * 8_000}),
    ],
)
def test_everything_that_is_sent_again_counts(heavy):
    assert 8_000 <= estimate_message_tokens(answer(heavy)) < 12_000


# Mutation: take an opaque signature for words.
def test_a_signature_weighs_what_base64_weighs():
    signature = base64.b64encode(NOISE.randbytes(30_000)).decode()
    assert estimate_message_tokens(answer(ThinkingContent("", thinking_signature=signature))) > len(signature) // 2


# Mutation: count an image by its data.
def test_an_image_has_one_cost_whatever_its_size():
    small = estimate_message_tokens(user(ImageContent("QUJD", "image/png")))
    large = estimate_message_tokens(user(ImageContent("QUJD" * 1_000_000, "image/png")))
    assert small == large
    assert IMAGE_TOKENS <= small < IMAGE_TOKENS + 50


# Mutation: ignore the reported output; or believe an output that nobody reported.
def test_an_answer_weighs_at_least_its_reported_output():
    usage = Usage(input=10, output=5_000)
    assert estimate_message_tokens(answer(TextContent("ok"), usage=usage)) == 5_000
    assert estimate_message_tokens(answer(TextContent("ok"), usage=Usage(output=5_000, estimated=True))) < 20
    assert estimate_message_tokens(answer(TextContent("word " * 8_000), usage=usage)) > 8_000


# Mutation: count the raw JSON of a block, or a message, that nobody is sent.
@pytest.mark.parametrize(
    "message",
    [
        SystemMessage(content=(TextContent("word " * 1_000),)),
        UnknownMessage(role="future", raw={"text": "word " * 1_000}),
        BashExecutionMessage(command="ls", output="word " * 1_000, exclude_from_context=True),
        user(UnknownContent("future", {"data": "word " * 1_000})),
    ],
)
def test_what_is_never_sent_weighs_nothing(message):
    assert estimate_message_tokens(message) < 10


# Mutations: forget what was counted before a block; end with a block that is sent to nobody.
def test_a_message_weighs_what_its_blocks_weigh_together():
    text, thought = TextContent("some words here"), ThinkingContent("thinking", thinking_signature="c2lnbmF0dXJl" * 9)
    call, picture = (
        ToolCall("c1", "read", {"path": "a.txt"}, thought_signature="c2ln" * 20),
        ImageContent("", "image/png"),
    )
    frame = estimate_message_tokens(answer())
    alone = [estimate_message_tokens(answer(block)) - frame for block in (text, thought, call)]
    assert estimate_message_tokens(answer(text, thought, call)) == frame + sum(alone)
    assert estimate_message_tokens(answer(call, thought, text)) == frame + sum(alone)
    assert estimate_message_tokens(user(UnknownContent("future", {}), text, picture, text)) == (
        estimate_message_tokens(user()) + 2 * alone[0] + IMAGE_TOKENS
    )


# Mutations: leave the command out, or take it away; count a message that nobody is sent.
def test_shell_output_weighs_its_command_as_well_and_nothing_where_it_is_kept_out():
    def shell(command: str, output: str, *, exclude: bool = False) -> int:
        return estimate_message_tokens(
            BashExecutionMessage(command=command, output=output, exclude_from_context=exclude)
        )

    assert shell("make test", "it passes") - shell("", "") == (
        estimate_text_tokens("make test") + estimate_text_tokens("it passes")
    )
    assert shell("make test", "it passes", exclude=True) == 0
    assert estimate_message_tokens(UnknownMessage(role="future", raw={})) == 0


# Mutations: write blanks between the parts, or escape what is no ASCII; refuse a mapping that is no dict.
def test_arguments_that_the_fast_encoder_refuses_weigh_what_others_weigh():
    plain, odd = {"path": "überall", "of": [1, 2]}, MappingProxyType({"path": "überall", "of": [1, 2]})
    assert estimate_message_tokens(answer(ToolCall("c1", "read", {"a": odd}))) == estimate_message_tokens(
        answer(ToolCall("c1", "read", {"a": plain}))
    )
    huge = answer(ToolCall("c1", "read", {"a": plain, "n": 2**70}))
    written = '{"a":{"path":"überall","of":[1,2]},"n":1180591620717411303424}'
    assert estimate_message_tokens(huge) - estimate_message_tokens(answer(ToolCall("c1", "read", {}))) == (
        estimate_text_tokens(written) - estimate_text_tokens("{}")
    )


@pytest.mark.parametrize(
    "message",
    [
        BashExecutionMessage(command="ls", output="word " * 800),
        CompactionSummaryMessage(summary="word " * 800),
        ToolResultMessage(tool_call_id="c1", tool_name="read", content=(TextContent("word " * 800),)),
    ],
)
def test_shell_output_summaries_and_results_weigh_their_text(message):
    assert 850 < estimate_message_tokens(message) < 1_000


# Mutation: leave out the prompt, or the parameters.
def test_the_fixed_overhead_is_prompt_and_tools():
    tool = ToolDefinition(
        name="read",
        description="Reads a file. " * 20,
        parameters={"type": "object", "properties": {"path": {"type": "string", "description": "word " * 400}}},
    )
    prompt = estimate_fixed_request_tokens("word " * 800, ())
    assert 850 <= prompt < 920
    tools = estimate_fixed_request_tokens("", (tool, tool))
    assert tools > 2 * (440 + 60)
    assert estimate_fixed_request_tokens("word " * 800, (tool, tool)) == prompt + tools
    assert estimate_fixed_request_tokens("", ()) == 0
    renamed = replace(tool, name="read_a_file_or_a_part_of_it")
    assert estimate_fixed_request_tokens("", (renamed,)) - estimate_fixed_request_tokens("", (tool,)) == (
        estimate_text_tokens(renamed.name) - estimate_text_tokens(tool.name)
    )


class CountedText(str):
    """Text that notes each time it is taken apart: once for each estimate."""

    __slots__ = ()
    estimates = 0

    @override
    def __getitem__(self, key):
        CountedText.estimates += 1
        return super().__getitem__(key)


# Mutation: count anew in `total`; or tell messages apart by equality (the last assertion).
def test_an_unchanged_message_is_counted_once():
    CountedText.estimates = 0
    message, same_words = user(TextContent(CountedText("hello"))), user(TextContent(CountedText("hello")))
    ledger = TokenLedger()
    first = ledger.count(message)
    assert ledger.total([message, message]) == 2 * first
    assert CountedText.estimates == 1
    ledger.count(same_words)
    assert CountedText.estimates == 2


# Mutations: look through it more often than that, or less.
def test_the_ledger_is_looked_through_once_it_holds_more_than_twice_the_context_and_some():
    ledger = TokenLedger()
    messages = [user(TextContent(f"message {number}")) for number in range(2 * 10 + 64 + 1)]
    ledger.total(messages[:-1])
    ledger.forget_all_but(messages[:10])
    assert len(ledger) == 2 * 10 + 64
    ledger.count(messages[-1])
    ledger.forget_all_but(messages[:10])
    assert len(ledger) == 10


# Mutation: keep all entries in `forget_all_but`; or drop those of the context too (the second assertion).
def test_the_ledger_holds_the_context_and_not_the_session():
    ledger = TokenLedger()
    context: list[Message] = []
    for number in range(5_000):
        context = [*context, user(TextContent(f"message {number}"))][-20:]
        ledger.total(context)
        ledger.forget_all_but(context)
        assert len(ledger) <= 2 * 20 + 64 + 1
    CountedText.estimates = 0
    kept = user(TextContent(CountedText("kept")))
    ledger.count(kept)
    for number in range(200):
        ledger.count(user(TextContent(f"gone {number}")))
    ledger.forget_all_but([kept])
    ledger.count(kept)
    assert CountedText.estimates == 1
    assert len(ledger) == 1
