"""What appends, resumes, forks, lists and searches cost, counted: without a clock.

What grows faster than it may fails here: system calls as strace sees them, bytes that are decoded,
calls of functions, lines that are run, and memory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import awl.log.line as codec
from awl.conversation import ModelRef, Text, ToolResult, ToolUse
from awl.entries import (
    CondensationEntry,
    Entry,
    LoggedMessage,
    MessageEntry,
    Summary,
    ToolCallEntry,
)
from awl.log.scan import CHUNK
from awl.session import Session
from awl.state import State
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")
ROUND = 4  # entries of `rounds` for each round


def message(role: Any, *content: Any) -> MessageEntry:
    logged = LoggedMessage(role=role, content=content)
    if role != "user":
        return MessageEntry(message=logged)
    return MessageEntry(message=logged, provider=MODEL.provider, model=MODEL.model)


def rounds(count: int) -> list[Entry]:
    """So many prompts, each with a call, its result and half a kilobyte of words."""
    made: list[Entry] = []
    for n in range(count):
        name = f"call_{n}"
        made += [
            message("user", Text(text=f"prompt {n} " + "word " * 100)),
            message("assistant", ToolUse(id=name, name="bash", input="{}")),
            ToolCallEntry(tool_use_id=name, name="bash"),
            message("user", ToolResult(tool_use_id=name, content="done " * 50)),
        ]
    return made


def a_log(root: Path, count: int, *, condensed: bool = False) -> Path:
    """A log of so many entries; with `condensed`, only the last of them are not replaced."""
    with patch("awl.log.file.sync"), patch("os.fsync"):
        session = Session.create(root, "/home/dev", MODEL)
        session.append_many(rounds(count // ROUND))
        if condensed:
            session.append(
                CondensationEntry(
                    replaced=(1, count - 2 * ROUND),
                    summary=Summary(session_intent="x"),
                    tokens_before=9,
                    tokens_after=1,
                )
            )
            session.append_many(rounds(1))
        session.close()
    return session.path


# -- calls of functions --------------------------------------------------------------------------


def events_in(
    work: Callable[[], object], hook: Callable[[Any], None], kinds: tuple[str, ...]
) -> int:
    """How many events of these kinds a hook of the interpreter is told of."""
    count = 0

    def told(frame: object, event: str, argument: object) -> Any:
        nonlocal count
        count += event in kinds
        return told

    hook(told)
    try:
        work()
    finally:
        hook(None)
    return count


def calls_in(work: Callable[[], object]) -> int:
    """How many functions are called, in Python and in C."""
    return events_in(work, sys.setprofile, ("call", "c_call"))


def lines_in(work: Callable[[], object]) -> int:
    """How many lines are run, each time that a loop comes to one again."""
    return events_in(work, sys.settrace, ("line",))


def bytes_in(work: Callable[[], object]) -> int:
    """The most memory that is taken at a time: a list of all entries, made and let go of within
    one call, is neither a call nor a line more."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def least(count: Callable[[Callable[[], object]], int], work: Callable[[], object]) -> int:
    """Of some times: lists grow, and random bytes are drawn, now and then for many entries."""
    return min(count(work) for _ in range(5))


@pytest.mark.parametrize(("look", "calls"), [(False, 75), (True, 150)])
def test_an_append_costs_the_same_in_a_session_of_any_size(
    tmp_path: Path, look: bool, calls: int
) -> None:
    """With `look`, the state of the session is asked for behind it."""
    entry = message("assistant", Text(text="word " * 50))
    steps, memory = [], []
    for count in (40, 4000):
        session = Session.open(a_log(tmp_path, count))

        def append(session: Session = session) -> object:
            return session.append(entry), look and session.state.next_seq

        for _ in range(3):  # what is needed once is there
            append()
        with decoded() as given:
            steps.append((least(calls_in, append), least(lines_in, append)))
            memory.append(least(bytes_in, append))
        assert not any(counting.bytes for counting in given.values())
        session.close()
    assert steps[0] == steps[1]
    assert steps[0][0] < calls
    assert abs(memory[0] - memory[1]) < 1 << 10  # a list of 4,000 takes 32


