"""A repaired copy is sound, holds all that can be read, and says what was done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from histories import ACCIDENTS, CWD, JUMPS, NAMING, TALK, Step, examples, histories, story
from hypothesis import given
from log.making import a_session, seed_log
from msgspec.structs import replace
from rawlog import CHANGES, RawLog, changed, everything, result, said

from awl.conversation import text_message
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    Entry,
    ForkPointEntry,
    GapEntry,
    RevisionEntry,
    UnknownEntry,
)
from awl.errors import NotASession
from awl.health.repair import Repaired, repair
from awl.health.verify import verify
from awl.log.blobs import Blobs
from awl.replay import UnknownDirectory, read
from awl.session import Session
from awl.state import State

JSON = dict[str, Any]


def entries(state: State) -> list[Entry]:
    return [state.body(position) for position in range(len(state.entries))]


def plain(state: State) -> list[Entry]:
    """The entries of a session without what a repair adds, and without the places they name."""
    found: list[Entry] = []
    for entry in entries(state):
        entry = replace(entry, parent_id=None, seq=0)
        match entry:
            case GapEntry() | RevisionEntry():
                continue
            case UnknownEntry(raw=raw) if "cwd" in raw:
                continue  # a header that became something else is a header again
            case UnknownEntry(raw=raw):
                raw = {key: raw[key] for key in raw if key not in ("parentId", "seq")}
                entry = replace(entry, raw=raw)
            case CondensationEntry():
                entry = replace(entry, replaced=(0, 0))
            case CompactionEntry():
                entry = replace(entry, cleared=())
            case ForkPointEntry():
                entry = replace(entry, at=0)
        found.append(entry)
    return found


def repaired(path: Path, cwd: str | None = None) -> Repaired:
    """A copy of a damaged session, which must be sound and go on."""
    before = {item: (item.read_bytes(), item.stat().st_mtime_ns) for item in beside(path)}
    planned = repair(path, path.parent.parent, dry=True, cwd=cwd)
    assert beside(path) == list(before)
    made = repair(path, path.parent.parent, cwd=cwd)
    assert made is not None and planned is not None
    assert made.changes == planned.changes
    for item, (data, mtime) in before.items():
        assert (item.read_bytes(), item.stat().st_mtime_ns) == (data, mtime)
    checked = verify(made.path)
    assert checked.ok, checked.findings
    assert repair(made.path, path.parent.parent) is None
    return made


def beside(path: Path) -> list[Path]:
    return sorted(item for item in path.parent.rglob("*") if item.is_file())


def goes_on(made: Repaired) -> None:
    session = Session.open(made.path)
    session.append_message(text_message("user", "and now?"))
    session.close()
    assert all("condensation" in notice for notice in session.notices)
    assert verify(made.path).ok


def lines(made: Repaired) -> list[JSON]:
    return [json.loads(line) for line in made.path.read_bytes().splitlines()]


def mended(root: Path, log: RawLog, cwd: str | None = None) -> Repaired:
    path = log.write(root)
    path.chmod(0o600)
    return repaired(path, cwd)


# -- what is done ----------------------------------------------------------------------------------


def test_there_is_nothing_to_repair_in_a_sound_session(tmp_path: Path) -> None:
    for path in (a_session(tmp_path / "one", tmp_path), seed_log(tmp_path / "two" / "x")):
        before = beside(tmp_path / "one")
        assert repair(path, path.parent.parent) is None
        with path.open("ab") as log:
            log.write(b'{"type":"never ackn')
        assert repair(path, path.parent.parent) is None
        assert beside(tmp_path / "one") == before


def test_good_lines_are_copied_byte_for_byte_with_their_ids_and_seqs(tmp_path: Path) -> None:
    log = RawLog(stamped=True, endpoint="https://e.test", extra={"kept": [1.50]})
    log.prompt("a", strange=1.50)
    log.answer("b \u2028")
    log.bad(instead=True)
    log.prompt("c")
    made = mended(tmp_path, log)
    data = made.path.read_bytes().splitlines()
    assert data[1:3] == log.lines[1:3] and data[4] == log.lines[4]
    header, _, _, gap, _, revision = lines(made)
    assert header == {
        **json.loads(log.lines[0]),
        "id": made.session_id,
        "timestamp": header["timestamp"],
        "forkedFrom": {"sessionId": "019dc5ba-53f6-71a5-ab8f-b1f8709c2572", "seq": 4},
    }
    assert (gap["type"], gap["id"], gap["parentId"], gap["seq"]) == ("gap", "e3", "e2", 3)
    assert (gap["lines"], gap["size"]) == (1, len(b"garbage"))
    assert revision["type"] == "revision" and revision["reason"] == "repair"
    assert revision["sourceId"] == "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"
    start = len(b"".join(line + b"\n" for line in log.lines[:3]))
    assert (
        revision["changes"]
        == list(made.changes)
        == [f"line 4 (bytes {start}-{start + 7}) cannot be read: a gap has seq 3"]
    )
    assert said(read(made.path)) == [
        "a",
        "b \u2028",
        "[awl: a line of the log (7 bytes) could not be repaired; what was said there is missing"
        " here]",
        "c",
    ]
    goes_on(made)


def test_a_whole_entry_is_separated_from_the_fragment_before_it(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.prompt("c")
    whole = log.lines[2]
    log.lines[2] = b'{"type":"mess' + whole
    log.lines[3] = whole[:50] + log.lines[3]
    made = mended(tmp_path, log)
    assert made.path.read_bytes().splitlines()[2] == whole
    assert said(read(made.path)) == ["a", "b", "c"]
    assert not any(entry["type"] == "gap" for entry in lines(made))


def test_entries_on_one_line_between_zeros_and_behind_a_bom_are_separated(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.prompt("c")
    _, one, two, three = log.lines
    log.lines[0] = b"\xef\xbb\xbf" + log.lines[0]
    log.lines[1:] = [b"\0" * 40 + one + b"\0" + two + three + b"\0" * 9]
    made = mended(tmp_path, log)
    assert made.path.read_bytes().splitlines()[1:4] == [one, two, three]
    assert made.path.read_bytes()[0] == ord("{")


def test_what_looks_like_an_entry_inside_a_damaged_one_is_none(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    inner = {"type": "message", "id": "i", "parentId": None, "message": {"role": "user"}}
    log.add("note", text="y", record=inner, more=[inner, inner])
    log.answer("c")
    log.lines[2] = log.lines[2].replace(b'"text":"y"', b'"text":"y')
    made = mended(tmp_path, log)
    assert [entry["type"] for entry in lines(made)] == [
        "session", "message", "gap", "message", "revision",
    ]  # fmt: skip


def test_lines_that_come_again_and_other_headers_are_left_out(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.lines += log.lines
    log.prompt("c")
    made = mended(tmp_path, log)
    assert said(read(made.path)) == ["a", "b", "c"]
    assert made.changes == (
        "line 4: another session header: left out",
        "line 5 is there already: left out",
        "line 6 is there already: left out",
    )


def test_a_parent_that_is_wrong_although_nothing_is_missing_is_mended(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b", parentId="nowhere")
    log.prompt("c", parentId="e1")
    log.prompt("d", parentId=None)
    made = mended(tmp_path, log)
    assert [entry.parent_id for entry in entries(read(made.path))[:4]] == [None, "e1", "e2", "e3"]
    assert [change.partition("): ")[2] for change in made.changes] == [
        "nowhere is not there, and nothing is missing: it follows e1 now",
        "it is no rewind: it follows e2 now",
        "it is no rewind: it follows e3 now",
    ]


def test_a_line_that_is_gone_leaves_a_gap_with_its_id_and_seq(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.prompt("c")
    log.add("rewind", parentId="e2")
    log.prompt("d")
    del log.lines[2]
    made = mended(tmp_path, log)
    assert [(entry["type"], entry["seq"]) for entry in lines(made)[1:-1]] == [
        ("message", 1),
        ("gap", 2),
        ("message", 3),
        ("rewind", 4),
        ("message", 5),
    ]
    assert made.path.read_bytes().splitlines()[3:6] == log.lines[2:]
    assert [message.text[:5] for message in read(made.path).conversation.messages] == [
        "a", "[awl:", "d",
    ]  # fmt: skip


def test_a_rewind_into_a_lost_line_leads_to_the_gap_in_its_place(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.bad(instead=True)
    log.prompt("b", parentId="e1")
    log.answer("c")
    log.add("rewind", parentId="e2")
    log.prompt("d")
    made = mended(tmp_path, log)
    assert [item[:5] for item in said(read(made.path))] == ["a", "[awl:", "d"]


def test_a_rewind_to_nowhere_leads_to_before_the_last_prompt(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.prompt("c")
    log.add("rewind", parentId="nowhere")
    log.add("rewind", parentId="drop")
    log.prompt("d")
    made = mended(tmp_path, log)
    assert said(read(made.path)) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("seqs", "then"),
    [
        ([1, 2, 9, 4, 5], [1, 2, 3, 4, 5]),
        ([1, 2, 1, 4, 5], [1, 2, 3, 4, 5]),
        ([1, 2, 2, 3, 4], [1, 2, 3, 4, 5]),
        ([1, 2, 2, 7, 8], [1, 2, 3, 7, 8]),
        ([4, 1, 2, 3, 4], [1, 2, 3, 4, 5]),
    ],
)
def test_of_the_seqs_as_many_as_can_be_are_kept(
    tmp_path: Path, seqs: list[int], then: list[int]
) -> None:
    log = RawLog()
    for seq in seqs:
        log.answer(str(seq), seq=seq)
    made = mended(tmp_path, log)
    state = read(made.path)
    assert [seq for seq, entry in zip(state.seqs, entries(state), strict=True)
            if not isinstance(entry, GapEntry)][:5] == then  # fmt: skip


def test_what_names_a_seq_that_moved_names_the_new_one(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.answer("c", seq=2)
    log.answer("d", seq=3)
    log.condensed(1, 3)
    log.add("compaction", tier="soft", clearedCount=1, cleared=[3])
    made = mended(tmp_path, log)
    by_type = {entry["type"]: entry for entry in lines(made)}
    assert by_type["condensation"]["replaced"] == [1, 4]
    assert by_type["compaction"]["cleared"] == [4]


def test_what_is_not_as_the_format_says_is_kept_and_known(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.condensed(7, 9)
    log.add("message", message={"role": "nobody"})
    log.results(result("x", output={"blob": "ab" * 32, "size": 3}))
    made = mended(tmp_path, log)
    assert made.path.read_bytes().splitlines()[1:5] == log.lines[1:]
    revision = lines(made)[-1]
    assert (revision["odd"], revision["lostBlobs"]) == ([2, 3], ["ab" * 32])
    notes = [str(finding) for finding in verify(made.path).findings]
    assert sum("(known)" in note for note in notes) == 3


def test_sound_blobs_come_along(tmp_path: Path) -> None:
    path = a_session(tmp_path / "sessions", tmp_path)
    Blobs(path).put(b"nothing names this")
    path.write_bytes(path.read_bytes() + b"garbage\n")
    made = repaired(path)
    (blob,) = Blobs(made.path).directory.iterdir()
    assert blob.read_bytes() == b"whole output"
    goes_on(made)


def test_bad_lines_at_the_end_are_a_gap_and_a_fragment_is_nothing(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    path = log.write(tmp_path)
    path.chmod(0o600)
    path.write_bytes(log.data + b"garbage\ngarbage\n{")
    made = repaired(path)
    (gap,) = [entry for entry in lines(made) if entry["type"] == "gap"]
    assert (gap["seq"], gap["lines"], gap["parentId"]) == (3, 2, "e1")
    goes_on(made)


def test_garbage_that_stood_for_nothing_leaves_no_gap(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.bad()
    log.answer("b")
    made = mended(tmp_path, log)
    assert [entry["type"] for entry in lines(made)] == [
        "session", "message", "message", "revision",
    ]  # fmt: skip
    assert made.changes[0].endswith("left out, nothing is missing there")


def test_a_log_without_seqs_keeps_those_that_its_lines_have_by_their_place(tmp_path: Path) -> None:
    log = RawLog(stamped=False)
    log.prompt("a")
    log.bad()
    log.answer("b")
    log.prompt("c")
    before = read(log.write(tmp_path))
    made = mended(tmp_path, log)
    after = read(made.path)
    numbers = dict(zip((entry.id for entry in entries(after)), after.seqs, strict=True))
    assert [numbers[entry.id] for entry in entries(before)] == before.seqs == [1, 3, 4]


def test_whole_entries_in_a_torn_tail_come_back(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    whole = log.lines.pop()
    path = log.write(tmp_path)
    path.chmod(0o600)
    path.write_bytes(log.data + b'{"type":"mess' + whole + b"\n")
    Session.open(path).close()  # moves it aside
    assert verify(path).ok and said(read(path)) == ["a"]
    made = repair(path, tmp_path)
    assert made is not None and verify(made.path).ok
    assert said(read(made.path)) == ["a", "b"]
    session = Session.open(path)
    session.append_message(text_message("assistant", "c"))
    session.close()
    assert repair(path, tmp_path) is None


# -- the header ------------------------------------------------------------------------------------


def test_a_header_is_read_from_what_is_left_of_its_line(tmp_path: Path) -> None:
    log = RawLog(endpoint="https://e.test")
    log.prompt("a")
    log.lines[0] = log.lines[0].replace(b'"version":1,', b'"version":1')
    path = log.write(tmp_path)
    path.chmod(0o600)
    made = repair(path, tmp_path)
    assert made is not None
    header = lines(made)[0]
    assert (header["cwd"], header["provider"], header["model"], header["endpoint"]) == (
        "/home/dev/awl",
        "anthropic",
        "claude-1",
        "https://e.test",
    )
    assert header["forkedFrom"]["sessionId"] == "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"
    assert made.path.parent.name == "--home--dev--awl"


def test_a_header_that_is_gone_comes_from_what_follows_or_from_the_person(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a", provider="openai", model="gpt")
    log.lines[0] = b"garbage"
    path = log.write(tmp_path)
    with pytest.raises(UnknownDirectory, match="--cwd DIR"):
        repair(path, tmp_path)
    made = repair(path, tmp_path, cwd=str(tmp_path))
    assert made is not None and verify(made.path).ok
    header = lines(made)[0]
    assert (header["cwd"], header["provider"], header["model"]) == (str(tmp_path), "openai", "gpt")
    log.add("cwdChange", cwd="/other")
    made = repair(log.write(tmp_path), tmp_path)
    assert made is not None and lines(made)[0]["cwd"] == "/other"


def test_a_header_that_lacks_something_is_completed(tmp_path: Path) -> None:
    log = RawLog(cwd=None)
    log.prompt("a")
    made = mended(tmp_path, log, CWD)
    assert lines(made)[0]["cwd"] == CWD
    assert "the header is made anew" in made.changes[0]


def test_nothing_is_made_of_nothing(tmp_path: Path) -> None:
    for data in (b"", b"garbage\n", b"\0" * 500):
        path = tmp_path / "x" / "2026-04-25T17-40-15-990Z_x.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        with pytest.raises(NotASession):
            repair(path, tmp_path)
    assert beside(tmp_path / "x" / "y") == [path]


# -- complete or absent ----------------------------------------------------------------------------


def test_a_repair_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_session(tmp_path / "sessions", tmp_path)
    path.write_bytes(path.read_bytes() + b"garbage\n")
    before = beside(path)

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    for place in ("awl.health.repair.copy_bytes", "awl.log.birth.Unborn.adopt"):
        with monkeypatch.context() as patched:
            patched.setattr(place, full)
            with pytest.raises(OSError, match="No space"):
                repair(path, path.parent.parent)
        assert beside(path) == before


# -- any damage ------------------------------------------------------------------------------------


def kept(before: State, made: Repaired) -> None:
    """Every entry that could be read is in the copy, in the same order."""
    after = iter(plain(read(made.path)))
    for entry in plain(before):
        assert any(found == entry for found in after), entry


@examples(80)
@given(histories(*TALK, *NAMING, *JUMPS, *ACCIDENTS, most=25))
def test_a_repaired_history_is_what_the_damaged_one_was(steps: list[Step]) -> None:
    with story() as told:
        told.play(steps)
        told._drop()
        path = told.session.path
        if not path.exists():
            return
        before = read(path)
        if repair(path, told.root, dry=True, cwd=CWD) is None:
            return
        made = repaired(path, CWD)
        after = read(made.path)
        kept(before, made)
        if len(plain(after)) > len(plain(before)):
            return  # something was found in a bad line
        assert [item.message for item in after.items if item.kind != "gap"] == [
            item.message for item in before.items if item.kind != "gap"
        ]
        goes_on(made)


@examples(300)
@given(CHANGES)
def test_whatever_bytes_change_a_repair_is_sound_and_keeps_what_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bytes]]
) -> None:
    log = everything()
    root = tmp_path_factory.mktemp("changed")
    path = log.write(root)
    path.write_bytes(changed(log.data, changes))
    try:
        before = read(path)
    except NotASession:
        return
    if verify(path).ok:
        assert repair(path, root) is None
        return
    made = repaired(path, CWD)
    kept(before, made)
    goes_on(made)
