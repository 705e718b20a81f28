"""Logging says nothing until a program asks, then says it to the standard logger, and never says a secret."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from agent_session import logs


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    """A program that listens to everything this package says."""
    handler = Kept()
    logger = logging.getLogger("agent_session")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)


def test_nothing_is_printed_where_logging_is_not_configured() -> None:
    # Mutation: leave the NullHandler out in logs.py: the handler of last resort prints.
    answer = run_python(
        "import agent_session, session_store\n"
        "from agent_session.logs import get_logger\n"
        "log = get_logger(session_id='s')\n"
        "log.info('a'); log.warning('b'); log.error('c')\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: log.exception('d')\n"
        "import logging; logging.getLogger('agent_session').error('e')\n"
    )
    assert (answer.stdout, answer.stderr) == ("", "")


def test_structlog_is_not_imported_before_somebody_listens() -> None:
    # Mutation: import structlog at the top of logs.py.
    answer = run_python(
        "import logging, sys\n"
        "from agent_session.logs import get_logger\n"
        "get_logger().error('unheard')\n"
        "print('structlog' in sys.modules)\n"
        "logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(message)s')\n"
        "get_logger().info('heard', tokens_before=3)\n"
        "print('structlog' in sys.modules)\n"
    )
    assert answer.stdout.splitlines() == ["False", "heard tokens_before=3", "True"]


def test_the_global_structlog_configuration_is_left_alone(kept: Kept) -> None:
    # Mutation: call structlog.configure in `_structured`.
    import structlog

    logs.get_logger().info("once")
    assert not structlog.is_configured()
    assert kept.records


def test_a_record_carries_what_is_bound_and_what_is_said(kept: Kept) -> None:
    # Mutation: drop `.bind(**bound)` in `_structured`.
    log = logs.get_logger(session_id="0f", run=2).bind(turn=3)
    log.info("compaction.end", compaction_id="c1", status="applied", tokens_before=148_211)
    (record,) = kept.records
    assert record.name == "agent_session"
    assert record.levelno == logging.INFO
    assert vars(record) | {"session_id": "0f", "run": 2, "turn": 3, "compaction_id": "c1"} == vars(record)
    assert record.getMessage() == (
        "compaction.end session_id=0f run=2 turn=3 compaction_id=c1 status=applied tokens_before=148211"
    )


def test_binding_makes_a_new_logger_and_unbinding_takes_a_value_away(kept: Kept) -> None:
    # Mutation: let `bind` update `self._bound` and return self.
    session = logs.get_logger(session_id="0f")
    session.bind(run=1)
    session.info("idle")
    session.bind(run=1).unbind("session_id").info("bare")
    assert [record.getMessage() for record in kept.records] == ["idle session_id=0f", "bare run=1"]


@pytest.mark.parametrize("name", ["debug", "info", "warning", "error"])
def test_the_record_names_the_line_that_logged(kept: Kept, name: str) -> None:
    # Mutation: change `_CALLER_DEPTH`.
    getattr(logs.get_logger(), name)("here")
    assert kept.records[0].funcName == "test_the_record_names_the_line_that_logged"


def test_a_value_may_have_the_name_of_a_field_of_the_record(kept: Kept) -> None:
    # Mutation: pass `values` as `extra` without renaming: logging raises KeyError.
    logs.get_logger().info("tool.end", name="bash", args=["ls"], message="100% done")
    (record,) = kept.records
    assert record.getMessage() == "tool.end name=bash args=\"['ls']\" message='100% done'"
    assert (vars(record)["name_"], vars(record)["args_"]) == ("bash", ["ls"])


def test_an_exception_is_told_with_its_traceback_and_without_its_secrets(kept: Kept) -> None:
    # Mutation: put `_redacted` before `format_exc_info`.
    try:
        raise ValueError("refused: Bearer abcdef0123456789")
    except ValueError:
        logs.get_logger().exception("model.failed")
    text = kept.records[0].getMessage()
    assert "ValueError: refused: [redacted]" in text
    assert "Traceback" in text
    assert "abcdef0123456789" not in text


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "OPENAI_API_KEY",
        "x-api-key",
        "Authorization",
        "access_token",
        "accessToken",
        "token",
        "client_secret",
        "password",
        "Cookie",
        "privateKey",
    ],
)
def test_a_value_filed_under_the_name_of_a_credential_is_redacted(kept: Kept, name: str) -> None:
    # Mutation: empty `_SECRET_NAME`; or redact only the top level.
    logs.get_logger(**{name: "abc"}).info("request", headers={name: "abc"}, tries=[{name: "abc"}])
    (record,) = kept.records
    assert "abc" not in record.getMessage()
    assert "abc" not in str(vars(record))


@pytest.mark.parametrize("name", ["tokens_before", "max_tokens", "keep_recent_tokens", "input", "token_count", "key"])
def test_a_size_in_tokens_is_no_secret(kept: Kept, name: str) -> None:
    # Mutation: let `_SECRET_NAME` match `token` anywhere.
    logs.get_logger().info("compaction.start", **{name: "12,345"})
    assert "12,345" in kept.records[0].getMessage()


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-Abc123Def456",
        "sk-ant-REDACTED",
        "AKIAABCDEFGHIJKLMNOP",
        "ghp_abcdefghijklmnop",
        "AIzaSyA1234567890abcdefghijk",
        "user:pa55word",
    ],
)
def test_a_credential_inside_a_text_is_redacted(kept: Kept, secret: str) -> None:
    # Mutation: return strings unchanged in `redact`.
    text = f"https://{secret}@host/" if ":" in secret else f"Incorrect API key provided: {secret}."
    logs.get_logger().warning("model.failed", error=text, nested={"body": [text]})
    (record,) = kept.records
    assert secret not in str(vars(record))
    assert secret not in repr(logs.get_logger(error=text))


def test_a_log_file_gets_one_json_object_a_line_and_is_the_owners_alone(tmp_path: Path) -> None:
    # Mutation: open the file without mode 0600; or leave `_listener.stop()` out of `close`.
    path = tmp_path / "session.log"
    with logs.configure_file_log(path) as log_file:
        logs.get_logger(session_id="0f").info("run.start", text='two\nlines "quoted" \u2028', api_key="abc")
        logs.get_logger().debug("unheard")
        assert log_file.path == str(path)
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    assert [{name: value for name, value in line.items() if name != "time"} for line in lines] == [
        {
            "level": "info",
            "event": "run.start",
            "session_id": "0f",
            "text": 'two\nlines "quoted" \u2028',
            "api_key": "[redacted]",
        }
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_after_its_log_file_is_closed_the_package_is_silent_again(tmp_path: Path) -> None:
    # Mutation: leave the handler or the level in place in `close`.
    path = tmp_path / "session.log"
    log_file = logs.configure_file_log(path, level=logging.DEBUG)
    assert logs.is_heard(logging.DEBUG)
    log_file.close()
    log_file.close()
    size = path.stat().st_size
    logs.get_logger().error("late")
    assert path.stat().st_size == size
    assert logging.getLogger("agent_session").level == logging.NOTSET


@pytest.fixture
def log_path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "session.log"
    with logs.configure_file_log(path):
        yield path


async def test_logging_to_a_file_never_makes_the_event_loop_wait_for_the_disk(log_path: Path) -> None:
    # Mutation: add `self._file` to the logger in place of the queue's handler: blockbuster raises.
    logs.get_logger().info("from.the.loop")


def test_a_log_file_that_cannot_be_opened_is_told_at_once(tmp_path: Path) -> None:
    # Mutation: leave the opening to the file handler, with delay=True.
    with pytest.raises(FileNotFoundError):
        logs.configure_file_log(tmp_path / "missing" / "session.log")
    assert not any(isinstance(handler, logging.FileHandler) for handler in logging.getLogger("agent_session").handlers)
