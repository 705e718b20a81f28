"""Errors of the runtime.

    AgentSessionError
    ├── SessionBusyError           a verb that needs an idle session, called on a busy one
    ├── SessionClosedError         a verb on a session that was closed
    ├── ToolError                  raised by a tool: the model is told its text
    ├── SettingsError              a setting with a wrong value; `path` says which
    ├── MissingModelError          no model was given, logged or set
    ├── ModelError                 the provider's answer was an error; `kind`, `status`, `retry_at`
    │   ├── MissingCredentialsError    no key, or one the provider refuses
    │   ├── RateLimitError             too many requests or tokens a minute
    │   ├── ContextOverflowError       the request is larger than the model takes; `limit`, `requested`
    │   └── ModelRequestError          everything else: bad request, server error, network, cut stream
    ├── CompactionError            a compaction failed; `outcome` has the numbers, the log is as before
    │   ├── SummarizationError         no usable summary came back
    │   └── ContextCannotFitError      nothing can make it fit; `largest_items` says what is in the way
    └── ExtensionError             an extension did something it may not; `owner` names it
        └── ExtensionLoadError         it could not be loaded; the session goes on without it

The log's own errors are another tree, `session_store.errors`. Facts are attributes; the text says what
was wrong, where, and what to do. Cancellation is in neither tree and is wrapped nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from agent_session.compaction.types import CompactionOutcome
    from session_store.messages import AssistantMessage

ModelErrorKind: TypeAlias = Literal[
    "overflow",  # more tokens than the model takes
    "overflow_bytes",  # a request body or payload larger than the provider takes
    "rate",  # too many requests or tokens a minute: wait and try again
    "request_exceeds_rate_budget",  # one request larger than a whole minute's budget: waiting cannot help
    "auth",  # no key, a wrong one, or no right to the model
    "output_setting",  # the requested output is more than the model gives
    "content",  # a block the provider does not take (an image too large, say)
    "pairing",  # calls and results that do not match, signatures out of place
    "bad_request",  # any other 4xx
    "server",  # a 5xx
    "network",  # no connection, or it broke
    "stream_cut",  # the stream ended without its final event
    "silence",  # nothing came for too long
    "unknown",
]


class AgentSessionError(Exception):
    """Root of everything the runtime raises on purpose."""


class SessionBusyError(AgentSessionError):
    """The session is doing something else. `activity` says what: run, compaction, tree."""

    def __init__(self, activity: str, advice: str) -> None:
        self.activity = activity
        super().__init__(f"the session is busy ({activity}): {advice}")


class SessionClosedError(AgentSessionError):
    """The session was closed."""

    def __init__(self, what: str = "this session") -> None:
        super().__init__(f"{what} is closed; open it again with AgentSession(resume=<path>)")


class ToolError(AgentSessionError):
    """Raised by a tool to tell the model what went wrong, in words it can act on."""


class SettingsError(AgentSessionError):
    """A setting with a wrong value. `path` names it, as in `compaction.reserve_tokens`; `source` is the file or the
    variable that set it, where it was one.
    """

    def __init__(self, path: str, why: str, *, source: str | None = None) -> None:
        self.path = path
        self.why = why
        self.source = source
        super().__init__(f"setting {path}: {why}{f' (from {source})' if source is not None else ''}")


class MissingModelError(AgentSessionError):
    """Nobody said which model to use."""

    def __init__(self) -> None:
        super().__init__(
            "no model: give AgentSession('provider/name'), set `model` in the settings, or set the "
            "environment variable AGENT_SESSION_MODEL, for example to openai/gpt-5-mini"
        )


class ModelError(AgentSessionError):
    """The provider answered with an error, or not at all.

    `retry_at` is Unix seconds, where the provider said when to come back. `message` is the assistant
    message that records the failed attempt in the log, where there is one.
    """

    def __init__(
        self,
        text: str,
        *,
        kind: ModelErrorKind = "unknown",
        status: int | None = None,
        code: str | None = None,
        body: str | None = None,
        retry_at: float | None = None,
        limit: int | None = None,
        requested: int | None = None,
        requested_output: int = 0,
    ) -> None:
        super().__init__(text)
        self.kind: ModelErrorKind = kind
        self.status = status
        self.code = code
        self.body = body
        self.retry_at = retry_at
        self.limit = limit
        self.requested = requested
        self.requested_output = requested_output
        self.message: AssistantMessage | None = None

    @property
    def requested_input(self) -> int | None:
        """Tokens of what was sent, as the provider counts them."""
        return None if self.requested is None else self.requested - self.requested_output


class MissingCredentialsError(ModelError):
    """No key, or one that the provider refuses."""


class RateLimitError(ModelError):
    """Too many requests or tokens a minute."""


class ContextOverflowError(ModelError):
    """The request was larger than the model takes.

    `limit` and `requested` are tokens, where the provider named them. Some count the room for the answer in
    `requested`: `requested_output` of them, and `requested_input` is the context alone.
    """


class ModelRequestError(ModelError):
    """Any other refusal or failure of the provider."""


class CompactionError(AgentSessionError):
    """A compaction failed; the log and the context are as before. `outcome` has the numbers."""

    def __init__(self, text: str, *, outcome: CompactionOutcome | None = None) -> None:
        super().__init__(text)
        self.outcome = outcome


class SummarizationError(CompactionError):
    """The summary call gave nothing usable."""


class ContextCannotFitError(CompactionError):
    """System prompt, tools and what must be kept are larger than the model takes.

    `largest_items` are (what, tokens), largest first.
    """

    def __init__(
        self,
        text: str,
        *,
        limit: int,
        largest_items: Sequence[tuple[str, int]] = (),
        outcome: CompactionOutcome | None = None,
    ) -> None:
        self.limit = limit
        self.largest_items = tuple(largest_items)
        items = "; ".join(f"{what}: {tokens:,} tokens" for what, tokens in self.largest_items)
        super().__init__(f"{text}{'. Largest: ' + items if items else ''}", outcome=outcome)


class ExtensionError(AgentSessionError):
    """An extension did something it may not. `owner` is its name."""

    def __init__(self, owner: str, why: str) -> None:
        self.owner = owner
        super().__init__(f"extension {owner}: {why}")


class ExtensionLoadError(ExtensionError):
    """An extension could not be loaded; the session goes on without it."""
