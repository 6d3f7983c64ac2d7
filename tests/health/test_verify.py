"""What a check of one session finds, and that it finds no more and no less than there is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from histories import ACCIDENTS, JUMPS, NAMING, TALK, Step, examples, histories, story
from hypothesis import given
from log.making import HEADER, a_log, a_session, message, seed_log
from rawlog import CHANGES, RawLog, changed, everything, result, use

from awl.errors import NotASession
from awl.health.findings import Checked, Finding
from awl.health.verify import verify
from awl.log.line import encode
from awl.replay import read
from awl.state import State


def damage(checked: Checked) -> list[Finding]:
    return [finding for finding in checked.findings if finding.severity == "damage"]


def notes(checked: Checked) -> list[str]:
    return [str(finding) for finding in checked.findings if finding.severity == "note"]


def private(path: Path) -> Path:
    path.chmod(0o600)
    return path


def written(root: Path, log: RawLog) -> Path:
    return private(log.write(root))


def found(root: Path, log: RawLog) -> list[str]:
    """All that is found in a log, in words."""
    return [str(finding) for finding in verify(written(root, log)).findings]


def bad_lines(checked: Checked) -> list[int]:
    """Every line that is named as unreadable."""
    return [
        line
        for finding in checked.findings
        if finding.severity == "damage" and finding.kind == "line"
        for line in range(finding.line, finding.line + finding.lines)
    ]


def agrees(path: Path) -> Checked:
    """Check a log, and that the check and the fold of the same log see the same."""
    checked = verify(path)
    try:
        state = read(path)
    except NotASession:
        assert not checked.ok
        return checked
    assert bad_lines(checked) == [bad.line for bad in state.damage if bad.acknowledged]
    lines = {finding.line for finding in damage(checked)}
    assert lines.issuperset(finding.line for finding in state.all_findings)
    assert lines.issuperset(state.lines[position] for position in state.gaps)
    return checked


# -- sound -----------------------------------------------------------------------------------------


def test_a_session_of_every_kind_of_entry_is_sound(tmp_path: Path) -> None:
    path = a_session(tmp_path / "sessions", tmp_path)
    assert verify(path) == Checked(
        session_id=read(path).header.id,  # type: ignore[union-attr]
        path=str(path),
        ok=True,
        findings=(),
    )
    log = everything()
    repeated, strange = found(tmp_path, log)  # "bash" is the id of two entries of this log
    assert repeated == "note: the id of the entry with seq 8 stands again in the log"
    assert strange.startswith("note: line 19 ")
    assert "type hologram, which this awl does not know" in strange


def test_all_records_of_a_program_that_a_session_came_from_are_one_note(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    for kind in ("pi:system", "pi:custom", "hologram", "codex:developer"):
        log.add(kind)
    assert [note.partition(": ")[2].partition(": ")[2] for note in found(tmp_path, log)] == [
        "2 records of pi: kept as they are",
        "an entry of type hologram, which this awl does not know: kept as it is",
        "a record of codex: kept as it is",
    ]


def test_a_log_as_the_seed_shows_it_is_sound(tmp_path: Path) -> None:
    assert verify(private(seed_log(tmp_path))).findings == ()


def test_ids_of_any_form_that_come_again_and_branches_without_a_seq_are_sound(
    tmp_path: Path,
) -> None:
    log = RawLog(stamped=False)
    log.prompt("a", name="é \u2028" * 30)
    log.answer("b", name="x")
    log.prompt("c", parentId=None)
    log.answer("d", name="x")
    assert found(tmp_path, log) == ["note: the id of the entry with seq 2 stands again in the log"]


@examples(60)
@given(histories(*TALK, *NAMING, *JUMPS, "kill", "reopen", most=25))
def test_whatever_happens_in_a_session_leaves_it_sound(steps: list[Step]) -> None:
    """A condensation of a random range can be one that does not count, and is then named."""
    with story() as told:
        told.play(steps)
        if told.session.path.exists():
            checked = agrees(told.session.path)
            assert {finding.kind for finding in damage(checked)} <= {"range"}


def test_what_is_said_of_a_rewind_that_a_repair_knew_is_a_note(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("x")
    log.condensed(5, 9)
    log.answer("y")
    assert not verify(written(tmp_path, log)).ok
    log.add("revision", reason="repair", odd=[2], lostBlobs=[])
    (known,) = found(tmp_path, log)
    assert known.startswith("note: line 3 ") and known.endswith(
        "covers nothing of its path (known)"
    )


# -- the tail --------------------------------------------------------------------------------------


def test_a_log_cut_at_any_byte_is_checked_as_it_is_replayed(tmp_path: Path) -> None:
    log = RawLog()
    first = log.prompt("a \u2028 é")
    log.calls("c")
    log.results(result("c"))
    log.add("rewind", parentId=first)
    whole = written(tmp_path, log)
    data = whole.read_bytes()
    end = data.index(b"\n")
    for cut in range(len(data)):
        os.truncate(whole, cut)
        checked = agrees(whole)
        assert checked.ok == (cut >= end), cut
        kinds = {finding.kind for finding in checked.findings if finding.severity == "note"}
        whole_lines = cut > end and data[:cut].endswith(b"\n")
        assert ("tail" in kinds) == (cut > 0 and not whole_lines), cut
        whole.write_bytes(data)


def test_an_empty_log_and_one_whose_only_line_is_torn_are_named(tmp_path: Path) -> None:
    empty = private(a_log(tmp_path))
    assert [str(one) for one in verify(empty).findings] == ["it is empty"]
    torn = private(a_log(tmp_path, encode(HEADER)[:40]))
    assert "nothing in it can be read" in [str(one) for one in verify(torn).findings]
    assert not verify(torn).ok


@pytest.mark.parametrize("tail", [b'{"type":"mess', b"\0" * 500, b'{"type":"message"}'])
def test_what_was_never_acknowledged_is_a_note(tmp_path: Path, tail: bytes) -> None:
    path = private(a_log(tmp_path, HEADER, message(1), tail))
    checked = verify(path)
    assert checked.ok
    (finding,) = checked.findings
    size = path.stat().st_size
    assert (finding.kind, finding.start, finding.end) == ("tail", size - len(tail), size)


def test_a_whole_last_line_without_its_newline_blank_lines_and_a_bom_are_notes(
    tmp_path: Path,
) -> None:
    path = private(a_log(tmp_path, b"\xef\xbb\xbf", HEADER, b"\n \n", message(1)))
    assert notes(verify(path)) == [
        "note: line 1 (bytes 0-3): a byte order mark before the first line",
        f"note: lines 2-3 (bytes {len(encode(HEADER)) + 3}-{len(encode(HEADER)) + 6}): blank",
    ]
    path = private(a_log(tmp_path, HEADER, encode(message(1))[:-1]))
    assert "the last line lacks its newline" in notes(verify(path))[0]
    path = private(a_log(tmp_path, HEADER, message(1), b"\n\n"))
    assert "blank lines at the end" in notes(verify(path))[0]
    assert verify(path).ok


# -- lines -----------------------------------------------------------------------------------------


def test_bad_lines_are_named_with_their_bytes_and_a_run_of_them_once(tmp_path: Path) -> None:
    first, garbage, second = encode(HEADER), b"garbage\n" * 1000, encode(message(1))
    path = private(a_log(tmp_path, first, garbage, second, b"\0\0\0\n", message(2)))
    start = len(first)
    end = start + len(garbage) + len(second)
    assert [str(one) for one in damage(verify(path))] == [
        f"lines 2-1001 (bytes {start}-{start + len(garbage) - 1}): not a complete JSON object",
        f"line 1003 (bytes {end}-{end + 3}): zero bytes",
    ]


def test_an_entry_that_is_not_as_the_format_says_is_named(tmp_path: Path) -> None:
    log = RawLog()
    log.add("message", message={"role": "nobody", "content": []})
    log.said("assistant", {"type": "text", "words": "lost"})
    (wrong, block) = found(tmp_path, log)
    assert wrong.startswith("line 2 ") and "a message entry that is not as the format says" in wrong
    assert block.startswith("note: line 3 ") and "a text block that is not as" in block


# -- the chain -------------------------------------------------------------------------------------


def test_a_line_that_is_gone_is_missed_by_the_one_after_it(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.prompt("c")
    del log.lines[2]
    (gone,) = found(tmp_path, log)
    assert gone.startswith("line 3 ")
    assert gone.endswith("it follows e2, which is not in the log: seq 2 is missing")


def test_seqs_that_do_not_grow_and_lines_that_come_again_are_named(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.answer("b")
    log.lines.append(log.lines[1])
    log.answer("c", seq=2)
    again, stuck = found(tmp_path, log)
    assert again.startswith("line 4 ") and again.endswith("entry e1 (seq 1) again")
    assert stuck.startswith("line 5 ") and stuck.endswith("seq 2 does not grow (after 2)")


def test_only_a_rewind_may_follow_another_than_the_entry_before_it(tmp_path: Path) -> None:
    log = RawLog()
    first = log.prompt("a")
    log.answer("b")
    log.add("rewind", parentId=first)
    log.answer("c")
    log.answer("d", parentId=first)
    log.add("rewind", parentId="nowhere")
    log.add("rewind", parentId="drop")
    jumps, lost, aimless = found(tmp_path, log)
    assert jumps.startswith("line 6 ") and "it follows e1 and not the entry before it" in jumps
    assert lost.startswith("line 7 ") and "it goes back to nowhere, which is not in" in lost
    assert aimless.startswith("line 8 ") and "names no entry to go back to" in aimless


def test_a_parent_means_an_earlier_entry_so_there_are_no_cycles(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a", parentId="e2")
    log.answer("b", parentId="e2")
    one, other = found(tmp_path, log)
    assert "it follows e2, which is not in the log" in one
    assert "it follows e2, which is not in the log" in other


def test_a_label_of_nothing_and_a_result_of_no_call_are_notes(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("a")
    log.add("label", targetId="gone", label="here")
    log.calls("c1")
    log.ended("c1")
    log.ended("c2")
    log.results(result("c1"), result("c3"))
    checked = verify(written(tmp_path, log))
    assert checked.ok
    assert [text.partition("): ")[2] for text in notes(checked)[1:]] == [
        "a label of entry gone, which is not in the log",
        "no answer before it made the call c2",
        "no answer before it made the call c3",
    ]


def test_a_result_that_comes_thousands_of_calls_late_has_its_call(tmp_path: Path) -> None:
    log = RawLog()
    log.answer(*(use(f"c{n}") for n in range(6000)))
    log.results(result("c0"), result("c5999"), result("c6000"))
    (note,) = found(tmp_path, log)
    assert note.endswith("no answer before it made the call c6000")


def test_ranges_must_lie_on_the_path_before_and_not_overlap(tmp_path: Path) -> None:
    log = RawLog()
    first = log.prompt("a")
    log.answer("b")
    log.condensed(1, 2)
    log.prompt("c")
    log.condensed(2, 4)
    log.add("rewind", parentId=first)
    log.condensed(2, 2)  # not on this path
    log.condensed(9, 12)
    log.condensed(1, 1)  # the one that it overlaps is on another path
    log.add("compaction", tier="soft", clearedCount=1, cleared=[11])
    log.add("compaction", tier="soft", clearedCount=1, cleared=[3])
    assert [text.partition("): ")[2] for text in found(tmp_path, log)] == [
        "condensation of 2-4 overlaps an earlier one",
        "condensation of 2-2 covers nothing of its path",
        "condensation of 9-12 covers nothing of its path",
        "compaction of seq 11, which is not before it",
    ]


def test_seqs_that_recovery_passed_over_are_a_note_and_others_are_missing(tmp_path: Path) -> None:
    log = RawLog()
    first = log.prompt("a")
    log.answer("b")
    log.prompt("c", seq=5)
    path = written(tmp_path, log)
    assert verify(path).ok
    assert notes(verify(path))[0].endswith("seqs 3-4 are of lines that recovery cut off before it")
    log.add("rewind", parentId=first, seq=7)
    path = written(tmp_path, log)
    (missing,) = damage(verify(path))
    assert missing.line == 5 and missing.text == "seq 6 is missing before it"
    torn = path.with_name(path.name + ".torn-2026-04-25T17-40-15-990Z")
    torn.write_bytes(b"one\ntwo\nthree\n{")
    assert verify(path).ok


# -- the header ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cwd": None}, "Expected `str`, got `null`"),
        ({"version": "one"}, "Expected `int`, got `str`"),
        ({"id": "another"}, "the header is that of session another, the file's name is not"),
        ({"forkedFrom": {"seq": 1}}, "missing required field `sessionId`"),
    ],
)
def test_a_header_that_is_not_as_the_format_says_is_named(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    log = RawLog(**change)
    log.prompt("x")
    (wrong,) = found(tmp_path, log)
    assert wrong.startswith("line 1 (bytes 0-") and said in wrong


def test_a_header_that_is_missing_or_comes_again_is_named(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("x")
    log.lines.append(log.lines[0])
    log.answer("y")
    (again,) = found(tmp_path, log)
    assert again.startswith("line 3 ") and again.endswith("another session header: ignored")
    log.lines[0] = b"garbage"
    assert [finding.line for finding in damage(verify(written(tmp_path, log)))] == [1, 1, 3]
    del log.lines[0]
    assert damage(agrees(written(tmp_path, log)))[0].text.startswith("no session header")


def test_a_newer_format_is_checked_as_far_as_it_is_understood(tmp_path: Path) -> None:
    log = RawLog(version=2)
    log.prompt("x")
    (newer,) = found(tmp_path, log)
    assert newer.startswith("note: line 1 ") and "newer than this awl" in newer


def test_what_is_no_file_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(NotASession):
        verify(tmp_path)
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    with pytest.raises(NotASession):
        verify(pipe)


# -- any damage ------------------------------------------------------------------------------------


def structure(state: State) -> list[tuple[str, int, int, str]]:
    """What the chain of a log is."""
    return [
        (entry.id, seq, parent, type(entry).__name__)
        for entry, seq, parent in zip(state.entries, state.seqs, state.parents, strict=True)
    ]


@examples(120)
@given(histories(*TALK, *NAMING, *JUMPS, *ACCIDENTS, most=25))
def test_a_damaged_session_is_checked_as_it_is_replayed(steps: list[Step]) -> None:
    with story() as told:
        told.play(steps)
        if told.session.path.exists():
            agrees(told.session.path)


@examples(400)
@given(CHANGES)
def test_bytes_that_change_what_a_log_is_are_found_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int, bytes]]
) -> None:
    log = everything()
    root = tmp_path_factory.mktemp("changed")
    path = written(root, log)
    before = structure(read(path))
    sound = verify(path)
    assert sound.ok
    path.write_bytes(changed(log.data, changes))
    checked = agrees(path)
    if checked.ok:
        # Nothing is lost but whole lines at the end, which nobody can miss, or a seq at the end.
        after = structure(read(path))
        assert [one[0] for one in after] == [one[0] for one in before][: len(after)]
        assert [one[2] for one in after] == [one[2] for one in before][: len(after)]
    if path.read_bytes() == log.data:
        assert checked == sound


def test_the_same_check_twice_says_the_same_and_changes_nothing(tmp_path: Path) -> None:
    path = a_session(tmp_path / "sessions", tmp_path)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\nx\n", 2))
    before = {item: item.stat() for item in tmp_path.rglob("*")}
    assert verify(path) == verify(path)
    after = {item: item.stat() for item in tmp_path.rglob("*")}
    assert before.keys() == after.keys()
    for item, found in before.items():
        assert (found.st_mtime_ns, found.st_ctime_ns) == (
            after[item].st_mtime_ns,
            after[item].st_ctime_ns,
        )
    assert json.dumps([str(one) for one in verify(path).findings])
