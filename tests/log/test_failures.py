"""Appends that fail: the file ends in a complete line, and the next try works."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import awl.log.durable as durable_module
import awl.log.file as file_module
from awl.errors import LogChanged
from awl.log.file import LogFile, torn_files
from awl.log.line import encode

from .making import HEADER, a_log, message, names_in

LINES = [encode(HEADER), encode(message(1)), encode(message(2))]
WHOLE = b"".join(LINES)
MORE = encode(message(3, "more"))

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    return LogFile.open(a_log(tmp_path, WHOLE))


def goes_on(log: LogFile) -> None:
    """The file ends where it did before; the next append works, and a reopening finds it sound."""
    assert log.path.read_bytes() == WHOLE
    assert log.append(MORE) == len(WHOLE)
    assert log.path.read_bytes() == WHOLE + MORE
    log.close()
    again = LogFile.open(log.path)
    assert again.recovery.torn is None
    again.close()


def failing(code: int, after: int = 0) -> Callable[..., Any]:
    """A system call that works `after` times and then fails once."""
    left = [after]

    def call(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
@pytest.mark.parametrize("written", [0, 1, len(MORE) - 1, len(MORE)])
def test_a_write_that_fails_after_some_bytes_leaves_none_of_them(
    log: LogFile, monkeypatch: pytest.MonkeyPatch, code: int, written: int
) -> None:
    real = os.write
    left = written

    def write(fd: int, data: bytes) -> int:
        nonlocal left
        if fd != log.fd:
            return real(fd, data)
        if not left:
            raise OSError(code, os.strerror(code))
        taken = real(fd, bytes(data)[:left])
        left -= taken
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        if written == len(MORE):
            patch.setattr(file_module, "sync", failing(code))
        with pytest.raises(OSError) as error:
            log.append(MORE)
        assert error.value.errno == code
        assert log.path.read_bytes() == WHOLE or written == len(MORE)
    goes_on(log)


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
def test_a_write_that_takes_less_than_it_was_given_is_gone_on_with(
    log: LogFile, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:most]))
        log.append(MORE)
    assert log.path.read_bytes() == WHOLE + MORE
    log.close()


def test_after_a_sync_that_failed_nothing_is_assumed(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    real = os.pread

    def pread(fd: int, size: int, at: int) -> bytes:
        nonlocal read
        read += at + size >= len(WHOLE)
        return real(fd, size, at)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        patch.setattr(file_module, "sync", failing(errno.EIO))
        for _ in range(3):  # also while it cannot even be cut back
            with pytest.raises(OSError, match="Input/output"):
                log.append(MORE)
        assert read
    goes_on(log)


def test_a_last_line_that_a_failing_disk_took_is_noticed(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "sync", failing(errno.EIO))
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            log.append(MORE)
    zeros = b"\x00" * len(LINES[2])
    with log.path.open("r+b") as out:
        out.seek(len(WHOLE) - len(zeros))
        out.write(zeros)
    with pytest.raises(LogChanged):
        log.append(MORE)
    assert MORE not in log.path.read_bytes()[len(WHOLE) + len(MORE) :]
    log.close()


def test_a_cut_that_fails_is_made_up_for_before_the_next_append(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "sync", failing(errno.EIO))
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            log.append(MORE)
    assert log.path.read_bytes() == WHOLE + MORE  # it was not acknowledged, and is still there
    log.append(MORE)
    log.close()
    assert log.path.read_bytes() == WHOLE + MORE


def test_what_was_begun_counts_when_it_is_settled_and_is_taken_back_if_it_never_is(
    log: LogFile,
) -> None:
    assert log.begin(MORE) == log.end == len(WHOLE)
    assert log.path.read_bytes() == WHOLE + MORE
    assert log.append(MORE) == len(WHOLE)  # what came between the two halves ended the first one
    assert log.path.read_bytes() == WHOLE + MORE
    assert log.begin(MORE) == len(WHOLE + MORE)
    log.settle(MORE)
    assert log.append(MORE) == len(WHOLE + 2 * MORE)
    log.begin(MORE)
    log.close()
    assert log.path.read_bytes() == WHOLE + 3 * MORE


def test_a_log_whose_closing_is_interrupted_is_free(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    log.begin(MORE)
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "read_at", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.close()
    assert log.closed
    LogFile.open(log.path).close()


def test_what_another_program_wrote_after_a_failure_is_not_cut(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(file_module, "sync", failing(errno.EIO))
        patch.setattr(os, "ftruncate", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            log.append(MORE)
    with log.path.open("ab") as out:
        out.write(b"foreign\n")
    for _ in range(2):
        with pytest.raises(LogChanged):
            log.append(MORE)
    assert log.path.read_bytes() == WHOLE + MORE + b"foreign\n"
    log.recover()
    assert [torn.read_bytes() for torn in torn_files(log.path)] == [b"foreign\n"]
    log.append(MORE)
    log.close()
    assert log.path.read_bytes() == WHOLE + MORE + MORE


def test_an_interruption_between_write_and_sync_leaves_no_trace(
    log: LogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, asked = durable_module.sync, []

    def sync(fd: int) -> None:
        asked.append(fd)
        if len(asked) == 1:
            raise KeyboardInterrupt
        real(fd)

    with monkeypatch.context() as patch:
        patch.setattr(file_module, "sync", sync)
        with pytest.raises(KeyboardInterrupt):
            log.append(MORE)
    goes_on(log)


@pytest.mark.parametrize(
    ("module", "stage"),
    [
        (file_module, "write_all"),
        (os, "fsync"),
        (file_module, "give_name"),
        (durable_module, "sync_directory"),
        (file_module, "lock"),
    ],
)
def test_a_birth_that_fails_leaves_no_file_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, stage: str
) -> None:
    path = tmp_path / "label" / "x.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(module, stage, failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            LogFile.create(path, WHOLE)
    assert not path.exists()
    log = LogFile.create(path, WHOLE)
    assert path.read_bytes() == WHOLE
    log.close()
    assert names_in(path.parent) == ["x.jsonl"]


# -- the real thing --------------------------------------------------------------------------------

FILLING = """
import json, os, resource, sys
from pathlib import Path
from types import ModuleType
from awl.log.file import LogFile

