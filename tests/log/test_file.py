from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

import awl.log.durable as durable_module
import awl.log.file as file_module
import awl.log.lock as lock_module
from awl.conversation import text_message
from awl.errors import LogChanged, NotASession, SessionBusy, SessionClosed
from awl.log.durable import make_directories
from awl.log.file import LogFile, last_object, torn_files
from awl.log.line import encode
from awl.log.lock import LOCK_PATIENCE, Owner, is_locked, owner_path, read_owner
from awl.session import Session

from .making import HEADER, SESSION_ID, a_log, a_session, message, names_in, wait_for

LINES = [encode(HEADER), encode(message(1)), encode(message(2, "zwei ü"))]
WHOLE = b"".join(LINES)
NAME = f"2026-04-25T17-40-15-990Z_{SESSION_ID}.jsonl"

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


def torn_bytes(path: Path) -> list[bytes]:
    return [torn.read_bytes() for torn in torn_files(path)]


@contextmanager
def program(source: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another Python process that runs a few lines."""
    process = subprocess.Popen(
        [sys.executable, "-c", source, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        leave(process)


def leave(process: subprocess.Popen[str]) -> None:
    """Tell a program to go, and wait until it has gone."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


HOLD = """
import sys
from pathlib import Path
from awl.log.file import LogFile
log = LogFile.open(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.readline()
log.close()
"""

# -- appending -------------------------------------------------------------------------------------


def test_a_log_is_born_with_its_first_lines_and_grows_by_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / NAME
    log = LogFile.create(path, LINES[0])
    assert path.read_bytes() == LINES[0]
    assert log.append(LINES[1] + LINES[2]) == len(LINES[0])
    assert log.append(LINES[1]) == len(WHOLE)
    assert path.read_bytes() == WHOLE + LINES[1]
    assert log.end == path.stat().st_size
    log.close()
    log = LogFile.open(path)
    assert (log.end, log.recovery.torn, log.recovery.lost_lines) == (len(WHOLE + LINES[1]), None, 0)
    log.close()


def test_a_log_is_never_born_over_a_file(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    with pytest.raises(FileExistsError):
        LogFile.create(path, LINES[0])
    assert path.read_bytes() == WHOLE


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    log = LogFile.open(path)
    log.close()
    log.close()
    assert log.closed
    with pytest.raises(SessionClosed):
        log.append(LINES[1])
    assert path.read_bytes() == WHOLE


BIRTH = """
import sys
from pathlib import Path
from awl.log.file import LogFile
log = LogFile.create(Path(sys.argv[1]), b'{"type":"session","id":"s"}\\n{"a":1}\\n')
log.append(b'{"one":1}\\n')
log.append(b'{"two":2}\\n{"three":3}\\n')
log.close()
log = LogFile.open(Path(sys.argv[1]))
log.append(b'{"four":4}\\n')
log.close()
"""


def calls_of(source: str, *arguments: object, inject: str = "", traced: str = "") -> list[str]:
    """The system calls of a program, each as `name file`, of those that concern a session."""
    command = ["strace", "-f", "-y", "-s", "64", "-o", "/dev/stderr"]
    command += ["-e", f"trace={traced or 'write,pwrite64,fsync,fdatasync,mkdir,ftruncate,rename'}"]
    command += ["-e", f"inject={inject}"] if inject else []
    done = subprocess.run(
        [*command, sys.executable, "-c", source, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    calls = []
    for line in done.stderr.splitlines():
        if found := re.search(r"(\w+)\((?:\d+<([^>]*)>|\"([^\"]*)\")", line):
            calls.append(f"{found[1]} {found[2] or found[3]}")
    return calls


@linux_only
def test_each_append_is_one_write_and_one_sync_and_a_birth_is_durable_to_the_last_directory(
    tmp_path: Path,
) -> None:
    base = tmp_path.resolve()
    root, folder = base / "sessions", base / "sessions" / "label"
    path = folder / "x.jsonl"
    calls = [
        # A log is written under another name until it is complete.
        re.sub(r"/\.x\.jsonl\.[0-9a-f]{8}", "/x.jsonl", call)
        for call in calls_of(BIRTH, path)
        if str(base) in call and not call.endswith(".owner")
    ]
    appended = [f"write {path}", f"fdatasync {path}"]
    folders = [f"fsync {folder}", f"fsync {root}", f"fsync {base}"]
    assert calls == [
        f"mkdir {root}",
        f"fsync {base}",
        f"mkdir {folder}",
        f"fsync {root}",
        f"write {path}",
        f"fsync {path}",
        *folders,
        *appended,
        *appended,
        f"fsync {path}",  # opened again: the one who wrote may have been killed before its syncs
        *folders,
        *appended,
    ]


def test_the_directories_of_a_failed_birth_are_durable_or_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next birth would find them and take them for durable."""
    synced: list[Path] = []
    real = durable_module.sync_directory

    def sync_directory(directory: Path) -> None:
        if directory == tmp_path / "a":
            raise OSError(5, "Input/output error")
        real(directory)
        synced.append(directory)

    monkeypatch.setattr(durable_module, "sync_directory", sync_directory)
    with pytest.raises(OSError, match="Input/output"):
        make_directories(tmp_path / "a" / "b" / "c")
    assert synced == [tmp_path]
    assert names_in(tmp_path) == ["a"]
    assert names_in(tmp_path / "a") == []


# -- modes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_files_are_0600_and_directories_0700_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "a" / "b" / NAME
    before = os.umask(umask)
    try:
        log = LogFile.create(path, WHOLE)
        owner = owner_path(path)
        assert stat.S_IMODE(owner.stat().st_mode) == 0o600
        log.close()
        with path.open("ab") as out:
            out.write(b"torn")
        log = LogFile.open(path)
        torn = log.recovery.torn
        log.close()
    finally:
        os.umask(before)
    assert torn is not None
    for file in (path, torn):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for directory in (path.parent, path.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_file_whose_mode_cannot_be_set_is_not_left_to_block_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fchmod", fail)
        with pytest.raises(PermissionError):
            LogFile.create(tmp_path / NAME, WHOLE)
    assert names_in(tmp_path) == []
    LogFile.create(tmp_path / NAME, WHOLE).close()


# -- one writer ------------------------------------------------------------------------------------


def test_a_second_writer_is_refused_with_the_holders_pid_and_writes_nothing(
    tmp_path: Path,
) -> None:
    path = a_log(tmp_path, WHOLE, b"torn")
    with program(HOLD, path) as holder:
        assert said(holder) == "open"
        before = {name: (tmp_path / name).read_bytes() for name in names_in(tmp_path)}
        started = time.monotonic()
        with pytest.raises(SessionBusy) as refused:
            LogFile.open(path)
        assert LOCK_PATIENCE <= time.monotonic() - started < LOCK_PATIENCE + 5
        assert refused.value.pid == holder.pid
        assert str(holder.pid) in str(refused.value)
        assert is_locked(path)
        assert {name: (tmp_path / name).read_bytes() for name in names_in(tmp_path)} == before
        leave(holder)
    assert not is_locked(path)
    assert not owner_path(path).exists()
    LogFile.open(path).close()


def test_the_same_process_cannot_open_a_log_twice(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    log = LogFile.open(path)
    with pytest.raises(SessionBusy) as refused:
        LogFile.open(path)
    assert refused.value.pid == os.getpid()
    log.append(LINES[1])
    log.close()


def test_a_second_writer_waits_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "LOCK_PATIENCE", 60)
    path = a_log(tmp_path, WHOLE)
    with program(HOLD, path) as holder:
        said(holder)
        real = time.sleep

        def sleep(seconds: float) -> None:
            assert holder.stdin is not None
            if not holder.stdin.closed:
                holder.stdin.close()  # the holder leaves while the second one waits
            real(seconds)

        monkeypatch.setattr(time, "sleep", sleep)
        LogFile.open(path).close()


def test_after_a_kill_the_log_opens_at_once(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    with program(HOLD, path) as holder:
        said(holder)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert read_owner(path).pid == holder.pid  # the hint is stale, and hinders nobody
        assert not is_locked(path)
        started = time.monotonic()
        log = LogFile.open(path)
        assert time.monotonic() - started < LOCK_PATIENCE
        assert read_owner(path).pid == os.getpid()
        log.close()


def test_an_owner_file_is_no_lock(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    owner_path(path).write_text(json.dumps({"pid": os.getpid(), "host": "x", "since": "y"}))
    assert not is_locked(path)
    LogFile.open(path).close()
    assert not owner_path(path).exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00\xff", b"[]", b'{"pid":"x"}', b'{"x":' + b"[" * 4000, b"{}" + b" " * 9000],
)
def test_whatever_the_owner_file_holds_is_a_hint_at_most(tmp_path: Path, content: bytes) -> None:
    path = a_log(tmp_path, WHOLE)
    owner_path(path).write_bytes(content)
    assert read_owner(path) == Owner()


def test_an_owner_file_that_never_ends_is_not_waited_for(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    os.mkfifo(owner_path(path))
    assert read_owner(path) == Owner()
    owner_path(path).unlink()
    owner_path(path).symlink_to("/dev/zero")
    assert read_owner(path) == Owner()


def test_the_owner_file_cannot_be_made_to_write_elsewhere(tmp_path: Path) -> None:
    path, target = a_log(tmp_path, WHOLE), tmp_path / "target"
    target.write_text("precious")
    owner_path(path).symlink_to(target)
    LogFile.open(path).close()
    assert target.read_text() == "precious"


def test_that_the_owner_cannot_be_named_hinders_nothing(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    owner_path(path).mkdir()
    log = LogFile.open(path)
    log.append(LINES[1])
    log.close()
    assert path.read_bytes() == WHOLE + LINES[1]


def test_a_reader_that_asks_for_the_lock_disturbs_no_writer(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    assert not is_locked(path)
    assert not is_locked(tmp_path / "gone.jsonl")
    log = LogFile.open(path)
    assert is_locked(path)
    log.append(LINES[1])
    assert is_locked(path)
    log.close()


FORKING = """
import os, sys, time
from pathlib import Path
from awl.errors import SessionClosed
from awl.log.file import LogFile
path = Path(sys.argv[1])
log = LogFile.open(path)
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    try:
        log.append(b'{"from":"the child"}\\n')
        print("written", flush=True)
    except SessionClosed as refused:
        print("refused", os.getppid() if "belongs to process %d" % os.getppid() in str(refused)
              else refused, flush=True)
    log.close()
    print(os.path.exists(f"{path}.owner"), flush=True)
    os.write(tell, b"!")
    time.sleep(600)
os.read(ready, 1)
log.append(b'{"type":"title","id":"p","title":"from the parent"}\\n')
print(child, flush=True)
time.sleep(600)
"""


@linux_only
def test_a_forked_child_can_neither_write_nor_hold_the_lock(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    with program(FORKING, path) as parent:
        told = [said(parent) for _ in range(3)]
        assert f"refused {parent.pid}" in told
        assert "True" in told  # the parent's hint is still there
        (child,) = [int(line) for line in told if line.isdigit()]
        try:
            assert is_locked(path)
            parent.send_signal(signal.SIGKILL)
            parent.wait()
            os.kill(child, 0)  # it is still there
            log = LogFile.open(path)
            log.close()
        finally:
            os.kill(child, signal.SIGKILL)
    assert b"child" not in path.read_bytes()
    assert b"from the parent" in path.read_bytes()


FORGETFUL = """
import os, sys
from pathlib import Path
from awl.log.file import LogFile
fd = LogFile.open(Path(sys.argv[1])).fd
child = os.fork()
if child == 0:
    try:
        print(os.fstat(fd), flush=True)
    except OSError:
        print("closed", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@linux_only
def test_a_child_does_not_hold_a_log_that_its_parent_forgot_to_close(tmp_path: Path) -> None:
    with program(FORGETFUL, a_log(tmp_path, WHOLE)) as parent:
        assert said(parent) == "closed"


def test_a_program_that_is_started_does_not_inherit_the_descriptor(tmp_path: Path) -> None:
    log = LogFile.open(a_log(tmp_path, WHOLE))
    assert not os.get_inheritable(log.fd)
    log.close()


def test_a_path_that_comes_to_name_another_file_before_the_lock_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_log(tmp_path, WHOLE)
    seen: list[int] = []
    real = lock_module.lock

    def lock(fd: int, *, shared: bool = False) -> None:
        if not seen:
            other = tmp_path / "other"
            other.write_bytes(WHOLE + LINES[1])
            other.replace(path)
        seen.append(fd)
        real(fd, shared=shared)

    monkeypatch.setattr(lock_module, "lock", lock)
    log = LogFile.open(path)
    assert len(seen) == 2
    assert log.end == len(WHOLE + LINES[1])
    log.append(LINES[2])
    log.close()
    assert path.read_bytes() == WHOLE + LINES[1] + LINES[2]


def test_a_log_that_vanishes_before_the_lock_is_not_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_log(tmp_path, WHOLE)
    real = lock_module.lock

    def lock(fd: int, *, shared: bool = False) -> None:
        path.unlink()
        real(fd, shared=shared)

    monkeypatch.setattr(lock_module, "lock", lock)
    with pytest.raises(FileNotFoundError):
        LogFile.open(path)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_was_deleted_while_open_takes_nothing_more(
    tmp_path: Path, replaced: bool
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = a_log(folder, WHOLE)
    log = LogFile.open(path)
    kept = tmp_path / "kept"
    kept.hardlink_to(path)
    if replaced:
        other = tmp_path / "other"
        other.write_bytes(b"other")
        other.replace(path)
    else:
        path.unlink()
    with pytest.raises(FileNotFoundError, match="moved or deleted"):
        log.append(LINES[1])
    log.close()
    assert names_in(folder) == ([NAME] if replaced else [])
    assert not replaced or path.read_bytes() == b"other"
    assert kept.read_bytes() == WHOLE


@pytest.mark.parametrize("change", ["longer", "shorter"])
def test_a_log_that_another_program_changed_is_not_written_to(tmp_path: Path, change: str) -> None:
    path = a_log(tmp_path, WHOLE)
    log = LogFile.open(path)
    with path.open("r+b") as out:
        if change == "longer":
            out.seek(0, os.SEEK_END)
            out.write(b"foreign\n")
        else:
            out.truncate(len(WHOLE) - len(LINES[2]))
    now_there = path.read_bytes()
    for _ in range(2):
        with pytest.raises(LogChanged) as refused:
            log.append(LINES[1])
        assert (refused.value.expected, refused.value.found) == (len(WHOLE), len(now_there))
    assert path.read_bytes() == now_there
    log.close()


# -- recovery --------------------------------------------------------------------------------------

BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("tail", "lost"),
    [
        (LINES[1][:30], 0),
        (b"{", 0),
        (b'{"a":"' + "ü".encode()[:1], 0),
        (b"garbage\n", 1),
        (b"garbage\nmore garbage\n", 2),
        (b"garbage\n\n  \n" + LINES[1][:30], 1),
        (b"\x00" * 5000, 0),
        (b"\x00" * 10 + b"\n", 1),
        (b"\x00" * 10 + LINES[1], 1),
        (b"\n", 0),
        (b"\n\n \t\r\n\n", 0),
        (b" ", 0),
        (LINES[1][:-1] + b"\x00\x00", 0),
        (LINES[1][:-1] + LINES[1], 1),
        (b"[1]\n", 1),
        (b"null\n7\n", 2),
        (BOM + LINES[1], 1),
        (b"[" * 9999, 0),
    ],
    ids=lambda value: repr(value)[:40],
)
@pytest.mark.parametrize("before", [LINES[0], WHOLE, BOM + WHOLE], ids=["header", "whole", "bom"])
def test_the_torn_tail_is_kept_aside_whole_and_cut(
    tmp_path: Path, before: bytes, tail: bytes, lost: int
) -> None:
    path = a_log(tmp_path, before, tail)
    log = LogFile.open(path)
    assert path.read_bytes() == before
    assert torn_bytes(path) == [tail]
    found = log.recovery
    assert found.torn in torn_files(path)
    assert (found.torn_bytes, found.newline_added, found.lost_lines) == (len(tail), False, lost)
    log.append(LINES[2])
    log.close()
    assert path.read_bytes() == before + LINES[2]
    log = LogFile.open(path)  # a recovery of a recovery finds nothing to do and still knows of it
    assert (log.recovery.torn, log.recovery.lost_lines) == (None, lost)
    log.close()
    assert torn_bytes(path) == [tail]


@pytest.mark.parametrize(
    "last",
    [
        LINES[1][:-1],
        LINES[1][:-1] + b"\r",
        LINES[1][:-1] + b"  ",
        b'{"type":"tomorrow","id":"x"}',
        b'{"no":"entry"}',
        b'{"type":"tomorrow","id":"x","n":%s}' % (b"9" * 9000),
    ],
)
def test_a_whole_last_object_that_lacks_its_newline_gets_it(tmp_path: Path, last: bytes) -> None:
    path = a_log(tmp_path, LINES[0], last)
    log = LogFile.open(path)
    assert path.read_bytes() == LINES[0] + last + b"\n"
    assert (log.recovery.newline_added, log.recovery.torn) == (True, None)
    assert log.append(LINES[2]) == len(LINES[0] + last) + 1
    log.close()
    assert path.read_bytes() == LINES[0] + last + b"\n" + LINES[2]
    assert torn_files(path) == []


@pytest.mark.parametrize(
    "whole",
    [
        WHOLE,
        LINES[0],
        BOM + WHOLE,
        LINES[0] + b"garbage\n\n" + LINES[1],
        LINES[0] + b'{"type":"tomorrow","id":"x"}\n',
        LINES[0] + b"{}\n",
        LINES[0] + LINES[1][:-1] + b"\r\n",
        b"garbage\n" + LINES[1],
    ],
)
def test_what_ends_in_an_object_and_a_newline_is_left_as_it_is(
    tmp_path: Path, whole: bytes
) -> None:
    path = a_log(tmp_path, whole)
    before = path.stat().st_mtime_ns
    log = LogFile.open(path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (whole, before)
    assert (log.recovery.torn, log.recovery.newline_added) == (None, False)
    log.close()
    assert names_in(tmp_path) == [NAME]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (LINES[0][:40], "its only line is incomplete"),
        (LINES[0][:-2], "its only line is incomplete"),
        (BOM, "its only line is incomplete"),
        (b"\x00" * 4096, "its only line is incomplete"),
        (b"\n\n", "its only line is incomplete"),
        (b"garbage\n", "its only line is incomplete"),
    ],
)
def test_a_file_without_an_object_is_no_session_and_is_not_touched(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = a_log(tmp_path, content)
    with pytest.raises(NotASession) as refused:
        LogFile.open(path)
    assert refused.value.reason == reason
    assert path.read_bytes() == content
    assert names_in(tmp_path) == [NAME]
    assert not is_locked(path)


def test_what_is_no_file_is_no_torn_tail_whatever_its_name(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE)
    torn = path.with_name(f"{NAME}.torn-2026-04-25T17-40-15-99")
    os.mkfifo(f"{torn}0Z")
    Path(f"{torn}1Z").symlink_to("/dev/zero")
    Path(f"{torn}2Z").symlink_to("nowhere")
    Path(f"{torn}3Z").mkdir()
    Path(f"{torn}4Z").write_bytes(b"a line\n")
    log = LogFile.open(path)
    log.close()
    assert (torn_bytes(path), log.recovery.lost_lines) == ([b"a line\n"], 1)


def test_torn_names_that_are_taken_are_never_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: object = None) -> Stopped:
            return cls(2026, 4, 25, 17, 40, 16, 7000)

    monkeypatch.setattr(file_module, "datetime", Stopped)
    path = a_log(tmp_path, WHOLE)
    for tail in (b"one", b"two\n", b"three"):
        with path.open("ab") as out:
            out.write(tail)
        LogFile.open(path).close()
    base = f"{NAME}.torn-2026-04-25T17-40-16-007Z"
    assert names_in(tmp_path) == [NAME, base, f"{base}-2", f"{base}-3"]
    assert torn_bytes(path) == [b"one", b"two\n", b"three"]
    log = LogFile.open(path)
    assert log.recovery.lost_lines == 1
    log.close()


@linux_only
def test_the_torn_tail_is_durable_before_it_is_cut(tmp_path: Path) -> None:
    path = a_log(tmp_path.resolve(), WHOLE, b"torn")
    calls = [call for call in calls_of(HOLD, path) if str(path.parent) in call]
    (torn,) = torn_files(path)
    assert [call for call in calls if ".owner" not in call] == [
        f"write {torn}",
        f"fsync {torn}",
        f"fsync {path.parent}",
        f"ftruncate {path}",
        f"fsync {path}",
        f"fsync {path.parent}",
    ]


def test_a_tail_that_cannot_be_kept_is_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_log(tmp_path, WHOLE, b"torn")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(file_module, "write_all", fail)
        with pytest.raises(OSError, match="No space"):
            LogFile.open(path)
    assert path.read_bytes() == WHOLE + b"torn"
    assert names_in(tmp_path) == [NAME]
    assert not is_locked(path)
    LogFile.open(path).close()
    assert torn_bytes(path) == [b"torn"]


@pytest.mark.parametrize("block", [1, 3, 50, 1 << 20])
@pytest.mark.parametrize(
    "tail", [b"", b"x" * 700, b"\n" * 300, b"x\n" * 200, b"\x00" * 900 + b"\n" + LINES[1][:9]]
)
def test_the_last_object_is_found_wherever_the_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, tail: bytes
) -> None:
    monkeypatch.setattr(file_module, "FIRST_READ", block)
    for content in (WHOLE, BOM + WHOLE, BOM + LINES[0]):
        path = a_log(tmp_path, content, tail)
        with path.open("rb") as file:
            assert last_object(file.fileno()) == (len(content), True)
    path = a_log(tmp_path, tail)
    with path.open("rb") as file:
        assert last_object(file.fileno()) == (0, False)


def test_a_long_tail_of_short_lines_is_searched_in_linear_time(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE, b"\n" * 2_000_000)
    started = time.monotonic()
    LogFile.open(path).close()
    assert time.monotonic() - started < 10
    assert path.read_bytes() == WHOLE


def test_only_the_tail_is_read_to_recover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "FIRST_READ", 4096)
    path = a_log(tmp_path, WHOLE * 5_000, LINES[1][:20])
    read = 0
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        nonlocal read
        read += size
        return real(fd, size, at)

    monkeypatch.setattr(os, "pread", pread)
    LogFile.open(path).close()
    assert read < 10_000


def test_crash_recovery(tmp_path: Path) -> None:
    """The seed's test: a corrupted trailing line is removed and all valid entries are intact."""
    path = a_session(tmp_path / "sessions", tmp_path)
    before = path.read_bytes()
    with path.open("ab") as out:
        out.write(b'{"type":"message","id":"0badc0de","parentId":"')
    session = Session.open(path)
    assert path.read_bytes() == before
    assert [torn.read_bytes() for torn in torn_files(path)] == [
        b'{"type":"message","id":"0badc0de","parentId":"'
    ]
    assert any("incomplete last line" in notice for notice in session.notices)
    assert session.conversation.messages[-1].text == "Welcome"
    session.append_message(text_message("user", "go on"))
    session.close()
    lines = path.read_bytes()[len(before) :].splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["message", "end"]


def test_of_two_openings_at_once_one_recovers(tmp_path: Path) -> None:
    path = a_log(tmp_path, WHOLE, b"torn")
    source = HOLD.replace("log = LogFile.open", "sys.stderr.close(); log = LogFile.open")
    with program(source, path) as one, program(source, path) as other:
        wait_for(lambda: one.poll() is not None or other.poll() is not None)  # one was refused
        holder, refused = (one, other) if one.poll() is None else (other, one)
        assert (said(holder), said(refused)) == ("open", "")
    assert torn_bytes(path) == [b"torn"]
    assert path.read_bytes() == WHOLE
