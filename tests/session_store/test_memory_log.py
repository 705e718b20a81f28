from __future__ import annotations

import pytest
from typing_extensions import override

from session_store.codec import encode_entry
from session_store.entries import MessageEntry
from session_store.memory_log import MemoryLog
from session_store.messages import TextContent, UserMessage
from session_store.testing import LogContract, LogFactory, new_header, user_entry


class TestMemoryLog(LogContract):
    @override
    @pytest.fixture
    def make_log(self) -> LogFactory:
        return MemoryLog


def test_what_is_loaded_from_memory_went_through_the_codec():
    log = MemoryLog(new_header())
    log.append([encode_entry(user_entry("cut \ud83d"))])
    # Mutation: let `MemoryLog` keep entries instead of lines; the lone surrogate comes back.
    (entry,) = log.load().entries
    assert isinstance(entry, MessageEntry)
    assert entry.message == UserMessage(content=(TextContent("cut \ufffd"),))


def test_lines_given_at_the_start_are_loaded_first():
    first, second = user_entry("first"), user_entry("second")
    log = MemoryLog(new_header(), [encode_entry(first)])
    log.append([encode_entry(second)])
    assert log.load().entries == (first, second)
    assert log.path is None
