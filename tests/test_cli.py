"""The command line, as real processes: every verb and option, and every way to be wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from running import HARMFUL, LIMIT, Awl, assistant, call, kind, say, texts, until, user

from awl import __version__
from awl.cli.common import print_json

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31m\x9b31m\x85\rover\u202etxt"
HEAVY = ("anthropic", "openai", "rich", "prompt_toolkit", "asyncio", "textual", "starlette")


def error(awl: Awl, *arguments: str, code: int = 1) -> str:
    """The one line that a failing command leaves on stderr."""
    done = awl(*arguments, code=code)
    (line,) = done.err.splitlines()
    assert line.startswith("awl: ")
    assert not done.out
    return line.removeprefix("awl: ")


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file below a folder but the index, which is derived: its hash, and when it changed."""
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and ".awl" not in path.parts
    }


# -- one turn --------------------------------------------------------------------------------------


def test_one_turn_prints_the_answer_and_keeps_the_session(awl: Awl) -> None:
    done = awl("-p", "Hi")
    assert (done.out, done.err) == ("Hello there.\n", "")
    assert awl.types() == ["session", "system", "user", "assistant", "end"]
    assert awl.entries()[-1]["reason"] == "user_quit"


def test_one_turn_as_json(awl: Awl) -> None:
    awl.plays([say("Grüße"), {"usage": {"input": 3, "output": 2}}])
    assert awl("-p", "Hi", "--output", "json").json == {
        "session_id": awl.id,
        "text": "Grüße",
        "usage": {"input": 3, "output": 2},
        "stop_reason": "stop",
    }


def test_one_turn_as_events(awl: Awl) -> None:
    awl.plays([say("One."), call("bash", "t1", command="echo hi")], [say("Two.")])
    done = awl("-p", "Hi", "--output", "stream-json", "-y")
    events = [json.loads(line) for line in done.lines]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "turn_started"
    assert events[0]["session_id"] == awl.id
    assert kinds[-1] == "turn_ended"
    assert kinds.count("turn_ended") == 1
    assert {"text", "tool_composing", "tool_started", "tool_output", "tool_finished"} <= {*kinds}
    assert (events[-1]["stop_reason"], events[-1]["text"]) == ("stop", "Two.")


def test_a_failed_turn_is_exit_1_in_every_output(awl: Awl) -> None:
    awl.plays([{"error": {"fault": "refused", "message": "I will not"}}], loop=True)
    assert error(awl, "-p", "Hi") == "I will not"
    told = awl("-p", "Hi", "--output", "json", code=1)
    assert (told.json["stop_reason"], told.json["error"]) == ("error", "I will not")
    last = awl("-p", "Hi", "--output", "stream-json", code=1).lines[-1]
    assert json.loads(last)["error"] == "I will not"


def test_what_is_piped_in_is_added_to_the_prompt(awl: Awl) -> None:
    awl("-p", "Review this:", stdin="line one\nline zwei ü\n")
    (prompt,) = [entry for entry in awl.entries() if kind(entry) == "user"]
    assert texts(prompt) == "Review this:\n\nline one\nline zwei ü"


def test_what_is_piped_in_can_be_the_whole_prompt_and_need_not_be_utf8(awl: Awl) -> None:
    awl("-p", "", stdin=b"caf\xe9\n")
    (prompt,) = [entry for entry in awl.entries() if kind(entry) == "user"]
    assert texts(prompt) == "caf\ufffd"


def test_an_empty_prompt_is_not_sent(awl: Awl) -> None:
    assert "nothing to send" in error(awl, "-p", " ", code=2)
    assert not awl.sessions.exists()


def test_system_text_is_sent_and_kept(awl: Awl) -> None:
    awl.plays(
        {"when": "Talk like a pirate.", "steps": [say("Arr.")]},
        [say("no")],
    )
    assert awl("-p", "Hi", "--system", "Talk like a pirate.").out == "Arr.\n"
    assert texts(awl.entries()[1]) == "Talk like a pirate."
    assert awl("--resume", "-p", "And again").out == "Arr.\n"
    assert awl.types().count("system") == 1


def test_cwd_is_where_tools_run_and_whose_session_it_is(awl: Awl) -> None:
    elsewhere = awl.home / "else where"
    elsewhere.mkdir()
    awl.plays([call("bash", "t1", command="pwd")], [say("ok")])
    awl("-p", "Hi", "-y", "--cwd", "../else where")
    assert awl.entries()[0]["cwd"] == str(elsewhere)
    (results,) = [e for e in awl.entries() if kind(e) == "user"][1:]
    assert results["message"]["content"][0]["content"] == f"{elsewhere}\n"
    assert "no sessions" in awl("sessions").err
    assert len(awl("sessions", "--cwd", str(elsewhere)).lines) == 1


def test_a_cwd_that_is_none_is_an_error(awl: Awl) -> None:
    assert error(awl, "-p", "Hi", "--cwd", "nowhere") == "there is no directory nowhere"
    assert not awl.sessions.exists()


def test_max_turns_ends_a_turn(awl: Awl) -> None:
    awl.plays([call("bash", "t1", command="true")], [call("bash", "t2", command="true")])
    assert "stopped after 1 answer" in error(awl, "-p", "Hi", "-y", "--max-turns", "1")
    assert awl.types().count("assistant") == 1


# -- tools -----------------------------------------------------------------------------------------


def test_tools_that_change_something_are_refused_without_yes(awl: Awl) -> None:
    awl.plays([call("bash", "t1", command="touch made")], [say("Then not.")])
    done = awl("-p", "Do it")
    assert done.out == "Then not.\n"
    assert "Refused" in done.err
    assert "-y" in done.err
    assert not (awl.work / "made").exists()
    (results,) = [e for e in awl.entries() if kind(e) == "user"][1:]
    assert "Refused" in results["message"]["content"][0]["content"]
    assert "toolCall" not in awl.types()


def test_tools_that_only_look_run_without_yes(awl: Awl) -> None:
    (awl.work / "a.txt").write_text("alpha\n")
    awl.plays([call("read", "t1", path="a.txt")], [say("ok")])
    assert awl("-p", "Look").err == ""
    assert "toolCall" in awl.types()


