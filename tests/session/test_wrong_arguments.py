"""What a program gets wrong is said where it went wrong, in words that name what is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_session import (
    AgentSession,
    CompactionOverride,
    CompactionSettings,
    ExtensionAPI,
    RetrySettings,
    Settings,
    SettingsError,
)
from tests.session.scene import scene


def setup(api: ExtensionAPI) -> None:
    """An extension that does nothing."""


# Mutation: in `check_arguments` leave each case out: they end in an AttributeError, in a TypeError, as extensions named
# by single letters, and as a level that a provider refuses.
@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("settings", {"compaction": {"enabled": False}}, r"setting settings: must be Settings\(\.\.\.\), not dict"),
        ("extensions", "custom_compaction", "setting extensions: must be a sequence, .*'custom_compaction'"),
        ("extensions", Path("own.py"), "setting extensions: must be a sequence"),
        ("extensions", setup, "setting extensions: must be a sequence"),
        ("thinking_level", "hgih", "setting thinking_level: 'hgih' is none of off, minimal, low, medium, high"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_at_once(argument: str, value: Any, said: str) -> None:
    arguments: dict[str, Any] = {argument: value}
    with pytest.raises(SettingsError, match=said):
        AgentSession("openai/scripted", **arguments)


async def test_a_thinking_level_that_there_is_none_of_changes_and_logs_nothing(tmp_path: Path) -> None:
    # Mutation: in `ModelState.think` do not check the level.
    level: Any = "hgih"
    async with scene(tmp_path, []) as stage:
        with pytest.raises(SettingsError, match="'hgih' is none of off, minimal"):
            await stage.session.set_thinking_level(level)
        assert stage.session.thinking_level == "off"
        assert stage.lines() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"compacton": {}},
            r"setting compacton: there is no such setting; did you mean compaction\? known are: model, thinking_level",
        ),
        (
            {"compaction": {"enabeld": True}},
            r"compaction\.enabeld: there is no such setting; did you mean enabled\? known are: .*trigger_at",
        ),
        (
            {"retry": {"retries": 1}},
            r"retry\.retries: there is no such setting; did you mean max_retries\? known are: enabled, max_retries",
        ),
        (
            {"compaction": {"model_overrides": {"openai/x": {"reserve": 1}}}},
            r"openai/x\.reserve: there is .* known are: reserve_tokens, keep_recent_tokens, trigger_at$",
        ),
    ],
)
def test_a_misspelt_setting_is_answered_with_those_there_are(changes: dict[str, Any], said: str) -> None:
    # Mutation: in `_unknown` name the fields of `Settings`, whatever the section.
    with pytest.raises(SettingsError, match=said):
        Settings().merged(changes)


@pytest.mark.parametrize(
    ("make", "arguments", "path", "said"),
    [
        (Settings, {"typo": 1}, "typo", "there is no such setting; known are: model, "),
        (CompactionSettings, {"reserve_tokens": -1}, "compaction.reserve_tokens", "should be greater than 0, not -1"),
        (RetrySettings, {"retries": 2}, "retry.retries", r"did you mean max_retries\?"),
        (CompactionOverride, {"trigger_at": 0}, "trigger_at", "should be greater than 0, not 0"),
        (
            Settings,
            {"compaction": {"summary_input": 5}},
            "compaction.summary_input",
            "should be 'text' or 'prefix', not",
        ),
        (
            lambda **changes: Settings().merged(changes),
            {"compaction": {"reserve_tokens": -1}},
            "compaction.reserve_tokens",
            ", not -1",
        ),
    ],
)
def test_settings_that_are_wrong_are_refused_alike_by_their_path_in_one_line(
    make: Callable[..., Settings], arguments: dict[str, Any], path: str, said: str
) -> None:
    # Mutation: let pydantic's own error out of the constructor, or leave out where a section stands.
    with pytest.raises(SettingsError, match=said) as caught:
        make(**arguments)
    assert caught.value.path == path
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_settings_by_position_are_refused_with_the_names_they_have() -> None:
    # Mutation: hand positional arguments on to pydantic.
    arguments: list[Any] = [{"compaction": {}}]
    with pytest.raises(TypeError, match="Settings takes keyword arguments: model, "):
        Settings(*arguments)
