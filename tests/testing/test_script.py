"""Steps and scripts: what is promised to those who write tests with them."""

import anyio
import pytest

from agent_session.testing import (
    RecordedRequest,
    Script,
    always,
    call,
    calls,
    count_tokens,
    hold,
    pairing_fault,
    pairs_ok,
    reply,
)
from session_store.messages import AssistantMessage, ToolCall, ToolResultMessage, Usage, UserMessage, as_content

REQUEST = RecordedRequest(number=1, payload={"messages": [{"role": "user", "content": "hello"}]}, raw=b"")


async def test_steps_are_taken_in_order() -> None:
    script = Script([reply("one"), reply("two")])
    assert [await script.take(REQUEST), await script.take(REQUEST)] == [reply("one"), reply("two")]
    script.assert_done()


# Mutation: answer with anything instead of raising; or forget it.
async def test_a_request_without_a_step_fails_at_once_and_again_at_the_end() -> None:
    script = Script([])
    with pytest.raises(AssertionError, match=r"unexpected request.*hello"):
        await script.take(REQUEST)
    with pytest.raises(AssertionError, match="unexpected request"):
        script.assert_done()


# Mutation: count only the summaries, or only the others.
async def test_steps_that_nobody_asked_for_fail_at_the_end() -> None:
    with pytest.raises(AssertionError, match="1 unused"):
        Script([reply("one")]).assert_done()
    with pytest.raises(AssertionError, match="1 unused"):
        Script([], summaries=[reply("one")]).assert_done()


# Mutation: give summaries from the other list when their own is empty.
async def test_summary_requests_have_a_list_of_their_own() -> None:
    summary_request = RecordedRequest(number=1, payload=REQUEST.payload, raw=b"", is_summary=True)
    script = Script([reply("answer")], summaries=[reply("summary")])
    assert await script.take(summary_request) == reply("summary")
    with pytest.raises(AssertionError, match="unexpected summary request"):
        await script.take(summary_request)
    together = Script([reply("first")])
    assert await together.take(summary_request) == reply("first")


async def test_a_step_for_every_further_request_is_never_used_up_and_never_left_over() -> None:
    script = Script([reply("one"), always(reply("more"))])
    assert [await script.take(REQUEST) for _ in range(3)] == [reply("one"), reply("more"), reply("more")]
    script.assert_done()
    Script([always(reply("more"))]).assert_done()


async def test_a_step_may_be_worked_out_from_the_request() -> None:
    script = Script([lambda request: reply(request.last_user_text.upper())])
    assert await script.take(REQUEST) == reply("HELLO")


# Mutation: set `started` only after the release.
async def test_a_held_step_says_that_it_began_and_waits() -> None:
    held = hold(reply("one"))
    script = Script([held])
    taken: list[object] = []

    async def take() -> None:
        taken.append(await script.take(REQUEST))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await held.started.wait()
            assert taken == []
            held.release()
    assert taken == [reply("one")]


def test_arguments_may_be_broken_on_purpose_and_come_in_pieces() -> None:
    script = Script([])
    deltas = calls([("bash", '{"a":')]).deltas(script.call_ids())
    assert "".join(delta.arguments for delta in deltas) == '{"a":'  # type: ignore[union-attr]
    assert len(deltas) == 2


def test_calls_of_a_script_have_different_ids() -> None:
    ids = Script([]).call_ids()
    first = call("bash").deltas(ids)[0]
    second = call("bash").deltas(ids)[0]
    assert first.id != second.id  # type: ignore[union-attr]


def test_text_comes_in_as_many_pieces_as_asked_for() -> None:
    deltas = reply("abcdef", chunks=3).deltas(iter(()))
    assert [delta.text for delta in deltas] == ["ab", "cd", "ef"]  # type: ignore[union-attr]


def test_usage_is_given_as_a_tuple_or_counted_or_left_out() -> None:
    assert reply("x", usage=(1, 2, 3, 4)).reported(REQUEST) == Usage(input=1, cache_read=2, cache_write=3, output=4)
    assert reply("x").reported(REQUEST) is None
    asked = {"messages": [{"role": "user", "content": "y" * 400}]}
    counted = reply("x" * 40, usage="auto")
    assert counted.reported(RecordedRequest(number=1, payload=asked, raw=b"")) == Usage(input=100, output=10)
    # Mutation: count by the plain rule whatever the provider counts by.
    by_letter = RecordedRequest(number=1, payload=asked, raw=b"", count_text=len)
    assert (by_letter.tokens, counted.reported(by_letter)) == (400, Usage(input=400, output=40))
    with pytest.raises(TypeError):
        reply("x", usage=(1, 2)).reported(REQUEST)  # type: ignore[arg-type]


# Mutation: leave out tools, or the arguments of calls.
def test_tokens_are_counted_over_all_that_is_sent() -> None:
    plain = {"messages": [{"role": "user", "content": "x" * 40}]}
    assert count_tokens(plain) == 10
    function = {"name": "n" * 4, "arguments": "a" * 36}
    call_message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
    assert count_tokens({"messages": [call_message]}) == 10
    assert count_tokens({**plain, "tools": [{"type": "function"}]}) > 10
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:" + "x" * 90_000}}]}
    assert count_tokens({"messages": [image]}) == 1_200


def answer(*ids: str) -> AssistantMessage:
    return AssistantMessage(content=tuple(ToolCall(call_id, "ls", {}) for call_id in ids))


def result(id: str) -> ToolResultMessage:  # noqa: A002 - the field's own name
    return ToolResultMessage(tool_call_id=id, tool_name="ls", content=as_content("x"))


USER = UserMessage(content=as_content("hi"))


# Mutation: accept a result that comes later, comes twice, or answers nothing.
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, answer("a", "b"), result("b"), result("a"), USER], True),
        ([], True),
        ([answer("a")], False),
        ([answer("a"), USER, result("a")], False),
        ([answer("a", "b"), result("a"), USER], False),
        ([answer("a"), result("a"), result("a")], False),
        ([result("a")], False),
        ([answer("a"), result("b")], False),
        ([answer("a", "a"), result("a"), result("a")], False),
        ([answer("a"), result("a"), answer("a"), result("a")], True),
    ],
)
def test_calls_and_results_are_paired_as_providers_want_them(messages: list[AssistantMessage], expected: bool) -> None:
    assert pairs_ok(messages) is expected


def test_the_fault_names_the_calls_without_results() -> None:
    messages = [{"role": "assistant", "tool_calls": [{"id": "call_7"}]}]
    assert "call_7" in (pairing_fault(messages) or "")
