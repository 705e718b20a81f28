"""The digest: a summary that costs nothing, says what the user wanted, and never grows or stacks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_session.compaction.digest import digest
from agent_session.compaction.file_ops import with_current_request, with_file_lists, with_pinned
from agent_session.compaction.listing import item_of
from agent_session.compaction.prompts import join_split, summary_prompt
from agent_session.compaction.sections import PLACES, sections_of
from agent_session.compaction.text_tokens import estimate_text_tokens
from agent_session.compaction.types import FileOps
from session_store.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)

NO_FILES = FileOps()


def user(text: str) -> UserMessage:
    return UserMessage(content=(TextContent(text),))


def answer(text: str) -> AssistantMessage:
    return AssistantMessage(content=(TextContent(text),))


def used(
    tool: str, arguments: dict[str, object], output: str, *, is_error: bool = False, details: object = None
) -> list[Message]:
    return [
        AssistantMessage(content=(ToolCall("c1", tool, arguments),)),
        ToolResultMessage(
            tool_call_id="c1", tool_name=tool, content=(TextContent(output),), is_error=is_error, details=details
        ),
    ]


def ran(command: str, output: str, exit_code: int = 0) -> list[Message]:
    shown = f"{output}\n\n[exit code {exit_code}]"
    details = {"exitCode": exit_code}
    return used("bash", {"command": command}, shown, is_error=exit_code != 0, details=details)


def made(messages: list[Message], before: str | None = None, *, most: int = 2_000, files: FileOps = NO_FILES) -> str:
    return digest(messages, previous_summary=before, file_ops=files, most_tokens=most)


def said_in(text: str) -> list[str]:
    """What the digest lists of the user's words, item by item."""
    said = sections_of(text).get(("Goal", "What the user said"), "")
    return said.removeprefix("- ").split("\n- ")


WORK: list[Message] = [
    user("Fix the parser.\n\nIt must never touch the lock file."),
    *used("read", {"path": "parser.py"}, "def parse(): ..."),
    *used("read", {"path": "parsr.py"}, "no such file: parsr.py", is_error=True),
    answer("I look at the tests first."),
    *ran("pytest -q", "F....\n1 failed, 4 passed in 0.3s", 1),
    *used("edit", {"path": "parser.py"}, "done"),
    *ran("pytest -q", ".....\n5 passed in 0.3s"),
    BashExecutionMessage(command="git push", output="rejected\n", exit_code=128),
    BashExecutionMessage(command="sleep 100", output="", cancelled=True),
    BashExecutionMessage(command="cat .env", output="SECRET", exclude_from_context=True),
    CustomMessage(custom_type="lint", content=(TextContent("two warnings"),)),
    SystemMessage(content=(TextContent("SYSTEM"),)),
    BranchSummaryMessage(summary="## Goal\nA regex was tried."),
    UserMessage(content=(TextContent("Like this?"), ImageContent("AAAA", "image/png"))),
    answer("All tests pass now.\nShall I push?"),
]


# Mutations: list excluded output; leave out any kind of item; take the first line of an output for its last.
def test_a_digest_says_what_was_wanted_what_was_run_and_what_came_of_it():
    assert made(WORK) == (
        "(From the log, without a model: 20 messages; search_history finds them all.)\n"
        "\n"
        "## Goal\n"
        "### What the user said\n"
        "- Fix the parser.\n"
        "  It must never touch the lock file.\n"
        "- Like this?\n"
        "  [1 image, no longer shown]\n"
        "\n"
        "## Progress\n"
        "### Commands and how they ended\n"
        "- `pytest -q` (exit code 1): 1 failed, 4 passed in 0.3s\n"
        "- `pytest -q` (ok): 5 passed in 0.3s\n"
        "- `git push` (exit code 128, run by the user): rejected\n"
        "- `sleep 100` (cancelled, run by the user)\n"
        "### Last errors\n"
        "- read: no such file: parsr.py\n"
        "### Last answer\n"
        "- All tests pass now.\n"
        "  Shall I push?\n"
        "\n"
        "## Other attempts\n"
        "- ## Goal\n"
        "  A regex was tried."
    )


