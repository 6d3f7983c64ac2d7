"""A disk that is full, or fails: said at once, nothing torn, all of it saved once that works."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import JSON, LIMIT, Awl, call, kind, say, texts, until
from terminals import Terminal

PAGE = 4096
LONG = "x" * 100_000
"""More than is left of a disk that is nearly full."""


class SmallDisk:
    """A file system of its own, as small as can be."""

    def __init__(self, awl: Awl) -> None:
        awl.sessions.mkdir()
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "awl-test", awl.sessions],
            capture_output=True,
        )
        if mounted.returncode:
            pytest.skip("mounting is not allowed here")
        self.awl = awl
        self.filler = awl.sessions / "filler"

    def fill(self, leave: int, pid: int | None = None) -> None:
        with self.filler.open("wb", buffering=0) as filler:
            block = b"\0" * PAGE
            try:
                while True:
                    filler.write(block)
            except OSError:
                filler.truncate(max(0, filler.tell() - leave))

    def free(self, pid: int | None = None) -> None:
        self.filler.unlink()

    @property
    def limits(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        subprocess.run(["umount", "-l", self.awl.sessions], check=True)


class SmallFiles:
    """No file may grow any more: what a full disk looks like where nothing can be mounted."""

    def __init__(self, awl: Awl) -> None:
        self.awl = awl
        self.limit = resource.RLIM_INFINITY

    def fill(self, leave: int, pid: int | None = None) -> None:
        self.limit = leave + max((log.stat().st_size for log in self.awl.logs), default=0)
        if pid is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))

    def free(self, pid: int | None = None) -> None:
        self.limit = resource.RLIM_INFINITY
        if pid is not None:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (self.limit, self.limit))

    @property
    def limits(self) -> dict[str, Any]:
        limits = (self.limit, resource.RLIM_INFINITY)
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)}

    def close(self) -> None:
        pass


Disk = SmallDisk | SmallFiles


@pytest.fixture(params=[SmallDisk, SmallFiles])
def disk(awl: Awl, request: pytest.FixtureRequest) -> Iterator[Disk]:
    found: Disk = request.param(awl)
    yield found
    found.close()


def turns(awl: Awl, *more: list[JSON]) -> None:
    awl.plays([say("First.")], *more)


# -- one turn --------------------------------------------------------------------------------------


def test_a_prompt_that_does_not_fit_is_refused_and_nothing_is_asked(awl: Awl, disk: Disk) -> None:
    turns(awl, [say("Second.")])
    awl("-p", "one", **disk.limits)
    before = awl.log.read_bytes()
    disk.fill(0)
    done = awl("--resume", "-p", LONG, code=1, **disk.limits)
    assert done.out == ""
    *notices, refusal = done.err.splitlines()
    assert refusal.startswith("awl: NOT SAVED to ")
    assert str(awl.log) in refusal
    assert all(".awl" in notice or "index" in notice for notice in notices)  # it has no room either
    assert awl.log.read_bytes() == before
    disk.free()
    assert awl("--resume", "-p", "two", **disk.limits).out == "Second.\n"


def test_an_answer_that_does_not_fit_is_shown_and_said_to_be_unsaved(awl: Awl, disk: Disk) -> None:
    turns(awl, [say(LONG, chunk=len(LONG))], [say("Third.")])
    awl("-p", "one", **disk.limits)
    before = awl.log.read_bytes()
    disk.fill(3 * PAGE)
    done = awl("--resume", "-p", "two", code=1, **disk.limits)
    assert done.out == LONG + "\n"  # what was paid for is not thrown away
    assert "awl: NOT SAVED to " in done.err
    assert "1 entry is NOT SAVED" in done.err
    after = awl.log.read_bytes()
    assert after.startswith(before)
    assert after.endswith(b"\n")
    assert kind(awl.entries()[-1]) == "user"
    disk.free()
    awl.plays([say("First.")], [say("Second.")], [say("Third.")])
    assert awl("--resume", "-p", "three", **disk.limits).out == "Second.\n"


def test_a_session_that_cannot_be_born_leaves_nothing_behind(awl: Awl, disk: Disk) -> None:
    disk.fill(0)
    done = awl("-p", LONG, code=1, **disk.limits)
    assert "NOT SAVED" in done.err
    assert awl.logs == []
    disk.free()
    assert awl("-p", "one", **disk.limits).out == "Hello there.\n"


# -- at a terminal ---------------------------------------------------------------------------------


def test_the_queued_answer_is_written_when_there_is_space_again(awl: Awl, disk: Disk) -> None:
    turns(awl, [say(LONG, chunk=len(LONG)), call("bash", command="touch ran")], [say("Third.")])
    with Terminal(awl, "-y") as terminal:
        terminal.say("one")
        terminal.see("First.")
        until(lambda: awl.types()[-1] == "assistant")
        disk.fill(3 * PAGE, terminal.process.pid)
        terminal.say("two")
        terminal.see("NOT SAVED")
        assert kind(awl.entries()[-1]) == "user"  # it ends in a complete line
        assert texts(awl.entries()[-1]) == "two"
        disk.free(terminal.process.pid)
        # It is tried again and again: between a write that was cut short and its being cut back,
        # the log ends in half a line.
        until(lambda: awl.log.read_bytes().count(b"\n") == 6, "the saving of the queued answer")
        terminal.say("three")
        terminal.see("Third.")
        terminal.say("", end="\x04")
        terminal.see("Go on with: awl --resume")
        assert terminal.ends() == 0
    assert not (awl.work / "ran").exists()
    entries = awl.entries()
    assert [kind(e) for e in entries] == ["session", "system", *("user", "assistant") * 3, "end"]
    assert [entry["seq"] for entry in entries[1:]] == [*range(1, len(entries))]
    assert texts(entries[5]) == LONG


def test_a_refused_prompt_returns_to_the_input_line(awl: Awl, disk: Disk) -> None:
    turns(awl, [say("Second.")])
    with Terminal(awl) as terminal:
        terminal.say("one")
        terminal.see("First.")
        until(lambda: awl.types()[-1] == "assistant")
        disk.fill(0, terminal.process.pid)
        # More than what is left of the page that the log's last line lies in.
        words = "two " * 2000
        terminal.say(words)
        terminal.see("NOT SAVED")
        terminal.see("Your prompt is back in the input line.")
        terminal.see("play/scripted")
        disk.free(terminal.process.pid)
        terminal.type("")
        terminal.see("Second.")
        assert terminal.leave() == 0
    assert texts([e for e in awl.entries() if kind(e) == "user"][1]) == words.strip()


def test_leaving_with_something_unsaved_says_so_and_can_write_it_elsewhere(
    awl: Awl, disk: Disk
) -> None:
    turns(awl, [say(LONG, chunk=len(LONG))])
    rescued = awl.home / "rescued.jsonl"
    with Terminal(awl) as terminal:
        terminal.say("one")
        terminal.see("First.")
        until(lambda: awl.types()[-1] == "assistant")
        disk.fill(3 * PAGE, terminal.process.pid)
        terminal.say("two")
        terminal.see("NOT SAVED")
        terminal.say("", end="\x04")
        terminal.see("NOT SAVED")
        terminal.see("Write the whole session to")
        if isinstance(disk, SmallFiles):  # its limit holds everywhere
            disk.free(terminal.process.pid)
        terminal.type(str(rescued))
        assert terminal.ends() == 1
        assert "awl --resume" not in terminal.screen
    whole = [json.loads(line) for line in rescued.read_bytes().splitlines()]
    assert [kind(entry) for entry in whole][:6] == [
        *("session", "system", "user", "assistant", "user", "assistant")
    ]
    assert texts(whole[5]) == LONG
    if isinstance(disk, SmallDisk):
        assert rescued.read_bytes().startswith(awl.log.read_bytes())
    assert oct(rescued.stat().st_mode)[-3:] == "600"


# -- a disk that fails -----------------------------------------------------------------------------


def failing_syncs(awl: Awl, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run awl on a kernel whose `fdatasync` fails, every time, with EIO."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO"]
    trace = awl.tmp / "trace"
    ended = run(awl, ["strace", "-f", "-o", str(trace), *inject, *awl.command(*arguments)])
    assert "EIO" in trace.read_text()
    return ended


def failing_sync(awl: Awl, nth: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run awl with one `fdatasync` that fails, the `nth`. (strace counts for each thread.)"""
    code = (
        "import errno, itertools, os, sys; real = os.fdatasync; count = itertools.count(1)\n"
        "def sync(fd):\n"
        f"    if next(count) == {nth}: raise OSError(errno.EIO, os.strerror(errno.EIO))\n"
        "    real(fd)\n"
        "os.fdatasync = sync\n"
        "from awl.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    return run(awl, [sys.executable, "-c", code, *arguments])


def run(awl: Awl, command: list[str]) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        command,
        cwd=awl.work,
        env=awl.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=4 * LIMIT,
    )
    assert "Traceback" not in ended.stderr
    return ended


