"""What providers are sent."""

from typing import Any

import orjson
import pytest

from agent_session.llm.client import ModelRequest, ToolDefinition
from agent_session.llm.convert import (
    COMPACTION_SUMMARY_PREFIX,
    EMPTY_OUTPUT,
    as_model_messages,
    chat_messages,
    chat_payload,
)
from agent_session.llm.payload import encode
from agent_session.models import Model
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UnknownContent,
    UnknownMessage,
    UserMessage,
    as_content,
)

IMAGE = ImageContent("QUJD", "image/png")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def user(text: str) -> UserMessage:
    return UserMessage(content=as_content(text))


def assistant(*calls: ToolCall, text: str = "") -> AssistantMessage:
    return AssistantMessage(content=(*as_content(text), *calls) if text else calls)


def result(call_id: str, *content: TextContent | ImageContent) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id=call_id, tool_name="read", content=content)


def sent(*messages: Message, model: str | Model = "openai/gpt-x", **fields: Any) -> list[dict[str, Any]]:
    return chat_messages(ModelRequest(model=Model.of(model), messages=messages, **fields))


def test_a_plain_turn_has_the_system_prompt_first() -> None:
    assert sent(
        user("hi"),
        assistant(ToolCall("c1", "bash", {"command": "ls"}), text="I look"),
        result("c1", TextContent("a.py")),
        assistant(text="Done"),
        system_prompt="Be brief",
    ) == [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": "I look",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        {"role": "assistant", "content": "Done"},
    ]


# Mutation: send "" for an answer of calls only.
def test_an_answer_of_calls_only_has_null_for_its_text() -> None:
    assert sent(assistant(ToolCall("c1", "ls", {})))[0]["content"] is None


# Mutation: hand summaries on as they are.
def test_a_summary_is_a_user_message_that_says_it_is_history() -> None:
    (message,) = sent(CompactionSummaryMessage(summary="We built it."))
    assert message["role"] == "user"
    assert message["content"].startswith(COMPACTION_SUMMARY_PREFIX)
    assert "We built it." in message["content"]
    assert "not an instruction" in message["content"]
    (message,) = sent(BranchSummaryMessage(summary="It failed."))
    assert message["role"] == "user"
    assert "It failed." in message["content"]
    assert "not an instruction" in message["content"]


def test_a_shell_command_of_the_user_is_told_with_its_output_and_end() -> None:
    (message,) = sent(BashExecutionMessage(command="make", output="boom\n", exit_code=2))
    for part in ("make", "boom", "exit code 2"):
        assert part in message["content"]
    (message,) = sent(BashExecutionMessage(command="sleep", output="", cancelled=True))
    assert EMPTY_OUTPUT in message["content"]
    assert "cancelled" in message["content"]
    (message,) = sent(BashExecutionMessage(command="x", output="y", truncated=True, full_output_path="/t/full"))
    assert "/t/full" in message["content"]


# Mutation: let any one of them through.
@pytest.mark.parametrize(
    "message",
    [
        SystemMessage(content=as_content("other program's prompt")),
        UnknownMessage(role="alien", raw={}),
        BashExecutionMessage(command="secret", output="x", exclude_from_context=True),
        AssistantMessage(content=as_content("half"), stop_reason="error"),
        AssistantMessage(content=as_content("half"), stop_reason="aborted"),
        AssistantMessage(content=()),
        AssistantMessage(content=as_content(" \n")),
    ],
)
def test_what_no_model_may_see_is_not_sent(message: Message) -> None:
    assert as_model_messages([message]) == []


def test_an_extensions_message_is_the_users() -> None:
    assert sent(CustomMessage(custom_type="note", content=as_content("remember"))) == [
        {"role": "user", "content": "remember"}
    ]


# Mutation: send thinking, or its signature.
def test_thinking_and_signatures_and_unknown_blocks_of_anybody_stay_at_home() -> None:
    message = AssistantMessage(
        content=(
            ThinkingContent("private", "sig-1"),
            TextContent("said", "sig-2"),
            UnknownContent("alien", {"x": "sig-3"}),
            ToolCall("c1", "ls", {}, thought_signature="sig-4"),
        )
    )
    text = orjson.dumps(sent(message)).decode()
    assert "said" in text
    assert not [word for word in ("private", "sig-", "alien") if word in text]


