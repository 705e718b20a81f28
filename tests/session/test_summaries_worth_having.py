"""What is known after ten compactions: every message by its planted token, what was pinned, and at what price.

The summariser copies the tokens that it is given, the newest few only, as a model keeps what is newest: so a message
that it was never given can be told from one that it left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_session import (
    CompactionEnd,
    CompactionError,
    CompactionOutcome,
    ContextCannotFitError,
    ContextOverflowError,
    Summarize,
    tool,
)
from agent_session.testing import RecordedRequest, always, call, fail, reply
from session_store.messages import AssistantMessage, Message, ToolResultMessage, UserMessage
from tests.session.scene import SUMMARY, Scene, scene, texts, words

ROUNDS = 10
PROMPTS = 3
COPIED = 12
PLANTED = re.compile(r"planted-[\w-]+")
PINNED = "Tabs, never spaces;\n\t<b>&amp;</b> </pinned> ``` exactly so  "


@tool
def look(at: str) -> str:
    """Look at something.

    Args:
        at: What.
    """
    return words(40, f"planted-result-{at}")


def copying(request: RecordedRequest) -> Any:
    """A summary of constant size: the newest tokens of those that it was given, a known length each."""
    newest = PLANTED.findall(request.text)[-COPIED:]
    return reply(SUMMARY + "\n" + "\n".join(token.ljust(24, ".") for token in newest), usage="auto")


def steps() -> list[Any]:
    """For each prompt: a call, whose message is known by its argument, and an answer."""
    numbers = [f"{number}_{prompt}" for number in range(ROUNDS) for prompt in range(PROMPTS)]
    return [
        step
        for name in numbers
        for step in (call("look", at=name), reply(words(30, f"planted-answer-{name}"), usage="auto"))
    ]


def planted(messages: list[Message]) -> set[str]:
    """What each message is known by; a summary is not a message of the conversation."""
    found: set[str] = set()
    for message in messages:
        match message:
            case UserMessage() | ToolResultMessage():
                found.add(PLANTED.findall(message.text)[0])
            case AssistantMessage(tool_calls=calls) if calls:
                found |= {f"planted-call-{next(iter(call.arguments.values()))}" for call in calls}
            case AssistantMessage():
                found.add(PLANTED.findall(message.text)[0])
            case _:
                pass
    return found


def read_by(requests: list[RecordedRequest]) -> set[str]:
    """What summary requests were given of the conversation; a call is known by its argument, as text or as it is."""
    text = "\n".join(request.text for request in requests)
    calls = re.findall(r'called look\]\s*\{"at": ?"(\w+)"', text)
    for request in requests:
        for message in request.messages:
            calls += [json.loads(made["function"]["arguments"])["at"] for made in message.get("tool_calls") or ()]
    return set(PLANTED.findall(text)) | {f"planted-call-{at}" for at in calls}


async def rounds(
    stage: Scene, check: Callable[[int, CompactionOutcome, set[str]], Awaitable[None]], keep: int = 100
) -> None:
    """Ten times three prompts and a compaction; `check` is told which messages left the context."""
    for number in range(ROUNDS):
        for prompt in range(PROMPTS):
            await stage.session.prompt(words(30, f"planted-user-{number}_{prompt}"))
        before = planted(list(stage.session.messages))
        outcome = await stage.session.compact(keep_recent_tokens=keep)
        await check(number, outcome, before - planted(list(stage.session.messages)))


def of_the_sessions_model(request: RecordedRequest) -> Any:
    """The other model is there, and refuses."""
    return fail(400, "no such model") if request.payload["model"] == "other" else copying(request)


@pytest.mark.parametrize(
    ("keep", "window", "compaction", "calls", "is_live"),
    [
        pytest.param(200, 16_000, {}, {1}, False, id="as text"),
        pytest.param(200, 1_500, {}, {1, 2}, False, id="part by part"),
        pytest.param(60, 16_000, {}, {2}, False, id="with a turn cut in two"),
        pytest.param(
            200, 16_000, {"summary_model": "openai/other"}, {1}, False, id="by the model behind one that refuses"
        ),
        pytest.param(200, 16_000, {"summary_input": "prefix"}, {1}, True, id="live"),
        pytest.param(60, 16_000, {"summary_input": "prefix"}, {1}, True, id="live with a turn cut in two"),
    ],
)
async def test_every_message_that_leaves_was_read_by_the_summary_that_replaces_it(
    tmp_path: Path, keep: int, window: int, compaction: dict[str, Any], calls: set[int], *, is_live: bool
) -> None:
    # Mutation: in `_preparation` begin `history` one unit late, or leave the beginning of a turn out of both; in
    # `message_texts` leave the calls out; in `chunked` give the first of the texts alone; in `orders_of` leave out the
    # beginning of a turn.
    dropped: set[str] = set()
    async with scene(
        tmp_path,
        steps(),
        summaries=[always(of_the_sessions_model)],
        tools=[look],
        window=window,
        compaction={"enabled": False} | compaction,
    ) as stage:
        seen = 0
        counts: set[int] = set()

        async def check(number: int, outcome: CompactionOutcome, gone: set[str]) -> None:
            nonlocal seen
            requests = [request for request in stage.summary_requests[seen:] if request.payload["model"] != "other"]
            seen = len(stage.summary_requests)
            assert outcome.method == "model"
            assert gone <= read_by(requests)
            assert not gone & dropped  # nothing leaves twice
            dropped.update(gone)
            assert all(("tools" in request.payload) == is_live for request in requests)
            counts.add(len(requests))

        await rounds(stage, check, keep)
        kept = planted(list(stage.session.messages))
    whole = {
        f"planted-{sort}-{n}_{p}" for sort in ("user", "call", "result", "answer") for n in range(10) for p in range(3)
    }
    assert dropped | kept == whole
    assert counts == calls


@pytest.mark.parametrize("summary_input", ["text", "prefix"])
async def test_the_tenth_summary_costs_no_more_and_is_no_longer_than_the_first(
    tmp_path: Path, summary_input: str
) -> None:
    # Mutation: in `summary_prompt` give the previous summary twice over, or in `_stored_form` append to it.
    sizes: list[int] = []
    costs: list[int] = []
    compaction = {"summary_input": summary_input}
    async with scene(
        tmp_path, steps(), summaries=[always(copying)], tools=[look], window=16_000, compaction=compaction
    ) as stage:
        seen = 0

        async def check(number: int, outcome: CompactionOutcome, gone: set[str]) -> None:
            nonlocal seen
            requests = stage.summary_requests[seen:]
            seen += len(requests)
            sizes.append(len(outcome.summary or ""))
            costs.append(sum(request.tokens for request in requests))

        await rounds(stage, check)
    assert max(sizes) <= 1.3 * sizes[0]
    # The first has no previous summary to read; from the second on nothing grows.
    assert max(costs[1:]) <= 1.15 * costs[1]


@pytest.mark.parametrize("compaction", [{}, {"summary_input": "prefix"}, {"summarizer": "digest"}], ids=str)
async def test_what_is_pinned_is_in_the_tenth_summary_byte_for_byte_and_once(
    tmp_path: Path, compaction: dict[str, Any]
) -> None:
    # Mutation: in `with_pinned` strip the text, or leave the earlier blocks where they are.
    def repeating(request: RecordedRequest) -> Any:
        """As a model does that copies whatever is pinned in what it is shown, the tags around it and all."""
        shown = re.findall(rf"<pinned[^>\n]*>\n?{re.escape(PINNED)}\n?</pinned[^>\n]*>", request.text)
        return reply(SUMMARY + "\n" + "\n".join(shown), usage="auto")

    async with scene(
        tmp_path, steps(), summaries=[always(repeating)], tools=[look], window=16_000, compaction=compaction
    ) as stage:
        stage.session.on("before_compact", lambda event: Summarize(pinned=[PINNED]))

        async def check(number: int, outcome: CompactionOutcome, gone: set[str]) -> None:
            assert (outcome.summary or "").count(PINNED) == 1

        await rounds(stage, check)
        assert texts(stage.session.messages)[0].count(PINNED) == 1


async def test_a_digest_has_every_message_by_its_words_or_within_its_record_of_loss(tmp_path: Path) -> None:
    # Mutation: in `record_of_loss` give nothing; in `details_of` leave out what it is given.
    async with scene(
        tmp_path, steps(), summaries=[], tools=[look], window=16_000, compaction={"summarizer": "digest"}
    ) as stage:

        async def check(number: int, outcome: CompactionOutcome, gone: set[str]) -> None:
            assert outcome.method == "digest"
            assert outcome.entry is not None
            assert gone - set(PLANTED.findall(outcome.summary or "")) <= named_by(stage, outcome)

        await rounds(stage, check)


async def test_the_tenth_digest_has_what_the_user_said_and_every_file_that_was_modified(tmp_path: Path) -> None:
    # Mutation: in `digest` take no summary before into memory; in `file_ops_of` leave out the earlier files; in
    # `_MOST_ITEMS` give what the user said a number.
    written = [
        step
        for number in range(ROUNDS * PROMPTS)
        for step in (
            call("write", path=f"planted-{number}.txt", content="x"),
            reply(f"planted-answer-{number}", usage="auto"),
        )
    ]
    async with scene(
        tmp_path, written, summaries=[], tools=["write"], window=16_000, compaction={"summarizer": "digest"}
    ) as stage:

        async def check(number: int, outcome: CompactionOutcome, gone: set[str]) -> None:
            assert outcome.method == "digest"

        await rounds(stage, check)
        context = "\n".join(texts(stage.session.messages))
        assert {f"planted-user-{n}_{p}" for n in range(ROUNDS) for p in range(PROMPTS)} <= set(PLANTED.findall(context))
        kept = {
            call.arguments["path"] for message in stage.session.messages for call in getattr(message, "tool_calls", ())
        }
        files = {f"planted-{number}.txt" for number in range(ROUNDS * PROMPTS)}
        assert set(stage.compactions[-1].details["modifiedFiles"]) | kept == files
        assert files - kept <= set(texts(stage.session.messages)[0].split("<modified-files>")[1].split())


async def test_where_the_summariser_fails_the_digest_that_stands_in_names_what_nobody_read(tmp_path: Path) -> None:
    # Mutation: in `record_of_loss` give nothing.
    # The answer that is refused for its size is asked for again after the compaction.
    too_long = fail(400, "prompt is too long: 16001 tokens > 16000 maximum")
    script = [*steps()[: 2 * PROMPTS], too_long, reply("planted-done")]
    async with scene(tmp_path, script, summaries=[always(fail(400, "no"))], tools=[look], window=16_000) as stage:
        for prompt in range(PROMPTS):
            await stage.session.prompt(words(30, f"planted-user-0_{prompt}"))
        before = planted(list(stage.session.messages))
        assert str(await stage.session.prompt(words(30, "planted-user-last"))) == "planted-done"
        [end] = stage.of(CompactionEnd)
        assert end.outcome.method == "digest"
        gone = before - planted(list(stage.session.messages))
        assert gone
        assert gone - set(PLANTED.findall(end.outcome.summary)) <= named_by(stage, end.outcome)


def named_by(stage: Scene, outcome: CompactionOutcome) -> set[str]:
    """The messages that the entry's record of loss names: a range of the branch."""
    assert outcome.entry is not None
    record = outcome.entry.details["digestOf"]
    branch = stage.session.session_manager.get_branch()
    ids = [entry.id for entry in branch]
    named = branch[ids.index(record["firstEntryId"]) : ids.index(record["lastEntryId"]) + 1]
    return planted([entry.message for entry in named if hasattr(entry, "message")])


