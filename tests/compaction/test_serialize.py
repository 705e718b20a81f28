"""Dropped history as text: everything a summary needs, nothing that could be mistaken for more than data."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from agent_session.compaction.serialize import conversation_text
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CustomMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

NONCE = "5f3c9a"


def user(text: str) -> UserMessage:
    return UserMessage(content=(TextContent(text),))


def result(text: str, *, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(tool_call_id="c1", tool_name="read", content=(TextContent(text),), is_error=is_error)


# Mutation: leave out any role.
def test_every_role_is_named_and_in_order():
    text = conversation_text(
        [
            user("fix the parser"),
            AssistantMessage(content=(TextContent("looking"), ToolCall("c1", "read", {"path": "parser.py"}))),
            result("def parse(): ..."),
            result("no such file", is_error=True),
            BashExecutionMessage(command="pytest", output="1 failed", exit_code=1),
            CustomMessage(custom_type="lint", content=(TextContent("two warnings"),)),
            BranchSummaryMessage(summary="tried a regex"),
        ],
        nonce=NONCE,
    )
    assert text == (
        "<conversation-5f3c9a>\n"
        "[User]\nfix the parser\n\n"
        "[Assistant]\nlooking\n\n"
        '[Assistant called read]\n{"path": "parser.py"}\n\n'
        "[Result of read]\ndef parse(): ...\n\n"
        "[Error from read]\nno such file\n\n"
        "[User ran a command]\npytest\n\n"
        "[Its output, exit code 1]\n1 failed\n\n"
        "[Message from lint]\ntwo warnings\n\n"
        "[Summary of another attempt]\ntried a regex\n"
        "</conversation-5f3c9a>"
    )


# Mutation: include thinking, signatures, an image's data, or what the user excluded.
def test_thinking_signatures_images_and_excluded_output_are_left_out():
    text = conversation_text(
        [
            AssistantMessage(content=(ThinkingContent("SECRET thought", "SECRETsig"), TextContent("ok", "SECRETtext"))),
            UserMessage(content=(TextContent("see"), ImageContent("SECRETdata" * 1_000, "image/png"))),
            BashExecutionMessage(command="SECRET", output="SECRET", exclude_from_context=True),
            SystemMessage(content=(TextContent("SECRET"),)),
        ],
        nonce=NONCE,
    )
    assert "SECRET" not in text
    assert "[image, image/png]" in text
    assert len(text) < 200


# Mutation: keep the head only; or shorten by another number.
def test_long_results_and_arguments_are_head_and_tail():
    long = "HEAD" + "x" * 50_000 + "TAIL"
    call = AssistantMessage(content=(ToolCall("c1", "write", {"content": long}),))
    shell = BashExecutionMessage(command="make", output=long)
    for message in (result(long), call, shell):
        text = conversation_text([message], nonce=NONCE)
        assert "HEAD" in text
        assert "TAIL" in text
        assert 2_000 < len(text) < 2_300
    assert "characters left out" in conversation_text([result(long)], nonce=NONCE, tool_result_chars=100)
    assert len(conversation_text([result(long)], nonce=NONCE, tool_result_chars=100)) < 300
    assert long in conversation_text([user(long)], nonce=NONCE)


# Mutation: write the nonce inside as it is.
@given(
    st.lists(
        st.sampled_from(
            [
                NONCE,
                f"</conversation-{NONCE}>",
                "</conversation-",
                "<conversation-",
                ">",
                "\n",
                "text",
                "</conversation>",
            ]
        )
    )
)
def test_nothing_inside_can_close_the_delimiters(pieces):
    inside = "".join(pieces)
    text = conversation_text([user(inside), result(inside)], nonce=NONCE)
    assert re.findall(r"</?conversation-5f3c9a>", text) == ["<conversation-5f3c9a>", "</conversation-5f3c9a>"]
    assert text.startswith("<conversation-5f3c9a>\n")
    assert text.endswith("\n</conversation-5f3c9a>")


# Mutation: leave lone surrogates in.
@given(st.text(alphabet=st.characters(categories=["Cs", "Lu", "So"]), max_size=50))
def test_the_text_can_always_be_encoded(text):
    call = AssistantMessage(content=(ToolCall("c1", "write", {"content": text}),))
    conversation_text([user(text), call, result(text)], nonce=NONCE, tool_result_chars=7).encode()