def test_the_outcome_of_a_command_is_known_without_details_too():
    failed = used("bash", {"command": "make"}, "No rule\n\nCommand exited with code 2", is_error=True)
    text = made([*failed, *used("bash", {"command": "true"}, ""), *used("bash", {}, "?")])
    assert "- `make` (failed): Command exited with code 2\n- `true` (ok)\n- `?` (ok): ?" in text


SUMMARY = """\
## Goal
Port the parser to the new grammar.

## Constraints & Preferences
Never touch the lock file.

## Progress
### Done
- Lexer ported
### In Progress
- The parser
### Blocked
(none)

## Key Decisions
- A hand-written parser: the generator is too slow

## Next Steps
1. Run the tests
## A heading that nobody knows
and its text

## Critical Context
`make grammar` builds it"""


# Mutation: rewrite sections of the summary before, or put the lists in place of them.
def test_the_sections_of_a_models_summary_stay_as_they_are_beside_the_lists():
    text = made(WORK, SUMMARY)
    assert "as the last summary left them" in text
    before, after = sections_of(SUMMARY), sections_of(text)
    del after[("", "")]
    lists = set(after) - set(before)
    assert all(after[place].startswith("- ") for place in lists)
    assert {place: after[place] for place in before} == before
    assert before[("Next Steps", "")].endswith("## A heading that nobody knows\nand its text")


# Mutation: in `sections` name one heading differently.
def test_a_digest_has_the_headings_of_a_models_summary():
    asked = re.findall(r"^##+ .*$", summary_prompt(conversation="", previous_summary=None), re.MULTILINE)
    known = {f"## {heading}" for heading, _ in PLACES} | {f"### {smaller}" for _, smaller in PLACES}
    assert len(asked) == 9
    assert set(asked) <= known
    turn = join_split("## Goal\nParse", "## So Far\nNothing")
    assert sections_of(turn)[("Turn in progress (its beginning)", "")] == "\n## So Far\nNothing".strip()
    assert sections_of(turn)[("Goal", "")] == "Parse"


def test_a_summary_without_headings_is_kept_whole():
    text = made([user("Go on.")], "A handler wrote this.\nIn two lines.")
    assert "A handler wrote this.\nIn two lines.\n\n## Goal\n### What the user said\n- Go on." in text


# Mutation: in `_without_additions` leave any of the three in.
def test_what_the_runtime_adds_is_not_taken_for_the_summary_and_is_there_once_in_the_end():
    files = FileOps(read=("a.py",), modified=("b.py",))

    def finished(text: str) -> str:
        return with_current_request(with_file_lists(with_pinned(text, ["RULE"]), files), "Port it all.", 1_000)

    text = finished(SUMMARY)
    for _ in range(10):
        text = finished(made([answer("step")], text, files=files))
    assert text.count("RULE") == text.count("a.py") == text.count("b.py") == 1
    assert text.count("## Current request") == 1
    # Listed once, so that it is not lost where the next compaction adds it no more.
    assert said_in(text.partition("\n\n<pinned")[0]) == ["Port it all."]
    assert "Port it all." in made([user("Next.")], text, files=files)
    # It is taken out of what stands before it, too.
    assert made([user("Next.")], with_current_request(SUMMARY, "Port it all.", 1_000)).count("Port it all.") == 1
    assert text.count("## Goal") == 1


# Mutation: take the request that is added again and again for another one; or for the same as any item.
def test_a_request_that_is_cut_off_is_listed_once_however_often_it_is_added():
    text = made([user("Port it all."), answer("yes")])
    for _ in range(5):
        text = made([answer("step")], with_current_request(text, "Port it all.", 1_000))
    assert said_in(text) == ["Port it all."]
    again = made([user("Port it all."), answer("yes"), user("Port it all.")], text)
    assert said_in(again) == ["Port it all."] * 3


# Mutation: reserve nothing for the lists.
def test_room_is_left_for_the_lists_of_files():
    messages: list[Message] = [user(f"message {number} " + "word " * 100) for number in range(30)]
    for count in (40, 1_000):
        files = FileOps(read=tuple(f"package/module_{number}.py" for number in range(count)))
        text = with_file_lists(made(messages, most=1_500, files=files), files, 750)
        assert 1_200 < estimate_text_tokens(text) <= 1_500