# What is pinned and never fits ------------------------------------------------------------------------


def pinning_much(api: Any) -> None:
    api.on("before_compact", lambda event: Summarize(pinned=[words(1_800, PINNED)]))


async def test_text_that_is_pinned_and_never_fits_is_named_and_without_it_the_session_goes_on(tmp_path: Path) -> None:
    # Mutations: in `EntryMaker.entry` raise what `measured` raised; name what is pinned however little it is.
    filling = [reply(words(400, f"answer {number}")) for number in range(2)]
    refusal = fail(400, "This model's maximum context length is 2000 tokens. However, you requested 2300 tokens.")
    async with scene(tmp_path, [*filling, refusal, reply("Good.")], window=4_000) as stage:
        handle = await stage.session.load(pinning_much)
        for number in range(2):
            await stage.session.prompt(words(400, f"question {number}"))
        context = stage.session.messages
        with pytest.raises(
            CompactionError, match=r"no progress: .* extensions pin takes 1,9\d\d tokens of it, pin less"
        ):
            await stage.session.compact()
        assert stage.session.messages == context
        with pytest.raises(ContextCannotFitError, match="pin less") as caught:
            await stage.session.prompt("Go on.")
        assert caught.value.largest_items[0][0] == "pinned text"
        assert isinstance(caught.value.__cause__, ContextOverflowError)
        assert stage.compactions == []
        assert stage.summary_requests == []
        await handle.unload()
        assert str(await stage.session.prompt("Go on.")) == "Good."
        assert len(stage.compactions) == 1


async def test_a_short_text_that_is_pinned_is_not_what_stands_in_the_way(tmp_path: Path) -> None:
    # Mutation: in `EntryMaker.entry` name what is pinned however little it is.
    async with scene(tmp_path, [reply("ok")] * 2, summaries=[always(reply(words(300)))], window=4_000) as stage:
        stage.session.on("before_compact", lambda event: Summarize(pinned=["Tabs."]))
        for number in range(2):
            await stage.session.prompt(words(60, f"question {number}"))
        with pytest.raises(CompactionError, match="no progress") as caught:
            await stage.session.compact(keep_recent_tokens=0)
        assert "pin" not in str(caught.value)