def test_a_sync_that_fails_once_is_told_and_the_answer_saved_before_leaving(awl: Awl) -> None:
    ended = failing_sync(awl, 1, "-p", "one")
    assert "NOT SAVED" in ended.stderr
    assert "Input/output error" in ended.stderr
    assert "saved after all: 1 waiting" in ended.stderr
    assert awl.types() == ["session", "system", "user", "assistant", "end"]
    assert [entry["seq"] for entry in awl.entries()[1:]] == [1, 2, 3, 4]


def test_syncs_that_go_on_failing_are_exit_1_and_the_file_ends_in_a_complete_line(
    awl: Awl,
) -> None:
    ended = failing_syncs(awl, "-p", "one")
    assert ended.returncode == 1
    assert "1 entry is NOT SAVED" in ended.stderr
    assert awl.log.read_bytes().endswith(b"\n")
    assert awl.types()[:3] == ["session", "system", "user"]
    assert awl("--resume", "-p", "two").out == "Hello there.\n"


def test_a_prompt_whose_sync_fails_is_refused_and_not_asked(awl: Awl) -> None:
    awl("-p", "one")
    before = awl.log.read_bytes()
    ended = failing_syncs(awl, "--resume", "-p", "two")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "NOT SAVED" in ended.stderr
    assert awl.log.read_bytes() == before
    assert awl("--resume", "-p", "three").out == "Hello there.\n"


