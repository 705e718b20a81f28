"""Subscribers are told, once, in order and when it is final; what they do is their own business."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio

from agent_session import Event, ExtensionFailed, MessageEnd, MessageUpdate, TextDelta
from agent_session.testing import reply
from tests.session.scene import scene


async def test_a_listener_that_raises_is_reported_and_goes_on_being_called(tmp_path: Path) -> None:
    # Mutation: in `Dispatcher.report` let the error through, or take the listener off.
    called: list[str] = []

    def broken(event: Event) -> None:
        called.append(event.name)
        raise RuntimeError("broken on purpose")

    async with scene(tmp_path, [reply("one"), reply("two")]) as stage:
        stage.expects_failures = True
        stage.session.subscribe(broken)
        assert str(await stage.session.prompt("go")) == "one"
        count = len(called)
        assert str(await stage.session.prompt("go on")) == "two"
        assert len(called) > count
        failures = stage.of(ExtensionFailed)
        assert len(failures) == sum(name != "extension_failed" for name in called)
        assert all("broken" in failure.owner and "broken on purpose" in failure.why for failure in failures)


async def test_an_async_listener_has_heard_an_event_before_the_next_is_told(tmp_path: Path) -> None:
    # Mutation: in `Dispatcher.report` forget what a listener returned.
    heard: list[str] = []

    async def slow(event: Event) -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
        heard.append(event.name)

    async with scene(tmp_path, [reply("one")]) as stage:
        stage.session.subscribe(slow)
        await stage.session.prompt("go")
        told = [event.name for event in stage.events if event.name != "session_start"]
        assert heard == told[: len(heard)]
        assert len(heard) >= len(told) - 1
        assert "agent_end" in heard


async def test_subscribers_are_told_after_the_handlers_were_asked(tmp_path: Path) -> None:
    # Mutation: in `Dispatcher.notify` report first.
    order: list[str] = []

    def handling(api: Any) -> None:
        @api.on("turn_end")
        async def handle(event: Any) -> None:
            await anyio.lowlevel.checkpoint()
            order.append("handler")

    async with scene(tmp_path, [reply("one")], extensions=[handling]) as stage:
        stage.session.subscribe(lambda event: order.append("subscriber") if event.name == "turn_end" else None)
        await stage.session.prompt("go")
    assert order == ["handler", "subscriber"]


async def test_a_recorded_message_is_told_once_with_its_entry(tmp_path: Path) -> None:
    # Mutation: in `Recorder.record` tell the decision too.
    async with scene(tmp_path, [reply("one")]) as stage:
        await stage.session.prompt("go")
        told = [(event.message.text, event.entry is not None) for event in stage.of(MessageEnd)]
        assert told == [("go", True), ("one", True)]


async def test_updates_of_one_message_coalesce_for_who_reads_later(tmp_path: Path) -> None:
    # Mutation: in `EventStream._push` keep every piece.
    text = "one two three four five six"
    async with scene(tmp_path, [reply(text, chunks=6)]) as stage, stage.session.events() as stream:
        await stage.session.prompt("go")
        seen: list[Event] = []
        with anyio.fail_after(5):
            async for event in stream:
                seen.append(event)
                if event.name == "agent_settled":
                    break
        updates = [event.delta for event in seen if isinstance(event, MessageUpdate)]
        assert updates == [TextDelta(0, text)]
        assert len([event for event in stage.events if event.name == "message_update"]) == 6


async def test_a_stream_of_events_ends_with_its_session(tmp_path: Path) -> None:
    # Mutation: in `SessionCore.close` leave the streams open.
    async with scene(tmp_path, [reply("one")], check=False) as stage, stage.session.events() as stream:
        await stage.session.prompt("go")
        await stage.session.close()
        with anyio.fail_after(5):
            names = [event.name async for event in stream]
        assert names[-1] == "session_shutdown"
