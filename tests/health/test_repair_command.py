"""`awl sessions repair` as people call it, and killed."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pytest
from running import Awl, assistant, until, user

from health.test_memory import damaged, large_log


def hashes(folder: Path) -> dict[Path, str]:
    """Every file below a folder but the databases."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and ".awl" not in path.parts
    }


def in_the_making(awl: Awl) -> int:
    """Bytes of a log that has no name yet."""
    with contextlib.suppress(FileNotFoundError):  # it was given its name just now
        return sum(path.stat().st_size for path in awl.sessions.glob("*/.*.jsonl.*"))
    return 0


def test_a_damaged_session_is_repaired_listed_as_a_copy_and_resumed(awl: Awl) -> None:
    awl.write_log(user("first words"), b'{"broken\n', assistant("an answer"))
    before = hashes(awl.sessions)
    planned = awl("sessions", "repair", "019dc5ba", "--dry-run")
    assert planned.out == ""
    assert "cannot be read: a gap" in planned.err and "nothing was made" in planned.err
    assert hashes(awl.sessions) == before
    done = awl("sessions", "repair", "019dc5ba")
    (new,) = done.lines
    assert "cannot be read: a gap" in done.err and f"{new}.jsonl" in done.err
    after = hashes(awl.sessions)
    assert {path: after[path] for path in before} == before and len(after) == len(before) + 1
    rows = {row["id"]: row for row in awl("sessions", "--json").json}
    assert rows[new]["forked_from"]["sessionId"] == "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"
    assert rows[new]["title"] == "first words"
    assert awl("sessions", "verify", new).out == f"{new}  sound\n"
    assert "nothing to repair" in awl("sessions", "repair", new).err
    shown = awl("sessions", "show", new).out
    assert "could not be repaired" in shown and "repaired: a copy of 019dc5ba" in shown
    events = awl("sessions", "show", new, "--events").out
    assert "revision  repair: line 3 (bytes" in events
    awl("--resume", new, "-p", "go on")
    assert awl("sessions", "verify", new).out == f"{new}  sound\n"


def test_a_sound_session_makes_nothing(awl: Awl) -> None:
    awl("-p", "Hi")
    before = hashes(awl.sessions)
    done = awl("sessions", "repair", awl.id)
    assert done.out == "" and "is sound: there is nothing to repair" in done.err
    assert hashes(awl.sessions) == before


def test_a_directory_that_nothing_tells_is_asked_for(awl: Awl) -> None:
    log = awl.write_log(user("first words"))
    elsewhere = log.parent.parent / "elsewhere" / log.name
    elsewhere.parent.mkdir()
    log.rename(elsewhere)
    elsewhere.write_bytes(b"garbage\n" + elsewhere.read_bytes().partition(b"\n")[2])
    refused = awl("sessions", "repair", "019dc5ba", code=1)
    assert "give it with --cwd DIR" in refused.err
    (new,) = awl("sessions", "repair", "019dc5ba", "--cwd", str(awl.work)).lines
    (row,) = awl("sessions", "--json").json
    assert (row["id"], row["cwd"]) == (new, str(awl.work))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_repair_that_is_killed_leaves_a_whole_copy_or_none(
    awl: Awl, tmp_path: Path, share: float
) -> None:
    folder = awl.sessions / "elsewhere"
    folder.mkdir(parents=True)
    path = damaged(large_log(folder / "2026-04-25T17-40-15-990Z_big.jsonl", 6 << 20))
    before = hashes(folder)
    wanted = path.stat().st_size * share
    with awl.started("sessions", "repair", str(path)) as process:
        until(lambda: in_the_making(awl) >= wanted or process.poll() is not None)
        process.kill()
        process.wait()
    assert hashes(folder) == before
    for log in awl.logs:
        if log != path:
            awl("sessions", "verify", str(log))
    awl("sessions", "repair", str(path))
    assert not [item for item in awl.sessions.rglob(".*.jsonl.*") if item.is_file()]
