"""Every moment: awl is killed at any time, nothing acknowledged is lost, and the next prompt works.

The short form kills some 25 times; `pytest --long` 240 times. A failure names its seed: run it
again with AWL_KILL_SEED.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from running import JSON, LIMIT, Awl, call, kind, say, until
from terminals import Terminal

from .endings import check_told, check_went_on, complete

SEED = int(os.environ.get("AWL_KILL_SEED", "20260425"))

# A request is answered by what was said last, so that a turn looks the same however the one before
# it ended: three rounds of tools, then words.
STREAMED = "word " * 120
ROUNDS: list[JSON] = [
    {"when": "PING", "steps": [say("pong")]},
    {
        "when": "third\n",
        "steps": [{"thinking": "Enough.", "signature": "c2ln"}, say("All done. " * 20, delay=0.01)],
    },
    {
        "when": "second\n",
        "steps": [
            say("One more. ", delay=0.01),
            call("bash", command="sleep 0.2; echo third"),
        ],
    },
    {
        "when": "first\n",
        "steps": [
            call("bash", command="sleep 0.1; seq 1 9000; echo second"),
            call("bash", command="sleep 0.1; echo second"),
        ],
    },
    {
        "when": "go",
        "steps": [
            {"thinking": "Hm. " * 10, "delay": 0.01},
            say(STREAMED, delay=0.02),
            call("read", path="a.txt"),
            call("find", pattern="*.txt"),
            call("bash", command="echo first"),
        ],
    },
]
WHOLE_TURN = 4.5
"""Seconds that the whole of it takes, start-up included."""


@dataclass
class Tally:
    """What the kills hit."""

    kills: int = 0
    torn: int = 0
    moments: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        moments = ", ".join(f"{n} after {what}" for what, n in self.moments.most_common())
        return f"{self.kills} kills ({moments}); {self.torn} torn tails"


def acknowledged(awl: Awl) -> dict[Path, bytes]:
    """What each log holds for sure: its complete lines."""
    return {log: complete(log.read_bytes()) for log in awl.logs}


def check(awl: Awl, before: dict[Path, bytes], tally: Tally) -> None:
    """All that was acknowledged is there, each session opens, and its next prompt is answered."""
    killed = {log: log.read_bytes() for log in awl.logs}
    for log, lines in before.items():
        assert killed[log].startswith(lines), f"{log.name} lost acknowledged lines"
    tally.kills += 1
    if not killed:
        tally.moments["nothing yet"] += 1
        return
    (log,) = killed
    if lines := complete(killed[log]):
        tally.moments[kind(json.loads(lines.splitlines()[-1]))] += 1
    done = awl("--resume", awl_id(log), "-p", "PING")
    assert done.out == "pong\n"
    tally.torn += check_went_on(log, killed[log])


def awl_id(log: Path) -> str:
    return log.stem.split("_", 1)[1]


def kill_once(awl: Awl, chance: random.Random, tally: Tally, *, terminal: bool) -> None:
    """One turn, killed at a random moment; every third time in a session that was killed before."""
    resumed = ["--resume"] if awl.logs else []
    after = chance.uniform(0, WHOLE_TURN)
    if terminal:
        with Terminal(awl, *resumed, "-y") as window:
            window.say("go")
            time.sleep(after * 0.8)
            before = acknowledged(awl)
            window.signal(signal.SIGKILL)
            window.process.wait(LIMIT)
    else:
        told = awl.home / "events"  # a pipe that nobody reads would stop it
        turn = [*resumed, "-p", "go", "-y", "--output", "stream-json"]
        with (
            told.open("wb") as out,
            awl.started(*turn, stdout=out, stderr=subprocess.DEVNULL) as process,
        ):
            time.sleep(after)
            before = acknowledged(awl)
            process.kill()
            process.wait(LIMIT)
        check_told(awl, told.read_bytes())
    check(awl, before, tally)


def run(folder: Path, kills: int, seed: int, *, terminal: bool) -> Tally:
    chance = random.Random(seed)
    tally = Tally()
    awl = None
    for n in range(kills):
        if awl is None or n % 3 == 0:
            home = folder / f"home{n}"
            home.mkdir()
            awl = Awl(home)
            awl.plays(*ROUNDS)
            (awl.work / "a.txt").write_text("alpha\n")
        try:
            kill_once(awl, chance, tally, terminal=terminal)
        except AssertionError as error:
            error.add_note(f"AWL_KILL_SEED={seed}, kill {n + 1}, so far: {tally}")
            raise
    return tally


def side_by_side(folder: Path, runs: int, kills: int, seed: int) -> Tally:
    """Several runs at once: most of a run is waiting."""

    def one(part: int) -> Tally:
        home = folder / str(part)
        home.mkdir()
        return run(home, kills, seed + part, terminal=False)

    whole = Tally()
    with ThreadPoolExecutor(runs) as pool:
        for tally in pool.map(one, range(runs)):
            whole.kills += tally.kills
            whole.torn += tally.torn
            whole.moments += tally.moments
    return whole


def test_killed_at_any_moment_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    side_by_side(tmp_path, 5, 4, SEED)


def test_killed_at_a_terminal_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    run(tmp_path, 4, SEED + 100, terminal=True)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(8))
def test_killed_at_any_of_many_moments(tmp_path: Path, part: int) -> None:
    tally = side_by_side(tmp_path, 3, 8, SEED + 1000 * (part + 1))
    (tmp_path / "t").mkdir()
    at_terminal = run(tmp_path / "t", 6, SEED + 1000 * (part + 1) + 100, terminal=True)
    print(f"\nprocess: {tally}\nterminal: {at_terminal}")


def test_a_killed_process_leaves_no_tool_to_wait_for(awl: Awl) -> None:
    """The lock dies with its holder, whatever the tools that it had started still do."""
    awl.plays([call("bash", command="echo $$ > up; exec sleep 300")], [say("On.")], [say("On.")])
    with awl.started("-p", "go", "-y") as process:
        tool = int(until(lambda: (awl.work / "up").exists() and (awl.work / "up").read_text()))
        process.kill()
        process.wait(LIMIT)
        try:
            assert awl("--resume", "-p", "next").out == "On.\n"
        finally:
            os.kill(tool, signal.SIGKILL)