where, limited = Path(sys.argv[1]), sys.argv[2] == "limit"
def line(n):
    return json.dumps({"type": "title", "id": "%08x" % n, "title": "x" * 3000}).encode() + b"\\n"
log = LogFile.create(where / "x.jsonl", b'{"type":"session","id":"s"}\\n')
ballast = where / "ballast"
if limited:
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, resource.RLIM_INFINITY))
else:
    ballast.write_bytes(b"x" * 20000)
n, errors, ends = 0, [], []
while len(errors) < 3:
    try:
        log.append(line(n))
        n += 1
    except OSError as error:
        errors.append(error.errno)
        data = log.path.read_bytes()
        ends.append(len(data) == log.end and data.endswith(b'x"}\\n'))
if limited:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
else:
    ballast.unlink()
log.append(line(n))
n += 1
log.close()
log = LogFile.open(log.path)
titles = [json.loads(x)["id"] for x in log.path.read_bytes().splitlines()[1:]]
print(json.dumps({
    "errors": errors, "ends": ends, "torn": log.recovery.torn_bytes,
    "whole": titles == ["%08x" % i for i in range(n)], "n": n,
}))
"""


def check_filled(done: subprocess.CompletedProcess[str], code: int) -> None:
    told = json.loads(done.stdout)
    assert told["errors"] == [code] * 3
    assert told["ends"] == [True] * 3
    assert told["whole"] and told["torn"] == 0
    assert told["n"] > 5


def test_a_file_that_may_not_grow_ends_in_a_whole_line_and_goes_on_later(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILLING, tmp_path, "limit"],
        capture_output=True,
        text=True,
        check=True,
    )
    check_filled(done, errno.EFBIG)


@linux_only
def test_a_full_disk_ends_in_a_whole_line_and_goes_on_when_space_returns(tmp_path: Path) -> None:
    inside = 'mount -t tmpfs -o size=64k tmpfs "$1" && exec "$2" -c "$3" "$1" disk'
    in_namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "-r", "--mount"]
    allowed = subprocess.run(
        [*in_namespace, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if allowed.returncode:
        pytest.skip(
            "file systems cannot be mounted here; the limit on a file's size is tried above"
        )
    done = subprocess.run(
        [*in_namespace, "sh", "-c", inside, "sh", tmp_path, sys.executable, FILLING],
        capture_output=True,
        text=True,
        check=True,
    )
    check_filled(done, errno.ENOSPC)


APPENDING = """
import json, sys
from pathlib import Path
from types import ModuleType
from awl.log.file import LogFile
log = LogFile.open(Path(sys.argv[1]))
told = []
for n in range(5):
    try:
        log.append(b'{"type":"title","id":"%d","title":"x"}\\n' % n)
        told.append(n)
    except OSError as error:
        told.append(error.strerror)
print(json.dumps(told))
"""


def under_strace(path: Path, inject: str) -> list[int | str]:
    """What five appends say while the kernel is made to fail some of the log's system calls."""
    call = inject.split(":", maxsplit=1)[0]
    command = ["strace", "-f", "-o", os.devnull, "-P", str(path)]
    command += ["-e", f"trace={call}", "-e", f"inject={inject}"]
    done = subprocess.run(
        [*command, sys.executable, "-c", APPENDING, path],
        capture_output=True,
        text=True,
        check=True,
    )
    told: list[int | str] = json.loads(done.stdout)
    return told


@linux_only
@pytest.mark.parametrize(
    ("inject", "failed"),
    [
        ("fdatasync:error=EIO:when=2", {1}),  # the sync of the second append; the cut's works
        ("fdatasync:error=EIO:when=2..5", {1, 2, 3, 4}),  # one sync a cut, until one works
        ("fdatasync:error=EIO", {0, 1, 2, 3, 4}),
        ("write:error=ENOSPC:when=3", {2}),
        ("write:error=EIO:when=1+2", {0, 2, 4}),
        ("write:error=EINTR:when=2", set()),
        ("write:error=EINTR:when=1..4", set()),
        ("fdatasync:error=EINTR:when=1..2", set()),
    ],
)
def test_what_was_acknowledged_and_nothing_else_is_there_after_the_kernel_failed(
    tmp_path: Path, inject: str, failed: set[int]
) -> None:
    path = a_log(tmp_path.resolve(), WHOLE)
    told = under_strace(path, inject)
    acknowledged = [n for n in told if isinstance(n, int)]
    log = LogFile.open(path)
    log.close()
    titles = path.read_bytes().splitlines()[len(LINES) :]
    assert [int(json.loads(line)["id"]) for line in titles] == acknowledged
    if failed and inject != "fdatasync:error=EIO:when=2..5":
        assert {n for n in range(5) if n not in acknowledged} == failed
    elif not failed:
        assert acknowledged == [0, 1, 2, 3, 4]
    else:
        assert acknowledged[0] == 0 and len(acknowledged) < 5
