"""Conversations without a log: kept as words, found again, and given a log when that is wanted."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import pytest
from running import Awl, say, texts

from awl.beginning import Wanted, go_on
from awl.config import load
from awl.index.conversations import Logless
from awl.store.files import Store

OFF = "[session]\nenabled = false"


def talk_without_log(awl: Awl) -> str:
    """A conversation of one turn, with sessions not enabled; its id."""
    awl.plays([say("Kept in words.")], loop=True, settings=OFF)
    done = awl("-p", "A parser of mine", "--output", "json")
    assert "without a log" in done.err
    assert not awl.logs
    return str(done.json["session_id"])


def enable(awl: Awl) -> None:
    awl.plays([say("Logged now.")], loop=True)


def test_words_are_listed_searched_shown_and_gone_on_with(awl: Awl) -> None:
    session_id = talk_without_log(awl)
    (info,) = awl("sessions", "--json").json
    assert (info["id"], info["title"], info["message_count"]) == (
        session_id,
        "A parser of mine",
        2,
    )
    assert (info["conversation_id"], info["path"], info["status"]) == (1, "", "idle")
    (hit,) = awl("sessions", "search", "--json", "words").json
    assert (hit["session_id"], hit["role"], hit["seq"]) == (session_id, "assistant", 2)
    assert hit["snippet"] == "Kept in «words»."
    shown = awl("sessions", "show", "#1").out
    assert "user: A parser of mine" in shown
    assert "assistant: Kept in words." in shown
    for _ in range(2):
        again = awl("--resume", "-p", "And more", "--output", "json")
        assert again.json["session_id"] == session_id
    (info,) = awl("sessions", "--json").json
    assert info["message_count"] == 6
    assert not awl.logs


def test_what_was_said_before_is_sent(awl: Awl) -> None:
    talk_without_log(awl)
    awl.plays({"when": "A parser of mine", "steps": [say("I know.")]}, settings=OFF)
    awl.plays([say("Turn one.")], [say("Turn two.")], settings=OFF)
    assert awl("--resume", "-p", "And?").out == "Turn two.\n"


def test_verbs_that_need_a_log_say_so(awl: Awl) -> None:
    session_id = talk_without_log(awl)
    for verb in (
        ["show", "--events"],
        ["show", "--json"],
        ["resume", "--print"],
        ["rename"],
    ):
        more = ["A title"] if verb == ["rename"] else []
        done = awl("sessions", verb[0], session_id[:13], *verb[1:], *more, code=1)
        assert "has no log" in done.err
    assert not awl.logs


def test_the_first_resume_with_sessions_enabled_makes_a_log_that_begins_with_an_import(
    awl: Awl,
) -> None:
    session_id = talk_without_log(awl)
    enable(awl)
    done = awl("--resume", session_id[:10], "-p", "Go on", "--output", "json")
    assert done.json["session_id"] == session_id
    assert awl.types() == ["session", "import", "system", "user", "assistant", "end"]
    header, told, _, prompt, *_ = awl.entries()
    assert (header["id"], header["cwd"]) == (session_id, str(awl.work))
    assert (told["source"], told["seq"], told["messageCount"]) == ("legacy", 1, 2)
    assert told["messages"] == [
        {"role": "user", "text": "A parser of mine"},
        {"role": "assistant", "text": "Kept in words."},
    ]
    assert texts(prompt) == "Go on"
    assert "import" in awl("sessions", "show", session_id, "--events").out
    (info,) = awl("sessions", "--json").json
    assert (info["id"], info["conversation_id"]) == (session_id, 1)
    assert info["path"] == str(awl.log)
    hits = awl("sessions", "search", "--json", "parser").json
    assert [(hit["role"], hit["seq"]) for hit in hits] == [("import", 1)]


def test_rows_are_ignored_from_then_on_and_never_dropped(awl: Awl) -> None:
    session_id = talk_without_log(awl)
    enable(awl)
    awl("--resume", "-p", "Go on")
    awl.log.unlink()
    (info,) = awl("sessions", "--json").json
    assert (info["id"], info["message_count"], info["path"]) == (session_id, 2, "")


def test_a_session_that_has_a_log_keeps_it(awl: Awl) -> None:
    awl("-p", "Hi")
    awl.plays([say("Still logged.")], loop=True, settings=OFF)
    done = awl("--resume", "-p", "And?")
    assert "keeps it" in done.err
    assert awl.types().count("assistant") == 2


def test_no_session_keeps_no_rows(awl: Awl) -> None:
    awl.plays([say("x")], settings=OFF)
    awl("-p", "Hi", "--no-session")
    assert not awl.sessions.exists()


def test_rows_that_cannot_be_written_are_said_and_nothing_is_asked(awl: Awl) -> None:
    talk_without_log(awl)
    path = awl.sessions / ".awl" / "conversations.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    done = awl("-p", "Hi", code=1)
    assert "made by a newer awl" in done.err
    assert not done.out
    assert path.read_bytes() == before
    assert "newer awl" in awl("sessions").err


def test_a_directory_that_is_gone_is_not_replaced_by_another(awl: Awl) -> None:
    session_id = talk_without_log(awl)
    awl.work.rename(awl.home / "elsewhere")
    new = awl.home / "new"
    new.mkdir()
    for settings in (OFF, ""):
        awl.plays([say("x")], loop=True, settings=settings)
        done = awl("--resume", session_id, "-p", "Hi", cwd=new, code=1)
        assert "is gone" in done.err
    awl("--resume", session_id, "--cwd", ".", "-p", "Hi", cwd=new)
    assert awl.entries()[0]["cwd"] == str(new)


@pytest.mark.parametrize("when", ["write_all", "give_name", "sync_name"])
def test_a_log_that_is_not_born_hides_nothing_that_was_said(awl: Awl, when: str) -> None:
    awl.plays([say("Hello there.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "precious old words")
    awl.plays([say("Hello there.")], loop=True)
    (found,) = json.loads(awl("sessions", "--json").out)
    dying = (
        "import os, sys, awl.log.file as f\n"
        f"f.{when} = lambda *given: os.kill(os.getpid(), 9)\n"
        "from awl.cli import run\n"
        f"run(['--resume', {found['id']!r}, '-p', 'again'])"
    )
    killed = subprocess.run([sys.executable, "-c", dying], cwd=awl.work, env=awl.env, timeout=60)
    assert killed.returncode == -9
    again = awl("--resume", found["id"], "-p", "next")
    assert again.out == "Hello there.\n"
    shown = awl("sessions", "show", found["id"], "--json").out
    assert "precious old words" in shown
    (listed,) = json.loads(awl("sessions", "--json").out)
    assert listed["title"] == "precious old words"
    assert (listed["id"], listed["created"]) == (found["id"], found["created"])


def test_the_entry_that_begins_a_log_has_its_time(awl: Awl) -> None:
    awl.plays([say("Hello there.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "old")
    awl.plays([say("Hello there.")], loop=True)
    awl("--resume", "-p", "new")
    (entry,) = [entry for entry in awl.entries() if entry["type"] == "import"]
    assert entry["timestamp"].endswith("Z")


def hold(awl: Awl, session_id: str) -> subprocess.Popen[str]:
    """Another process that goes on with a conversation; it says when it has it."""
    code = (
        "import sys; from pathlib import Path; from awl.store.files import Store;"
        "from awl.logless import Hold, LoglessSession;"
        "s = Store(Path(sys.argv[1])); rows = s.catalog.conversations;"
        "session = LoglessSession.go_on(rows, s.find(sys.argv[2]), Hold(rows, sys.argv[2]));"
        "print('held', flush=True); sys.stdin.read(); session.close()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(awl.sessions), session_id],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize(
    ("way", "end"),
    [("kept", "closed"), ("enabled", "closed"), ("fork", "closed"), ("kept", "killed")],
)
def test_one_process_at_a_time_goes_on_with_a_conversation(awl: Awl, way: str, end: str) -> None:
    session_id = talk_without_log(awl)
    if way != "kept":
        enable(awl)
    command = ["sessions", "fork", session_id] if way == "fork" else ["--resume", "-p", "And?"]
    held = hold(awl, session_id)
    try:
        (info,) = awl("sessions", "--json").json
        assert info["status"] == "open"
        done = awl(*command, code=1)
        assert f"open in process {held.pid}" in done.err
        assert not awl.logs
        if end == "killed":
            held.kill()
    finally:
        held.communicate()
    (info,) = awl("sessions", "--json").json
    assert (info["status"], info["message_count"]) == ("idle", 2)
    awl(*command)
    assert not list((awl.sessions / ".awl").glob("*.lock*.owner"))
    assert [path.stem for path in (awl.sessions / ".awl").glob("*.lock")] == ["index"]


def test_a_conversation_that_got_a_log_while_it_was_chosen_is_gone_on_with_there(awl: Awl) -> None:
    """What was said before is once in the log, and nothing is said beside it."""
    session_id = talk_without_log(awl)
    store = Store(awl.sessions)
    before = store.find(session_id)
    assert isinstance(before, Logless)
    enable(awl)
    awl("--resume", "-p", "Go on")
    log = awl.log
    running = go_on(load(awl.env), awl.env, Wanted(), None, before)
    assert running.session.path == log
    running.session.close()
    child = store.fork(session_id)
    store.close()
    assert set(awl.logs) == {log, child}
    assert [entry["type"] for entry in awl.entries(log)].count("import") == 1
