"""`SyncSession` in one process: the same verbs from any thread, and what its own thread may and may not do."""

from __future__ import annotations

import gc
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_session import (
    AgentSession,
    CompactionError,
    Event,
    ExtensionLoadError,
    MessageUpdate,
    MissingModelError,
    ModelRequestError,
    SessionBusyError,
    SessionClosedError,
    SessionManager,
    SessionStart,
    Settings,
    SyncSession,
    UserMessage,
    tool,
)
from agent_session.testing import ScriptedModel, Step, always, call, fail, hang, reply
from session_store.errors import SessionLockedError

SECONDS = 10
LONG = "The parser stops at an empty line. " * 40


def session_on(model: ScriptedModel, folder: Path | None = None, **options: Any) -> SyncSession:
    manager = SessionManager.in_memory() if folder is None else SessionManager.create(folder, session_dir=folder)
    settings = Settings().merged({"compaction": {"keep_recent_tokens": 100}, "retry": {"max_retries": 0}})
    options = {"tools": (), "session_manager": manager, "settings": settings, **options}
    return SyncSession(model.model, client=model, **options)


def scripted(*steps: Step, summaries: tuple[Step, ...] = (always(reply("## Goal\nShort.")),)) -> ScriptedModel:
    return ScriptedModel(steps, summaries=summaries)


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "agent_session" and thread.is_alive()}


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every session of a test is closed at its end, or has let go of its thread by itself."""
    yield
    gc.collect()
    wait_until(lambda: not own_threads())


def wait_until(is_so: Callable[[], bool]) -> None:
    """For what another thread does by itself, and tells nobody."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)


def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
    signature = inspect.signature(function)
    return [(one.name, one.kind, one.default, one.annotation) for one in signature.parameters.values()]


