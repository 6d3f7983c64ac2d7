"""A conversation from its beginning to its end: at a terminal, and as one turn for a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from running import LIMIT, Awl, assistant, call, kind, say, texts, until, user
from terminals import CTRL_C, CTRL_D, Terminal

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def results(awl: Awl) -> list[dict[str, object]]:
    return [
        block
        for entry in awl.entries()
        if kind(entry) == "user"
        for block in entry["message"]["content"]
        if block["type"] == "toolResult"
    ]


def logged(awl: Awl, word: str) -> bool:
    return any(word in log.read_text() for log in awl.logs)


# -- one turn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_logs_what_was_shown_and_closes_cleanly(awl: Awl, number: signal.Signals) -> None:
    awl.plays([say("Hello", chunk=5), {"delay": 120}, say("never")])
    with awl.started("-p", "Hi", "--output", "stream-json") as process:
        assert process.stdout is not None
        while b"Hello" not in process.stdout.readline():
            pass
        process.send_signal(number)
        assert process.wait(LIMIT) == 128 + number
        assert json.loads(process.stdout.readlines()[-1])["stop_reason"] == "aborted"
    # A second of streaming may have been logged as a partial.
    assert [k for k in awl.types() if k != "partial"][-2:] == ["assistant", "end"]
    answer, end = awl.entries()[-2:]
    assert (texts(answer), answer["message"]["stopReason"]) == ("Hello", "aborted")
    assert end["reason"] == "shutdown"


def test_a_signal_ends_a_running_tool_and_its_result_is_logged(awl: Awl) -> None:
    command = "echo $$ > pid; echo busy; exec sleep 300"
    awl.plays([call("bash", "t1", command=command)], [say("never")])
    with awl.started("-p", "Hi", "-y") as process:
        until((awl.work / "pid").exists)
        pid = until(lambda: (awl.work / "pid").read_text().strip())
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 128 + signal.SIGTERM
    (result,) = results(awl)
    assert "[cancelled by the user]" in str(result["content"])
    assert awl.types()[-2:] == ["user", "end"]
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not cmdline(pid), "its end")


def cmdline(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_second_signal_does_not_wait_for_a_tool_that_takes_its_time(awl: Awl) -> None:
    # The first signal asks the shell to end, which it does not do within its grace.
    command = "trap '' TERM; echo up > up; while :; do sleep 0.05; done"
    awl.plays([call("bash", "t1", command=command)])
    with awl.started("-p", "Hi", "-y") as process:
        until((awl.work / "up").exists)
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)  # signals that come at once are one
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 128 + signal.SIGTERM
        assert time.monotonic() - started < 1
        assert process.stderr is not None
        assert b"Traceback" not in process.stderr.read()
    assert awl.types()[-2:] == ["toolCall", "end"]


def test_when_nobody_reads_the_events_the_turn_is_cancelled_and_logged(awl: Awl) -> None:
    awl.plays([say("Hello world. " * 200, chunk=13, delay=0.02), {"delay": 60}])
    with awl.started("-p", "Hi", "--output", "stream-json") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(LIMIT) == 1
        assert process.stderr is not None
        assert process.stderr.read() == b""
    answer, end = awl.entries()[-2:]
    assert answer["message"]["stopReason"] == "aborted"
    assert texts(answer).startswith("Hello world.")
    assert end["type"] == "end"


def test_retries_and_notices_are_told_on_stderr(awl: Awl) -> None:
    awl.plays([{"error": {"fault": "overloaded", "message": "busy", "times": 1}}, say("ok")])
    done = awl("-p", "Hi")
    assert (done.out, done.err) == ("ok\n", "awl: busy; trying again in 0.5 s\n")


def test_an_answer_that_was_cut_at_the_limit_is_said(awl: Awl) -> None:
    awl.plays([say("Half"), {"stopReason": "length"}])
    done = awl("-p", "Hi")
    assert (done.out, done.err) == ("Half\n", "awl: the answer was cut at the model's limit\n")


# -- at a terminal ---------------------------------------------------------------------------------


def test_a_conversation_is_kept_and_the_hint_at_its_end_works(awl: Awl) -> None:
    awl.plays([say("First answer.")], [say("Second answer.")], [say("Third answer.")])
    with Terminal(awl) as terminal:
        terminal.see("Ctrl-D quits")
        assert not awl.sessions.exists() or not awl.logs
        terminal.say("one")
        terminal.see("First answer.")
        terminal.say("two")
        terminal.see("Second answer.")
        terminal.say("", end=CTRL_D)
        terminal.see("Go on with: awl --resume ")
        assert terminal.ends() == 0
        hint = terminal.screen.rsplit("--resume ", 1)[1].split()[0]
    assert awl.types() == ["session", "system", *("user", "assistant") * 2, "end"]
    with Terminal(awl, "--resume", hint) as terminal:
        terminal.see("2 turns")
        terminal.say("three")
        terminal.see("Third answer.")
        terminal.say("/quit")
        assert terminal.ends() == 0


def test_leaving_without_a_prompt_leaves_no_file_and_no_hint(awl: Awl) -> None:
    with Terminal(awl) as terminal:
        terminal.see("Ctrl-D quits")
        assert terminal.leave() == 0
        assert "--resume" not in terminal.screen
    assert not awl.logs


def test_ctrl_c_cancels_the_turn_and_the_next_prompt_works(awl: Awl) -> None:
    awl.plays([say("Hello ", chunk=6), {"delay": 120}], [say("Now this.")])
    with Terminal(awl) as terminal:
        terminal.say("one")
        until(lambda: logged(awl, '"partial"'))
        terminal.type("", end=CTRL_C)
        until(lambda: logged(awl, '"aborted"'))
        terminal.say("two")
        terminal.see("Now this.")
        assert terminal.leave() == 0
    assert [k for k in awl.types() if k != "partial"] == [
        *("session", "system", "user", "assistant", "user", "assistant", "end")
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["at the prompt", "streaming", "in a tool", "asking"])
def test_signals_close_the_session_cleanly(awl: Awl, number: signal.Signals, when: str) -> None:
    slow = call("bash", "t1", command="echo up > up; sleep 300")
    awl.plays([say("First.")], [say("Well", chunk=4), {"delay": 120}] if when[0] == "s" else [slow])
    with Terminal(awl, *(["-y"] if when == "in a tool" else [])) as terminal:
        terminal.say("one")
        terminal.see("First.")
        if when != "at the prompt":
            terminal.say("two")
        if when == "streaming":
            until(lambda: logged(awl, '"partial"'))
        elif when == "in a tool":
            until((awl.work / "up").exists)
        elif when == "asking":
            terminal.see("Run bash?")
        terminal.signal(number)
        assert terminal.ends() == 128 + number
        assert "Traceback" not in terminal.screen
    end = awl.entries()[-1]
    assert (end["type"], end["reason"]) == ("end", "shutdown")
    assert not (awl.work / "up").exists() or when == "in a tool"
    if when in ("in a tool", "asking"):
        assert len(results(awl)) == 1
    awl.plays([say("x")], [say("x")], [say("On we go.")], loop=True)
    assert awl("--resume", "-p", "more").code == 0


def test_closing_the_window_closes_the_session(awl: Awl) -> None:
    awl.plays([say("First.")])
    with Terminal(awl) as terminal:
        terminal.say("one")
        terminal.see("First.")
        until(lambda: awl.types()[-1] == "assistant")
        terminal.hang_up()
        assert terminal.ends() != 0
    assert awl.entries()[-1]["type"] == "end"


def test_approval_is_asked_and_a_denial_is_logged(awl: Awl) -> None:
    awl.plays(
        [call("bash", "t1", command="touch one")],
        [call("bash", "t2", command="touch two")],
        [say("That was it.")],
    )
    with Terminal(awl) as terminal:
        terminal.say("go")
        terminal.see("Run bash?")
        terminal.type("y")
        until((awl.work / "one").exists)
        terminal.see("Run bash?")
        terminal.type("n")
        terminal.see("That was it.")
        assert terminal.leave() == 0
    assert not (awl.work / "two").exists()
    assert [bool(result.get("isError")) for result in results(awl)] == [False, True]


def test_approval_deny_in_the_settings_runs_nothing_and_asks_nothing(awl: Awl) -> None:
    awl.plays([call("bash", "t1", command="touch one")], [say("That was it.")])
    awl.config.write_text(awl.config.read_text().replace("[agent]", '[agent]\napproval = "deny"'))
    with Terminal(awl) as terminal:
        terminal.say("go")
        terminal.see("That was it.")
        assert terminal.leave() == 0
        assert "Run bash?" not in terminal.screen
    assert not (awl.work / "one").exists()


def test_switching_the_model_at_the_terminal_is_logged(awl: Awl) -> None:
    awl.plays([say("First.")], [say("Second.")])
    with Terminal(awl) as terminal:
        terminal.say("one")
        terminal.see("First.")
        terminal.say("/model other")
        terminal.see("goes to other/model-2")
        terminal.say("two")
        terminal.see("Second.")
        assert terminal.leave() == 0
    asked = [(e["provider"], e["model"]) for e in awl.entries() if kind(e) == "user"]
    assert asked == [("play", "scripted"), ("other", "model-2")]


def test_the_banner_tells_of_an_interrupted_turn_and_of_damage(awl: Awl) -> None:
    path = awl.write_log(
        user("one"),
        b"garbage\n",
        assistant({"type": "toolUse", "id": "t1", "name": "bash", "input": '{"command":"make"}'}),
        b'{"torn',
    )
    with Terminal(awl, "--resume") as terminal:
        terminal.see("$ make")
        assert terminal.leave() == 0
        shown = " ".join(terminal.screen.split())
    assert "interrupted" in shown
    assert "only this line is lost" in shown
    assert ".torn-" in shown
    assert path.read_bytes().endswith(b"}\n")


def test_no_session_at_a_terminal_says_so_and_keeps_no_prompts_either(awl: Awl) -> None:
    with Terminal(awl, "--no-session") as terminal:
        terminal.see("nothing of this conversation is kept")
        terminal.say("one")
        terminal.see("Hello there.")
        assert terminal.leave() == 0
        assert "--resume" not in terminal.screen
    assert not awl.sessions.exists()


def test_no_color_is_honoured_on_a_terminal(awl: Awl) -> None:
    awl("-p", "Hi")
    colour = "\x1b[3"
    for arguments in (["sessions"], ["sessions", "show", awl.id]):
        with Terminal(awl, *arguments, NO_COLOR="1") as terminal:
            assert terminal.ends() == 0
            assert "Hi" in terminal.screen
            assert not any(f"{colour}{digit}" in terminal.raw for digit in range(8))


def test_raw_lines_on_a_terminal_are_made_harmless(awl: Awl) -> None:
    awl.write_log(user("one"), b"\x1b]0;owned\x07 \xc2\x9b31m\n")
    with Terminal(awl, "sessions", "resume", "019dc5ba", "--print") as terminal:
        assert terminal.ends() == 0
        assert "owned" in terminal.raw
        assert "\x1b" not in terminal.raw
        assert "\x9b" not in terminal.raw


def test_the_process_group_of_awl_gets_no_input_of_tools(awl: Awl) -> None:
    """A tool that reads its input finds none, instead of eating what is typed or piped."""
    awl.plays([call("bash", "t1", command="cat; echo end")], [say("ok")])
    done = subprocess.run(
        awl.command("-p", "Hi", "-y"),
        input=b"piped",
        cwd=awl.work,
        env={**awl.env, "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1")},
        capture_output=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0
    assert results(awl)[0]["content"] == "end\n"


def test_a_conversation_that_is_not_kept_says_so_all_the_time(awl: Awl) -> None:
    with Terminal(awl, "--no-session") as terminal:
        terminal.see("not kept")
        terminal.type("hi")
        terminal.see("Hello there.")
        terminal.see("not kept")
        terminal.type("/quit")
        assert terminal.ends() == 0


def test_a_log_outside_the_store_is_named_by_its_path(awl: Awl, tmp_path: Path) -> None:
    log = awl.write_log(user("a"))
    outside = log.rename(tmp_path / log.name)
    with Terminal(awl, "--resume", str(outside)) as terminal:
        terminal.see("Resumed")
        terminal.type("/quit")
        terminal.see(f"--resume {outside.resolve()}")
        assert terminal.ends() == 0