@pytest.mark.parametrize("how", ["-y", "--yes", "config"])
def test_with_yes_or_approval_auto_tools_run_and_know_their_session(awl: Awl, how: str) -> None:
    command = 'echo "$AWL_SESSION_ID" > id; echo "$AWL_SESSION_FILE" > file'
    awl.plays([call("bash", "t1", command=command)], [say("ok")])
    if how == "config":
        awl.config.write_text(
            awl.config.read_text().replace("[agent]", '[agent]\napproval = "auto"')
        )
    awl("-p", "Do it", *([] if how == "config" else [how]))
    assert (awl.work / "id").read_text().strip() == awl.id
    assert (awl.work / "file").read_text().strip() == str(awl.log)


# -- resuming --------------------------------------------------------------------------------------


def test_resume_goes_on_in_the_same_file(awl: Awl) -> None:
    awl.plays([say("One.")], [say("Two.")], [say("Three.")])
    awl("-p", "first")
    before = awl.log.read_bytes()
    assert awl("--resume", "-p", "second").out == "Two.\n"
    after = awl.log.read_bytes()
    assert after.startswith(before)
    assert len(after) > len(before)
    assert awl("--resume", awl.id, "-p", "third").out == "Three.\n"
    assert awl("-p", "anew").out == "One.\n"
    assert len(awl.logs) == 2


def test_resume_takes_a_prefix_and_a_path(awl: Awl) -> None:
    awl.plays([say("One.")], [say("Two.")], [say("Three.")], [say("Four.")])
    awl("-p", "first")
    shown = awl("sessions").out.split()[0]
    assert awl("--resume", shown, "-p", "x").out == "Two.\n"
    assert awl("--resume", awl.id[:3].upper(), "-p", "x").out == "Three.\n"
    assert awl("--resume", str(awl.log), "-p", "x").out == "Four.\n"


def test_resume_without_any_session_starts_one_and_says_so(awl: Awl) -> None:
    done = awl("--resume", "-p", "Hi")
    assert done.out == "Hello there.\n"
    assert done.err == f"awl: no session of {awl.work} yet: starting one\n"
    assert len(awl.logs) == 1


def test_an_unknown_id_is_an_error_that_creates_nothing(awl: Awl) -> None:
    told = error(awl, "--resume", "deadbeef", "-p", "Hi")
    assert "no session matches 'deadbeef'" in told
    assert "awl sessions --all" in told
    assert not awl.sessions.exists()
    awl("-p", "Hi")
    before = snapshot(awl.sessions)
    typo = awl.id[:6] + ("00" if awl.id[6:8] != "00" else "11")
    assert awl.id[:8] in error(awl, "--resume", typo, "-p", "Hi")
    for verb in ("show", "resume"):
        assert "no session matches" in error(awl, "sessions", verb, "zz")
    assert snapshot(awl.sessions) == before


def test_an_ambiguous_prefix_lists_ids_that_are_accepted(awl: Awl) -> None:
    for n in range(3):  # the same minute: their first eight characters are the same
        awl.write_log(user(f"p{n}"), assistant("ok"), id=f"019dc5ba-53f{n}-71a5-ab8f-b1f8709c2572")
    before = snapshot(awl.sessions)
    told = error(awl, "--resume", "019dc5ba", "-p", "Hi")
    assert "ambiguous" in told
    assert snapshot(awl.sessions) == before
    ids = re.findall(r"019dc5ba-53f\d", told)
    assert len(set(ids)) == 3
    assert [line.split()[0] for line in awl("sessions").lines] == ids
    for n, shown in enumerate(ids):
        assert f"p{n}" in awl("sessions", "show", shown).out


def test_a_resumed_session_keeps_its_model_whatever_the_default_is(awl: Awl) -> None:
    awl("-p", "Hi", "--provider", "other")
    awl("--resume", "-p", "again")
    asked = [(e["provider"], e["model"]) for e in awl.entries() if kind(e) == "user"]
    assert asked == [("other", "model-2")] * 2
    assert "modelChange" not in awl.types()


def test_what_is_asked_for_wins_over_the_stored_model_and_is_logged(awl: Awl) -> None:
    awl("-p", "Hi", "--model", "model-9")
    awl("--resume", "-p", "again", "--model", "other/model-7")
    asked = [(e["provider"], e["model"]) for e in awl.entries() if kind(e) == "user"]
    assert asked == [("play", "model-9"), ("other", "model-7")]
    (change,) = [entry for entry in awl.entries() if entry["type"] == "modelChange"]
    assert (change["provider"], change["model"]) == ("other", "model-7")
    assert awl.entries()[0]["model"] == "model-9"


def test_a_stored_provider_that_is_gone_is_an_error_with_choices(awl: Awl) -> None:
    awl("-p", "Hi", "--provider", "other")
    awl.config.write_text(awl.config.read_text().replace('"other"', '"renamed"'))
    before = snapshot(awl.sessions)
    told = error(awl, "--resume", "-p", "again")
    assert "other/model-2" in told
    assert "--provider NAME` (play, renamed" in told
    assert snapshot(awl.sessions) == before
    assert awl("--resume", "-p", "again", "--provider", "renamed").out == "Hello there.\n"


def test_a_stored_endpoint_is_not_swapped_for_another(awl: Awl) -> None:
    awl("-p", "Hi")
    moved = awl.config.read_text().replace('name = "play"', 'name = "play"\nbase_url="http://x"')
    awl.config.write_text(moved)
    told = error(awl, "--resume", "-p", "again")
    assert "http://x" in told
    assert "--provider play" in told
    awl("--resume", "-p", "again", "--provider", "play")
    (change,) = [entry for entry in awl.entries() if entry["type"] == "modelChange"]
    assert change["endpoint"] == "http://x"


def test_an_unknown_provider_is_an_error_with_choices(awl: Awl) -> None:
    assert "choose play, other, anthropic" in error(awl, "-p", "Hi", "--provider", "nobody")
    assert not awl.sessions.exists()


def test_a_missing_key_is_named(awl: Awl) -> None:
    told = error(awl, "-p", "Hi", "--provider", "anthropic")
    assert "ANTHROPIC_API_KEY" in told
    assert not awl.sessions.exists()


