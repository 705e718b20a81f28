"""Each rule of the validators refuses what breaks it, and nothing that does not."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from agent_session.models import Model
from agent_session.testing import chat_fault, context_faults, messages_fault
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    Content,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UserMessage,
    as_content,
)
from tests.pictures import gif, jpeg, png

CLAUDE = Model("anthropic/claude-sonnet-4-5")
API = "anthropic-messages"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Messages ------------------------------------------------------------------------------------------

USER = UserMessage(content=as_content("go"))


def own(*content: Content, **fields: Any) -> AssistantMessage:
    return AssistantMessage(content=content, api=API, provider=CLAUDE.provider, model=CLAUDE.name, **fields)


def foreign(*content: Content) -> AssistantMessage:
    return AssistantMessage(content=content, api="other", provider="other", model="other")


def result(call_id: str, text: str = "done") -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=call_id, tool_name="ls", content=as_content(text))


def picture(data: bytes, mime_type: str = "image/png") -> UserMessage:
    return UserMessage(content=(ImageContent(encoded(data), mime_type),))


CALL = ToolCall("c1", "ls", {})
SIGNED = ThinkingContent("hm", "sig")


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "no messages"),
        ([own(TextContent("a")), USER], "messages[0]: the user's side"),
        ([USER, own(TextContent("a"))], "messages[2]: the user's side"),
        ([USER, own(TextContent("a")), own(TextContent("b")), USER], "messages[2]: the user's side"),
        ([USER, SystemMessage(content=())], "never sent"),
        ([USER, BashExecutionMessage(command="ls", output="", exclude_from_context=True)], "never sent"),
        ([USER, own(TextContent("a"), stop_reason="error"), USER], "never sent"),
        ([USER, own(CALL), USER], "do not match"),
        ([USER, own(CALL), result("c1"), own(CALL), result("c1")], "used twice"),
        ([USER, own(SIGNED), USER], "says nothing"),
        ([USER, own(TextContent("a"), TextContent(" ")), USER], "blank text"),
        ([USER, own(TextContent("a"), UnknownContent("x", {})), USER], "no format has"),
        ([UserMessage(content=())], "is empty"),
        ([UserMessage(content=as_content(" "))], "blank text"),
        ([USER, own(CALL), result("c1", "")], "blank text"),
        ([USER, own(SIGNED, ThinkingContent("x"), TextContent("a")), USER], "not whole"),
        ([USER, own(TextContent("a"), SIGNED, TextContent("b")), USER], "not whole"),
        ([USER, own(SIGNED, TextContent("a"), SIGNED), USER], "not whole"),
        ([USER, foreign(ThinkingContent("x"), TextContent("a")), USER], "another model's thinking"),
        ([USER, foreign(TextContent("a", "sig")), USER], "another model's signature"),
        ([USER, foreign(ToolCall("c1", "ls", {}, thought_signature="x")), result("c1")], "another model's signature"),
        ([USER, foreign(ToolCall("a|b", "ls", {})), result("a|b")], "call id"),
        ([USER, own(ToolCall("", "ls", {})), result("")], "without an id"),
        ([USER, own(ToolCall("c1", "a b", {})), result("c1")], "tool name"),
        ([picture(png(8_001))], "too large"),
        ([picture(png() + bytes(4_000_000))], "too large"),
        ([picture(b"BM", "image/bmp")], "type image/bmp"),
        ([UserMessage(content=(ImageContent("%", "image/png"),))], "not base64"),
        ([picture(gif())] * 101, "101 images"),
        ([picture(png(2_001)), *[picture(gif())] * 20], "too large"),
        ([picture(png() + bytes(3_000_000))] * 7, "too large together"),
    ],
)
def test_what_a_model_may_not_be_sent_is_named(messages: list[Message], said: str) -> None:
    # Mutation: any of the rules left out.
    assert any(said in fault for fault in context_faults(messages, model=CLAUDE, api=API)), said


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, own(SIGNED, TextContent("a"), CALL), result("c1")],
        [USER, foreign(TextContent("a"), CALL), result("c1"), USER, own(TextContent("b", "sig")), USER],
        [USER, own(ToolCall("functions.ls:0", "ls", {})), result("functions.ls:0")],
        [picture(png(8_000)), picture(jpeg(), "image/jpeg")],
    ],
)
def test_what_a_model_may_be_sent_has_no_fault(messages: list[Message]) -> None:
    # Mutation: any rule that takes in too much.
    assert context_faults(messages, model=CLAUDE, api=API) == []


def test_tools_and_images_count_where_the_target_has_none() -> None:
    # Mutation: leave either out.
    with_call: list[Message] = [USER, own(CALL), result("c1")]
    assert "calls, and no tool is declared" in context_faults(with_call, model=CLAUDE, api=API, declares_tools=False)
    blind = Model(CLAUDE.id, images=False)
    assert "the model takes no images" in context_faults([picture(png())], model=blind, api=API)


# Chat completions ----------------------------------------------------------------------------------

SAID = {"role": "user", "content": "go"}
ANSWERED = {"role": "assistant", "content": "a"}


def called(call_id: str = "c1", name: str = "ls") -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def done(call_id: str = "c1", content: str = "x") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def shown(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([{"role": "system", "content": "s"}], "empty array"),
        ([ANSWERED, SAID], "begin and end"),
        ([SAID, ANSWERED], "begin and end"),
        ([SAID, called()], "did not have response"),
        ([SAID, called("x" * 41), done("x" * 41)], "maximum length 40"),
        ([SAID, called(name="a b"), done()], "pattern"),
        ([SAID, called(name=""), done()], "pattern"),
        ([SAID, {"role": "assistant", "content": None}, SAID], "null"),
        ([{"role": "user", "content": ""}], "blank"),
        ([{"role": "user", "content": []}], "empty array"),
        ([SAID, called(), done(content=" ")], "blank"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "blank"),
        ([shown("data:image/png;base64,%")], "invalid image"),
    ],
)
def test_a_chat_payload_that_would_be_refused_is(messages: list[dict[str, Any]], said: str) -> None:
    # Mutation: any of the rules left out.
    assert said in (chat_fault({"messages": messages}) or "")


def test_a_chat_payload_in_order_is_taken() -> None:
    # Mutation: refuse two of the user's messages in a row.
    messages = [{"role": "system", "content": ""}, SAID, SAID, called(), done(), shown("data:image/png;base64,aGk=")]
    assert chat_fault({"messages": messages}) is None


# Anthropic's messages ------------------------------------------------------------------------------


def text(words: str = "x") -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(call_id: str = "t1", name: str = "ls") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def given(call_id: str = "t1", *content: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": list(content or (text(),))}


def image_block(data: bytes, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": encoded(data)}}


def turns(*contents: Any) -> list[dict[str, Any]]:
    """Messages of the user and the assistant in turns."""
    return [
        {"role": ("user", "assistant")[number % 2], "content": [content] if isinstance(content, dict) else content}
        for number, content in enumerate(contents)
    ]


THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "signed hm"}
SEALED = {"type": "redacted_thinking", "data": "x"}
THINKS = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}


def fault(messages: list[dict[str, Any]], **fields: Any) -> str:
    payload = {"max_tokens": 8_000, "messages": messages, "tools": [{"name": "ls"}], **fields}
    return messages_fault(payload, is_signed=lambda thinking, signature: signature == f"signed {thinking}") or ""


@pytest.mark.parametrize(
    ("messages", "fields", "said"),
    [
        ([], {}, "at least one message"),
        (turns(text()), {"max_tokens": 0}, "max_tokens"),
        (turns(text()), {"thinking": {"type": "enabled", "budget_tokens": 9_000}}, "budget_tokens"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], {}, "alternate"),
        (turns(text(), text()), {}, "prefill"),
        (turns([]), {}, "must not be empty"),
        (turns(text(" ")), {}, "non-whitespace"),
        (turns(text(), use(), given("t1", text(""))), {}, "non-whitespace"),
        (turns(text(), use(), {**given("t1", image_block(png())), "is_error": True}), {}, "is_error"),
        (turns(text(), use("a|b"), given("a|b")), {}, "tool_use.id"),
        (turns(text(), use(name="a b"), given()), {}, "tool_use.name"),
        (turns(text(), use(), given(), use(), given()), {}, "unique"),
        (turns(text(), use(), text()), {}, "immediately after"),
        (turns(text(), use(), [text(), given()]), {}, "immediately after"),
        (turns(text(), text(), given()), {}, "immediately after"),
        (turns(given()), {}, "unexpected"),
        (turns(text(), use(), given()), {"tools": []}, "need tools"),
        (turns(text(), [text(), THOUGHT, text()], text()), THINKS, "first block"),
        (turns(text(), [THOUGHT, text(), SEALED], text()), THINKS, "final block"),
        (turns(text(), [THOUGHT, use()], given()), {}, "thinking is disabled"),
        (turns(text(), use(), given()), THINKS, "must start with a thinking block"),
        (turns(text(), [{**THOUGHT, "signature": "made up"}, text()], text()), THINKS, "signature"),
        (turns(image_block(png(8_001))), {}, "8000 pixels"),
        (turns([image_block(png(2_001)), *[image_block(gif(), "image/gif")] * 20]), {}, "2000 pixels"),
        (turns([image_block(gif(), "image/gif")] * 601), {}, "too many images"),
        (turns(image_block(png() + bytes(4_000_000))), {}, "5 MB"),
        (turns(image_block(png(), "image/jpeg")), {}, "its media_type image/jpeg"),
        (turns(image_block(b"BM", "image/bmp")), {}, "its media_type image/bmp"),
        (turns({"type": "image", "source": {"media_type": "image/png", "data": "%"}}), {}, "invalid base64"),
        (turns([{**text(), "cache_control": {}}] * 5), {}, "cache_control"),
    ],
)
def test_a_payload_that_anthropic_would_refuse_is(
    messages: list[dict[str, Any]], fields: dict[str, Any], said: str
) -> None:
    # Mutation: any of the rules left out.
    assert said in fault(messages, **fields)


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        (turns("go"), {}),
        (turns(text(), [THOUGHT, SEALED, text(), use()], [given(), text()]), THINKS),
        (turns(text(), [text(), use()], [given(), text()], [THOUGHT, text()], text()), THINKS),
        (turns(text(), [THOUGHT, use()], given()), {"output_config": {"effort": "low"}}),
        (turns(text(), [use("t1"), use("t2")], [given("t2"), given("t1", image_block(png()))]), {}),
    ],
)
def test_a_payload_in_order_is_taken(messages: list[dict[str, Any]], fields: dict[str, Any]) -> None:
    # Mutation: any rule that takes in too much.
    assert fault(messages, **fields) == ""