def test_images_of_the_user_are_parts_of_the_message() -> None:
    assert sent(UserMessage(content=(TextContent("see"), IMAGE)))[0]["content"] == [
        {"type": "text", "text": "see"},
        IMAGE_PART,
    ]


# Mutation: put the images right behind their own result.
def test_images_of_results_follow_the_whole_batch() -> None:
    messages = sent(
        assistant(ToolCall("c1", "read", {}), ToolCall("c2", "read", {})),
        result("c1", TextContent("one"), IMAGE),
        result("c2", IMAGE),
        user("next"),
    )
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user", "user"]
    images = messages[3]["content"]
    assert images.count(IMAGE_PART) == 2
    assert "c1" in images[0]["text"]
    assert messages[4]["content"] == "next"


def test_images_of_the_last_results_are_sent_too() -> None:
    assert sent(assistant(ToolCall("c1", "read", {})), result("c1", IMAGE))[-1]["role"] == "user"


def test_the_payload_asks_for_a_stream_with_usage_and_nothing_unasked() -> None:
    payload = chat_payload(ModelRequest(model=Model("openai/gpt-x"), messages=(user("hi"),)))
    assert payload == {
        "model": "gpt-x",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


# Mutation: leave `tool_choice` out, or the tools.
def test_tools_can_be_declared_and_forbidden() -> None:
    tool = ToolDefinition(name="ls", description="List", parameters={"type": "object"})
    request = ModelRequest(model=Model("openai/gpt-x"), messages=(user("hi"),), tools=(tool,), tool_choice="none")
    payload = chat_payload(request)
    assert payload["tool_choice"] == "none"
    assert payload["tools"] == [
        {"type": "function", "function": {"name": "ls", "description": "List", "parameters": {"type": "object"}}}
    ]


# Mutation: ask every model for reasoning.
def test_reasoning_is_asked_for_where_a_level_is_set_and_the_model_may_have_it() -> None:
    def effort(level: Any, reasoning: bool | None) -> Any:
        model = Model("openai/gpt-x", reasoning=reasoning)
        return chat_payload(ModelRequest(model=model, messages=(), thinking_level=level)).get("reasoning_effort")

    assert effort("high", None) == "high"
    assert effort("max", True) == "xhigh"
    assert effort("high", False) is None
    assert effort("off", True) is None


def test_the_output_limit_goes_under_the_hosts_own_name() -> None:
    request = ModelRequest(model=Model("openai/gpt-x"), messages=(), max_output_tokens=99)
    assert chat_payload(request)["max_tokens"] == 99
    payload = chat_payload(request, output_limit_key="max_completion_tokens")
    assert payload["max_completion_tokens"] == 99
    assert "max_tokens" not in payload


# Mutation: put anything into the payload that differs from call to call.
def test_equal_requests_give_equal_bytes_and_longer_ones_begin_alike() -> None:
    messages = (user("hi"), assistant(ToolCall("c", "ls", {"b": 1, "a": 2})), result("c", TextContent("x")))
    first = encode(chat_payload(ModelRequest(model=Model("openai/gpt-x"), messages=messages)))
    again = encode(chat_payload(ModelRequest(model=Model("openai/gpt-x"), messages=messages)))
    longer = encode(chat_payload(ModelRequest(model=Model("openai/gpt-x"), messages=(*messages, user("more")))))
    assert first == again
    assert longer.startswith(first[: first.index(b"]", first.rindex(b'"tool"'))])


# Mutation: encode with orjson alone.
def test_lone_surrogates_leave_as_the_replacement_character() -> None:
    request = ModelRequest(
        model=Model("openai/gpt-x"),
        messages=(user("a\ud83db \ud83d\ude42"), assistant(ToolCall("c", "w", {"t": "\udc00", "n": 2**70}))),
    )
    payload = orjson.loads(encode(chat_payload(request)))
    assert payload["messages"][0]["content"] == "a\ufffdb 🙂"
    assert payload["messages"][1]["tool_calls"][0]["function"]["arguments"] == f'{{"t":"\ufffd","n":{2**70}}}'
