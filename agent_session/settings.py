"""Settings: what a user may turn, with the documented defaults in one place.

Sources and merging (`Settings.load`) and the defaults that depend on the model
(`CompactionSettings.for_model`) are here too; nothing else in the package reads the environment for a
setting.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import override

from agent_session.errors import SettingsError
from agent_session.models import Model
from session_store.showing import one_line

REASONING_COMPACTION_RESERVE_TOKENS = 48_000
COMPACTION_RESERVE_TOKENS = 16_384
REASONING_KEEP_RECENT_TOKENS = 20_000
NON_REASONING_KEEP_RECENT_TOKENS = 30_000

Tokens: TypeAlias = Annotated[int, Field(gt=0)]


if TYPE_CHECKING:
    _Refusing = type  # a type checker sees the constructors that the fields make
else:

    class _Refusing(type(BaseModel)):
        """Settings that are given as keyword arguments come in here; pydantic makes nested ones by itself."""

        def __call__(cls, *positional: object, **values: Any) -> Any:
            if positional:
                raise TypeError(f"{cls.__name__} takes keyword arguments: {', '.join(cls.model_fields)}")
            try:
                return super().__call__(**values)
            except ValidationError as error:
                raise _refusal(cls, error) from None


class _Section(BaseModel, metaclass=_Refusing):
    """`_place` is where it stands in `Settings`, with the dot behind it.

    Raises:
        SettingsError: an unknown key or a wrong value; `path` names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    _place: ClassVar[str] = ""

    @override
    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """What differs from the defaults."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                yield name, value


class CompactionOverride(_Section):
    """The numbers that may differ for one model."""

    reserve_tokens: Tokens | None = None
    keep_recent_tokens: Annotated[int, Field(ge=0)] | None = None
    trigger_at: Annotated[float, Field(gt=0)] | None = None


class CompactionSettings(CompactionOverride):
    """When and how history is compacted. None means: by model (`for_model`).

    `trigger_at` is tokens, or a fraction of the working limit when below 1. `overflow_recoveries` is how
    often an overflow is compacted and retried until a reply succeeds or a new prompt arrives.
    """

    _place: ClassVar[str] = "compaction."

    enabled: bool = True
    model_overrides: dict[str, CompactionOverride] = Field(default_factory=dict)
    summary_model: str | None = None
    summary_input: Literal["text", "prefix"] = "text"
    summary_max_tokens: Tokens | None = None
    summarizer: Literal["model", "digest"] = "model"
    overflow_recoveries: Annotated[int, Field(ge=0)] = 1
    max_summary_calls: Annotated[int, Field(ge=1)] = 8
    max_compactions_per_run: Annotated[int, Field(ge=1)] | None = None
    summary_silence_seconds: Annotated[float, Field(gt=0)] = 120.0

    @classmethod
    def for_model(cls, model: Model | str, thinking_level: str | None) -> CompactionSettings:
        """The defaults for a model at a thinking level.

        Thinking costs room in each answer, and each kept message drags its signature along: more in reserve, less
        kept. The numbers are defaults, not the user's own: `compaction.trigger.budget_for` still fits the reserve to
        a small window.
        """
        thinks = thinking_level not in (None, "off") and Model.of(model).reasoning is not False
        return cls.model_construct(
            _fields_set=set(),
            reserve_tokens=REASONING_COMPACTION_RESERVE_TOKENS if thinks else COMPACTION_RESERVE_TOKENS,
            keep_recent_tokens=REASONING_KEEP_RECENT_TOKENS if thinks else NON_REASONING_KEEP_RECENT_TOKENS,
        )

    def own_numbers(self, model: Model) -> CompactionOverride:
        """What the user set for this model: `model_overrides` first, then the general numbers; None where neither."""
        override = self.model_overrides.get(model.id, CompactionOverride())
        numbers: dict[str, float | None] = {}
        for name in CompactionOverride.model_fields:
            own = getattr(self, name) if name in self.model_fields_set else None
            special = getattr(override, name)
            numbers[name] = own if special is None else special
        return CompactionOverride.model_validate(numbers)


DEFAULT_COMPACTION_SETTINGS = CompactionSettings()
"""Everything by model."""


class RetrySettings(_Section):
    """Transient failures of a provider: how often, and how long to wait (seconds)."""

    _place: ClassVar[str] = "retry."

    enabled: bool = True
    max_retries: Annotated[int, Field(ge=0)] = 3
    base_delay_seconds: Annotated[float, Field(ge=0)] = 2.0
    max_retry_after_seconds: Annotated[float, Field(ge=0)] = 60.0
    silence_seconds: Annotated[float, Field(gt=0)] = 300.0


class Settings(_Section):
    """Everything a user may turn. `None` for model and thinking level: as in the log, else as given elsewhere."""

    model: str | None = None
    thinking_level: Literal["off", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    compaction: CompactionSettings = CompactionSettings()
    retry: RetrySettings = RetrySettings()
    durability: Literal["turn", "os"] = "turn"
    hook_timeout: Annotated[float, Field(gt=0)] = 30.0

    def merged(self, changes: Mapping[str, Any]) -> Settings:
        """These settings with `changes`, section by section and key by key.

        Raises:
            SettingsError: an unknown key or a wrong value; `path` names it.
        """
        merged = self.model_dump(exclude_unset=True)
        for key, value in changes.items():
            section = merged.get(key)
            merged[key] = {**section, **value} if isinstance(section, dict) and isinstance(value, Mapping) else value
        try:
            return type(self).model_validate(merged)
        except ValidationError as error:
            raise _refusal(type(self), error) from None

    @classmethod
    def load(cls, cwd: str | Path, *, is_trusted: bool = False) -> Settings:
        """What the user and the project set: `~/.agent-session/settings.json`, then `.agent-session/settings.json` in
        `cwd`, then variables such as `AGENT_SESSION_COMPACTION__RESERVE_TOKENS`.

        Merged key by key; lists replace. Unknown keys warn. Of a project that is not trusted only numbers and booleans
        of `compaction` and `retry` count.

        Raises:
            SettingsError: a file that is no JSON object, or a wrong value; `path` names it, `source` says who set it.
        """
        users, projects = (Path(folder) / ".agent-session" / "settings.json" for folder in (Path.home(), cwd))
        project = _read(projects)
        sources = {
            str(users): _read(users),
            str(projects): project if is_trusted else _harmless(project),
            _ENVIRONMENT: _from_environment(os.environ),
        }
        found: dict[str, Any] = {}
        for source, values in sources.items():
            found = _joined(found, _known(cls, values, source))
        try:
            return cls().merged(found)
        except SettingsError as error:
            raise SettingsError(error.path, error.why, source=_setter_of(error.path, sources)) from None


_PREFIX = "AGENT_SESSION_"
_ENVIRONMENT = "the environment"
_NOT_SETTINGS = ("AGENT_SESSION_DIR", "AGENT_SESSION_LOG")


def _refusal(section: type[_Section], error: ValidationError) -> SettingsError:
    """What pydantic found first, in words that say what is right."""
    problem = error.errors(include_url=False)[0]
    path = section._place + ".".join(map(str, problem["loc"]))
    if problem["type"] == "extra_forbidden":
        return SettingsError(path, _unknown(section, problem))
    return SettingsError(path, f"{problem['msg'].removeprefix('Input ')}, not {one_line(repr(problem['input']))}")


def _unknown(section: type[_Section], problem: ErrorDetails) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - for who made a mistake

    *sections, name = problem["loc"]
    model: Any = section
    for inner in sections:
        model = model.model_fields[inner].annotation if inner in getattr(model, "model_fields", ()) else None
    known = getattr(model, "model_fields", CompactionOverride.model_fields)
    close = get_close_matches(str(name), known, 1)
    return f"there is no such setting; {f'did you mean {close[0]}? ' if close else ''}known are: {', '.join(known)}"


def _read(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, orjson.JSONDecodeError) as error:
        raise SettingsError(str(path), f"cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise SettingsError(str(path), f"must hold a JSON object, not {type(value).__name__}")
    return value


def _harmless(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        section: {key: value for key, value in settings[section].items() if isinstance(value, bool | int | float)}
        for section in ("compaction", "retry")
        if isinstance(settings.get(section), dict)
    }


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(first)
    for key, value in second.items():
        before = joined.get(key)
        joined[key] = _joined(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return joined


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """`AGENT_SESSION_SECTION__KEY`; a value is JSON where it is valid JSON, else text."""
    found: dict[str, Any] = {}
    for variable, text in environment.items():
        name = variable.removeprefix(_PREFIX).lower()
        section, _, key = name.partition("__")
        is_ours = variable.startswith(_PREFIX) and variable not in _NOT_SETTINGS
        if not is_ours or section not in Settings.model_fields:
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = text
        found = _joined(found, {section: {key: value}} if key else {section: value})
    return found


def _setter_of(path: str, sources: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Who had the last word on a setting: a file, or the variable by its name."""
    for source, values in reversed(list(sources.items())):
        value: Any = values
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            return f"{_PREFIX}{path.replace('.', '__').upper()}" if source == _ENVIRONMENT else source
    return None


def _known(model: type[BaseModel], settings: Mapping[str, Any], source: str, where: str = "") -> dict[str, Any]:
    known: dict[str, Any] = {}
    for key, value in settings.items():
        field = model.model_fields.get(key)
        if field is None:
            known_are = ", ".join(model.model_fields)
            warnings.warn(f"unknown setting {where}{key} in {source}; known are: {known_are}", stacklevel=4)
        elif isinstance(value, dict) and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            known[key] = _known(field.annotation, value, source, f"{where}{key}.")
        else:
            known[key] = value
    return known
