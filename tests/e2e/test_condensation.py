"""Condensation as a person meets it: on the command line, at a terminal, killed, and resumed."""

from __future__ import annotations

import itertools
import json
import random
import signal
import time
from pathlib import Path

import pytest
from running import JSON, LIMIT, Awl, assistant, kind, say, until, user
from standin import Answer, Call, Hold, Part, Say, StandIn, Think
from terminals import CTRL_C, Terminal
from wires import configure

from awl.conversation import ModelRef
from awl.replay import read
from awl.state import State
from awl.tokens import size
from awl.tools import all_tools

LONG = "word " * 400
FORM = {
    "session_intent": "Say a word many times.",
    "files_modified": [],
    "decisions_made": ["The word is `word`."],
    "open_questions": [],
    "next_steps": ["Say it again."],
}
SUMMARY = {"toolUse": {"name": "record_summary", "input": FORM}}


def plays(awl: Awl, *steps: JSON, window: int = 8000, more: str = "") -> None:
    """A model that takes so many tokens and answers a request for a summary with these steps."""
    awl.plays(
        {"when": "<record>", "steps": [*steps]}, [say(f"Here: {LONG}", chunk=5000)], loop=True
    )
    settings = f"[session.condense]\nkeep_recent = 2\n{more}\n"
    config = awl.config.read_text()
    awl.config.write_text(
        settings
        + config.replace('"script.jsonl"\n', f'"script.jsonl"\ncontext_window = {window}\n', 1)
    )


def past(awl: Awl, turns: int = 6) -> Path:
    """A session of so many turns of about 1,000 tokens."""
    entries: list[JSON] = []
    for n in range(turns):
        entries += [
            user(f"prompt {n}: {LONG}", provider="play", model="scripted"),
            assistant(f"Here: {LONG}"),
        ]
    return awl.write_log(*entries)


def at_the_stand_in(awl: Awl, server: StandIn) -> bytes:
    """A session with a model at the stand-in; what its log holds."""
    configure(awl, server, first="claude")
    awl.config.write_text("[session.condense]\nkeep_recent = 2\n" + awl.config.read_text())
    change = {"provider": "claude", "model": "claude-1", "endpoint": server.anthropic_url}
    entries: list[JSON] = [{"type": "modelChange", **change}]
    for n in range(6):
        entries += [user(f"{n}: {LONG}", provider="claude", model="claude-1"), assistant(LONG)]
    return awl.write_log(*entries).read_bytes()


def condensations(awl: Awl) -> list[JSON]:
    return [entry for entry in awl.entries() if entry["type"] == "condensation"]


# -- awl sessions condense -------------------------------------------------------------------------


def test_sessions_condense_appends_a_summary_and_tells_what_it_came_to(awl: Awl) -> None:
    plays(awl, SUMMARY)
    before = past(awl).read_bytes()
    done = awl("sessions", "condense", "019dc5ba")
    after = awl.log.read_bytes()
    assert after.startswith(before)
    assert awl.types()[-2:] == ["condensation", "end"]
    (entry,) = condensations(awl)
    tokens = f"{entry['tokensBefore']:,} -> {entry['tokensAfter']:,} tokens"
    assert (done.out, done.err) == (f"condensed 10 entries: {tokens}\n", "")
    assert entry["tokensAfter"] < entry["tokensBefore"]


def test_people_see_the_whole_history_and_a_divider(awl: Awl) -> None:
    plays(awl, SUMMARY)
    past(awl)
    awl("sessions", "condense", "019dc5ba")
    shown = awl("sessions", "show", "019dc5ba").out
    assert all(f"prompt {n}: word" in shown for n in range(6))
    assert "from here on the model reads entries 1-10 as this summary" in shown
    assert "Say a word many times." in shown
    rows = awl("sessions", "show", "019dc5ba", "--events").lines
    assert any("condensation  1-10 (" in row and "tokens) Say a word" in row for row in rows)
    assert len(awl("sessions", "search", "prompt", "--json").json) == 6
    assert awl("sessions", "resume", "019dc5ba", "--print").raw == awl.log.read_bytes()


def test_what_cannot_be_condensed_stays_as_it_is_and_says_why(awl: Awl) -> None:
    plays(awl, SUMMARY)
    log = awl.write_log(user("hi", provider="play", model="scripted"), assistant("ho"))
    before = log.read_bytes()
    done = awl("sessions", "condense", "019dc5ba", code=1)
    assert done.out == ""
    assert done.err.startswith("awl: there is nothing to condense yet")
    assert log.read_bytes() == before


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([say("Bananas.")], "says nothing of the conversation"),
        ([{"error": {"fault": "overloaded", "message": "busy"}}], "busy"),
        ([SUMMARY, {"stopReason": "length"}], "cut at the model's limit"),
    ],
)
def test_a_summary_that_fails_changes_no_byte(awl: Awl, steps: list[JSON], why: str) -> None:
    plays(awl, *steps)
    before = past(awl).read_bytes()
    done = awl("sessions", "condense", "019dc5ba", code=1)
    assert why in done.err
    assert awl.log.read_bytes() == before


