"""Several processes at one store, and processes that die: nothing is lost, nobody waits long."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from running import until

from awl.conversation import ModelRef, text_message
from awl.index import intake, level, patience
from awl.store.files import Store

from .stores import anonymous

WORKER = """
import sys, time
from pathlib import Path
from awl.conversation import ModelRef, text_message
from awl.store.files import Store
root, me, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
store = Store(root)
session = store.create("/home/dev", ModelRef("a", "m"))
end, n, slowest = time.monotonic() + seconds, 0, 0.0
while time.monotonic() < end:
    session.append_message(text_message("user", f"entry-{me}-{n}-end"))
    begun = time.monotonic()
    listed = {info.id: info for info in store.list().sessions}
    assert listed[session.id].message_count == n + 1, (n, listed)
    assert all(info.conversation_id for info in listed.values()), listed
    found = store.search(f"entry-{me}-{n}-end")
    slowest = max(slowest, time.monotonic() - begun)
    assert [hit.session_id for hit in found.hits] == [session.id], (n, found)
    n += 1
session.close()
assert not store.notices, store.notices
print(n, slowest)
"""

BUILD = """
import sys
from pathlib import Path
from awl.store.files import Store
store = Store(Path(sys.argv[1]))
print("begun", flush=True)
store.list()
store.search("parser")
"""


def work_together(root: Path, seconds: float) -> list[tuple[int, float]]:
    """Eight processes that append, list and search; how many entries each wrote, and how long its
    longest list and search took."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(root), str(me), str(seconds)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me in range(8)
    ]
    done = []
    for process in running:
        out, err = process.communicate(timeout=seconds + 120)
        assert process.returncode == 0, err
        written, slowest = out.split()
        done.append((int(written), float(slowest)))
    store = Store(root)
    for me, (count, _) in enumerate(done):
        assert len(store.search(f"entry-{me}-").hits) == count
    assert {info.message_count for info in store.list().sessions} == {count for count, _ in done}
    assert len({info.conversation_id for info in store.list().sessions}) == 8
    store.close()
    return done


def test_eight_processes_at_once(tmp_path: Path) -> None:
    assert all(count for count, _ in work_together(tmp_path / "sessions", 2))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_eight_processes_for_a_minute(tmp_path: Path) -> None:
    done = work_together(tmp_path / "sessions", 60)
    print(done)
    assert max(slowest for _, slowest in done) < 1


@pytest.mark.long
@pytest.mark.timeout(600)
def test_eight_processes_of_which_some_are_killed_while_the_index_is_built_anew(
    tmp_path: Path,
) -> None:
    root = tmp_path / "sessions"
    fill(root, 100)
    end = time.monotonic() + 30

    def start(me: int) -> subprocess.Popen[str]:
        left = str(max(1, end - time.monotonic()))
        command = [sys.executable, "-c", WORKER, str(root), str(me), left]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    running = [start(me) for me in range(8)]
    store = Store(root)
    started = 8
    while time.monotonic() < end:
        victim = running.pop(0)
        victim.kill()
        victim.communicate()
        running.append(start(started))
        started += 1
        assert len(store.reindex().sessions) >= 100
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert float(out.split()[1]) < 1, out
    store.close()


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """What a function is called with from now on."""
    real, calls = getattr(module, name), list[Any]()

    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(module, name, call)
    return calls


def fill(root: Path, sessions: int) -> None:
    store = Store(root)
    for number in range(sessions):
        session = store.create("/home/dev", ModelRef("a", "m"))
        session.append_many(
            [session.message_entry(text_message("user", f"parser {number} {n}")) for n in range(50)]
        )
        session.close()
    store.close()


def test_a_catch_up_that_is_killed_at_any_moment_is_healed(tmp_path: Path) -> None:
    root = tmp_path / "sessions"
    fill(root, 40)
    for number in range(12):
        with subprocess.Popen(
            [sys.executable, "-c", BUILD, str(root)], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.012 * number)  # each time at another moment of the work
            process.send_signal(signal.SIGKILL)
        store = Store(root)
        listed, hits = store.list().sessions, store.search("parser 7").hits
        assert len(listed) == 40
        assert {info.message_count for info in listed} == {50}
        assert len(hits) == len(Store(tmp_path / "sessions").search("parser 7").hits)
        assert not store.notices
        store.close()
        if number % 3 == 2:
            for path in (root / ".awl").glob("index.db*"):
                path.unlink()
    store = Store(root)
    searched = store.search("7").hits
    store.close()
    for path in (root / ".awl").glob("index.db*"):
        path.unlink()
    store = Store(root)
    assert anonymous(store.list().sessions) == anonymous(listed)
    assert store.search("7").hits == searched
    store.close()


def test_a_process_that_holds_the_write_lock_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for once, and what the index knows need not be read again from the logs."""
    root = tmp_path / "sessions"
    fill(root, 3)
    store = Store(root)
    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    store.list()
    store.search("parser")
    held = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1]);"
            "db.execute('BEGIN IMMEDIATE'); print('held', flush=True); time.sleep(60)",
            str(root / ".awl" / "index.db"),
        ],
        stdout=subprocess.PIPE,
    )
    try:
        assert held.stdout is not None
        until(held.stdout.readline)
        session = store.create("/home/dev", ModelRef("a", "m"))
        session.append_message(text_message("user", "a new parser"))
        session.close()
        logs_read = counted(monkeypatch, level, "_read_open")
        texts_read = counted(monkeypatch, intake, "_read")
        waits = counted(monkeypatch, time, "sleep")
        assert len(store.list().sessions) == 4
        assert waits
        waits.clear()
        monkeypatch.setattr(patience, "ENOUGH", 0)  # no time passes here without waiting
        assert len(store.list().sessions) == 4
        assert [hit.session_id for hit in store.search("new").hits] == [session.id]
        assert {path for _, path, *_ in logs_read} == {session.path}
        assert (len(texts_read), waits) == (1, [])
        assert any("locked by another process" in notice for notice in store.notices)
    finally:
        held.kill()
        held.communicate()
    store.close()
    store = Store(root)
    assert len(store.list().sessions) == 4
    assert not store.notices
    store.close()
