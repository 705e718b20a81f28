"""What one model is sent of a context that may hold anything: always in order, and changed as little as possible."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_session.llm.anthropic_payload import messages_payload
from agent_session.llm.client import ModelRequest, ToolDefinition
from agent_session.llm.convert import chat_payload
from agent_session.llm.handover import (
    BEGINNING,
    CONTINUE,
    EMPTY_MESSAGE,
    EMPTY_OUTPUT,
    UNNAMED_TOOL,
    hand_over,
)
from agent_session.llm.image_limits import NOT_READABLE, NOT_SEEN, TOO_LARGE, TOO_MANY
from agent_session.llm.litellm_payload import litellm_payload
from agent_session.llm.payload import encode
from agent_session.models import Model
from agent_session.testing import chat_fault, context_faults, messages_fault
from agent_session.testing.messages_wire import signature_of
from session_store.context import NO_RESULT_TEXT
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    Content,
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
from tests.pictures import gif, jpeg, png

CHAT = ("openai-completions", Model("openai/scripted"))
ANTHROPIC = ("anthropic-messages", Model("anthropic/claude-sonnet-4-5"))
LITELLM = ("litellm", Model("gemini/gemini-3-pro"))
TARGETS = [CHAT, ANTHROPIC, LITELLM]
READ = ToolDefinition(name="read", description="Read.", parameters={"type": "object"})
LONG_ID = "call_abc|fc_" + "0" * 400


def user(*content: Content | str) -> UserMessage:
    return UserMessage(content=tuple(TextContent(block) if isinstance(block, str) else block for block in content))


def own(*content: Content, target: tuple[str, Model] = CHAT, **fields: Any) -> AssistantMessage:
    api, model = target
    return AssistantMessage(content=content, api=api, provider=model.provider, model=model.name, **fields)


def foreign(*content: Content) -> AssistantMessage:
    return AssistantMessage(content=content, api="other", provider="other", model="other")


def result(call_id: str, *content: Content, is_error: bool = False) -> ToolResultMessage:
    return ToolResultMessage(
        tool_call_id=call_id, tool_name="read", content=content or as_content("done"), is_error=is_error
    )


def image(data: bytes, mime_type: str = "image/png") -> ImageContent:
    return ImageContent(base64.b64encode(data).decode(), mime_type)


def handed(*messages: Message, target: tuple[str, Model] = CHAT, **fields: Any) -> list[Message]:
    api, model = target
    return list(hand_over(messages, model=model, api=api, **fields))


def blocks(message: Message) -> tuple[Content, ...]:
    assert isinstance(message, (UserMessage, AssistantMessage, ToolResultMessage, CustomMessage))
    return message.content


def ids(messages: Sequence[Message]) -> list[str]:
    """Of each call and each result, in order."""
    found: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            found += [call.id for call in message.tool_calls]
        elif isinstance(message, ToolResultMessage):
            found.append(message.tool_call_id)
    return found


# Who speaks ----------------------------------------------------------------------------------------


def test_what_is_in_order_goes_on_as_the_same_objects() -> None:
    # Mutation: rebuild any message.
    messages: list[Message] = [
        CompactionSummaryMessage(summary="We began."),
        user("look"),
        own(TextContent("I look"), ToolCall("c1", "read", {})),
        result("c1", TextContent("seen"), image(png())),
        own(TextContent("done", "text-signature")),
        BashExecutionMessage(command="ls", output="a"),
    ]
    assert all(before is after for before, after in zip(messages, handed(*messages), strict=True))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[0])
def test_the_user_speaks_first_last_and_between_two_answers(target: tuple[str, Model]) -> None:
    # Mutation: leave out any of the three.
    answer = own(TextContent("a"), target=target)
    said = handed(answer, answer, target=target)
    assert [getattr(message, "text", "") for message in said] == [BEGINNING, "a", CONTINUE, "a", CONTINUE]
    assert [type(message) for message in said[::2]] == [UserMessage] * 3


def test_a_request_of_nothing_says_something() -> None:
    # Mutation: send an empty list.
    assert [getattr(message, "text", "") for message in handed(SystemMessage(content=as_content("x")))] == [CONTINUE]


def test_an_answer_with_calls_is_followed_by_its_results_and_nothing_else() -> None:
    # Mutation: look at the answers only, not at the results between them.
    said = handed(user("go"), own(ToolCall("c1", "read", {})), result("c1"), own(TextContent("b")), user("on"))
    assert [type(message) for message in said] == [
        UserMessage,
        AssistantMessage,
        ToolResultMessage,
        AssistantMessage,
        UserMessage,
    ]


def test_calls_and_results_that_a_handler_parted_are_put_together_again() -> None:
    # Mutation: hand the messages on unpaired.
    said = handed(result("gone"), user("go"), own(ToolCall("c1", "read", {})), user("on"))
    assert ids(said) == ["c1", "c1"]
    assert blocks(said[2]) == as_content(NO_RESULT_TEXT)


# Answers -------------------------------------------------------------------------------------------

SIGNED = ThinkingContent("hm", "sig")
REDACTED = ThinkingContent("", "opaque", redacted=True)
CALL = ToolCall("c1", "read", {}, thought_signature="thought")


@pytest.mark.parametrize("change", [{"api": "litellm"}, {"provider": "elsewhere"}, {"model": "claude-opus-4-5"}])
def test_another_models_thinking_leaves_whole_with_every_signature(change: dict[str, str]) -> None:
    # Mutation: in `is_own` compare any two of the three; take the signature off and keep the thinking.
    api, model = ANTHROPIC
    fields: dict[str, Any] = {"api": api, "provider": model.provider, "model": model.name, **change}
    answer = AssistantMessage(content=(SIGNED, REDACTED, TextContent("So", "text-signature"), CALL), **fields)
    said = handed(user("go"), answer, result("c1"), target=ANTHROPIC)
    assert blocks(said[1]) == (TextContent("So"), ToolCall("c1", "read", {}))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[0])
def test_the_same_models_answer_keeps_all_of_it(target: tuple[str, Model]) -> None:
    # Mutation: treat every answer like another model's.
    answer = own(SIGNED, REDACTED, TextContent("So", "text-signature"), CALL, target=target)
    assert handed(user("go"), answer, result("c1"), target=target)[1] is answer


@pytest.mark.parametrize(
    "content",
    [
        (SIGNED, ThinkingContent("unsigned"), TextContent("So")),
        (TextContent("So"), SIGNED, CALL),
        (SIGNED, TextContent("So"), SIGNED),
        (SIGNED, TextContent("So"), SIGNED, TextContent("  ")),
        (SIGNED, TextContent("So"), SIGNED, UnknownContent("alien", {})),
    ],
    ids=["signed in part", "begun with text", "ended with thinking", "and a blank behind it", "and an unknown block"],
)
def test_signed_thinking_goes_back_whole_or_not_at_all(content: tuple[Content, ...]) -> None:
    # Mutation: drop only the block that is in the way; judge before what is never sent is left out.
    said = handed(user("go"), own(*content, target=ANTHROPIC), result("c1"), user("on"), target=ANTHROPIC)
    assert not [block for block in blocks(said[1]) if isinstance(block, ThinkingContent)]
    assert [block.text for block in blocks(said[1]) if isinstance(block, TextContent)] == ["So"]


def test_thinking_that_nobody_signs_is_left_to_its_client() -> None:
    # Mutation: drop all thinking that has no signature.
    answer = own(ThinkingContent("hm"), TextContent("So"))
    assert handed(user("go"), answer, user("on"))[1] is answer


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target[0])
@pytest.mark.parametrize("thought", [SIGNED, ThinkingContent("hm")])
def test_an_answer_that_only_thought_leaves(target: tuple[str, Model], thought: Content) -> None:
    # Mutation: let thinking count as something said.
    said = handed(user("go"), own(thought, TextContent(" "), target=target), user("on"), target=target)
    assert said == [user("go"), user("on")]


def test_a_name_that_no_tool_may_have_is_made_one_that_it_may() -> None:
    # Mutation: send names as they are.
    names = ["functions.read", "", "x" * 80]
    calls = [ToolCall(f"c{number}", name, {}) for number, name in enumerate(names)]
    said = handed(user("go"), own(*calls))
    answer = said[1]
    assert isinstance(answer, AssistantMessage)
    assert [call.name for call in answer.tool_calls] == ["functions_read", UNNAMED_TOOL, "x" * 64]


# Ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "call_id", "is_taken"),
    [
        (CHAT, "call_1", True),
        (CHAT, "x" * 40, True),
        (CHAT, "x" * 41, False),
        (CHAT, "functions.read:0", False),
        (CHAT, "", False),
        (ANTHROPIC, "x" * 64, True),
        (ANTHROPIC, "x" * 65, False),
        (ANTHROPIC, "a|b", False),
        (LITELLM, LONG_ID, False),
        (("openai-completions", Model("mistral/large")), "call_1", False),
        (("openai-completions", Model("mistral/large")), "Ab3456789", True),
    ],
)
def test_ids_of_another_model_are_replaced_where_they_would_be_refused(
    target: tuple[str, Model], call_id: str, is_taken: bool
) -> None:
    # Mutation: map only the calls, or only the results; take one length for all.
    said = handed(user("go"), foreign(ToolCall(call_id, "read", {})), result(call_id), target=target)
    of_call, of_result = ids(said)
    assert of_call == of_result
    assert (of_call == call_id) is is_taken
    assert context_faults(said, model=target[1], api=target[0]) == []


def test_a_replaced_id_is_call_and_24_hex_of_the_sha256_of_it() -> None:
    # Mutation: any other digest.
    said = handed(user("go"), foreign(ToolCall("a|b", "read", {})), result("a|b"))
    assert ids(said) == ["call_0eab8a0a3380abf4c7d1fb0b"] * 2


def test_the_models_own_ids_stay_whatever_they_are_but_for_none_at_all() -> None:
    # Mutation: judge them like others: some models know their calls by them; keep an empty one.
    said = handed(user("go"), own(ToolCall("functions.read:0", "read", {})), result("functions.read:0"))
    assert ids(said) == ["functions.read:0"] * 2
    of_call, of_result = ids(handed(user("go"), own(ToolCall("", "read", {})), result("")))
    assert of_call == of_result
    assert of_call.startswith("call_")


def test_an_id_that_is_used_again_is_told_apart_and_each_result_goes_with_its_call() -> None:
    # Mutation: let an id be used twice; match results by id alone.
    messages: list[Message] = [
        user("go"),
        own(ToolCall("c0", "read", {}), ToolCall("c0", "read", {})),
        result("c0", TextContent("one")),
        result("c0", TextContent("two")),
        own(ToolCall("c0", "read", {})),
        result("c0", TextContent("three")),
    ]
    said = handed(*messages)
    first, second, *results, third, last = ids(said)
    assert len({first, second, third}) == 3
    assert (first, results, last) == ("c0", [first, second], third)
    assert [blocks(message) for message in said[2:4]] == [as_content("one"), as_content("two")]
    # Mutation: number the uses from the end.
    longer = handed(*messages, own(ToolCall("c0", "read", {})), result("c0"))
    assert longer[: len(said)] == said


# Empty, and without tools --------------------------------------------------------------------------


@pytest.mark.parametrize("content", [(), ("",), (" \n",), (UnknownContent("audio", {}),)])
def test_a_message_of_nothing_says_so(content: tuple[Content | str, ...]) -> None:
    # Mutation: send it as it is.
    said = handed(user(*content), own(CALL), result("c1", *user(*content).content, TextContent("")))
    assert blocks(said[0]) == as_content(EMPTY_MESSAGE)
    assert blocks(said[2]) == as_content(EMPTY_OUTPUT)


def test_blank_text_beside_an_image_is_not_sent() -> None:
    # Mutation: send blank text.
    (message,) = handed(user("", image(png()), " "))
    assert blocks(message) == (image(png()),)


def test_without_a_tool_calls_and_results_go_as_text() -> None:
    # Mutation: send them as they are; keep the thinking of an answer that is changed so.
    said = handed(
        user("go"),
        own(SIGNED, TextContent("I look"), ToolCall("c1", "read", {"path": "a"}), target=ANTHROPIC),
        result("c1", TextContent("no such file"), image(png()), is_error=True),
        target=ANTHROPIC,
        declares_tools=False,
    )
    assert [type(message) for message in said] == [UserMessage, AssistantMessage, UserMessage]
    assert blocks(said[1]) == (TextContent("I look"), TextContent('[called read with {"path":"a"}]'))
    assert blocks(said[2]) == (TextContent("[error of read]"), TextContent("no such file"), image(png()))


# Images --------------------------------------------------------------------------------------------


def notes(*messages: Message, target: tuple[str, Model] = CHAT) -> list[str]:
    """For each block of the first message: its text, or its type where it is an image."""
    (message,) = handed(*messages, target=target)
    return [block.text if isinstance(block, TextContent) else "image" for block in blocks(message)]


def test_a_model_without_eyes_gets_a_note() -> None:
    # Mutation: send images whatever the model takes.
    blind = Model("openai/gpt-x", images=False)
    said = handed(user(image(png())), own(CALL), result("c1", image(png())), target=(CHAT[0], blind))
    assert blocks(said[0]) == blocks(said[2]) == as_content(NOT_SEEN)


@pytest.mark.parametrize(
    ("picture", "target", "expected"),
    [
        (image(png(8_000, 9)), ANTHROPIC, "image"),
        (image(png(8_001, 9)), ANTHROPIC, TOO_LARGE),
        (image(jpeg(9, 8_001), "image/jpeg"), ANTHROPIC, TOO_LARGE),
        (image(png(8_001, 9)), CHAT, "image"),
        (image(png() + bytes(4_000_000)), ANTHROPIC, TOO_LARGE),
        (image(png() + bytes(4_000_000)), CHAT, "image"),
        (ImageContent("not base64!", "image/png"), CHAT, NOT_READABLE),
        (ImageContent("data:image/png;base64,aGk=", "image/png"), CHAT, NOT_READABLE),
        (ImageContent("", "image/png"), CHAT, NOT_READABLE),
        (image(png()[:12]), CHAT, NOT_READABLE),
        (image(b"\0\0\0\x18ftypheic", "image/heic"), CHAT, "image"),
        (image(b"\0\0\0\x18ftypheic", "image/heic"), ANTHROPIC, NOT_READABLE),
    ],
)
def test_an_image_that_would_be_refused_stays_behind_with_a_note(
    picture: ImageContent, target: tuple[str, Model], expected: str
) -> None:
    # Mutation: any of the limits left out.
    assert notes(user(picture), target=target) == [expected]


def test_an_image_goes_under_the_type_that_its_bytes_say() -> None:
    # Mutation: send the type as it was recorded: the provider compares.
    (message,) = handed(user(image(jpeg(), "image/png")))
    assert blocks(message) == (image(jpeg(), "image/jpeg"),)


def test_the_size_is_read_behind_a_long_header_too() -> None:
    # Mutation: read no further than the head.
    padding = b"\xff\xe1\xff\xff" + bytes(0xFFFD)
    large = image(b"\xff\xd8" + padding + jpeg(9_000, 9)[2:], "image/jpeg")
    assert notes(user(large), target=ANTHROPIC) == [TOO_LARGE]


@pytest.mark.parametrize(
    ("target", "count", "kept"),
    [
        (("openai-completions", Model("groq/llama-4")), 5, 5),
        (("openai-completions", Model("groq/llama-4")), 6, 5),
        (("openai-completions", Model("mistral/pixtral")), 9, 7),
        (ANTHROPIC, 100, 100),
        (ANTHROPIC, 101, 76),
        (ANTHROPIC, 125, 100),
        (("anthropic-messages", Model("anthropic/claude-opus-4-6", context_window=1_000_000)), 101, 101),
        (("litellm", Model("bedrock/anthropic.claude-sonnet-4")), 101, 76),
    ],
)
def test_of_too_many_images_the_oldest_stay_behind(target: tuple[str, Model], count: int, kept: int) -> None:
    # Mutation: leave out the newest; leave out one at a time.
    assert notes(user(*[image(gif())] * count), target=target) == [TOO_MANY] * (count - kept) + ["image"] * kept


def test_in_a_crowd_that_holds_a_large_image_fewer_are_sent() -> None:
    # Mutation: count the crowd without looking at sides.
    large, small = image(png(2_001, 9)), image(png(2_000, 9))
    assert notes(user(*[small] * 30), target=ANTHROPIC).count("image") == 30
    assert notes(user(*[small] * 19, large), target=ANTHROPIC).count("image") == 20
    assert notes(user(*[small] * 20, large), target=ANTHROPIC) == [TOO_MANY] * 5 + ["image"] * 16


def test_images_that_are_too_large_together_leave_from_the_front_a_few_at_a_time() -> None:
    # Mutation: count images instead of what they weigh; leave out exactly as many as needed.
    one = image(png() + bytes(3_000_000))  # 4 MB as base64, of 28
    shown = [notes(user(*[one] * count), target=ANTHROPIC).count("image") for count in range(6, 12)]
    assert shown == [6, 5, 6, 5, 6, 5]


# Anything at all -----------------------------------------------------------------------------------

FOREIGN_MARK = "of-another"
TEXTS = st.sampled_from(["", " \n", "text", "half \ud83d", "日本語"])
CALL_IDS = st.sampled_from(["c1", "c2", "", "x" * 50, "functions.read:0", LONG_ID])
OWN_IDS = st.sampled_from(["c1", "c2", "c3"])
NAMES = st.sampled_from(["read", "read", "bad name!", "", "n" * 90])
IMAGES = st.sampled_from(
    [
        image(png()),
        image(png(2_500, 9)),
        image(png(9_000, 9)),
        image(jpeg(), "image/png"),
        image(png()[:14]),
        ImageContent("%", "image/png"),
        ImageContent("aGk=", "image/bmp"),
    ]
)
SPOKEN: st.SearchStrategy[tuple[Content, ...]] = st.lists(
    st.one_of(st.builds(TextContent, TEXTS), IMAGES, st.just(UnknownContent("alien", {}))), max_size=4
).map(tuple)
STOPS = st.sampled_from(["stop", "stop", "toolUse", "error", "aborted", "length"])


def _thinking(is_own: bool) -> st.SearchStrategy[ThinkingContent]:
    def signed(text: str) -> ThinkingContent:
        return ThinkingContent(text, signature_of(text) if is_own else FOREIGN_MARK)

    thoughts = st.sampled_from(["", "hm", "日本語"])
    return st.one_of(
        thoughts.map(signed), TEXTS.map(ThinkingContent), st.just(ThinkingContent("", "opaque", redacted=True))
    )


def _answers(target: tuple[str, Model]) -> st.SearchStrategy[Message]:
    def content(is_own: bool) -> st.SearchStrategy[tuple[Content, ...]]:
        mark = None if is_own else FOREIGN_MARK
        calls = st.builds(
            lambda call_id, name: ToolCall(call_id, name, {"n": 1}, thought_signature=mark),
            OWN_IDS if is_own else CALL_IDS,
            NAMES,
        )
        spoken = st.builds(lambda text: TextContent(text, mark), TEXTS)
        unknown = st.just(UnknownContent("alien", {}))
        return st.lists(st.one_of(_thinking(is_own), spoken, calls, unknown), max_size=4).map(tuple)

    return st.one_of(
        st.builds(lambda c, stop: own(*c, target=target, stop_reason=stop), content(True), STOPS),
        st.builds(lambda c: foreign(*c), content(False)),
    )


def _messages(target: tuple[str, Model]) -> st.SearchStrategy[list[Message]]:
    return st.lists(
        st.one_of(
            _answers(target),
            _answers(target),
            st.builds(lambda c: UserMessage(content=c), SPOKEN),
            st.builds(lambda c: CustomMessage(custom_type="x", content=c), SPOKEN),
            st.builds(lambda i, c, e: result(i, *c, is_error=e), st.one_of(OWN_IDS, CALL_IDS), SPOKEN, st.booleans()),
            st.builds(lambda e: BashExecutionMessage(command="ls", output="", exclude_from_context=e), st.booleans()),
            st.sampled_from(
                [
                    SystemMessage(content=()),
                    UnknownMessage(role="alien", raw={}),
                    CompactionSummaryMessage(summary=""),
                    BranchSummaryMessage(summary=""),
                ]
            ),
        ),
        max_size=10,
    )


ANY_CONTEXT = st.sampled_from(TARGETS).flatmap(lambda target: st.tuples(st.just(target), _messages(target)))
LEVELS = st.sampled_from(["off", "low"])


@given(ANY_CONTEXT, st.booleans(), st.booleans(), LEVELS)
def test_whatever_the_context_is_the_request_is_in_order(
    context: tuple[tuple[str, Model], list[Message]], declares_tools: bool, is_blind: bool, level: Any
) -> None:
    # Mutation: any of those above; in `anthropic_payload` send thinking where none is asked for.
    (api, model), messages = context
    if is_blind:
        model = Model(model.id, images=False)
    said = hand_over(messages, model=model, api=api, declares_tools=declares_tools)
    assert context_faults(said, model=model, api=api, declares_tools=declares_tools) == []
    assert hand_over(said, model=model, api=api, declares_tools=declares_tools) == said
    request = ModelRequest(
        model=model,
        messages=said,
        tools=[READ] if declares_tools else (),
        thinking_level=level,
        max_output_tokens=8_000,
    )
    if api == "anthropic-messages":
        payload = messages_payload(request)
        assert messages_fault(payload, is_signed=lambda text, signature: signature == signature_of(text)) is None
    else:
        payload = chat_payload(request) if api == "openai-completions" else litellm_payload(request)
        assert chat_fault(payload) is None
    body = encode(payload)
    assert FOREIGN_MARK.encode() not in body
    body.decode()


@given(ANY_CONTEXT)
def test_a_longer_context_begins_as_the_shorter_one_did(context: tuple[tuple[str, Model], list[Message]]) -> None:
    # Mutation: let what comes later decide how earlier messages look.
    (api, model), messages = context
    messages = [message for message in messages if not isinstance(message, ToolResultMessage)]
    begun = hand_over([user("go"), *messages, user("next")], model=model, api=api)
    longer = hand_over([user("go"), *messages, user("next"), foreign(TextContent("a"))], model=model, api=api)
    assert longer[: len(begun)] == begun