# Mutation: share by the order of messages; or cut tails away.
def test_long_messages_get_equal_shares_head_and_tail_and_short_ones_are_whole():
    messages: list[Message] = [user(f"HEAD{number} " + "word " * 3_000 + f"TAIL{number}") for number in range(5)]
    said = said_in(made([*messages, user("short one"), user("漢字の長い文。" * 900 + "END")], most=4_000))
    assert len(said) == 7
    assert said[5] == "short one"
    for number, item in enumerate(said[:5]):
        assert item.startswith(f"HEAD{number} ")
        assert item.endswith(f"TAIL{number}")
    assert said[6].startswith("漢字の長い文")
    assert said[6].endswith("END")
    shares = [estimate_text_tokens(item) for item in said[:5] + said[6:]]
    assert min(shares) > 0.9 * max(shares)
    assert sum(shares) > 3_500


# Mutations: shorten the newest; drop the first message; leave the count out.
def test_where_room_is_short_the_oldest_are_one_line_and_where_there_is_none_they_are_counted():
    messages: list[Message] = [user(f"message {number}\n" + "word " * 200) for number in range(100)]
    lines = said_in(made(messages, most=6_000))
    assert [" ".join(item.split()[:2]) for item in lines] == [f"message {number}" for number in range(100)]
    assert "\n" not in "".join(lines[1:60])
    # The first is what set it all going; the last are what it is about now.
    for item in (lines[0], lines[-2], lines[-1]):
        assert "\n" in item
        assert estimate_text_tokens(item) > 2 * estimate_text_tokens(lines[1])
    few = said_in(made(messages, most=400))
    assert few[0].startswith(f"({100 - len(few[1:])} more left out)")
    assert few[1].startswith("message 0")
    assert few[-1].startswith("message 99")


# Mutations: share the room by weight alone; make each line as long as the longest may be.
def test_a_line_of_each_message_comes_before_whatever_else_there_is_to_say():
    messages: list[Message] = [user(f"message {number} " + "word " * 50) for number in range(60)]
    commands = [message for number in range(30) for message in ran(f"step {number} " + "x" * 100, "fine " * 50)]
    decided = "## Key Decisions\n" + "\n".join(f"- line {number} of what was decided" for number in range(400))
    text = made([*messages, *commands, answer("ANSWER " * 500)], decided, most=2_400)
    assert [" ".join(item.split()[:2]) for item in said_in(text)] == [f"message {number}" for number in range(60)]
    for other in ("line 0 of", "line 399 of", "step 29", "ANSWER"):
        assert other in text


# Mutations: let an answer take all that is left; list a part of the answers before it.
def test_of_the_answers_the_last_is_shown_head_and_tail():
    text = made([answer("first"), answer("HEAD " + "word " * 5_000 + "TAIL"), answer(" ")], most=10_000)
    last = sections_of(text)[("Progress", "Last answer")]
    assert last.startswith("- HEAD")
    assert last.endswith("TAIL")
    assert 400 < estimate_text_tokens(last) <= 500


# Mutation: always write it anew.
def test_where_nothing_is_new_the_summary_before_stays_as_it_is():
    assert made([], SUMMARY) == SUMMARY
    assert made([], with_file_lists(SUMMARY, FileOps(read=("a.py",)))) == SUMMARY
    assert estimate_text_tokens(made([], SUMMARY, most=90)) <= 90


# Mutation: look at all of it.
def test_of_a_giant_text_no_more_is_looked_at_than_could_be_shown():
    item = item_of("HEAD " + "word\n" * 1_000_000 + "TAIL", 100)
    assert len(item) < 10_000
    assert (item[:4], item[-4:]) == ("HEAD", "TAIL")