def test_another_model_can_be_made_to_summarise(awl: Awl) -> None:
    plays(awl, say("never"), more='condense_provider = "reader"')
    (awl.home / "reader.jsonl").write_text(json.dumps([SUMMARY]) + "\n" + '{"loop": true}')
    with awl.config.open("a") as config:
        config.write(
            '[[llm.providers]]\nname = "reader"\ntype = "scripted"\npath = "reader.jsonl"\n'
            'model = "reader-1"\n'
        )
    past(awl)
    awl("sessions", "condense", "019dc5ba")
    (entry,) = condensations(awl)
    assert (entry["provider"], entry["model"]) == ("reader", "reader-1")


def test_a_session_whose_model_is_not_there_is_condensed_by_the_one_that_summarises(
    awl: Awl,
) -> None:
    past(awl)
    log = awl.log.read_text().replace('"provider": "play"', '"provider": "gone"')
    awl.log.write_text(log)
    plays(awl, SUMMARY)
    assert "no provider 'gone'" in awl("sessions", "condense", "019dc5ba", code=1).err
    plays(awl, SUMMARY, more='condense_provider = "play"')
    awl("sessions", "condense", "019dc5ba")
    (entry,) = condensations(awl)
    assert entry["provider"] == "play"


def test_a_conversation_without_a_log_says_that_it_needs_one(awl: Awl) -> None:
    awl.plays([say("Hello.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "one")
    (listed,) = awl("sessions", "list", "--json").json
    done = awl("sessions", "condense", listed["id"], code=1)
    assert "has no log" in done.err


def test_an_open_session_is_not_condensed_from_elsewhere(awl: Awl) -> None:
    awl.plays({"when": "<record>", "steps": [SUMMARY]}, [say("Hel"), {"delay": 60}])
    with awl.started("-p", "go") as process:
        until(lambda: awl.logs and "partial" in awl.log.read_text(), "a partial")
        done = awl("sessions", "condense", awl.id, code=1)
        assert f"process {process.pid}" in done.err


def test_ctrl_c_ends_it_and_no_byte_is_changed(awl: Awl, server: StandIn) -> None:
    before = at_the_stand_in(awl, server)
    server.plays([Say("The word"), Hold()])
    with awl.started("sessions", "condense", "019dc5ba") as process:
        until(server.holding.is_set, "the request")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 130
        assert process.stderr is not None
        assert process.stderr.read().strip() == b""
    assert awl.log.read_bytes() == before
    assert server.hung_up.wait(LIMIT)


# -- by itself -------------------------------------------------------------------------------------


def test_a_resumed_session_that_is_too_long_is_condensed_before_its_first_request(
    awl: Awl,
) -> None:
    plays(awl, SUMMARY, {"usage": {"input": 70, "output": 30}})
    before = past(awl, 5).read_bytes()
    done = awl("--resume", "-p", "on", "--output", "json")
    assert awl.types()[-4:] == ["user", "condensation", "assistant", "end"]
    assert awl.log.read_bytes().startswith(before)
    assert "awl: condensed " in done.err
    assert done.json["usage"] == {"input": 70, "output": 30}
    events = [
        json.loads(line) for line in awl("--resume", "-p", "on", "--output", "stream-json").lines
    ]
    assert "condensing" not in [event["type"] for event in events]  # it was enough for now


def test_who_waits_at_a_terminal_for_one_answer_is_told_what_takes_its_time(awl: Awl) -> None:
    plays(awl, SUMMARY)
    past(awl, 5)
    with Terminal(awl, "--resume", "-p", "on") as terminal:
        terminal.see("awl: condensing 8 entries ...")
        terminal.see("awl: condensed 8 entries")
        assert terminal.ends() == 0


def test_programs_are_told_in_events(awl: Awl) -> None:
    plays(awl, SUMMARY)
    past(awl)
    done = awl("--resume", "-p", "on", "--output", "stream-json")
    events = [json.loads(line) for line in done.lines]
    before, *parts, after = (event for event in events if event["type"].startswith("condens"))
    (entry,) = condensations(awl)
    assert before == {"type": "condensing", "entries": 10, "tokens": entry["tokensBefore"]}
    total = len(parts)  # the history is larger than what the model reads at once
    assert total > 1
    assert parts == [
        {**before, "parts": total} | ({"part": n} if n > 1 else {}) for n in range(1, total + 1)
    ]
    assert after["entry_id"] == entry["id"]
    assert (after["tokens_before"], after["tokens_after"]) == (
        entry["tokensBefore"],
        entry["tokensAfter"],
    )


def test_the_guard_against_loops_holds_across_processes(awl: Awl) -> None:
    """Each resume is a process of its own: what it knows, it knows from the log."""
    plays(awl, SUMMARY)
    tools = size(State(), ModelRef("play", "scripted"), [t.spec for t in all_tools()]).fixed
    system = "text" * (4700 - tools)  # under the limit as long as next to nothing else is sent
    past(awl, 2)
    found = []
    for n in range(4):
        done = awl("--resume", "-p", f"more {n}: {LONG}", "--system", system)
        found.append((len(condensations(awl)), "go on with a model that takes more" in done.err))
    assert found == [(1, True)] * 4
    awl("sessions", "verify", awl.id)


@pytest.mark.parametrize("wire", ["claude", "chat", "responses"])
def test_in_the_middle_of_a_turn_the_next_request_is_accepted_by_a_strict_server(
    awl: Awl, server: StandIn, wire: str
) -> None:
    """Thinking, calls and results around the cut are what the provider takes back."""
    configure(awl, server, first=wire)
    config = awl.config.read_text().replace("\nmodel", "\ncontext_window = 12000\nmodel")
    awl.config.write_text(f"[session.condense]\nkeep_recent = 2\n{config}")
    numbers = itertools.count()
    rounds = 8

    def answer(body: JSON) -> Answer:
        if "<record>" in json.dumps(body):
            if wire == "claude":
                return Answer([Call("record_summary", FORM)])
            return Answer([Say(json.dumps(FORM))])
        n = next(numbers)
        if n >= rounds:
            return Answer([Say("All done.")])
        command = f"echo round {n}; # {'word ' * 900}"
        parts: list[Part] = [Think("Hm."), Call("bash", {"command": command})]
        return Answer(parts, input_tokens=0, cache_read=0, cache_write=0)  # so it is estimated

    server.plays(*[answer] * 3 * rounds)
    done = awl("-y", "-p", "please do it")
    assert done.out == "All done.\n"
    assert condensations(awl)
    assert [request.refusal for request in server.requests] == [None] * len(server.requests)
    assert awl("--resume", "-p", "and now?").out == "All done.\n"
    assert server.requests[-1].refusal is None
    state = read(awl.log)
    assert not state.all_findings


# -- at a terminal ---------------------------------------------------------------------------------


def test_compact_at_a_terminal(awl: Awl) -> None:
    plays(awl, SUMMARY, window=100_000)
    past(awl)
    with Terminal(awl, "--resume") as window:
        window.say("/compact")
        window.see("condensed 10 entries: ")
        window.say("/history all")
        window.see("as this summary")
    assert condensations(awl)


@pytest.mark.parametrize(
    ("arguments", "settings", "why"),
    [
        ((), "[session]\nenabled = false", "has no log"),
        (("--no-session",), "", "nothing of this conversation is kept"),
    ],
)
def test_compact_without_a_log_says_that_it_needs_one(
    awl: Awl, arguments: tuple[str, ...], settings: str, why: str
) -> None:
    awl.plays([say("Hello.")], loop=True, settings=settings)
    with Terminal(awl, *arguments) as window:
        window.say("hi")
        window.see("Hello.")
        window.say("/compact")
        window.see(why)


def test_ctrl_c_at_a_terminal_ends_a_summary_and_nothing_is_changed(awl: Awl) -> None:
    plays(awl, {"delay": 120}, SUMMARY, window=100_000)
    before = past(awl).read_bytes()
    with Terminal(awl, "--resume") as window:
        window.say("/compact")
        window.see("condensing 10 entries")
        window.type(CTRL_C, end="")
        window.see("Stopped.")
        assert awl.log.read_bytes() == before


# -- killed ----------------------------------------------------------------------------------------


def check_whole_or_absent(awl: Awl, before: bytes) -> bool:
    """After a kill: the old bytes are there, and a whole summary or none."""
    after = awl.log.read_bytes()
    assert after.startswith(before)
    added = [json.loads(line) for line in after[len(before) :].splitlines()]
    assert [kind(entry) for entry in added] in ([], ["condensation"], ["condensation", "end"])
    assert not read(awl.log).all_findings
    return bool(added)


def test_killed_while_the_model_summarises_nothing_is_changed(awl: Awl, server: StandIn) -> None:
    before = at_the_stand_in(awl, server)
    server.plays([Say("The word"), Hold()])
    with awl.started("sessions", "condense", "019dc5ba") as process:
        until(server.holding.is_set, "the request")
        process.kill()
        process.wait(LIMIT)
    assert not check_whole_or_absent(awl, before)
    server.plays([Say("Yes.")])
    assert awl("--resume", "-p", "still there?").out == "Yes.\n"


def kill_often(awl: Awl, times: int, seed: int) -> tuple[int, int]:
    """Condense and kill at random moments; how often it was whole and how often absent."""
    plays(awl, {"delay": 0.05}, SUMMARY)
    original = past(awl).read_bytes()
    log = awl.log
    chance = random.Random(seed)
    whole = 0
    for _ in range(times):
        log.write_bytes(original)
        with awl.started("sessions", "condense", "019dc5ba") as process:
            time.sleep(chance.uniform(0.1, 0.9))
            process.send_signal(signal.SIGKILL)
            process.wait(LIMIT)
        whole += check_whole_or_absent(awl, original)
    return whole, times - whole


def test_killed_at_any_moment_it_is_whole_or_absent(awl: Awl) -> None:
    kill_often(awl, 4, 1)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_many_moments_it_is_whole_or_absent(awl: Awl) -> None:
    whole, absent = kill_often(awl, 100, 2)
    print(f"\nwhole {whole}, absent {absent}")
    assert whole and absent
