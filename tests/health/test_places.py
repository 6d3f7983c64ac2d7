"""`verify --all`: what is kept besides sessions, and the commands."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest
from running import HARMFUL, Awl, say

from awl.health.findings import Checked
from awl.health.places import claims, verify_all, verify_rest
from awl.log.names import encode_cwd
from awl.store.files import Store


def rest(awl: Awl) -> list[str]:
    """What is said of all that is no session."""
    return [
        f"{Path(one.path).name}: {finding}"
        for one in verify_rest(awl.sessions)
        for finding in one.findings
    ]


@pytest.fixture
def kept(awl: Awl) -> Awl:
    awl("-p", "Hi")
    awl("sessions")
    return awl


def test_what_awl_leaves_behind_is_sound(kept: Awl) -> None:
    done = kept("sessions", "verify", "--all")
    assert (done.out, done.err) == ("", "awl: 1 session checked, all sound\n")
    assert kept("sessions", "verify", "--all", "--json").json == [
        {"session_id": kept.id, "path": str(kept.log), "ok": True, "findings": []}
    ]
    assert kept("sessions", "verify", kept.id).out == f"{kept.id}  sound\n"
    assert kept("sessions", "verify", kept.id[:8], "--json").json["ok"] is True


def test_damage_is_named_with_line_and_bytes_and_the_exit_code_is_one(kept: Awl) -> None:
    size, session_id = kept.log.stat().st_size, kept.id
    with kept.log.open("ab") as log:
        log.write(b"\x1b]0;owned\x07\xff\n")
    for which in ([session_id], [], ["--all"], ["--cwd", str(kept.work)]):
        done = kept("sessions", "verify", *which, code=1)
        assert f"line 6 (bytes {size}-{size + 11}): not UTF-8" in done.out
        found = kept("sessions", "verify", *which, "--json", code=1).json
        (one,) = [found] if which == [session_id] else found
        assert one["session_id"] == session_id and not one["ok"]
        assert one["findings"] == [
            {
                "severity": "damage",
                "kind": "line",
                "text": "not UTF-8",
                "line": 6,
                "start": size,
                "end": size + 11,
                "lines": 1,
                "file": "",
            }
        ]
    assert "1 damaged: `awl sessions repair ID` helps" in kept("sessions", "verify", code=1).err


def test_stored_text_is_never_printed_as_it_is(kept: Awl) -> None:
    entry = {"type": "\x1b[31mred\x07", "id": "x", "parentId": "\x9b2J\n"}
    with kept.log.open("a") as log:
        log.write(json.dumps(entry) + "\n")
    done = kept("sessions", "verify", kept.id, code=1)
    assert not HARMFUL.search(done.out.replace("\n", ""))
    assert "␛[31mred" in done.out


def test_a_directory_s_sessions_are_checked_and_those_that_say_nothing(kept: Awl) -> None:
    elsewhere = kept.home / "elsewhere"
    elsewhere.mkdir()
    kept("-p", "Hi", cwd=elsewhere)
    for log in kept.logs:
        empty = log.with_name("2026-04-25T17-40-15-990Z_nothing.jsonl")
        empty.touch(mode=0o600)
    done = kept("sessions", "verify", "--json", code=1)
    assert {Path(one["path"]).parent.name for one in done.json} == {encode_cwd(str(kept.work))}
    assert [one["ok"] for one in done.json] == [False, True]
    assert len(kept("sessions", "verify", "--json", "--all", code=1).json) == 4


def test_an_id_that_two_files_claim_names_both(kept: Awl) -> None:
    other = kept.sessions / "copies" / kept.log.name
    other.parent.mkdir(mode=0o700)
    other.write_bytes(kept.log.read_bytes())
    other.chmod(0o600)
    found = kept("sessions", "verify", "--all", "--json", code=1).json
    assert [one["findings"][0]["kind"] for one in found] == ["id", "id"]
    assert [str(other) in json.dumps(one) for one in found] == [True, True]
    assert not any(one["ok"] for one in found)


def test_what_belongs_to_no_log_and_what_others_can_read_is_named(kept: Awl) -> None:
    folder = kept.log.parent
    gone = "2026-04-25T17-40-15-990Z_gone.jsonl"
    for name in (f"{gone}.torn-x", f".{gone}.0a1b2c3d", f"{gone}.owner", "notes.txt"):
        (folder / name).touch()
    (folder / gone.replace(".jsonl", ".blobs")).mkdir()
    folder.chmod(0o750)
    (kept.sessions / ".awl" / "index.db").chmod(0o644)
    assert rest(kept) == [
        f"{folder.name}: note: {folder.name}: mode 0750 lets others in: `chmod 700` it",
        f"{folder.name}: note: .{gone}.0a1b2c3d: its log is not here",
        f"{folder.name}: note: {gone.replace('.jsonl', '.blobs')}: its log is not here",
        f"{folder.name}: note: {gone}.owner: its log is not here",
        f"{folder.name}: note: {gone}.torn-x: its log is not here",
        "index.db: note: index.db: mode 0644 lets others in: `chmod 600` it",
    ]


def test_what_a_delete_that_was_killed_left_behind_is_named(kept: Awl) -> None:
    log = kept.log
    torn = log.with_name(log.name + ".torn-x")
    kept("sessions", "delete", kept.id)
    torn.touch(mode=0o600)
    trashed = next((kept.sessions / ".trash").glob("*/*/*.jsonl"))
    lone = trashed.with_name("2026-04-25T17-40-15-990Z_gone.jsonl.torn-x")
    lone.touch(mode=0o600)
    trashed.parent.chmod(0o711)
    assert rest(kept) == [
        f"{log.parent.name}: note: {torn.name}: its log, {log.name}, is in the trash: the next"
        " `delete` or `restore` moves this, too",
        f"{log.parent.name}: note: {log.parent.name}: mode 0711 lets others in: `chmod 700` it",
        f"{log.parent.name}: note: {lone.name}: its log is not here",
    ]


def test_the_databases_are_checked_and_only_one_of_them_can_be_lost(kept: Awl) -> None:
    folder = kept.sessions / ".awl"
    for name, said in (
        ("index.db", "note: index.db: "),
        ("conversations.db", "conversations.db: "),
    ):
        path = folder / name
        whole = path.read_bytes()
        for content in (
            b"garbage" * 1000,
            whole[:5000],
            whole[:4096] + b"\xff" * len(whole[4096:]),
        ):
            path.write_bytes(content)
            (one,) = rest(kept)
            assert one.startswith(f"{name}: {said}"), one
        path.write_bytes(whole)
    assert rest(kept) == []


def test_a_database_in_use_is_read_with_what_is_in_its_write_ahead_log(kept: Awl) -> None:
    path = kept.sessions / ".awl" / "conversations.db"
    db = sqlite3.connect(path)
    try:
        db.execute("INSERT INTO numbers (session_id) VALUES ('x')")
        db.commit()
        assert path.with_name("conversations.db-wal").stat().st_size
        assert rest(kept) == []
    finally:
        db.close()
    before = sorted(path.parent.iterdir())
    assert rest(kept) == []
    assert sorted(path.parent.iterdir()) == before


def test_what_cannot_be_read_hides_nothing_else(kept: Awl) -> None:
    folder = kept.sessions / "other"
    folder.mkdir(mode=0o700)
    pipe = folder / "2026-04-25T17-40-15-990Z_pipe.jsonl"
    loop = folder / "2026-04-25T17-40-15-990Z_loop.jsonl"
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    done = kept("sessions", "verify", "--all")
    assert done.err.startswith("awl: cannot be read: ") and str(loop) in done.err
    gone = folder / "2026-04-25T17-40-15-990Z_gone.jsonl"
    (one,) = verify_all([gone])
    assert one.findings[0].text == "it cannot be read: No such file or directory"


def test_nothing_is_claimed_twice_in_a_sound_place(kept: Awl) -> None:
    logs = list(Store(kept.sessions).logs())
    assert claims(logs) == {}
    assert [type(one) for one in verify_all(logs)] == [Checked]


def test_the_usage_is_told(kept: Awl) -> None:
    assert "give an ID, or --all" in kept("sessions", "verify", "x", "--all", code=2).err
    assert "no session matches 'zzz'" in kept("sessions", "verify", "zzz", code=1).err


def test_a_conversation_without_a_log_says_that_it_has_none(awl: Awl) -> None:
    awl.plays([say("Hello there.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "Hi")
    (row,) = awl("sessions", "--json").json
    assert "has no log" in awl("sessions", "verify", row["id"], code=1).err
