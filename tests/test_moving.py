"""The verbs that copy, delete and bring back sessions, on the command line."""

from __future__ import annotations

import pytest
from running import HARMFUL, Awl, kind, read_log, say, user


def test_fork_prints_the_new_id_last_and_both_go_on(awl: Awl) -> None:
    awl.plays([say("one")], [say("two")], loop=True)
    awl("-p", "question one")
    awl("--resume", "-p", "question two")
    parent = awl.log
    before = parent.read_bytes()
    session_id = awl.id
    whole = awl("sessions", "fork", session_id[:12]).lines[-1]
    cut = awl("sessions", "fork", session_id, "--at", "3").lines[-1]
    assert parent.read_bytes().startswith(before)
    (log,) = [path for path in awl.logs if cut in path.name]
    assert [kind(entry) for entry in read_log(log)[1:]] == ["system", "user", "assistant"]
    shown = {info["id"]: info for info in awl("sessions", "--json").json}
    assert shown[cut]["forked_from"] == {"sessionId": session_id, "seq": 3}
    assert awl("--resume", whole, "-p", "more").out
    assert awl("--resume", cut, "-p", "other").out
    assert b"more" not in parent.read_bytes()


def test_lineage_shows_on_both_sides(awl: Awl) -> None:
    awl("-p", "hello")
    parent = awl.id
    child = awl("sessions", "fork", parent, "--at", "2").lines[-1]
    above = awl("sessions", "show", parent).out
    assert f"forked as {child[:8]}" in above
    assert f"forked at 2 as {child}" in above
    assert f"fork of {parent} at 2" in awl("sessions", "show", child).out
    # What the parent's own log says is a courtesy: the child's header decides.
    log = next(path for path in awl.logs if parent in path.name)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert f"forked as {child[:8]}" in awl("sessions", "show", parent).out
    awl("sessions", "delete", child)
    assert "forked as" not in awl("sessions", "show", parent).out


@pytest.mark.parametrize("at", ["0", "99", "-3"])
def test_a_cut_that_is_not_there_is_refused_in_one_line(awl: Awl, at: str) -> None:
    awl("-p", "hello")
    before = awl.log.read_bytes()
    done = awl("sessions", "fork", awl.id, "--at", at, code=1)
    assert "1 to" in done.err
    assert done.err.count("\n") == 1
    assert awl.log.read_bytes() == before


def test_a_torn_parent_is_mended_aloud(awl: Awl) -> None:
    awl("-p", "hello")
    session_id = awl.id
    with awl.log.open("ab") as file:
        file.write(b'{"type":"mess')
    done = awl("sessions", "fork", session_id)
    assert "incomplete last line" in done.err
    assert len(done.lines) == 1


def test_a_conversation_without_a_log_is_forked_only_with_sessions_enabled(awl: Awl) -> None:
    awl.plays([say("Hello there.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "old words")
    (found,) = awl("sessions", "--json").json
    done = awl("sessions", "fork", found["id"], code=1)
    assert "enabled was false" in done.err
    assert awl.logs == []
    awl.plays([say("Hello there.")], loop=True)
    child = awl("sessions", "fork", found["id"]).lines[-1]
    assert len(awl.logs) == 2
    assert awl("--resume", child, "-p", "go on").out == "Hello there.\n"
    assert "old words" in awl("sessions", "show", child).out


def test_a_title_in_the_trash_reaches_no_terminal_as_it_is(awl: Awl) -> None:
    path = awl.write_log(user("x"), {"type": "title", "title": "\x1b[31mred\nawl: fake"})
    awl("sessions", "delete", str(path))
    done = awl("sessions", "restore")
    assert not HARMFUL.search(done.out)
    assert len(done.lines) == 1
