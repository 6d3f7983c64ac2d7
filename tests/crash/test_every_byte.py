"""A log that was cut after any of its bytes opens, keeps every complete line, and goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log.making import a_session, names_in, seed_log

from awl.conversation import text_message
from awl.entries import Header, MessageEntry
from awl.errors import NotASession
from awl.log.file import torn_files
from awl.log.line import decode, is_object
from awl.replay import read
from awl.session import Session
from awl.state import State


@pytest.fixture(params=["session", "seed"])
def original(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A real session's log, and one as the seed shows it."""
    if request.param == "session":
        path = a_session(tmp_path / "sessions", tmp_path)
    else:
        path = seed_log(tmp_path / "sessions")
    # What reaches the disk is not in question here, and thousands of syncs take minutes.
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda fd: None, raising=False)
    return path


def cuts(data: bytes) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    """For each cut: its byte, the bytes before it, the complete ones, the torn ones."""
    for at in range(len(data)):
        before = data[:at]
        complete = before[: before.rfind(b"\n") + 1]
        rest = before[len(complete) :]
        if rest and is_object(rest):
            complete, rest = before + b"\n", b""
        yield at, before, complete, rest


def told(state: State) -> dict[str, Any]:
    """All that a state tells of its session."""
    return {
        "header": state.header,
        "conversation": state.conversation,
        "ids": [entry.id for entry in state.entries],
        "seqs": state.seqs,
        "parents": state.parents,
        "bytes": [list(state.starts), list(state.ends), list(state.lines)],
        "path": state.path,
        "model": state.active_model,
        "calls": [state.call_status(call) for call in state.open_calls],
        "interrupted": state.interrupted,
        "turn": state.turn,
        "next": state.next_seq,
        "damage": state.damage,
        "findings": state.all_findings,
        "updated": state.updated,
    }


def test_a_log_cut_after_any_byte_keeps_its_complete_lines_and_goes_on(
    original: Path, tmp_path: Path
) -> None:
    data = original.read_bytes()
    header_end = data.index(b"\n")
    for at, before, complete, rest in cuts(data):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = folder / original.name
        path.write_bytes(before)

        if at < header_end:
            with pytest.raises(NotASession):
                Session.open(path)
            with pytest.raises(NotASession):
                read(path)
            assert path.read_bytes() == before
            assert names_in(folder) == [path.name]
            continue

        seen = told(read(path))  # a reader changes nothing
        assert path.read_bytes() == before
        session = Session.open(path)
        assert path.read_bytes() == complete
        assert [torn.read_bytes() for torn in torn_files(path)] == ([rest] if rest else [])
        entries = [decode(line) for line in complete.splitlines()]
        assert [session.header, *session.entries()] == entries
        assert session.conversation == seen["conversation"]

        appended = session.append_message(text_message("user", "Are you there?"))
        *kept, added = path.read_bytes().splitlines(keepends=True)
        assert b"".join(kept) == complete
        new = decode(added)
        assert isinstance(new, MessageEntry)
        last = entries[-1]
        parent = None if isinstance(last, Header) else last.id
        assert (new.id, new.parent_id, new.seq) == (appended, parent, len(entries))
        live = told(session.state)
        assert told(read(path)) == live
        session.close()
        again = Session.open(path)
        assert again.conversation == live["conversation"]
        assert again.notices == []
        again.close()


def test_two_cuts_one_after_the_other_lose_nothing_of_either(
    original: Path, tmp_path: Path
) -> None:
    """A crash, a recovery, and a crash of what was written after it."""
    data = original.read_bytes()
    first_line = data.index(b"\n") + 1
    for at in range(first_line + 1, len(data), 97):
        folder = tmp_path / str(at)
        folder.mkdir()
        path = folder / original.name
        path.write_bytes(data[:at])
        session = Session.open(path)
        kept = path.read_bytes()
        session.append_message(text_message("user", "One more"))
        session.close()
        grown = path.read_bytes()
        path.write_bytes(grown[: len(kept) + 40])
        session = Session.open(path)
        assert path.read_bytes() == kept
        rest = data[len(kept) : at] if at >= len(kept) else b""
        torn = [torn.read_bytes() for torn in torn_files(path)]
        assert sorted(torn) == sorted(filter(None, [rest, grown[len(kept) : len(kept) + 40]]))
        session.append_message(text_message("user", "And another"))
        live = told(session.state)
        session.close("error")
        state = read(path)
        assert state.conversation == live["conversation"]
        assert state.damage == [] and state.all_findings == []


def test_a_log_with_any_line_damaged_keeps_all_others(original: Path, tmp_path: Path) -> None:
    lines = original.read_bytes().splitlines(keepends=True)
    whole = read(original)
    for hit in range(1, len(lines)):
        for number, bad in enumerate(
            (b"garbage\n", b"\x00" * len(lines[hit]) + b"\n", lines[hit][:25] + b"\n")
        ):
            folder = tmp_path / f"{hit}-{number}"
            folder.mkdir()
            path = folder / original.name
            path.write_bytes(b"".join((*lines[:hit], bad, *lines[hit + 1 :])))
            state = read(path)
            expected = [entry.id for at, entry in enumerate(whole.entries, 1) if at != hit]
            assert [entry.id for entry in state.entries] == expected
            if hit < len(lines) - 1:
                (damage,) = state.damage
                assert damage.line == hit + 1
                on_path = [state.entries[at].id for at in state.path]
                assert on_path == expected  # nothing before the gap is hidden
                assert path.read_bytes() == b"".join((*lines[:hit], bad, *lines[hit + 1 :]))
            session = Session.open(path)
            session.append_message(text_message("user", "on"))
            assert session.state.seqs[-1] == len(lines)  # the lost seq is not used again
            session.close()