def test_a_resume_calls_next_to_nothing_for_an_entry(tmp_path: Path) -> None:
    few, many = (a_log(tmp_path, count) for count in (4000, 8000))
    assert (calls_of_open(many) - calls_of_open(few)) / 4000 < 4
    few, many = (a_log(tmp_path, count, condensed=True) for count in (4000, 8000))
    assert (calls_of_open(many) - calls_of_open(few)) / 4000 < 4


def calls_of_open(path: Path) -> int:
    opened: list[Session] = []
    count = calls_in(lambda: opened.append(Session.open(path)))
    for session in opened:
        session.close()
    return count


# -- bytes that are decoded ----------------------------------------------------------------------


class Counting:
    """A decoder that counts the bytes that it is given."""

    def __init__(self, decoder: Any) -> None:
        self._decode = decoder.decode
        self.bytes = 0

    def decode(self, data: bytes) -> Any:
        self.bytes += len(data)
        return self._decode(data)


@contextmanager
def decoded() -> Iterator[dict[str, Counting]]:
    """How many bytes each decoder of lines is given."""
    names = ("_entry", "_known", "_skimmed", "_outer")
    counting = {name: Counting(getattr(codec, name)) for name in names}
    with ExitStack() as stack:
        for name, decoder in counting.items():
            stack.enter_context(patch.object(codec, name, decoder))
        yield counting


def resumed(path: Path) -> State:
    session = Session.open(path)
    session.close()
    assert session.conversation
    return session.state


def test_a_resume_decodes_each_line_once(tmp_path: Path) -> None:
    path = a_log(tmp_path, 4000)
    with decoded() as given:
        resumed(path)
    size = path.stat().st_size
    assert size * 0.99 < given["_entry"].bytes <= size
    others = sum(counting.bytes for name, counting in given.items() if name != "_entry")
    assert others < 3 * CHUNK // 100


def test_a_condensed_resume_decodes_no_more_bodies_than_it_needs(tmp_path: Path) -> None:
    with patch("awl.log.scan.CHUNK", 1 << 16):
        whole = []
        for count in (1000, 4000):
            path = a_log(tmp_path, count, condensed=True)
            with decoded() as given:
                resumed(path)
            assert given["_skimmed"].bytes <= path.stat().st_size * 1.01
            whole.append(given["_entry"].bytes + given["_known"].bytes + given["_outer"].bytes)
    assert whole[1] - whole[0] < 0.05 * path.stat().st_size


@pytest.mark.parametrize(("at", "scans"), [(4001, 1), (3000, 1), (None, 0)])
def test_a_fork_decodes_no_body_and_only_a_cut_has_it_scan(
    tmp_path: Path, at: int | None, scans: int
) -> None:
    path = a_log(tmp_path, 4000)
    with decoded() as given:
        child = Store(tmp_path).fork(path, at=at)
    assert given["_skimmed"].bytes <= scans * path.stat().st_size
    assert sum(counting.bytes for counting in given.values()) - given["_skimmed"].bytes < 1 << 17
    assert resumed(child).next_seq == (at or 4001) + 1  # the last one says that it was closed


# -- system calls --------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from pathlib import Path
from awl.conversation import Text
from awl.entries import LoggedMessage, MessageEntry
from awl.session import Session
from awl.store.files import Store

def mark():
    try: os.stat("/mark")
    except OSError: pass

what, where = sys.argv[1], Path(sys.argv[2])
entry = MessageEntry(message=LoggedMessage(role="assistant", content=(Text(text="x" * 200),)))
if what == "list":
    store = Store(where)
    store.list()
    store.list()
    mark()
    store.list()
elif what == "find":
    store = Store(where)
    (info,) = store.list().sessions
    session = Session.open(Path(info.path))
    session.append(entry)
    session.close()
    store.resolve(info.id)
    mark()
    store.resolve(info.id)
elif what == "search":
    store = Store(where)
    for _ in range(3):
        store.search("prompt", limit=5)
    mark()
    store.search("prompt", limit=5)