def test_a_directory_that_is_gone_is_not_replaced_by_another(awl: Awl) -> None:
    gone = awl.home / "gone"
    gone.mkdir()
    awl("-p", "Hi", cwd=gone)
    gone.rmdir()
    before = snapshot(awl.sessions)
    told = error(awl, "--resume", awl.id, "-p", "again")
    assert str(gone) in told
    assert "--cwd DIR" in told
    assert snapshot(awl.sessions) == before
    awl("--resume", awl.id, "-p", "again", "--cwd", str(awl.work))
    assert "cwdChange" in awl.types()
    assert len(awl("sessions").lines) == 1


def test_a_resumed_session_runs_its_tools_in_its_own_directory(awl: Awl) -> None:
    elsewhere = awl.home / "elsewhere"
    elsewhere.mkdir()
    awl.plays([say("One.")], [call("bash", "t1", command="touch here")], [say("ok")])
    awl("-p", "Hi")
    awl("--resume", awl.id, "-p", "go", "-y", cwd=elsewhere)
    assert (awl.work / "here").exists()
    assert not list(elsewhere.iterdir())


def test_damaged_lines_are_named_and_cost_only_themselves(awl: Awl) -> None:
    good = [user("one"), assistant("uno"), user("two"), assistant("due"), user("three")]
    path = awl.write_log(
        good[0],
        b"garbage\n",
        good[1],
        b"\0" * 64 + b"\n",
        good[2],
        good[3],
        b'{"type":"message","id":"000000aa","parentId"\n',
        good[4],
        assistant("tre"),
    )
    before = path.read_bytes()
    awl.plays([say("?")], [say("?")], [say("?")], [say("quattro")])
    done = awl("--resume", "-p", "four")
    assert done.out == "quattro\n"
    damage = [line for line in done.err.splitlines() if "only this line is lost" in line]
    assert len(damage) == 3
    for line, number in zip(damage, (3, 5, 8), strict=True):
        assert path.name in line
        assert f"line {number}" in line
    assert path.read_bytes().startswith(before)
    shown = awl("sessions", "show", "019dc5ba").out
    for word in ("one", "uno", "two", "due", "three", "tre", "four", "quattro"):
        assert word in shown


def test_a_torn_tail_is_kept_aside_and_told(awl: Awl) -> None:
    path = awl.write_log(user("one"), assistant("uno"), b'{"type":"message","id":"x')
    awl.plays([say("?")], [say("due")])
    done = awl("--resume", "-p", "two")
    assert "25 bytes of an incomplete last line" in done.err
    (torn,) = path.parent.glob("*.torn-*")
    assert torn.read_bytes() == b'{"type":"message","id":"x'
    assert done.out == "due\n"


# -- one session, two processes --------------------------------------------------------------------


def test_a_session_that_is_open_elsewhere_is_refused_with_the_holders_pid(awl: Awl) -> None:
    awl.plays([say("One.")], [{"delay": 120}])
    awl("-p", "first")
    with awl.started("--resume", "-p", "second") as holder:
        until(lambda: awl.types().count("user") == 2)
        before = snapshot(awl.sessions)
        told = error(awl, "--resume", "-p", "third")
        assert f"process {holder.pid}" in told
        assert "(open)" in awl("sessions").out
        assert awl("sessions", "resume", awl.id, "--print").raw == awl.log.read_bytes()
        holder.kill()
        holder.wait()
        assert snapshot(awl.sessions).items() >= before.items()
        awl.plays([say("One.")], [say("Two.")])
        assert awl("--resume", "-p", "third").out  # at once: a dead holder holds nothing


# -- nothing kept ----------------------------------------------------------------------------------


def test_no_session_keeps_nothing_anywhere_and_says_so(awl: Awl) -> None:
    awl.plays([call("bash", "t1", command="seq 1 20000")], [say("ok")])
    done = awl("-p", "Hi", "-y", "--no-session", "--output", "json")
    assert done.err == "awl: nothing of this conversation is kept (--no-session)\n"
    assert (done.json["session_id"], done.json["text"]) == (None, "ok")
    assert not awl.sessions.exists()
    assert not list(awl.tmp.iterdir())
    assert not list(awl.work.iterdir())
    assert sorted(path.name for path in awl.home.iterdir()) == [
        "config.toml",
        "script.jsonl",
        "tmp",
        "work",
    ]


@pytest.mark.parametrize("resume", [["--resume"], ["--resume", "019dc5ba"]])
def test_no_session_does_not_go_with_resume(awl: Awl, resume: list[str]) -> None:
    assert "--resume" in error(awl, "-p", "Hi", "--no-session", *resume, code=2)


# -- lists -----------------------------------------------------------------------------------------


def test_the_list_is_as_the_seed_shows_it_with_the_title_after(awl: Awl) -> None:
    turns = [entry for n in range(7) for entry in (user(f"p{n}"), assistant("ok"))]
    awl.write_log(user("Fix the parser\nplease"), *turns[1:])
    more = [entry for n in range(19) for entry in (user(f"q{n}"), assistant("ok"))]
    awl.write_log(*more, at="2026-04-26T04:27:01.000Z", id="019dc80a-1111-71a5-ab8f-b1f8709c2572")
    assert awl("sessions").out == (
        "019dc5ba  2026-04-25 17:40  14 messages  Fix the parser\n"
        "019dc80a  2026-04-26 04:27  38 messages  q0\n"
    )
    assert awl("sessions", "list").out == awl("sessions").out
    shown = awl("sessions", env={"TZ": "Asia/Tokyo"}).lines[0]
    assert shown.startswith("019dc5ba  2026-04-26 02:40  14 messages")


def test_the_list_is_in_order_of_what_happened_last_and_limit_gives_the_newest(awl: Awl) -> None:
    for n, month in enumerate((3, 1, 2)):
        awl.write_log(
            user(f"p{month}"),
            assistant("ok"),
            at=f"2026-0{month}-01T00:00:00.000Z",
            id=f"019dc5b{n}-53f6-71a5-ab8f-b1f8709c2572",
        )
    for path in awl.logs:  # what was touched last is no matter
        os.utime(path, (1, 1))
    titles = [line.split()[-1] for line in awl("sessions").lines]
    assert titles == ["p1", "p2", "p3"]
    assert [line.split()[-1] for line in awl("sessions", "--limit", "2").lines] == ["p2", "p3"]


