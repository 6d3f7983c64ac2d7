"""Swaps as people meet them: at a terminal, by two at once, and killed at any moment."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import LIMIT, Awl, kind, say, texts, user
from terminals import Terminal

from awl.log.names import parse_log_name
from awl.session import Session

SWAPPER = Path(__file__).with_name("swapper.py")
SEED = int(os.environ.get("AWL_KILL_SEED", "20260425"))


def session(awl: Awl, number: int, words: str) -> Path:
    """A session with an id that begins with eight digits of this number."""
    return awl.write_log(user(words), id=f"{number:08d}-53f6-71a5-ab8f-b1f8709c2572")


def prompts(awl: Awl, log: Path) -> list[str]:
    return [texts(entry) for entry in awl.entries(log) if kind(entry) == "user"]


# -- at a terminal ---------------------------------------------------------------------------------


def test_a_person_goes_to_another_conversation_and_the_hint_at_the_end_names_it(awl: Awl) -> None:
    other = session(awl, 1, "before")
    awl.plays([say("An answer.")], loop=True)
    with Terminal(awl) as terminal:
        terminal.say("one")
        terminal.see("An answer.")
        terminal.say("/conv")
        terminal.see("00000001  #1")
        terminal.see("before")
        terminal.say("/conv resume")
        terminal.see("Go on with which?")
        terminal.type("#1")
        terminal.see("Replaying conversation…")
        terminal.see("Resumed 00000001")
        terminal.see("· 00000001")
        terminal.type("two")
        terminal.see("An answer.")
        terminal.say("/quit")
        terminal.see("Go on with: awl --resume 00000001")
        assert terminal.ends() == 0
    (left,) = [log for log in awl.logs if log != other]
    assert (prompts(awl, left), prompts(awl, other)) == (["one"], ["before", "two"])
    assert [awl.entries(log)[-1]["reason"] for log in (left, other)] == ["switched", "user_quit"]


def test_a_person_goes_back_and_says_something_else(awl: Awl) -> None:
    awl.plays([say("An answer.")], loop=True)
    with Terminal(awl) as terminal:
        for words in ("one", "two", "//three"):
            terminal.say(words)
            terminal.see("An answer.")
        terminal.say("/rewind 1")
        terminal.see("//three")
        terminal.type(" and four")
        terminal.see("An answer.")
        terminal.say("/tree")
        terminal.see("├─●")
        terminal.see("/three and four")
        assert terminal.leave() == 0
    assert prompts(awl, awl.log) == ["one", "two", "/three", "/three and four"]
    assert "rewind" in awl.types()
    assert awl("sessions", "search", "three").out.count("three") == 2


def test_a_copy_is_gone_on_with_in_one_turn_and_at_a_terminal(awl: Awl) -> None:
    log = session(awl, 1, "before")
    before = log.read_bytes()
    done = awl("--fork", "#1", "-p", "after", "--output", "json")
    (copy,) = [one for one in awl.logs if one != log]
    assert done.json["session_id"] == str(awl.entries(copy)[0]["id"])
    assert prompts(awl, copy) == ["before", "after"]
    assert log.read_bytes().startswith(before)
    with Terminal(awl, "--fork", done.json["session_id"], "--at", "1") as terminal:
        terminal.see("a fork of ")
        terminal.say("/conv fork")
        terminal.see("a fork of ")
        assert terminal.leave() == 0
    assert len(awl.logs) == 4
    awl("--fork", "#1", "--resume", "-p", "x", code=2)
    awl("--fork", "#1", "--no-session", "-p", "x", code=2)
    awl("--at", "1", "-p", "x", code=2)
    assert "choose one of 1 to" in awl("--fork", "#1", "--at", "9", "-p", "x", code=1).err
    assert "no session matches" in awl("--fork", "nope", "-p", "x", code=1).err
    assert len(awl.logs) == 4


# -- two at once -----------------------------------------------------------------------------------


def test_of_two_that_want_a_conversation_one_gets_it_and_the_other_goes_on(awl: Awl) -> None:
    wanted = session(awl, 1, "wanted")
    awl.plays([say("An answer.")], loop=True)
    with Terminal(awl) as one, Terminal(awl) as two:
        both = (one, two)
        for number, terminal in enumerate(both):
            terminal.say(f"mine {number}")
            terminal.see("An answer.")
        for terminal in both:
            terminal.say("/conv resume 00000001", end="")
        for terminal in both:
            terminal.type("")
        for terminal in both:
            terminal.see("Replaying conversation…")
            terminal.say("and then")
            terminal.see("An answer.")
        got = ["Resumed 00000001" in terminal.screen for terminal in both]
        assert sorted(got) == [False, True]
        assert "the session is open in process" in both[got.index(False)].screen
        for terminal in both:
            assert terminal.leave() == 0
    assert prompts(awl, wanted) == ["wanted", "and then"]
    assert sorted(prompts(awl, log) for log in awl.logs if log != wanted) in (
        [["mine 0"], ["mine 1", "and then"]],
        [["mine 0", "and then"], ["mine 1"]],
    )


def test_two_that_want_each_other_s_conversation_both_stay(awl: Awl) -> None:
    for number in (1, 2):
        session(awl, number, f"said {number}")
    with Terminal(awl, "--resume", "#1") as one, Terminal(awl, "--resume", "#2") as two:
        for terminal in (one, two):
            terminal.see("Resumed")
        one.say("/conv resume #2")
        two.say("/conv resume #1")
        for terminal in (one, two):
            terminal.see("the session is open in process")
        for terminal in (one, two):
            terminal.say("still here")
            terminal.see("Hello there.")
            assert terminal.leave() == 0
    assert [prompts(awl, log) for log in awl.logs] == [
        ["said 1", "still here"],
        ["said 2", "still here"],
    ]


# -- killed ----------------------------------------------------------------------------------------


def kill_while_swapping(awl: Awl, chance: random.Random) -> None:
    """Kill it at a random moment, after it has been in a few sessions."""
    seed = str(chance.randrange(1 << 30))
    process = subprocess.Popen(
        [sys.executable, str(SWAPPER), str(awl.home), seed],
        env={**awl.env, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        for _ in range(chance.randrange(1, 7)):
            assert process.stdout.readline()
        time.sleep(chance.random() * 0.1)
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def check(awl: Awl, before: dict[Path, bytes]) -> None:
    """Nothing that was acknowledged is gone, each log is whole but for a torn tail, and opens."""
    for log, data in before.items():
        assert log.read_bytes().startswith(data)
    for log in awl.logs:
        assert parse_log_name(log.name) is not None
        data = log.read_bytes()
        lines = data[: data.rfind(b"\n")].split(b"\n")
        header, *entries = map(json.loads, lines)
        assert header["type"] == "session"
        assert [entry["seq"] for entry in entries] == [*range(1, len(entries) + 1)]
        opened = Session.open(log)
        try:
            assert opened.state.damage == [] and opened.state.all_findings == []
        finally:
            opened.close()


def swap_and_kill(awl: Awl, kills: int) -> None:
    chance = random.Random(SEED)
    awl.plays([say("An answer.")], loop=True)
    before: dict[Path, bytes] = {}
    for _ in range(kills):
        kill_while_swapping(awl, chance)
        check(awl, before)
        before = {log: log.read_bytes() for log in awl.logs}
    assert awl("--resume", "-p", "and now?").out == "An answer.\n"
    ends = [e["reason"] for log in awl.logs for e in awl.entries(log) if e["type"] == "end"]
    assert "switched" in ends


def test_killed_at_any_moment_of_a_swap_both_conversations_are_whole(awl: Awl) -> None:
    swap_and_kill(awl, 6)


@pytest.mark.long
def test_killed_at_any_moment_of_many_swaps_all_conversations_are_whole(awl: Awl) -> None:
    swap_and_kill(awl, 150)