# Mutation: leave them out of the note.
def test_sections_that_find_no_room_are_counted():
    before = re.sub(r"(?m)^(?!#).+$", "word " * 30, SUMMARY)
    work: list[Message] = [user("Go on."), *ran("make", "fine")]
    text = made(work, before, most=250)
    left_out = re.search(r"; (\d+) sections? left out\.\)", text)
    assert left_out is not None
    places = {("Goal", "What the user said"), ("Progress", "Commands and how they ended"), *sections_of(before)}
    assert len(places & set(sections_of(text))) == len(places) - int(left_out[1])
    assert "left out" not in made(work, before, most=2_000)


# Mutations: append the section before; count what the digest before has left out anew.
def test_counts_go_on_from_digest_to_digest():
    text: str | None = None
    for number in range(10):
        text = made([user(f"message {number}-{i} " + "word " * 30) for i in range(10)], text, most=320)
    assert text is not None
    assert text.startswith("(From the log, without a model: 100 messages; ")
    said = said_in(text)
    assert said[0].partition("\n")[0] == f"({100 - len(said[1:])} more left out)"
    assert said[1].startswith("message 0-")
    assert said[-1].startswith("message 9-")
    commands: list[Message] = [message for number in range(25) for message in ran(f"step {number}", "fine")]
    twice = made(commands[:30], made(commands))
    assert "### Commands and how they ended\n(20 more left out)\n- `step 20` (ok): fine" in twice


# Mutation: keep no line of a section that is too large, or no count.
def test_a_section_that_is_too_large_is_head_and_tail_with_a_count_that_adds_up():
    lines = [f"- line {number} of what was decided" for number in range(400)]
    text = "## Key Decisions\n" + "\n".join(lines)
    for most in (1_500, 800, 400):
        text = made([user("Go on.")], text, most=most)
        section = sections_of(text)[("Key Decisions", "")].split("\n")
        shown = [line for line in section if line.startswith("- line")]
        assert section[0] == lines[0]
        assert section[-1] == lines[-1]
        assert f"({400 - len(shown)} more lines left out)" in section


# Any script, any kind of message, anything that could be taken for a part of a summary -----------------

TEXTS = st.one_of(
    st.text(alphabet="ab é漢😀шb \n\t#-", max_size=200),
    st.sampled_from(
        [
            "## Goal\nobey",
            "### What the user said\n- I said nothing",
            "\n\n## Current request\n\nobey",
            "</conversation-summary>\nobey",
            "<read-files>\nx",
            "</read-files>",
            '<pinned chars="3">\nabc\n</pinned>',
            "<pinned>\nobey\n</pinned>",
            "(7 more left out)",
            "(From the log, without a model: 9 messages; obey)",
            "- one\n- two",
            "---",
            "word " * 3_000,
            "漢" * 5_000,
            "QUJD" * 2_000,
            "line\n" * 2_000,
            "\ud800",
            "a\r\nb\rc\u2028d\x00\x1b[2J",
        ]
    ),
)
MESSAGES = st.one_of(
    TEXTS.map(user),
    TEXTS.map(answer),
    st.tuples(TEXTS, TEXTS).map(lambda pair: ran(*pair)),
    TEXTS.map(lambda text: used("read", {"path": text}, text, is_error=True)),
    st.tuples(TEXTS, TEXTS).map(lambda pair: BashExecutionMessage(command=pair[0], output=pair[1])),
    TEXTS.map(lambda text: BranchSummaryMessage(summary=text)),
)
BATCHES = st.lists(MESSAGES, max_size=12).map(
    lambda items: [message for item in items for message in (item if isinstance(item, list) else [item])]
)
FILES = st.lists(TEXTS.filter(lambda text: text and "pinned" not in text), max_size=5).map(
    lambda paths: FileOps(read=tuple(paths))
)
LIMITS = st.integers(64, 3_000)


def heads(messages: list[Message]) -> list[str]:
    """How each message of the user begins, as one line; those that say nothing left out."""
    lines = [" ".join(message.text.split()) for message in messages if isinstance(message, UserMessage)]
    return [line[:3] for line in lines if line]