def test_one_message_is_one_and_an_unfinished_turn_is_marked(awl: Awl) -> None:
    awl.write_log(user("p"))
    assert awl("sessions").out == "019dc5ba  2026-04-25 17:40  1 message  (interrupted) p\n"


def test_the_list_as_json(awl: Awl) -> None:
    awl("-p", "Grüße\nan alle")
    (found,) = awl("sessions", "--json").json
    header = awl.entries()[0]
    expected = {
        "id": awl.id,
        "title": "Grüße",
        "status": "idle",
        "cwd": str(awl.work),
        "provider": "play",
        "model": "scripted",
        "created": header["timestamp"],
        "updated": awl.entries()[3]["timestamp"],
        "message_count": 3,
        "event_count": 4,
        "path": str(awl.log),
        "forked_from": None,
    }
    assert {key: found.get(key, "missing") for key in expected} == expected
    assert awl("sessions", "list", "--json", "--cwd", "/").json == []


def test_a_fork_is_marked_with_its_parent(awl: Awl) -> None:
    parent = awl.write_log(user("first"), assistant("ok"))
    header, rest = parent.read_bytes().split(b"\n", 1)
    child = json.loads(header)
    child |= {"id": "019dc5bb-53f6-71a5-ab8f-b1f8709c2572", "timestamp": "2026-04-25T18:00:00.000Z"}
    child["forkedFrom"] = {"sessionId": json.loads(header)["id"], "seq": 2}
    path = parent.with_name(f"2026-04-25T18-00-00-000Z_{child['id']}.jsonl")
    path.write_bytes(json.dumps(child).encode() + b"\n" + rest)
    assert awl("sessions").lines == [
        "019dc5ba  2026-04-25 17:40  2 messages  first",
        "019dc5bb  2026-04-25 18:00  2 messages  (fork of 019dc5ba) first",
    ]


def test_the_title_is_what_a_person_wrote(awl: Awl) -> None:
    awl.write_log(user("/model other"), user("<context>x</context>\nFix it"), assistant("ok"))
    assert awl("sessions").out.endswith("3 messages  Fix it\n")


def test_search_shows_where_and_what_with_the_hit_marked(awl: Awl) -> None:
    log = awl.write_log(user("明天下午三点 the Parser"), assistant("a parser " * 40))
    assert awl("sessions", "search", "下午", "pars").lines == [
        "019dc5ba     1  2026-04-25 17:40  user  明天«下午»三点 the Parser"
    ]
    found = awl("sessions", "search", "--json", "parser").json
    assert [list(hit) for hit in found] == [
        ["session_id", "seq", "entry_id", "role", "timestamp", "snippet"]
    ] * 2
    assert found[1]["entry_id"] == "00000002"
    assert found[1]["timestamp"] == "2026-04-25T17:40:15.990Z"
    assert "nothing found" in awl("sessions", "search", "nowhere").err
    elsewhere = awl.home / "elsewhere"
    elsewhere.mkdir()
    assert "--all searches all" in awl("sessions", "search", "parser", cwd=elsewhere).err
    assert len(awl("sessions", "search", "--all", "parser", cwd=elsewhere).lines) == 2
    limited = awl("sessions", "search", "--limit", "1", "parser")
    assert len(limited.lines) == 1
    assert "--limit N shows more" in limited.err
    assert log.exists()


def test_rename_gives_a_title_and_refuses_an_open_session_with_its_holder(awl: Awl) -> None:
    awl("-p", "Hi")
    awl("sessions", "rename", awl.id[:8], "Better", "name")
    assert awl("sessions").out.endswith("3 messages  Better name\n")
    assert awl.types()[-2:] == ["title", "end"]
    awl.plays([say("slowly", delay=60)], loop=True)
    with awl.started("--resume", "-p", "wait") as holder:
        until(awl.log.with_name(awl.log.name + ".owner").exists)
        assert f"process {holder.pid}" in error(awl, "sessions", "rename", awl.id, "No")


def test_a_number_is_taken_wherever_an_id_is(awl: Awl) -> None:
    awl("-p", "Hi")
    assert awl("sessions", "--json").json[0]["conversation_id"] == 1
    assert awl("sessions", "show", "#1", "--json").json["session"]["conversation_id"] == 1
    awl("sessions", "rename", "#1", "One")
    awl("--resume", "#1", "-p", "And?")
    assert awl.types().count("user") == 2
    assert "no session matches" in error(awl, "sessions", "show", "#2")


def test_reindex_and_a_deleted_or_damaged_index_change_nothing(awl: Awl) -> None:
    awl("-p", "Hi")
    listed, found = awl("sessions").out, awl("sessions", "search", "hello").out
    assert awl("sessions", "reindex").out.startswith("1 sessions, 3 messages")
    index = awl.sessions / ".awl" / "index.db"
    for damage in (b"", b"garbage " * 999):
        index.write_bytes(damage)
        assert awl("sessions").out == listed
        assert awl("sessions", "search", "hello").out == found
    index.unlink()
    assert awl("sessions").out == listed


def test_all_lists_every_directory_and_no_sessions_is_exit_0(awl: Awl) -> None:
    done = awl("sessions")
    assert (done.out, done.err) == ("", f"awl: no sessions of {awl.work}: --all lists all\n")
    other = awl.home / "other"
    other.mkdir()
    awl("-p", "here")
    awl("-p", "there", cwd=other)
    assert len(awl("sessions").lines) == 1
    assert len(awl("sessions", "--all").lines) == 2
    assert {s["cwd"] for s in awl("sessions", "--all", "--json").json} == {
        str(awl.work),
        str(other),
    }


def test_a_file_that_is_no_session_hides_no_other(awl: Awl) -> None:
    good = awl.write_log(user("good"), assistant("ok"))
    for n, content in enumerate((b"", b"\0" * 100, b"garbage\n", b'{"type":"session"')):
        name = f"2026-04-25T17-40-15-99{n}Z_019dc5b{n}-53f6-71a5-ab8f-b1f8709c2572.jsonl"
        (good.parent / name).write_bytes(content)
    (awl.sessions / ".trash").mkdir()
    (awl.sessions / "stray").write_text("x")
    assert [line.split()[-1] for line in awl("sessions").lines] == ["good"]
    size = good.stat().st_size
    awl("--resume", "-p", "more")
    assert good.stat().st_size > size


