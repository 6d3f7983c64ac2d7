"""awl is ended by a signal, at any moment, thousands of times: SIGKILL, SIGTERM and SIGHUP, with
and without a terminal. Nothing that was acknowledged is lost, and the next prompt is answered.

The processes are forks of one that has everything imported, so that the moments lie in the turn and
not before it. `pytest --long tests/crash` ends two thousand of them.
"""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import signal
import time
from pathlib import Path

import pytest
from running import JSON, Awl, call, say
from zygote import Fork, Forks

from .conftest import Figures
from .endings import check_told, check_went_on, complete

SEED = int(os.environ.get("AWL_KILL_SEED", "20260425"))
SIGNALS = ("SIGKILL", "SIGKILL", "SIGTERM", "SIGHUP")
WHOLE_TURN = 0.4
"""Seconds that a turn takes on an idle machine."""
PROMPT = b"\xe2\x80\xba "

ROUNDS: list[JSON] = [
    {"when": "PING", "steps": [say("pong")]},
    {"when": "third\n", "steps": [say("All done. " * 20, delay=0.002)]},
    {"when": "second\n", "steps": [call("bash", command="sleep 0.05; echo third")]},
    {
        "when": "first\n",
        "steps": [
            call("bash", command="seq 1 9000; echo second"),
            call("bash", command="sleep 0.02; echo second"),
        ],
    },
    {
        "when": "go",
        "steps": [
            {"thinking": "Hm. " * 10, "delay": 0.002},
            say("word " * 60, delay=0.003),
            call("read", path="a.txt"),
            call("bash", command="echo first"),
        ],
    },
]


def acknowledged(awl: Awl) -> bytes:
    """What the only log that there is holds for sure."""
    return complete(awl.log.read_bytes()) if awl.logs else b""


def end(awl: Awl, running: Fork, name: str) -> tuple[bytes, bool]:
    """End a process; what its log held for sure just before, and whether it had not ended."""
    before = acknowledged(awl)
    with contextlib.suppress(ProcessLookupError):
        running.signal(name)
    code = running.wait()
    assert code in (0, 1, -getattr(signal, name)) or code > 128, code
    return before, code != 0


def at_a_terminal(
    awl: Awl, forks: Forks, name: str, after: float, resumed: list[str]
) -> tuple[bytes, bool]:
    ours, theirs = pty.openpty()
    try:
        running = forks.start(awl, *resumed, "-y", terminal=os.ttyname(theirs))
        screen = b""
        deadline = time.monotonic() + 30
        while PROMPT not in screen:
            assert time.monotonic() < deadline, screen
            if select.select([ours], [], [], 0.2)[0]:
                screen += os.read(ours, 65536)
        os.write(ours, b"go\r")
        told = time.monotonic() + after
        while (left := told - time.monotonic()) > 0:  # a terminal that nobody reads stands still
            if select.select([ours], [], [], left)[0]:
                screen += os.read(ours, 65536)
        held = end(awl, running, name)
        assert b"Traceback" not in screen
        return held[0], True  # it waits for the next prompt, or is in the middle of a turn
    finally:
        os.close(ours)
        os.close(theirs)


def in_a_pipe(
    awl: Awl, forks: Forks, name: str, after: float, resumed: list[str]
) -> tuple[bytes, bool]:
    running = forks.start(awl, *resumed, "-p", "go", "-y", "--output", "stream-json")
    time.sleep(after)
    ended = end(awl, running, name)
    out, err = Path(f"{running.out}.out"), Path(f"{running.out}.err")
    told = out.read_bytes() if out.exists() else b""  # a signal may come before there is anything
    assert not err.exists() or "Traceback" not in err.read_text()
    check_told(awl, told)
    return ended


def goes_on(awl: Awl, forks: Forks, before: bytes) -> None:
    """All that was there is there, and the session takes the next prompt."""
    if not awl.logs:
        assert not before
        return
    killed = awl.log.read_bytes()
    assert killed.startswith(before), "acknowledged lines are lost"
    done = forks(awl, "--resume", awl.log.stem.split("_", 1)[1], "-p", "PING")
    assert done.out == "pong\n"
    check_went_on(awl.log, killed)


def end_many(folder: Path, forks: Forks, count: int, seed: int, figures: Figures) -> None:
    """End so many processes that had not come to their end."""
    chance = random.Random(seed)
    awl = None
    n = -1
    while count:
        n += 1
        if awl is None or n % 4 == 0:
            home = folder / f"home{n}"
            home.mkdir()
            awl = Awl(home)
            awl.plays(*ROUNDS)
            (awl.work / "a.txt").write_text("alpha\n")
        name, after = chance.choice(SIGNALS), chance.uniform(0, WHOLE_TURN)
        resumed = ["--resume"] if awl.logs else []
        how = at_a_terminal if chance.random() < 0.25 else in_a_pipe
        try:
            before, hit = how(awl, forks, name, after, resumed)
            goes_on(awl, forks, before)
        except BaseException as error:
            error.add_note(f"AWL_KILL_SEED={seed}, number {n + 1}: {name} {how.__name__} {after}")
            raise
        count -= hit
        figures.count(f"processes ended by {name}" if hit else "turns that came to their end first")
        figures.count("of the ended ones at a terminal", hit and how is at_a_terminal)


def test_ended_at_any_moment_nothing_acknowledged_is_lost(
    tmp_path: Path, forks: Forks, figures: Figures
) -> None:
    end_many(tmp_path, forks, 24, SEED, figures)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_ended_at_any_of_thousands_of_moments_nothing_acknowledged_is_lost(
    tmp_path: Path, forks: Forks, figures: Figures, part: int
) -> None:
    end_many(tmp_path, forks, 260, SEED + part + 1, figures)