elif what == "append":
    session = Session.open(where)
    session.append(entry)
    mark()
    for _ in range(5):
        session.append(entry)
elif what == "resume":
    mark()
    Session.open(where)
mark()
"""


def system_calls(what: str, where: Path) -> list[str]:
    """The calls that touch files, a line each as strace writes them."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with tempfile.NamedTemporaryFile() as trace:
        strace = ["strace", "-f", "-y", "-s", "0", "-o", trace.name, "-e", "trace=file,desc"]
        program = [sys.executable, "-c", PROGRAM, what, str(where)]
        done = subprocess.run([*strace, *program], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        lines = Path(trace.name).read_text().splitlines()
    begin, end = (at for at, line in enumerate(lines) if '"/mark"' in line)
    return lines[begin + 1 : end]


def names(lines: list[str]) -> Counter[str]:
    found = (re.match(r"\d+ +(\w+)\(", line) for line in lines)
    alike = {"stat": "stat", "statx": "stat", "newfstatat": "stat", "fstat": "stat"}
    return Counter(alike.get(match[1], match[1]) for match in found if match)


def test_an_append_asks_the_system_for_two_looks_a_write_and_a_sync(tmp_path: Path) -> None:
    for count in (40, 2000):
        found = names(system_calls("append", a_log(tmp_path, count)))
        assert found == {"lseek": 5, "write": 5, "fadvise64": 5, "stat": 5, "fdatasync": 5}, count


def test_a_resume_reads_each_byte_once(tmp_path: Path) -> None:
    reads = []
    for count in (16_000, 32_000):  # more than what is looked through for a condensation
        path = a_log(tmp_path, count)
        lines = system_calls("resume", path)
        read = [line for line in lines if re.search(r"\bp?read\w*\(", line) and path.name in line]
        reads.append((sum(int(line.rpartition("= ")[2]) for line in read), path.stat().st_size))
        assert names(lines)["openat"] < 10
    more, larger = reads[1][0] - reads[0][0], reads[1][1] - reads[0][1]
    assert larger < more < 1.15 * larger


def test_a_list_looks_at_each_log_once_and_opens_none(tmp_path: Path) -> None:
    counts = []
    for sessions in (10, 20):
        root = tmp_path / str(sessions)
        for _ in range(sessions):
            os.utime(a_log(root, 8), (1, 1))  # one as fresh as the look at it is looked at again
        lines = system_calls("list", root)
        assert not [
            line for line in lines if ".jsonl" in line and re.search(r"\bopen(at)?\(", line)
        ]
        counts.append(names(lines))
    assert {name: counts[1][name] - counts[0][name] for name in counts[1]} == {
        name: 10 if name == "stat" else 0 for name in counts[1]
    }


def test_a_session_is_found_by_its_id_without_reading_its_log(tmp_path: Path) -> None:
    counts = []
    for entries in (40, 4000):
        root = tmp_path / str(entries)
        a_log(root, entries)
        lines = system_calls("find", root)
        assert not [line for line in lines if re.search(r"\b(p?write\w*|\w*sync)\(", line)]
        read = [line for line in lines if re.search(r"\bp?read\w*\(", line) and ".jsonl" in line]
        assert sum(int(line.rpartition("= ")[2]) for line in read) <= 1 << 14
        counts.append(names(lines))
    assert counts[0] == counts[1]


def test_a_search_looks_at_each_log_once_and_opens_none(tmp_path: Path) -> None:
    counts = []
    for sessions in (10, 20):
        root = tmp_path / str(sessions)
        for _ in range(sessions):
            os.utime(a_log(root, 8), (1, 1))
        lines = system_calls("search", root)
        assert not [line for line in lines if ".jsonl" in line and re.search(r"\bopen", line)]
        counts.append(names(lines))
    assert {name: counts[1][name] - counts[0][name] for name in counts[1]} == {
        name: 10 if name == "stat" else 0 for name in counts[1]
    }
    assert sum(counts[0].values()) - counts[0]["stat"] < 60