def test_options_in_the_wrong_place_are_usage_errors(awl: Awl) -> None:
    assert "behind `list`" in error(awl, "sessions", "--all", "list", code=2)
    assert "-p" in error(awl, "--output", "json", code=2)
    assert "No such option" in error(awl, "--nope", code=2)
    assert "No such command" in error(awl, "nope", code=2)
    assert "Missing argument" in error(awl, "sessions", "show", code=2)
    assert "--max-turns" in error(awl, "-p", "x", "--max-turns", "0", code=2)
    assert "--limit" in error(awl, "sessions", "--limit", "-1", code=2)
    assert "--output" in error(awl, "-p", "x", "--output", "xml", code=2)


def test_a_conversation_needs_a_terminal(awl: Awl) -> None:
    assert "awl -p TEXT" in error(awl)
    assert not awl.sessions.exists()


# -- showing ---------------------------------------------------------------------------------------


def shown_session(awl: Awl) -> Path:
    return awl.write_log(
        user("What is it?", provider="play", model="scripted", seq=1),
        assistant(
            {"type": "thinking", "thinking": "Let me think."},
            "It is **bold**.",
            {"type": "toolUse", "id": "t1", "name": "bash", "input": '{"command":"ls"}'},
            model="scripted-dated",
            stopReason="toolUse",
        ),
        {
            "type": "message",
            "provider": "play",
            "model": "scripted",
            "message": {
                "role": "user",
                "content": [{"type": "toolResult", "toolUseId": "t1", "content": "file1\n"}],
            },
        },
        assistant("Done."),
    )


def test_show_is_for_people_and_marks_another_model_than_was_asked(awl: Awl) -> None:
    shown_session(awl)
    out = awl("sessions", "show", "019dc5ba").out
    for words in ("019dc5ba-53f6", "What is it?", "Let me think.", "$ ls", "file1", "Done."):
        assert words in out
    assert "asked scripted" in out
    assert out.count("asked scripted") == 1  # the second answer names the model that was asked
    assert "scripted-dated" in out


def test_show_events_is_a_line_for_each_entry(awl: Awl) -> None:
    shown_session(awl)
    lines = awl("sessions", "show", "019dc5ba", "--events").lines
    assert [line.split()[0] for line in lines] == ["0", "1", "2", "3", "4"]
    assert [line.split()[2] for line in lines] == [
        "session",
        "user",
        "assistant",
        "user",
        "assistant",
    ]
    assert "[result of t1: file1 ]" in lines[3]


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ([], [1, 2, 3, 4]),
        (["--from", "2"], [2, 3, 4]),
        (["--to", "2"], [1, 2]),
        (["--from", "2", "--to", "3"], [2, 3]),
        (["--from", "9"], []),
    ],
)
def test_show_takes_a_range(awl: Awl, options: list[str], seqs: list[int]) -> None:
    path = shown_session(awl)
    lines = path.read_bytes().splitlines()
    found = awl("sessions", "show", "019dc5ba", "--json", *options).json
    assert found.keys() == {"session", "damage", "entries"}
    assert found["entries"] == [json.loads(lines[seq]) for seq in seqs]
    events = awl("sessions", "show", "019dc5ba", "--events", *options).lines
    assert [int(line.split()[0]) for line in events] == ([0] if "--from" not in options else []) + [
        *seqs
    ]


def test_show_json_is_the_session_its_damage_and_the_entries_as_they_are(awl: Awl) -> None:
    odd = b'{"type":"later","id":"zz","parentId":"00000001","x":[1.50,{"deep":null}]}\n'
    path = awl.write_log(user("one"), b"garbage\n", odd)
    found = awl("sessions", "show", "019dc5ba", "--json").json
    start = path.read_bytes().index(b"garbage")
    (damage,) = found["damage"]
    assert damage.keys() == {"line", "start", "end", "reason"}
    assert (damage["line"], damage["start"], damage["end"]) == (3, start, start + len(b"garbage"))
    assert found["entries"][-1] == json.loads(odd)
    assert found["session"] == awl("sessions", "--json").json[0]


def test_print_gives_the_raw_lines_exactly(awl: Awl) -> None:
    shown_session(awl)
    tail = b'{"type":"mess'
    with awl.log.open("ab") as log:
        log.write("\u2028 gärbage\n".encode() + b"\xff\xfe\0\n\n" + tail)
    raw = awl("sessions", "resume", "019dc5ba", "--print").raw
    assert raw == awl.log.read_bytes().removesuffix(tail)


def test_readers_repair_nothing(awl: Awl) -> None:
    path = awl.write_log(user("one"), b"garbage\n", assistant("uno"), b'{"type":"mess')
    os.utime(path, ns=(10**18, 10**18))
    before = snapshot(awl.sessions)
    for arguments in (
        ["sessions"],
        ["sessions", "--all", "--json"],
        ["sessions", "show", "019dc5ba"],
        ["sessions", "show", "019dc5ba", "--events"],
        ["sessions", "show", "019dc5ba", "--json"],
        ["sessions", "resume", "019dc5ba", "--print"],
    ):
        awl(*arguments)
    assert snapshot(awl.sessions) == before


def test_output_that_nobody_reads_any_more_is_no_fault(awl: Awl) -> None:
    awl.write_log(*(entry for n in range(3000) for entry in (user(f"p{n}"), assistant("a" * 99))))
    for arguments in (
        ["sessions", "show", "019dc5ba", "--events"],
        ["sessions", "show", "019dc5ba", "--json"],
        ["sessions", "show", "019dc5ba"],
        ["sessions", "resume", "019dc5ba", "--print"],
    ):
        with awl.started(*arguments) as process:
            assert process.stdout is not None
            process.stdout.read(10)
            process.stdout.close()
            process.wait(LIMIT)
            assert process.stderr is not None
            assert process.stderr.read() == b""