def test_a_tool_whose_intent_cannot_be_synced_does_not_run(awl: Awl) -> None:
    awl.plays([call("bash", "t1", command="touch ran")], [say("On.")], [say("On.")])
    ended = failing_sync(awl, 2, "-p", "one", "-y")  # the first is the answer's
    assert ended.returncode == 1
    assert not (awl.work / "ran").exists()
    assert "toolCall" not in awl.types()
    assert awl("--resume", "-p", "two").out == "On.\n"


def test_the_log_of_a_failing_disk_is_where_it_was(awl: Awl) -> None:
    """Nothing is written to another place on its own account."""
    failing_syncs(awl, "-p", "one")
    beside = {path.name for path in awl.log.parent.iterdir()}
    assert {Path(name).suffix for name in beside} <= {".jsonl", ".owner"}
    assert sorted(path.name for path in awl.home.iterdir()) == [
        *("config.toml", "script.jsonl", "sessions", "tmp", "work")
    ]


# -- other commands --------------------------------------------------------------------------------


@pytest.fixture
def small(awl: Awl) -> Iterator[SmallDisk]:
    found = SmallDisk(awl)
    yield found
    found.close()


def test_what_cannot_be_written_is_named_with_what_to_do(awl: Awl, small: SmallDisk) -> None:
    awl("-p", "one")
    before = awl.log.read_bytes()
    small.fill(0)
    fork = awl("sessions", "fork", awl.id, code=1).err.splitlines()[-1]
    assert fork.startswith("awl: No space left on device: ")
    assert ".jsonl (free some space" in fork
    assert "/." not in fork.replace("/.awl", "")
    assert awl.log.read_bytes() == before
    assert len(awl.logs) == 1


def test_the_trash_is_listed_and_emptied_back_where_nothing_can_be_written(
    awl: Awl, small: SmallDisk
) -> None:
    awl("-p", "one")
    awl("sessions", "delete", awl.id)
    for file in (awl.sessions / ".awl").glob("conversations.db*"):
        file.unlink()
    small.fill(0)
    listed = awl("sessions", "restore")
    assert listed.out.endswith(" messages  one\n")


def test_a_backup_that_does_not_fit_says_what_is_missing_and_leaves_no_part(
    awl: Awl, tmp_path: Path
) -> None:
    awl("-p", "one")
    awl("sessions")  # it has a number from here on
    (tmp_path / "small").mkdir()
    small = Awl(tmp_path / "small")
    disk = SmallDisk(small)
    try:
        disk.fill(PAGE)
        done = awl("sessions", "export", "--all", str(small.sessions / "backup"), code=1)
        assert f"{small.sessions}/backup/.awl/conversations.db" in done.err
        assert "free some space" in done.err
        assert not list(small.sessions.glob("backup/.awl"))
    finally:
        disk.close()
