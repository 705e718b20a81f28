"""Server-sent events, whatever the line ends and wherever the bytes are split."""

import pytest

from agent_session.llm.sse import EventDecoder, ServerEvent

STREAM = (
    '\ufeffdata: {"text":"größer — 漢字 🙂"}\n\n'
    "event: error\n"
    "data: one\n"
    "data:two\n"
    "data\n"
    "id: 7\n"
    "retry: 10\n\n"
    ": a heartbeat\n\n"
    "data: [DONE]\n\n"
)
EVENTS = [
    ServerEvent('{"text":"größer — 漢字 🙂"}'.encode()),
    ServerEvent(b"one\ntwo\n", "error"),
    ServerEvent(b"[DONE]"),
]


def decoded(*chunks: bytes) -> list[ServerEvent]:
    decoder = EventDecoder()
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events + decoder.close()


# Mutation: in `feed`, split on b"\n" alone; or do not remember a CR at a chunk's end.
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_split_at_any_byte_changes_nothing(line_end: str) -> None:
    stream = STREAM.replace("\n", line_end).encode()
    for position in range(len(stream) + 1):
        assert decoded(stream[:position], stream[position:]) == EVENTS, position


# Mutation: join `_partial` without emptying it.
def test_a_stream_of_single_bytes_gives_the_same_events() -> None:
    stream = STREAM.replace("\n", "\r\n").encode()
    assert decoded(*(stream[position : position + 1] for position in range(len(stream)))) == EVENTS


# Mutation: let `close` forget the rest.
def test_an_event_without_its_last_blank_line_counts_at_the_end_of_the_stream() -> None:
    assert decoded(b"data: one\n\ndata: two") == [ServerEvent(b"one"), ServerEvent(b"two")]


# Mutation: dispatch without looking whether there was data.
def test_an_event_without_data_is_none() -> None:
    assert decoded(b"event: ping\n\ndata: x\n\n") == [ServerEvent(b"x")]


# Mutation: strip all leading spaces of a value.
def test_only_one_space_after_the_colon_is_taken_off() -> None:
    assert decoded(b"data:  x\n\n") == [ServerEvent(b" x")]


# Mutation: split the whole rest again with every chunk (the test then takes minutes).
def test_a_long_line_in_many_chunks_is_joined_once() -> None:
    piece = b"x" * 100
    events = decoded(b"data: ", *([piece] * 50_000), b"\n\n")
    assert len(events[0].data) == 5_000_000