@pytest.mark.parametrize("arguments", [["sessions"], ["-p", "Hi"], ["config", "show"]])
def test_output_that_cannot_be_written_is_one_line_and_exit_1(
    awl: Awl, arguments: list[str]
) -> None:
    awl("-p", "Hi")
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            awl.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=awl.work,
            env=awl.env,
            timeout=LIMIT,
        )
    assert (ended.returncode, ended.stderr) == (1, b"awl: No space left on device\n")
    for path in awl.logs:
        assert json.loads(path.read_bytes().splitlines()[-1])["type"] == "end"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_log_never_takes_the_place_of_a_closed_stream(awl: Awl, closed: str) -> None:
    script = f'exec "$@" {closed}'
    ended = subprocess.run(
        ["/bin/sh", "-c", script, "sh", *awl.command("-p", "Hi")],
        cwd=awl.work,
        env=awl.env,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert awl.types() == ["session", "system", "user", "assistant", "end"]


# -- settings --------------------------------------------------------------------------------------


def test_config_path_show_and_init(awl: Awl) -> None:
    awl.config.unlink()
    assert awl("config", "path").out == f"{awl.config}\n"
    assert awl("config", "show").err.count("does not exist") == 0
    assert awl("config", "init").out == f"{awl.config}\n"
    assert stat.S_IMODE(awl.config.stat().st_mode) == 0o600
    written = awl.config.read_bytes()
    shown = awl("config", "show").out
    assert str(awl.config) in shown
    assert "threshold = 0.85" in shown
    assert "--force" in error(awl, "config", "init")
    assert awl.config.read_bytes() == written
    awl.config.write_text("# mine\n")
    awl("config", "init", "--force")
    assert awl.config.read_bytes() == written
    assert awl.config.with_name("config.toml.bak").read_text() == "# mine\n"


def test_config_show_never_prints_a_key(awl: Awl) -> None:
    shown = awl("config", "show", env={"ANTHROPIC_API_KEY": "sk-secret"}).out
    assert "ANTHROPIC_API_KEY" in shown
    assert "sk-secret" not in shown


def test_a_broken_config_is_one_line_that_names_the_place(awl: Awl) -> None:
    awl.config.write_text("[session\nx = 1\n")
    for arguments in (["-p", "Hi"], ["sessions"], ["config", "show"]):
        told = error(awl, *arguments)
        assert f"{awl.config}:1" in told
    awl.config.write_text('[agent]\n\napproval = "sometimes"\n')
    told = error(awl, "-p", "Hi")
    assert f"{awl.config}:3: agent.approval" in told
    assert "ask, auto or deny" in told


def test_an_unknown_setting_is_a_warning(awl: Awl) -> None:
    awl.config.write_text(awl.config.read_text() + "\n[agents]\nx = 1\n")
    done = awl("-p", "Hi")
    assert done.out == "Hello there.\n"
    assert "agents is not a setting" in done.err


def test_encryption_is_refused_until_it_is_built(awl: Awl) -> None:
    awl.plays([say("x")], settings="[session]\nencrypt = true")
    assert "session.encrypt" in (told := error(awl, "-p", "Hi"))
    assert "not built yet" in told
    assert not awl.sessions.exists()


def test_serving_is_ignored_with_a_warning_until_it_is_built(awl: Awl) -> None:
    awl.plays([say("x")], settings="[serve]\nmax_sessions = 3")
    done = awl("-p", "Hi")
    assert done.out == "x\n"
    assert "serve is ignored: serving is not built yet" in done.err


def test_a_folder_that_cannot_hold_sessions_is_said_and_nothing_is_asked(awl: Awl) -> None:
    (awl.home / "file").write_text("x")
    awl.env["AWL_SESSION_DIR"] = str(awl.home / "file" / "sessions")
    done = awl("-p", "Hi", code=1)
    assert "NOT SAVED" in done.err
    assert str(awl.home / "file") in done.err
    assert done.out == ""
    assert len(done.err.splitlines()) == 1


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_said(awl: Awl) -> None:
    awl.sessions.mkdir(mode=0o500)
    assert "Permission denied" in awl("-p", "Hi", code=1).err


def test_sessions_lie_where_xdg_says_without_other_settings(awl: Awl) -> None:
    data = awl.home / "data"
    del awl.env["AWL_SESSION_DIR"]
    awl("-p", "Hi", env={"XDG_DATA_HOME": str(data)})
    (log,) = data.glob("awl/sessions/*/*.jsonl")
    assert log.parent.name == str(awl.work).replace("/", "--")
    awl("-p", "Hi", env={"XDG_DATA_HOME": "relative"})
    assert len(list(awl.home.glob(".local/share/awl/sessions/*/*.jsonl"))) == 1


# -- files -----------------------------------------------------------------------------------------


def test_files_are_for_their_owner_alone_whatever_the_umask(awl: Awl) -> None:
    awl.sessions = awl.home / "deep" / "er" / "sessions"
    awl.env["AWL_SESSION_DIR"] = str(awl.sessions)
    awl.plays([call("bash", "t1", command="seq 1 20000"), call("bash", "t2", command="true")])
    awl("-p", "Hi", "-y", code=1, umask=0)
    with awl.log.open("ab") as log:
        log.write(b"torn")
    awl.plays([say("One.")], loop=True)
    awl("--resume", "-p", "Hi", umask=0)
    found = [awl.home / "deep", *(awl.home / "deep").rglob("*")]
    modes = {str(p): oct(stat.S_IMODE(p.stat().st_mode)) for p in found}
    assert modes == {str(p): "0o700" if p.is_dir() else "0o600" for p in found}
    assert any(".torn-" in p.name for p in found)
    assert any(p.parent.name.endswith(".blobs") for p in found)


@pytest.mark.parametrize(
    ("one", "other"), [("x/a--b", "x/a/b"), ("data-analysis", "data/analysis"), ("ü ö", "ü ö ")]
)
def test_directories_whose_labels_collide_or_nearly_keep_their_sessions_apart(
    awl: Awl, one: str, other: str
) -> None:
    for name in (one, other):
        (awl.home / name).mkdir(parents=True)
        awl("-p", f"in {name}", cwd=awl.home / name)
    for name in (one, other):
        (line,) = awl("sessions", cwd=awl.home / name).lines
        assert line.endswith(f"in {name}".rstrip())
        awl.plays([say("?")], [say("again")])
        assert awl("--resume", "-p", "go on", cwd=awl.home / name).out == "again\n"
    assert len(awl.logs) == 2


def test_a_symlinked_directory_is_the_same_directory(awl: Awl) -> None:
    link = awl.home / "link"
    link.symlink_to(awl.work)
    awl.plays([say("One.")], [say("Two.")])
    awl("-p", "Hi", cwd=link)
    assert len(awl("sessions").lines) == 1
    assert len(awl("sessions", "--cwd", str(link)).lines) == 1
    assert awl("--resume", "-p", "again").out == "Two.\n"
    assert awl.entries()[0]["cwd"] == str(awl.work)


def test_a_directory_that_is_not_utf8_is_kept_exactly(awl: Awl) -> None:
    odd = os.fsdecode(os.fsencode(awl.home) + b"/caf\xe9")
    Path(odd).mkdir()
    awl.plays([say("One.")], [say("Two.")])
    awl("-p", "Hi", cwd=Path(odd))
    assert awl("--resume", "-p", "again", cwd=Path(odd)).out == "Two.\n"
    assert len(awl("sessions", cwd=Path(odd)).lines) == 1


# -- stored text is data ---------------------------------------------------------------------------


def assert_harmless(awl: Awl, *arguments: str, code: int = 0, **options: object) -> None:
    done = awl(*arguments, code=code, **options)  # type: ignore[arg-type]
    for text in (done.out, done.err):
        assert not (found := HARMFUL.search(text)), (arguments, found, text)


def test_control_sequences_are_harmless_in_every_commands_output(awl: Awl) -> None:
    command = "printf '\\033]0;x\\007\\302\\233\\r'; exit 3"
    awl.plays(
        [{"thinking": EVIL}, say(EVIL), call("bash", "t1", command=command)],
        [say(EVIL), {"model": EVIL}],
        [call("no" + EVIL, "t2" + EVIL)],
        [say("x"), {"error": {"fault": "refused", "message": EVIL}}],
    )
    evil_dir = awl.home / ("d" + EVIL.replace("/", ""))
    evil_dir.mkdir()
    assert_harmless(awl, "-p", EVIL, "-y", cwd=evil_dir)
    assert_harmless(awl, "--resume", "-p", "x", "--output", "json", code=1, cwd=evil_dir)
    log, shown = awl.log, awl.id[:8]
    lines = log.read_bytes().splitlines(keepends=True)
    title = {
        "type": "title",
        "id": "f" + EVIL,
        "parentId": EVIL,
        "timestamp": EVIL,
        "title": EVIL,
        "seq": 99,
    }
    later = {**title, "type": EVIL, "id": "g", "seq": 100}
    log.write_bytes(
        b"".join(lines)
        + b"\x1b[31m\xc2\x9b\r garbage\n"
        + b"".join(json.dumps(e, ensure_ascii=False).encode() + b"\n" for e in (title, later))
    )
    for arguments in (
        ["sessions"],
        ["sessions", "--all"],
        ["sessions", "--json"],
        ["sessions", "show", shown],
        ["sessions", "show", shown, "--events"],
        ["sessions", "show", shown, "--json"],
    ):
        assert_harmless(awl, *arguments, cwd=evil_dir)
    for output in ("text", "json", "stream-json"):
        assert_harmless(awl, "--resume", "-p", EVIL, "--output", output, code=1, cwd=evil_dir)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--resume", EVIL, "-p", "x"], 1),
        (["-p", "x", "--provider", EVIL], 1),
        (["-p", "x", "--cwd", EVIL], 1),
        (["sessions", "--cwd", EVIL], 0),
        (["sessions", "show", EVIL], 1),
        ([EVIL], 2),
        (["--" + EVIL], 2),
        (["-p", "x", "--output", EVIL], 2),
        (["-p", "x", "--max-turns", EVIL], 2),
    ],
)
def test_control_sequences_in_arguments_are_harmless_in_errors(
    awl: Awl, arguments: list[str], code: int
) -> None:
    assert_harmless(awl, *arguments, code=code)


