"""What a provider does before it looks at its script: record the request, and refuse what a real one refuses."""

from __future__ import annotations

from agent_session.compaction.prompts import LIVE_INSTRUCTION, SUMMARY_SYSTEM_PROMPT
from agent_session.llm.payload import encode, encode_value
from agent_session.testing.recording import RecordedRequest
from agent_session.testing.request_rules import chat_fault
from agent_session.testing.script import Refusal

OVERFLOW_CODE = "context_length_exceeded"


def refusal_of(request: RecordedRequest, context_window: int | None) -> Refusal | None:
    """The refusal of a request that is too large or out of order, in OpenAI's words; None for one in order.

    A request is too large when its messages and tools, at four characters a token, exceed `context_window`.
    """
    if (fault := chat_fault(request.payload)) is not None:
        return Refusal(status=400, text=fault, code="invalid_value")
    if context_window is not None and (tokens := request.tokens) > context_window:
        text = (
            f"This model's maximum context length is {context_window} tokens. However, your messages resulted in "
            f"{tokens} tokens. Please reduce the length of the messages."
        )
        return Refusal(status=400, text=text, code=OVERFLOW_CODE)
    return None


def error_body(refusal: Refusal) -> bytes:
    """The body of an error status: the step's own, else the error object as OpenAI writes it."""
    if isinstance(refusal.body, str):
        return refusal.body.encode()
    if refusal.body is not None:
        return encode_value(refusal.body)
    sort = "invalid_request_error" if refusal.status < 500 else "server_error"
    return encode({"error": {"message": refusal.text, "type": sort, "param": None, "code": refusal.code}})


def is_summary_request(request: RecordedRequest) -> bool:
    """Whether the summariser sent it: by its system prompt, or by the instruction at the live conversation's end."""
    return SUMMARY_SYSTEM_PROMPT in request.system or request.last_text.startswith(LIVE_INSTRUCTION)
