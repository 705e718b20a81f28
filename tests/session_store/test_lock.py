from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from session_store.codec import encode_entry
from session_store.errors import SessionLockedError
from session_store.jsonl_log import JsonlLog
from session_store.lock import WriterLock
from session_store.testing import new_header, user_entry

HOLDER = """
import sys
from pathlib import Path
from session_store.jsonl_log import JsonlLog
log = JsonlLog.open(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
log.close()
"""


@contextmanager
def owner_of(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that has the session open for writing until its input ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 5)[0], "the other process did not open the session"
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "s.jsonl"
    JsonlLog.create(path, new_header()).close()
    return path


# Mutation: lock with `fcntl.lockf`, which asks nothing of the same process.
def test_a_second_writer_in_the_same_process_is_refused(path: Path):
    first = JsonlLog.open(path)
    with pytest.raises(SessionLockedError) as caught:
        JsonlLog.open(path)
    assert caught.value.pid == os.getpid()
    assert "this process itself" in str(caught.value)  # Mutation: name the own process by its number.
    first.append([encode_entry(user_entry("still mine"))])
    first.close()
    JsonlLog.open(path).close()


def test_two_names_of_one_file_meet_in_one_lock(path: Path):
    link = path.parent / "folder" / "link.jsonl"
    link.parent.mkdir()
    link.symlink_to(path)
    log = JsonlLog.open(path)
    with pytest.raises(SessionLockedError):
        JsonlLog.open(link)
    log.close()


def test_a_writer_in_another_process_is_named_and_readers_are_not_kept_out(path: Path):
    with owner_of(path) as owner:
        with pytest.raises(SessionLockedError) as caught:
            JsonlLog.open(path)
        error = caught.value
        assert (error.pid, error.owner["host"]) == (owner.pid, socket.gethostname())
        assert str(error.owner["since"]).endswith("Z")
        assert str(owner.pid) in str(error)
        JsonlLog.open(path, read_only=True).close()


# Mutation: keep a lock by its file alone (`O_EXCL`), without `flock`.
def test_the_lock_of_a_killed_owner_is_free_at_once(path: Path):
    with owner_of(path) as owner:
        owner.kill()
        owner.wait(5)
        assert path.with_name("s.jsonl.lock").exists()
        log = JsonlLog.open(path)
        # Mutation: leave the old owner's text in the lock file.
        assert json.loads(path.with_name("s.jsonl.lock").read_bytes())["pid"] == os.getpid()
        log.append([encode_entry(user_entry("mine now"))])
        log.close()


# Mutation: take a lock over when its text is old, or its owner does not answer.
def test_a_stopped_owner_still_owns(path: Path):
    with owner_of(path) as owner:
        os.kill(owner.pid, signal.SIGSTOP)
        try:
            os.waitid(os.P_PID, owner.pid, os.WSTOPPED)
            with pytest.raises(SessionLockedError):
                JsonlLog.open(path)
        finally:
            os.kill(owner.pid, signal.SIGCONT)


def test_an_owner_that_closes_leaves_no_lock_file(path: Path):
    with owner_of(path) as owner:
        owner.communicate(timeout=5)
        assert not path.with_name("s.jsonl.lock").exists()
        JsonlLog.open(path).close()


@pytest.mark.parametrize("text", [b"", b"\x00\xff", b"[]", b'{"pid"', b'{"name":"x"}'])
def test_a_lock_file_that_cannot_be_read_still_locks(tmp_path: Path, text: bytes):
    lock = WriterLock(tmp_path / "s.jsonl")
    (tmp_path / "s.jsonl.lock").write_bytes(text)
    with pytest.raises(SessionLockedError) as caught:
        WriterLock(tmp_path / "s.jsonl")
    assert (caught.value.owner, caught.value.pid) == ({}, None)
    lock.release()


def test_a_lock_that_is_no_longer_ones_own_is_noticed(tmp_path: Path):
    lock = WriterLock(tmp_path / "s.jsonl")
    lock.check()
    (tmp_path / "s.jsonl.lock").unlink()
    with pytest.raises(SessionLockedError):  # Mutation: let `check` pass where there is no lock file.
        lock.check()
    other = WriterLock(tmp_path / "s.jsonl")
    with pytest.raises(SessionLockedError):  # Mutation: compare nothing but the name.
        lock.check()
    lock.release()
    other.check()  # Mutation: `release` removes whatever lock file is there.
    other.release()
    other.release()
    with pytest.raises(SessionLockedError):
        other.check()


# Mutation: do not look again, after the lock was taken, whether the file still has the name.
def test_a_lock_file_that_its_owner_removes_meanwhile_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock_path = tmp_path / "s.jsonl.lock"
    flock = fcntl.flock
    removals = 0

    def flock_after_the_owner_left(fd: int, operation: int) -> None:
        nonlocal removals
        if removals < 3:
            removals += 1
            lock_path.unlink()
        flock(fd, operation)

    with monkeypatch.context() as race:
        race.setattr(fcntl, "flock", flock_after_the_owner_left)
        lock = WriterLock(tmp_path / "s.jsonl")
    assert removals == 3
    lock.check()
    with pytest.raises(SessionLockedError):
        WriterLock(tmp_path / "s.jsonl")
    lock.release()


# Mutation: remove the lock file after its descriptor was closed; it may be the next owner's by then.
def test_the_lock_file_is_gone_before_the_lock_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lock = WriterLock(tmp_path / "s.jsonl")
    close = os.close
    was_there: list[bool] = []

    def look_and_close(fd: int) -> None:
        was_there.append((tmp_path / "s.jsonl.lock").exists())
        close(fd)

    with monkeypatch.context() as look:
        look.setattr(os, "close", look_and_close)
        lock.release()
    assert was_there == [False]


# Mutation: leave the `flock` out.
def test_of_many_that_come_at_once_one_has_the_lock(tmp_path: Path):
    inside: list[int] = []
    most: list[int] = []
    start = threading.Barrier(4)

    def compete() -> None:
        start.wait(5)
        for _ in range(200):
            try:
                lock = WriterLock(tmp_path / "s.jsonl")
            except SessionLockedError:
                continue
            inside.append(1)
            os.sched_yield()  # lets the others come while this one is inside
            most.append(len(inside))
            inside.pop()
            lock.release()

    threads = [threading.Thread(target=compete) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert set(most) == {1}


# Mutation: remove the hook for forked children; the child's copy of the descriptor outlives the owner's lock.
def test_a_forked_child_owns_nothing_and_keeps_nothing(tmp_path: Path):
    program = """
import os, sys
from pathlib import Path
from session_store.errors import SessionLockedError
from session_store.lock import WriterLock
lock = WriterLock(Path(sys.argv[1]))
can_end, end = os.pipe()
told, tell = os.pipe()
if os.fork() == 0:
    os.close(end)
    try:
        lock.check()
        os.write(tell, b"owns")
    except SessionLockedError:
        os.write(tell, b"none")
    os.read(can_end, 1)
    os._exit(0)
print(os.read(told, 4).decode())
lock.check()
os.close(lock._fd)  # as the end of this process would
lock._fd = None
WriterLock(Path(sys.argv[1])).release()
print("free")
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s.jsonl")],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("none\nfree\n", "")