def test_control_sequences_in_settings_are_harmless(awl: Awl) -> None:
    quoted = json.dumps(EVIL)
    awl.config.write_text(f"[session]\ndata_dir = {quoted}\n[{quoted}]\nx = 1\n")
    assert_harmless(awl, "config", "show")
    assert_harmless(awl, "sessions")
    awl.config.write_text(f"[agent]\napproval = {quoted}\n")
    assert_harmless(awl, "sessions", code=1)


def test_a_hostile_log_is_listed_and_shown(awl: Awl) -> None:
    for n, at in enumerate(("0001-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "yesterday")):
        path = awl.write_log(
            user(f"p{n}"),
            at="2026-04-25T17:40:15.990Z",
            id=f"019dc5b{n}-53f6-71a5-ab8f-b1f8709c2572",
        )
        path.write_bytes(path.read_bytes().replace(b"2026-04-25T17:40:15.990Z", at.encode()))
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        assert len(awl("sessions", env={"TZ": zone}).lines) == 3
    for n in range(3):
        assert f"p{n}" in awl("sessions", "show", f"019dc5b{n}").out


@pytest.mark.parametrize("query", ["../../etc/passwd", "", " ", "x" * 5000, "."])
def test_an_id_is_never_a_way_out_of_the_store(awl: Awl, query: str) -> None:
    awl("-p", "Hi")
    before = snapshot(awl.home)
    for arguments in (["sessions", "show", query], ["sessions", "resume", query, "--print"]):
        done = awl(*arguments, code=1)
        assert "root:" not in done.out
    assert snapshot(awl.home) == before


# -- help, version, start-up -----------------------------------------------------------------------


def test_version(awl: Awl) -> None:
    assert awl("--version").out == f"awl {__version__}\n"


@pytest.mark.parametrize(
    "command",
    [
        "",
        "sessions",
        "sessions list",
        "sessions show",
        "sessions resume",
        "config",
        "config path",
        "config show",
        "config init",
    ],
)
def test_help_has_examples(awl: Awl, command: str) -> None:
    out = awl(*command.split(), "--help").out
    assert f"Usage: awl {command}".rstrip() in out
    assert "Examples:" in out
    assert out == awl(*command.split(), "-h").out


def test_the_script_is_the_module(awl: Awl) -> None:
    script = Path(sys.executable).with_name("awl")
    if not script.exists():
        pytest.skip("awl is not installed as a script here")
    ended = subprocess.run([script, "-p", "Hi"], **awl_options(awl))  # type: ignore[call-overload]
    assert ended.stdout == b"Hello there.\n"


def awl_options(awl: Awl) -> dict[str, object]:
    return {
        "cwd": awl.work,
        "env": awl.env,
        "timeout": LIMIT,
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
        "check": True,
    }


@pytest.mark.parametrize("arguments", [["--version"], ["sessions"], ["sessions", "--json"]])
def test_start_up_imports_nothing_heavy(awl: Awl, arguments: list[str]) -> None:
    awl("-p", "Hi")
    code = (
        "import sys; from awl.cli import run; code = run(sys.argv[1:]);"
        f"print(code, [m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)"
    )
    options = awl_options(awl)
    ended = subprocess.run([sys.executable, "-c", code, *arguments], **options)  # type: ignore[call-overload]
    assert ended.stderr == b"0 []\n"


def test_without_the_command_lines_libraries_the_install_command_is_told(awl: Awl) -> None:
    hide = awl.home / "hide"
    hide.mkdir()
    (hide / "click.py").write_text(
        "raise ModuleNotFoundError('No module named click', name='click')"
    )
    told = error_with(awl, {"PYTHONPATH": str(hide)})
    assert told == "awl: the command line needs more: run `pip install click rich prompt_toolkit`\n"


def error_with(awl: Awl, env: dict[str, str]) -> str:
    return awl("sessions", code=1, env=env).err


def test_interrupting_a_command_is_exit_130_without_a_traceback(awl: Awl) -> None:
    reading = subprocess.Popen(
        awl.command("-p", "Hi"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=awl.work,
        env=awl.env,
    )
    # It waits for the end of its input, which does not come.
    until(lambda: waits_for_input(reading.pid))
    reading.send_signal(signal.SIGINT)
    _, err = reading.communicate(timeout=LIMIT)
    assert (reading.returncode, err.strip()) == (130, b"")


def waits_for_input(pid: int) -> bool:
    wchan = Path(f"/proc/{pid}/wchan")
    return not wchan.exists() or "pipe" in wchan.read_text()


def test_options_of_a_conversation_do_not_go_with_other_commands(awl: Awl) -> None:
    told = awl("-p", "hi", "sessions", code=2).err
    assert "do not go with `sessions`" in told


def test_a_group_without_a_command_shows_its_help(awl: Awl) -> None:
    assert "Commands:" in awl("config", code=2).out


def test_only_a_session_is_printed(awl: Awl) -> None:
    secret = awl.home / "secret.txt"
    secret.write_text("a\nb\n")
    done = awl("sessions", "resume", str(secret), "--print", code=1)
    assert done.out == ""
    assert "no session header" in done.err


def test_an_empty_id_is_no_id(awl: Awl) -> None:
    awl("-p", "hi")
    assert "no session matches" in awl("--resume", "", "-p", "again", code=1).err


def test_where_the_directory_was_deleted_what_needs_none_works(awl: Awl) -> None:
    awl("-p", "hi")
    gone = awl.home / "gone"
    script = f'mkdir {gone}; cd {gone}; rmdir {gone}; exec "$@"'
    for arguments, code in ((["--all"], 0), ([], 1)):
        ended = subprocess.run(
            ["/bin/sh", "-c", script, "sh", *awl.command("sessions", *arguments)],
            env=awl.env,
            capture_output=True,
            text=True,
        )
        assert ended.returncode == code, ended.stderr
    assert "name one with --cwd DIR" in ended.stderr


def test_a_title_cannot_forge_a_row(awl: Awl) -> None:
    path = awl.write_log(user("a"), {"type": "title", "title": "one\n01a22996  a false row"})
    assert len(awl("sessions", "--all").lines) == 1
    assert path.exists()


@pytest.mark.parametrize(
    "value",
    [
        *([], {}, [[], {}], "x", None),
        [{"a": [1, -0.0, 1e300, 10**40, True, None], "": {"b": 'é ✓ 😀 \u2028 \x00 \x7f / \\ "'}}],
        ["half of a pair: \ud83d", {"a": [{}, []]}],
    ],
)
def test_json_is_laid_out_as_the_standard_library_does(
    value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json(value)
    assert capsys.readouterr().out == json.dumps(value, indent=2) + "\n"


@pytest.mark.parametrize("odd", ["9" * 5000, "[" * 985 + "]" * 985, "NaN"])
def test_json_of_a_session_is_json_whatever_its_lines_hold(awl: Awl, odd: str) -> None:
    path = awl.write_log(user("a"))
    with path.open("a") as log:
        log.write('{"type":"x","id":"q2","parentId":null,"timestamp":"","z":' + odd + "}\n")
    shown = json.loads(
        awl("sessions", "show", str(path), "--json").out,
        parse_constant=lambda name: pytest.fail(name),
    )
    assert len(shown["entries"]) + len(shown["damage"]) == 2


def test_starting_the_settings_anew_twice_keeps_both_old_files(awl: Awl) -> None:
    mine = awl.config.read_text()
    awl("config", "init", "--force")
    awl("config", "init", "--force")
    assert awl.config.with_name("config.toml.bak").read_text() == mine
    assert awl.config.with_name("config.toml.bak-2").exists()


# -- the shell -------------------------------------------------------------------------------------


def completed(awl: Awl, *words: str) -> list[str]:
    """What the shell offers for the last of the words."""
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    lines = awl(env={**asked, "_AWL_COMPLETE": "bash_complete"}).lines
    return [line for line in lines if line]


def test_the_shell_completes_commands_and_the_ids_of_sessions(awl: Awl) -> None:
    assert "_AWL_COMPLETE=bash_complete" in awl(env={"_AWL_COMPLETE": "bash_source"}).out
    assert completed(awl, "awl", "sess") == ["plain,sessions"]
    assert completed(awl, "awl", "sessions", "show", "0") == []
    awl("-p", "Hi")
    for words in (["sessions", "tree"], ["--resume"], ["--fork"], ["sessions", "show", "--json"]):
        assert completed(awl, "awl", *words, awl.id[:4]) == [f"plain,{awl.id[:8]}"]
    assert completed(awl, "awl", "sessions", "show", awl.id[:12]) == [f"plain,{awl.id}"]
    assert completed(awl, "awl", "sessions", "show", "x") == []


def test_a_broken_configuration_does_not_disturb_who_presses_tab(awl: Awl) -> None:
    awl("-p", "Hi")
    awl.config.write_text("broken")
    assert completed(awl, "awl", "sessions", "show", "0") == []