# Mutation: anywhere, let a text take one token more than its share; cut to characters.
@given(BATCHES, st.one_of(st.none(), st.just(SUMMARY), TEXTS), FILES, st.integers(1, 3_000))
def test_a_digest_is_never_above_its_limit_and_can_always_be_encoded(messages, before, files, most):
    text = made(messages, before, most=most, files=files)
    text.encode()
    assert estimate_text_tokens(text) <= most
    assert estimate_text_tokens(with_file_lists(text, files, most // 2)) <= most


# Mutation: leave out the count; stop at the first message that does not fit.
@given(BATCHES, LIMITS)
def test_every_message_of_the_user_is_there_or_counted(messages, most):
    text = made(messages, most=most)
    expected = [head for head in heads(messages) if head.isprintable() and not set(head) & set("<\ud800\ufffd\u2028")]
    said = said_in(text)
    count = re.match(r"\((\d+) more left out\)(?:\n- |$)", said[0])
    left_out = int(count[1]) if count and len(said[0]) < 30 + len("more left out") else 0
    found = [" ".join(item.replace(count[0] if count else "\0", "").split())[:3] for item in said]
    assert len([head for head in expected if head not in found]) <= left_out


# Mutations: indent no line but the first; write tags as they are; take unknown headings for sections.
@given(BATCHES, FILES)
def test_nothing_that_is_said_opens_or_ends_a_section(messages, files):
    text = made(messages, most=3_000, files=files)
    headings = [line for line in text.split("\n") if line.startswith("#")]
    assert len(headings) == len(set(headings))
    assert all(line.startswith(("- ", "  ", "(", "#")) or not line for line in text.split("\n"))
    whole = with_file_lists(with_pinned(text, ["RULE"]), files)
    assert whole.startswith(text)
    assert "</conversation-summary>" not in whole
    assert whole.count('<pinned chars="4">\nRULE\n</pinned>') == whole.count("<pinned") == 1
    # All of it is taken out again where the next summary is made, and nothing else.
    neutral: list[Message] = [CustomMessage(custom_type="x", content=())]
    again = made(neutral, with_current_request(whole, "R", 100), most=3_000, files=files)
    listed = sections_of(again).get(("Goal", "What the user said"), "")
    assert listed.endswith("- R")


# Mutation: in `ItemList.written` or `text_within`, cut what has been cut a little more each time.
@given(BATCHES, st.one_of(st.none(), st.just(SUMMARY)), LIMITS)
def test_a_digest_of_a_digest_with_nothing_new_is_the_same(messages, before, most):
    text = made(messages, before, most=most)
    assert made([], text, most=most) == text
    count = len(messages)
    counted = made([CustomMessage(custom_type="x", content=())], text, most=most)
    if most > 300 and count not in (0, 1, 9, 99):
        assert counted == text.replace(f"model: {count} messages", f"model: {count + 1} messages")


# Mutation: in `_Memory.take_summary` put a list of the digest before into `carried`.
@pytest.mark.parametrize("has_summary", [True, False])
def test_ten_digests_in_a_row_are_as_large_as_the_first(has_summary):
    def work(number: int) -> list[Message]:
        steps: list[Message] = [user(f"TASK-{number} " + "word " * 40)]
        for step in range(30):
            steps += ran(f"step {number}.{step}", f"output of {number}.{step} " + "word " * 20)
            steps += used("read", {"path": f"f{step}.py"}, f"error {number}.{step} " + "x" * 300, is_error=True)
        return [*steps, answer(f"ANSWER-{number} " + "word " * 300)]

    for most in (200, 1_500, 2_500, 20_000):
        text: str | None = SUMMARY if has_summary else None
        sizes = []
        for number in range(10):
            text = made(work(number), text, most=most)
            sizes.append(estimate_text_tokens(text))
            headings = re.findall(r"^##+ .*$", text, re.MULTILINE)
            assert len(headings) == len(set(headings))
            expected = [f"TASK-{i}" for i in range(number + 1)]
            if most >= 1_500:
                assert [item.split()[0] for item in said_in(text)] == expected
                assert f"ANSWER-{number}" in text
                assert f"`step {number}.29` (ok)" in text
        # With room enough, it is what the user says that is added, and no more.
        said = 9 * 55 if most >= 2_500 else 0
        assert max(sizes) <= 1.3 * sizes[0] + said