def public(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_it_has_every_verb_of_a_session_with_the_same_parameters() -> None:
    # Mutation: leave a verb or one of its parameters out of SyncSession, or give a parameter another default.
    theirs, ours = public(AgentSession), public(SyncSession)
    assert set(ours) == set(theirs) | {"on"}
    assert parameters(SyncSession.__init__) == parameters(AgentSession.__init__)
    for name, verb in theirs.items():
        assert isinstance(ours[name], property) == isinstance(verb, property), name
        if not isinstance(verb, property):
            assert parameters(ours[name]) == parameters(verb), name


def test_what_it_is_given_is_what_its_session_is_given(tmp_path: Path) -> None:
    # Mutation: in `SyncSession.__init__` hand one argument less, or another one, to AgentSession.
    given: dict[str, Any] = {
        name: object() for name in inspect.signature(AgentSession).parameters if name not in ("model", "cwd")
    }
    given |= {"extensions": ["one", "two"], "settings": Settings(hook_timeout=7), "thinking_level": "low"}
    given |= {"model": "openai/scripted", "cwd": tmp_path, "session_manager": SessionManager.in_memory()}
    session = SyncSession(**given)
    ours, theirs = session._session._core, AgentSession(**given)._core
    assert ours._options == theirs._options
    assert set(given) - set(ours._options) == {"session_manager", "resume", "extensions", "settings", "cwd"}
    for name in ("_given_manager", "_resume", "_sources", "settings", "cwd"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours._given_manager is given["session_manager"]
    session.close()


def test_no_verb_of_it_has_to_be_awaited() -> None:
    # Mutation: hand out the session's own `load` handle, whose `unload` is a coroutine.
    with scripted_session(reply("Hello.")) as session:
        verbs: list[Callable[[], object]] = [
            lambda: session.prompt("Hi."),
            lambda: session.set_name("parser"),
            lambda: session.set_thinking_level("low"),
            session.load(lambda api: None).unload,
            session.fork().close,
            session.wait_for_idle,
            session.abort,
        ]
        assert not any(inspect.isawaitable(verb()) for verb in verbs)
        assert session.session_manager.name == "parser"
        assert session.thinking_level == "low"


def scripted_session(*steps: Step, **options: Any) -> SyncSession:
    return session_on(scripted(*steps), **options)


def test_the_first_verb_opens_it_and_the_answer_is_returned(tmp_path: Path) -> None:
    # Mutation: open the session in the constructor.
    session = scripted_session(reply("Hello."), folder=tmp_path)
    started: list[Event] = []
    session.on("session_start", started.append)
    assert started == []
    assert str(session.prompt("Hi.")) == "Hello."
    assert isinstance(started[0], SessionStart)
    assert [type(message).__name__ for message in session.messages] == ["UserMessage", "AssistantMessage"]
    session.close()


def test_a_compaction_returns_its_outcome_and_raises_its_failure() -> None:
    # Mutation: return the exception instead of raising it.
    model = scripted(reply(LONG), reply(LONG), summaries=(fail(400, "no"), always(reply("## Goal\nShort."))))
    with session_on(model) as session:
        session.prompt("One?")
        session.prompt("Two?")
        with pytest.raises(CompactionError) as caught:
            session.compact()
        assert caught.value.outcome is not None
        assert session.compact("Keep the parser.").status == "applied"
        assert "Short." in repr(session.messages[0])


def test_an_error_comes_without_the_frames_of_the_other_thread() -> None:
    # Mutation: let verbs raise what comes out of `ask` as it comes.
    with scripted_session(fail(400, "bad request")) as session, pytest.raises(ModelRequestError) as caught:
        session.prompt("Hi.")
    here = test_an_error_comes_without_the_frames_of_the_other_thread.__name__
    assert frames_of(caught.value) == [(Path(__file__).name, here)]
    link = caught.value.__cause__
    while link is not None:
        assert link.__traceback__ is None
        link = link.__cause__


def frames_of(error: BaseException | None) -> list[tuple[str, str]]:
    assert error is not None
    return [(Path(frame.filename).name, frame.name) for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize(
    "verb",
    [
        lambda session: session.prompt(""),
        lambda session: session.run("").__enter__(),
        lambda session: session.search(""),
        lambda session: session.compact(model="nonsense"),
        lambda session: SyncSession("nonsense"),
    ],
)
def test_a_wrong_argument_is_told_with_the_line_that_refuses_it_and_no_other_of_ours(
    verb: Callable[[SyncSession], object],
) -> None:
    # Mutation: keep the frames between the verb and the refusal; or leave `__init__` or the block of a run out.
    with scripted_session() as session, pytest.raises(ValueError, match=r"empty|search|provider/name") as caught:
        verb(session)
    _, called, refused = frames_of(caught.value)
    assert called == (Path(__file__).name, "<lambda>")
    assert refused[0] in ("prompting.py", "history.py", "models.py")


def test_a_property_raises_from_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave properties, or the class that only looks, out.
    monkeypatch.delenv("AGENT_SESSION_MODEL", raising=False)
    session = SyncSession(session_manager=SessionManager.in_memory())
    with pytest.raises(MissingModelError) as caught:
        session.model  # noqa: B018 - reading it is the test
    assert len(frames_of(caught.value)) == 1
    session.close()


def test_a_fault_of_a_program_keeps_its_frames_and_loses_those_of_the_threads() -> None:
    # Mutation: shorten every error to the line of the verb, or none.
    def divide(text: str) -> None:
        fail_at(len(text))

    def fail_at(number: int) -> float:
        return number / 0

    with scripted_session(hang(after=1)) as session, pytest.raises(ZeroDivisionError) as caught:
        session.prompt("Hi.", on_text=divide)
    assert [name for _, name in frames_of(caught.value)][1:] == ["divide", "fail_at"]
    assert "loop_thread.py" not in str(frames_of(caught.value))


def test_an_extension_that_cannot_be_loaded_shows_where_it_fails() -> None:
    # Mutation: take every frame of what led to an error that is raised on purpose.
    def setup(api: object) -> None:
        raise KeyError(api)

    with scripted_session() as session, pytest.raises(ExtensionLoadError) as caught:
        session.load(setup)
    assert len(frames_of(caught.value)) == 1
    assert [name for _, name in frames_of(caught.value.__cause__)] == ["setup"]


def test_wrong_arguments_are_refused_at_once_and_leave_no_thread() -> None:
    # Mutation: do not stop the thread when the session cannot be made.
    with pytest.raises(ValueError, match="provider/name"):
        SyncSession("nonsense")
    assert own_threads() == set()


def test_text_is_told_in_the_thread_that_asked_while_it_streams() -> None:
    # Mutation: pass `on_text` on to the session, which calls it on its own thread.
    told: list[tuple[str, threading.Thread]] = []
    with scripted_session(reply("One two three.", chunks=3)) as session:
        session.prompt("Hi.", on_text=lambda text: told.append((text, threading.current_thread())))
    assert "".join(text for text, _ in told) == "One two three."
    assert len(told) == 3
    assert {thread for _, thread in told} == {threading.current_thread()}


def test_what_on_text_raises_ends_the_run_and_is_raised() -> None:
    # Mutation: do not cancel the call when showing it fails.
    def refuse(text: str) -> None:
        raise BrokenPipeError

    with scripted_session(hang(after=1)) as session:
        with pytest.raises(BrokenPipeError):
            session.prompt("Hi.", on_text=refuse)
        session.wait_for_idle()
        assert session.is_idle


def test_only_what_a_call_itself_causes_is_shown_by_it() -> None:
    # Mutation: tell every event to every call.
    is_asked = threading.Event()
    told: list[str] = []

    @tool
    def look() -> str:
        """Look."""
        is_asked.set()
        return "seen"

    def second() -> None:
        assert is_asked.wait(SECONDS)
        session.prompt("Second?", if_busy="wait", on_text=told.append)

    with scripted_session(call("look"), reply("First."), reply("Second."), tools=[look]) as session:
        thread = threading.Thread(target=second)
        thread.start()
        session.prompt("First?")
        thread.join(SECONDS)
    assert told == ["Second."]


def test_several_threads_may_use_it_at_once() -> None:
    # Mutation: keep one inbox for all calls instead of one for each.
    def answer(request: Any) -> Step:
        return reply(f"answer to {request.last_user_text}", chunks=4)

    with session_on(scripted(always(answer))) as session, ThreadPoolExecutor(8) as threads:
        questions = [f"question {number}" for number in range(16)]
        answers = threads.map(
            lambda question: str(session.prompt(question, if_busy="wait")), questions, timeout=SECONDS
        )
        assert list(answers) == [f"answer to {question}" for question in questions]
        assert len(session.messages) == 32


def test_a_busy_session_refuses_another_thread() -> None:
    # Mutation: wait in line by default.
    with scripted_session(hang(after=1)) as session, ThreadPoolExecutor(1) as threads:
        has_text = threading.Event()
        first = threads.submit(session.prompt, "First?", on_text=lambda text: has_text.set())
        assert has_text.wait(SECONDS)
        with pytest.raises(SessionBusyError):
            session.prompt("Second?")
        session.abort()
        message = first.result(SECONDS)
        assert message is not None
        assert message.stop_reason == "aborted"


def test_queued_text_starts_a_run_that_can_be_waited_for() -> None:
    # Mutation: let `steer` put the text into the queue from the calling thread.
    with scripted_session(reply("Done.")) as session:
        session.steer("Do it.")
        session.wait_for_idle()
        assert str(session.messages[-1]) == "Done."
        assert session.pending_messages == ()


def test_a_run_is_iterated_to_its_last_event() -> None:
    # Mutation: never let `__next__` of the run raise StopIteration.
    with scripted_session(reply("One two.", chunks=2)) as session:
        with session.run("Hi.") as run:
            names = [event.name for event in run]
            assert run.text == "One two."
            assert str(run.result()) == "One two."
        assert names[0] != names[-1] == "agent_settled"


def test_leaving_a_run_early_aborts_it() -> None:
    # Mutation: do not leave the session's own block when the caller's is left.
    with scripted_session(hang(after=1), reply("Again.")) as session:
        with session.run("Hi.") as run:
            assert any(isinstance(event, MessageUpdate) for event in run)
        assert session.is_idle
        assert str(session.prompt("Again?")) == "Again."


def test_events_stream_until_the_session_is_closed() -> None:
    # Mutation: end the thread before what its streams still hold was read.
    session = scripted_session(reply("Hello."))
    with session.events() as stream:
        session.prompt("Hi.")
        assert next(stream).name == "session_start"
        session.close()
        rest = [event.name for event in stream]
    assert rest[-1] == "session_shutdown"
    assert "agent_settled" in rest


def test_listeners_are_called_on_the_threads_own_thread_until_they_are_taken_off() -> None:
    # Mutation: return an unsubscriber that does nothing.
    heard: list[threading.Thread] = []
    with scripted_session(reply("One."), reply("Two.")) as session:
        unsubscribe = session.subscribe(lambda event: heard.append(threading.current_thread()))
        session.prompt("One?")
        count = len(heard)
        unsubscribe()
        session.prompt("Two?")
        assert len(heard) == count > 0
        assert set(heard) == own_threads()


def test_a_handler_looks_steers_and_prompts_but_does_not_wait_for_its_own_session() -> None:
    # Mutation: let a verb that is called on the session's thread wait (the test then hangs).
    seen: list[Any] = []
    with scripted_session(reply("One."), reply("Two."), reply("Three.")) as session:

        @session.on("turn_end")
        def handler(event: Any) -> None:
            if seen:
                return
            seen.append(len(session.messages))
            seen.append(session.prompt("From a handler."))
            session.steer("Steered.")
            for verb in (session.compact, session.wait_for_idle, session.close, lambda: session.set_name("x")):
                with pytest.raises(SessionBusyError):
                    verb()
            seen.append("refused")

        session.prompt("Hi.")
        asked = [message.text for message in session.messages if isinstance(message, UserMessage)]
    assert seen == [2, None, "refused"]
    assert asked == ["Hi.", "Steered.", "From a handler."]


def test_a_listener_that_hears_of_an_idle_session_is_refused_what_takes_time() -> None:
    # Mutation: try every verb on the session's thread, whether or not a run is there to answer for it.
    refused: list[str] = []
    session = scripted_session()

    @session.subscribe
    def listener(event: Event) -> None:
        if isinstance(event, SessionStart):
            try:
                session.prompt("Hi.")
            except SessionBusyError as error:
                refused.append(error.activity)

    with session:
        assert refused == ["call"]
        assert session.is_idle


def test_a_tool_in_a_thread_may_use_the_session_it_runs_in() -> None:
    # Mutation: lose the context variables of the calling thread, so that the call is not known to come from inside.
    @tool
    def remember() -> str:
        """Remember."""
        assert session.prompt("Later.") is None
        return str(len(session.messages))

    with scripted_session(call("remember"), reply("One."), reply("Two."), tools=[remember]) as session:
        session.prompt("Now.")
        assert [message.text for message in session.messages if isinstance(message, UserMessage)] == ["Now.", "Later."]


def test_what_a_handler_raises_to_leave_the_program_is_raised_where_the_verb_was_called() -> None:
    # Mutation: catch `Exception` alone in `Call.run`: the thread dies and the caller hears of a closed session.
    def leave(event: Event) -> None:
        if isinstance(event, MessageUpdate):
            raise SystemExit(3)

    with scripted_session(reply("One."), reply("Two.")) as session:
        unsubscribe = session.subscribe(leave)
        with pytest.raises(SystemExit):
            session.prompt("Hi.")
        unsubscribe()
        assert str(session.prompt("Again?")) == "Two."


def test_nobody_waits_for_a_thread_that_has_died() -> None:
    # Mutation: do not abandon the open calls when the loop ends.
    def leave(event: Event) -> None:
        if isinstance(event, MessageUpdate):
            raise SystemExit(3)

    session = scripted_session(reply("One."))
    session.subscribe(leave)
    session.start()
    session.steer("Hi.")
    with pytest.raises(SessionClosedError):
        session.wait_for_idle()
    with pytest.raises(SessionClosedError):
        session.prompt("Again?")


def test_closing_ends_the_thread_and_can_be_done_twice(tmp_path: Path) -> None:
    # Mutation: leave the thread running.
    session = scripted_session(reply("Hello."), folder=tmp_path)
    session.prompt("Hi.")
    assert session.close() == []
    assert session.close() == []
    assert own_threads() == set()
    assert len(session.messages) == 2
    assert "closed" in repr(session)
    for verb in (lambda: session.prompt("Hi."), session.compact, session.start, lambda: session.set_name("x")):
        with pytest.raises(SessionClosedError):
            verb()
    session.wait_for_idle()
    with SessionManager.open(session.path or "") as manager:
        assert len(manager.build_messages()) == 2


def test_whoever_closes_second_waits_for_the_first() -> None:
    # Mutation: stop the thread while a call is under way.
    closes: list[list[str]] = []
    ended = threading.Event()
    is_closing = threading.Event()
    session = scripted_session(reply("Hello."))
    session.prompt("Hi.")

    @session.on("session_shutdown")
    async def slow(event: Any) -> None:
        from anyio import to_thread

        is_closing.set()
        await to_thread.run_sync(ended.wait, SECONDS)
        closes.append(["shutdown was handled"])

    first = threading.Thread(target=lambda: closes.append(session.close()))
    first.start()
    assert is_closing.wait(SECONDS)
    second = threading.Thread(target=lambda: closes.append(session.close()))
    second.start()
    wait_until(lambda: not session._thread._thread._running or second.is_alive())
    ended.set()
    first.join(SECONDS)
    second.join(SECONDS)
    assert closes == [["shutdown was handled"], [], []]


def test_closing_returns_what_was_queued_and_ends_what_runs() -> None:
    # Mutation: return None from `close`.
    session = scripted_session(hang(after=1))
    has_text = threading.Event()
    session.subscribe(lambda event: has_text.set() if isinstance(event, MessageUpdate) else None)
    session.steer("Begin.")
    assert has_text.wait(SECONDS)
    session.follow_up("Later.")
    assert session.close() == ["Later."]


def test_a_session_that_is_forgotten_lets_go_of_its_file(tmp_path: Path) -> None:
    # Mutation: keep a reference to the SyncSession on its thread, or do not close it when it is collected.
    session = scripted_session(reply("Hello."), folder=tmp_path)
    session.prompt("Hi.")
    path = session.path
    assert path is not None
    with pytest.raises(SessionLockedError):
        SessionManager.open(path)
    gc.disable()
    try:
        del session
    finally:
        gc.enable()
    wait_until(lambda: not own_threads())
    SessionManager.open(path).close()


def test_a_session_in_a_with_block_is_open_inside_and_closed_after() -> None:
    # Mutation: do not start it in `__enter__`.
    with scripted_session() as session:
        assert "idle" in repr(session)
    assert "closed" in repr(session)


def test_many_may_close_at_once_and_each_comes_back() -> None:
    # Mutation: raise in whoever asks a loop that has just ended.
    for _ in range(20):
        session = scripted_session(reply("Hello."))
        session.prompt("Hi.")
        with ThreadPoolExecutor(8) as threads:
            closed = [threads.submit(session.close) for _ in range(8)]
            assert [one.result(SECONDS) for one in closed] == [[]] * 8
