"""For tests of what is built on this: models that answer from a script, in process and over HTTP.

`ScriptedModel` is a model client without a network; `FakeProvider` is an HTTP server on 127.0.0.1 that plays the same
script. Both refuse what a provider refuses, and a script that does not match what was asked is a failed test.
"""

from agent_session.testing.collect import Collected, collect
from agent_session.testing.fake_provider import FakeProvider
from agent_session.testing.messages_rules import messages_fault
from agent_session.testing.recording import RecordedRequest, count_tokens, pairing_fault, pairs_ok
from agent_session.testing.request_rules import chat_fault, context_faults
from agent_session.testing.script import (
    Always,
    Answer,
    Held,
    Refusal,
    Script,
    Step,
    UsageSpec,
    always,
    call,
    calls,
    cut,
    fail,
    hang,
    hold,
    reply,
    stop,
    stream_error,
)
from agent_session.testing.scripted_model import ScriptedModel

__all__ = [
    "Always",
    "Answer",
    "Collected",
    "FakeProvider",
    "Held",
    "RecordedRequest",
    "Refusal",
    "Script",
    "ScriptedModel",
    "Step",
    "UsageSpec",
    "always",
    "call",
    "calls",
    "chat_fault",
    "collect",
    "context_faults",
    "count_tokens",
    "cut",
    "fail",
    "hang",
    "hold",
    "messages_fault",
    "pairing_fault",
    "pairs_ok",
    "reply",
    "stop",
    "stream_error",
]
