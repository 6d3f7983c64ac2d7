"""Writers that race for a session, stand still in the middle, or have a clock that jumps."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from histories import facts, replayed
from running import LIMIT, until

from awl.conversation import text_message
from awl.errors import SessionBusy
from awl.session import Session
from awl.store.files import SessionInfo, Store

from .conftest import Figures
from .promises import MODEL

RACING = """
import sys, time
from pathlib import Path
from awl.conversation import text_message
from awl.errors import SessionBusy
from awl.session import Session
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
done = refused = 0
while done < count:
    try:
        session = Session.open(path)
    except SessionBusy:
        refused += 1
        continue
    for _ in range(1 + done % 3):
        session.append_message(text_message("user", f"{name} {done}"))
        print(f"{name} {done}", flush=True)
        done += 1
    if done % 2:
        session.close()
    else:  # it dies with the lock in its hands
        session._log._let_go()
    time.sleep(0.002)
print("refused", refused)
"""


def a_session(root: Path) -> Session:
    session = Session.create(root, "/", MODEL)
    session.append_message(text_message("user", "first"))
    return session


def the_only(root: Path) -> SessionInfo:
    with closing(Store(root)) as store:
        (info,) = store.list().sessions
        return info


@pytest.mark.parametrize("writers", [2, 10])
def test_of_writers_that_race_each_writes_all_of_its_own_and_nothing_twice(
    tmp_path: Path, writers: int, figures: Figures
) -> None:
    session = a_session(tmp_path)
    session.close()
    each = 30 // writers + 4
    racing = [
        subprocess.Popen(
            [sys.executable, "-c", RACING, session.path, f"w{n}", str(each)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(writers)
    ]
    told: list[str] = []
    for process in racing:
        out, _ = process.communicate(timeout=4 * LIMIT)
        assert process.returncode == 0
        told += out.splitlines()[:-1]
    entries = [json.loads(line) for line in session.path.read_bytes().splitlines()[1:]]
    said = [e["message"]["content"][0]["text"] for e in entries if e["type"] == "message"]
    assert Counter(said) == Counter(["first", *told])
    assert [entry["seq"] for entry in entries] == [*range(1, len(entries) + 1)]
    assert [entry["parentId"] for entry in entries] == [None, *(e["id"] for e in entries[:-1])]
    for n in range(writers):  # what one wrote is in its own order
        mine = [words for words in said if words.startswith(f"w{n} ")]
        assert mine == sorted(mine, key=lambda words: int(words.split()[1]))
    figures.count("entries that racing writers wrote", len(told))


HOLDING = """
import sys
from pathlib import Path
from awl.conversation import text_message
from awl.session import Session
session = Session.open(Path(sys.argv[1]))
for line in sys.stdin:
    session.append_message(text_message("user", line.strip()))
    print("ok", flush=True)
session.close()
"""


def test_a_writer_that_stands_still_keeps_the_session_and_goes_on(tmp_path: Path) -> None:
    session = a_session(tmp_path)
    session.close()
    command = [sys.executable, "-c", HOLDING, str(session.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as frozen:
        assert frozen.stdin is not None and frozen.stdout is not None
        try:
            frozen.stdin.write("one\n")
            assert frozen.stdout.readline() == "ok\n"
            frozen.send_signal(signal.SIGSTOP)
            until(lambda: state_of(frozen.pid) == "T", "its stop")
            before = session.path.read_bytes()
            with pytest.raises(SessionBusy) as error:
                Session.open(session.path)
            assert error.value.pid == frozen.pid
            assert session.path.read_bytes() == before
            info = the_only(tmp_path)  # readers are not kept waiting
            assert (info.status, info.message_count) == ("open", 2)
            frozen.stdin.write("two\n")
            frozen.send_signal(signal.SIGCONT)
            assert frozen.stdout.readline() == "ok\n"
            frozen.stdin.close()
            assert frozen.wait(LIMIT) == 0
        finally:
            frozen.kill()
    with_all = Session.open(session.path)
    texts = [message.text for message in with_all.conversation.messages]
    assert texts == ["first", "one", "two"]
    with_all.close()


def test_a_writer_that_is_killed_while_it_stands_still_holds_nothing(tmp_path: Path) -> None:
    session = a_session(tmp_path)
    session.close()
    command = [sys.executable, "-c", HOLDING, str(session.path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as frozen:
        assert frozen.stdin is not None and frozen.stdout is not None
        frozen.stdin.write("one\n")
        assert frozen.stdout.readline() == "ok\n"
        frozen.send_signal(signal.SIGSTOP)
        frozen.kill()
    again = Session.open(session.path)
    assert [message.text for message in again.conversation.messages] == ["first", "one"]
    again.close()


def state_of(pid: int) -> str:
    """`T` for a process that is stopped."""
    command = ["ps", "-o", "state=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()[:1]


class Clock:
    """A clock that jumps years to and fro, stands still, and goes on."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._time = datetime(2026, 4, 25, tzinfo=UTC)

    def __call__(self) -> str:
        days = self._chance.choice((0, 0, 0.00001, 1, -1, 4000, -4000))
        self._time += timedelta(days=days)
        if not 1990 < self._time.year < 2090:
            self._time = datetime(2026, 4, 25, tzinfo=UTC)
        return self._time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_jumps_changes_no_order_and_loses_nothing(tmp_path: Path, seed: int) -> None:
    clock, chance = Clock(seed), random.Random(seed)
    said = []
    with patch("awl.session.now", clock), patch("awl.log.lock.now", clock):
        session = a_session(tmp_path)
        said.append("first")
        for n in range(60):
            session.append_message(text_message("user", f"{n}"))
            said.append(f"{n}")
            if chance.random() < 0.2:
                before = session.conversation
                session.close()
                session = Session.open(session.path)
                assert session.conversation == before
            if chance.random() < 0.1:
                os.utime(session.path, ns=(chance.randrange(1 << 61), chance.randrange(1 << 61)))
            if chance.random() < 0.3:
                info = the_only(tmp_path)
                assert info.message_count == len(said)
    assert [message.text for message in session.conversation.messages] == said
    seqs = [entry.seq for entry in session.entries()]
    assert seqs == [*range(1, len(seqs) + 1)]
    session.close()
    assert facts(replayed(session.path))["conversation"] == session.conversation
