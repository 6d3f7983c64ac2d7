"""Sources of other programs that come, come again, grow and go their own way."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from formats.counting import count_awl
from formats.landing import DATA
from formats.test_claude_code import CLAUDE, File, text, use
from formats.test_claude_code import LONG as CLAUDE_LONG
from formats.test_pi import FILES as PI_FILES
from formats.test_pi import PI, TREED
from formats.test_zeph import ZEPH, everything
from killing import killed_at_each_step

from awl.conversation import Image, Message, ModelRef, text_message
from awl.entries import ImportEntry, MessageEntry, TitleEntry
from awl.errors import SessionBusy
from awl.formats import Format
from awl.log.blobs import Blobs
from awl.replay import read
from awl.session import Session
from awl.show import Range, as_json
from awl.store.files import Store
from awl.store.importing import Brought, Importer


def bring(root: Path, source: Path, known: Format, *, dry_run: bool = False) -> Brought:
    """Import, as a new process would."""
    store = Store(root)
    try:
        return Importer(root, store.logs(), "/", dry_run=dry_run).bring(source, known)
    finally:
        store.close()


def logs(root: Path) -> list[Path]:
    return sorted(Store(root).logs())


def texts(path: Path) -> list[str]:
    return [item.message.text for item in read(path).items if item.message.text]


def test_a_session_says_where_it_comes_from(tmp_path: Path) -> None:
    brought = bring(tmp_path, PI_FILES[0], PI)
    assert brought.outcome == "new"
    assert brought.path is not None
    state = read(brought.path)
    entry = state.body(0)
    assert isinstance(entry, ImportEntry)
    assert (entry.source, entry.source_id) == ("pi", "01a228f0-6c0f-71c3-8d44-b175f6ee2d25")
    assert entry.source_path == str(PI_FILES[0])
    assert entry.message_count == state.message_count == brought.tally.messages == 29
    assert state.header is not None
    assert (state.header.cwd, state.header.timestamp) == (
        "/home/dev/pi-demo",
        "2026-11-29T20:12:54.672Z",
    )
    assert brought.session_id == state.header.id
    assert not any(path.name.startswith(".") for path in brought.path.parent.iterdir())


@pytest.mark.parametrize(
    ("source", "known"),
    [(CLAUDE_LONG, CLAUDE), (TREED, PI), (PI_FILES[1], PI)],
    ids=["claude", "treed", "killed"],
)
def test_nothing_comes_twice(tmp_path: Path, source: Path, known: Format) -> None:
    first = bring(tmp_path, source, known)
    assert first.path is not None
    before = first.path.read_bytes()
    again = bring(tmp_path, source, known)
    assert (again.outcome, again.session_id, again.path) == ("same", first.session_id, first.path)
    assert logs(tmp_path) == [first.path]
    assert first.path.read_bytes() == before
    # Nor does it when only its end was rewritten.
    copy = tmp_path / "copy" / source.name
    copy.parent.mkdir()
    copy.write_bytes(source.read_bytes() + b"\n")  # without the outputs that lie beside it
    assert bring(tmp_path, copy, known).outcome == "same"
    assert first.path.read_bytes() == before


def cut(source: Path, folder: Path, kept: int) -> Path:
    folder.mkdir(exist_ok=True)
    lines = source.read_bytes().splitlines(keepends=True)
    path = folder / source.name
    path.write_bytes(b"".join(lines[:kept]))
    return path


def bare(path: Path) -> list[object]:
    """What a log holds without the stamps that depend on when it was imported."""
    state = read(path)
    left = ("seq", "parentId", "replaced", "at")
    return [
        {key: value for key, value in entry.items() if key not in left}
        for entry in as_json(path, Range())["entries"]
        if entry["type"] != "import"
    ] + [[item.message for item in state.items]]


@pytest.mark.parametrize("kept", [*range(6, 39, 4), 33, 37])
def test_what_is_new_in_a_tree_goes_on_behind(tmp_path: Path, kept: int) -> None:
    source = cut(TREED, tmp_path / "pi", kept)
    first = bring(tmp_path / "awl", source, PI)
    cut(TREED, tmp_path / "pi", 99)
    grown = bring(tmp_path / "awl", source, PI)
    assert (grown.outcome, grown.path) == ("grown", first.path)
    assert grown.path is not None
    whole = bring(tmp_path / "whole", TREED, PI)
    assert whole.path is not None
    assert bare(grown.path) == bare(whole.path)
    assert grown.tally.messages + first.tally.messages == whole.tally.messages
    assert not read(grown.path).all_findings
    assert bring(tmp_path / "awl", source, PI).outcome == "same"
    assert logs(tmp_path / "awl") == [first.path]


@pytest.mark.parametrize("kept", [18, 19, 22, 24, 60, 75, 76, 77, 78, 95, 131])
def test_an_answer_that_was_not_whole_gets_its_rest(tmp_path: Path, kept: int) -> None:
    source = cut(CLAUDE_LONG, tmp_path / "claude", kept)
    first = bring(tmp_path / "awl", source, CLAUDE)
    cut(CLAUDE_LONG, tmp_path / "claude", 999)
    grown = bring(tmp_path / "awl", source, CLAUDE)
    assert (grown.outcome, grown.path) == ("grown", first.path), grown.reason
    assert grown.path is not None
    whole = bring(tmp_path / "whole", source, CLAUDE)
    assert whole.path is not None
    mine, all_of_it = (as_json(path, Range()) for path in (grown.path, whole.path))
    assert count_awl(json.loads(json.dumps(mine))) == count_awl(json.loads(json.dumps(all_of_it)))
    states = read(grown.path), read(whole.path)
    assert states[0].tokens == states[1].tokens
    assert not states[0].all_findings
    assert bring(tmp_path / "awl", source, CLAUDE).outcome == "same"


def test_a_message_may_grow_twice(tmp_path: Path) -> None:
    file = File()
    file.ask("go")
    for name in ("a", "b", "c"):
        file.answer("m1", use(name))
        grown = bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE)
    file.result("a", "u2")
    file.answer("m2", text("done"), "u5")
    grown = bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE)
    assert grown.outcome == "grown"
    assert grown.path is not None
    uses = [use.id for item in read(grown.path).items for use in item.message.tool_uses]
    assert uses == ["a", "b", "c"]
    assert bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE).outcome == "same"


def test_a_copy_with_turns_of_its_own_stays_as_it_is(tmp_path: Path) -> None:
    source = cut(TREED, tmp_path / "pi", 20)
    first = bring(tmp_path / "awl", source, PI)
    assert first.path is not None
    session = Session.open(first.path)
    session.append_message(text_message("user", "my own"))
    session.close()
    before = first.path.read_bytes()
    assert bring(tmp_path / "awl", source, PI).outcome == "same"
    cut(TREED, tmp_path / "pi", 99)
    other = bring(tmp_path / "awl", source, PI)
    assert other.outcome == "apart"
    assert "turns of its own" in other.reason
    assert other.session_id != first.session_id
    assert first.path.read_bytes() == before
    assert bring(tmp_path / "awl", source, PI).outcome == "same"
    assert len(logs(tmp_path / "awl")) == 2


@pytest.mark.parametrize("kept", [19, 22, 60, 76, 77, 95])
def test_an_older_copy_of_a_source_brings_nothing(tmp_path: Path, kept: int) -> None:
    whole = bring(tmp_path / "awl", CLAUDE_LONG, CLAUDE)
    older = cut(CLAUDE_LONG, tmp_path / "claude", kept)
    again = bring(tmp_path / "awl", older, CLAUDE)
    assert (again.outcome, again.path, again.reason) == ("same", whole.path, "")
    assert again.tally.messages == 0


def test_a_copy_with_turns_of_its_own_that_has_all_of_the_source_is_enough(tmp_path: Path) -> None:
    source = cut(CLAUDE_LONG, tmp_path / "claude", 999)
    first = bring(tmp_path / "awl", source, CLAUDE)
    assert first.path is not None
    session = Session.open(first.path, cwd="/")
    session.append_message(text_message("user", "mine"))
    session.close()
    with source.open("a") as file:
        file.write('{"type":"last-prompt","sessionId":"s"}\n')  # as it does when one looks at it
    again = bring(tmp_path / "awl", source, CLAUDE)
    assert (again.outcome, again.path) == ("same", first.path)
    assert logs(tmp_path / "awl") == [first.path]


def test_files_that_differ_and_say_they_are_one_session_come_once_each(tmp_path: Path) -> None:
    lines = TREED.read_bytes().splitlines(keepends=True)
    files = [tmp_path / name / TREED.name for name in ("whole", "lacking", "garbled", "shorter")]
    variants = (lines, lines[:9] + lines[10:], [*lines[:20], b"x\n", *lines[21:]], lines[:30])
    for file, variant in zip(files, variants, strict=True):
        file.parent.mkdir()
        file.write_bytes(b"".join(variant))
    came = [bring(tmp_path / "awl", file, PI) for file in files]
    assert [one.outcome for one in came] == ["new", "apart", "apart", "same"]
    assert {one.reason for one in came} == {"", "what was imported of it reads otherwise now"}
    for order in (files, files[::-1]):
        for file in order:
            again = bring(tmp_path / "awl", file, PI)
            assert (again.outcome, again.path) == ("same", came[files.index(file)].path)
    assert len(logs(tmp_path / "awl")) == 3


def test_names_and_ends_of_its_own_are_no_turns(tmp_path: Path) -> None:
    source = cut(TREED, tmp_path / "pi", 20)
    first = bring(tmp_path / "awl", source, PI)
    assert first.path is not None
    Store(tmp_path / "awl").rename(first.path, "Mine")
    cut(TREED, tmp_path / "pi", 99)
    grown = bring(tmp_path / "awl", source, PI)
    assert grown.outcome == "grown"
    state = read(first.path)
    assert isinstance(next(e for e in state.entries if isinstance(e, TitleEntry)), TitleEntry)
    assert not state.all_findings
    assert texts(first.path)[-1] == "Just a plain answer."


def test_a_source_that_reads_otherwise_now_comes_as_another(tmp_path: Path) -> None:
    source = cut(TREED, tmp_path / "pi", 20)
    first = bring(tmp_path / "awl", source, PI)
    source.write_bytes(source.read_bytes().replace(b"SCRIPT:ONE", b"SCRIPT:UNO") + b"\n")
    other = bring(tmp_path / "awl", source, PI)
    assert other.outcome == "apart"
    assert "otherwise" in other.reason
    assert other.session_id != first.session_id


def test_the_main_path_is_found_again_behind_a_subagent(tmp_path: Path) -> None:
    file = File()
    file.ask("do it")
    task = file.answer("m1", use("task"))
    side = file.ask("you are a helper", None, isSidechain=True, agentId="a")
    first = bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE)
    assert first.path is not None
    assert texts(first.path) == ["do it"]
    file.answer("x2", text("helped"), side, isSidechain=True)
    assert bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE).outcome == "grown"
    assert texts(first.path) == ["do it"]
    file.result("task", task, "helped")
    file.answer("m2", text("done"))
    assert bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE).outcome == "grown"
    assert texts(first.path) == ["do it", "done"]
    state = read(first.path)
    assert not state.open_calls
    assert not state.all_findings
    helped = next(
        p
        for p in range(len(state.entries))
        if isinstance(e := state.body(p), MessageEntry) and e.message.said().text == "helped"
    )
    asked = state.body(state.parents[helped])
    while not isinstance(asked, MessageEntry):
        asked = state.body(state.parents[state.find(asked.id) or 0])
    assert asked.message.said().text == "you are a helper"


def test_ranges_of_a_grown_source_name_what_they_should(tmp_path: Path) -> None:
    log = everything(tmp_path / "z")
    events = log.events
    log.events = events[:13]
    first = bring(tmp_path / "awl", log.write(), ZEPH)
    assert first.path is not None
    Store(tmp_path / "awl").rename(first.path, "A name, which takes a seq")
    log.events = events
    grown = bring(tmp_path / "awl", log.write(), ZEPH)
    assert grown.outcome == "grown"
    whole = bring(tmp_path / "whole", log.write(), ZEPH)
    assert whole.path is not None
    messages = [[item.message for item in read(path).items] for path in (first.path, whole.path)]
    assert messages[0] == messages[1]
    assert not read(first.path).all_findings


def test_a_dry_run_says_what_would_come_and_writes_nothing(tmp_path: Path) -> None:
    source = cut(TREED, tmp_path / "pi", 20)
    root = tmp_path / "awl"
    dry = bring(root, source, PI, dry_run=True)
    assert (dry.outcome, dry.path) == ("new", None)
    assert not root.exists()
    wet = bring(root, source, PI)
    assert dry.tally == wet.tally
    assert wet.path is not None
    before = wet.path.read_bytes()
    cut(TREED, tmp_path / "pi", 99)
    dry = bring(root, source, PI, dry_run=True)
    assert dry.outcome == "grown"
    assert wet.path.read_bytes() == before
    assert dry.tally == bring(root, source, PI).tally


def test_a_source_without_messages_makes_no_session(tmp_path: Path) -> None:
    source = cut(TREED, tmp_path / "pi", 3)
    assert bring(tmp_path / "awl", source, PI).outcome == "empty"
    assert bring(tmp_path / "awl", source, PI, dry_run=True).outcome == "empty"
    assert logs(tmp_path / "awl") == []


def test_a_session_that_is_open_elsewhere_is_left_alone(tmp_path: Path) -> None:
    source = cut(TREED, tmp_path / "pi", 20)
    first = bring(tmp_path / "awl", source, PI)
    assert first.path is not None
    session = Session.open(first.path)
    try:
        assert bring(tmp_path / "awl", source, PI).outcome == "same"
        cut(TREED, tmp_path / "pi", 99)
        with pytest.raises(SessionBusy):
            bring(tmp_path / "awl", source, PI)
    finally:
        session.close()
    assert bring(tmp_path / "awl", source, PI).outcome == "grown"


def test_a_source_whose_reading_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken(path: Path, keep: object) -> object:
        found = PI.read(path, keep)  # type: ignore[misc, arg-type]
        entries = found.entries

        def some() -> object:
            for number, entry in enumerate(entries):
                if number == 9:
                    raise OSError(5, "Input/output error")
                yield entry

        found.entries = some()
        return found

    known = Format(name="pi", title="pi", read=broken)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Input"):
        bring(tmp_path, TREED, known)
    assert logs(tmp_path) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_pictures_of_the_new_part_are_kept(tmp_path: Path) -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="},
    }
    file = File()
    file.ask("look")
    first = bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE)
    file.answer("m1", text("at what?"))
    file.add("user", message={"role": "user", "content": [text("this"), picture]})
    grown = bring(tmp_path / "awl", file.write(tmp_path / "claude"), CLAUDE)
    assert grown.tally.images == 1
    assert first.path is not None
    session = Session.open(first.path)
    said: Message = session.conversation.messages[-1]
    session.append_message(text_message("assistant", "a picture"), stop_reason="stop")
    shown = said.content[1]
    assert isinstance(shown, Image)
    assert session.blobs.get(shown.blob)
    session.close()


def test_modes_of_what_is_made_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        brought = bring(tmp_path / "awl", CLAUDE_LONG, CLAUDE)
    finally:
        os.umask(before)
    assert brought.path is not None
    for path in (tmp_path / "awl").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.parametrize(
    ("cwd", "known"),
    [
        ("/x\0y", "/here"),
        ("", "/here"),
        (7, "/here"),
        ("C:\\Users\\me\\src", "C:\\Users\\me\\src"),
        ("/a/../b", "/b"),
        ("/" + "long/" * 300, "/" + "long/" * 299 + "long"),
    ],
)
def test_a_directory_that_cannot_be_here_stops_no_session(
    tmp_path: Path, cwd: object, known: str
) -> None:
    header = {"type": "session", "version": 3, "id": "abc", "cwd": cwd}
    said = {"type": "message", "id": "00000001", "parentId": None}
    message = {"role": "user", "content": "hello"}
    source = tmp_path / "s.jsonl"
    source.write_text(json.dumps(header) + "\n" + json.dumps({**said, "message": message}) + "\n")
    brought = Importer(tmp_path / "awl", (), "/here").bring(source, PI)
    assert brought.path is not None and brought.path.parent.parent == tmp_path / "awl"
    assert read(brought.path).cwd == known
    assert texts(brought.path) == ["hello"]


@pytest.mark.parametrize(
    "time",
    [
        *("2026-01-01T00:00:00.0\0\0Z", "xxxxxxxxxxxxxxxxxxx.xxxZ", "../../../../../../../.\n.Z"),
        *(
            "9999-99-99T99:99:99.999Z",
            "\u0662026-01-01T00:00:00.000Z",
            "\ud800",
            "",
            1e300,
            True,
            [],
        ),
    ],
)
def test_a_time_that_is_none_hides_no_session(tmp_path: Path, time: object) -> None:
    header = {"type": "session", "version": 3, "id": "abc", "cwd": "/x", "timestamp": time}
    message = {"role": "user", "content": "hello", "timestamp": time}
    said = {"type": "message", "id": "00000001", "parentId": None, "timestamp": time}
    source = tmp_path / "s.jsonl"
    source.write_text(json.dumps(header) + "\n" + json.dumps({**said, "message": message}) + "\n")
    brought = bring(tmp_path / "awl", source, PI)
    store = Store(tmp_path / "awl")
    assert [one.id for one in store.list().sessions] == [brought.session_id]
    assert store.resolve(brought.session_id) == brought.path
    assert bring(tmp_path / "awl", source, PI).outcome == "same"


def test_the_model_of_a_source_is_the_one_to_go_on_with(tmp_path: Path) -> None:
    brought = bring(tmp_path, DATA / "pi" / PI_FILES[0].name, PI)
    assert brought.path is not None
    assert read(brought.path).active_model == ModelRef("mock", "mock-1")


# -- whole or absent -------------------------------------------------------------------------------


@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_an_import_is_whole_or_absent(tmp_path: Path, stride: int) -> None:
    root = tmp_path / "awl"
    whole = bring(tmp_path / "whole", CLAUDE_LONG, CLAUDE)
    assert whole.path is not None
    expected, blobs = bare(whole.path), Blobs(whole.path).names()
    seen = set()
    for _ in killed_at_each_step(lambda: bring(root, CLAUDE_LONG, CLAUDE), stride):
        there = logs(root)
        seen.add(len(there))
        for _ in range(2):
            again = bring(root, CLAUDE_LONG, CLAUDE)
            assert again.outcome == ("same" if there else "new")
            there = there or logs(root)
            assert logs(root) == there == [again.path]
        assert bare(there[0]) == expected
        assert Blobs(there[0]).names() == blobs
        names = [path.name for path in there[0].parent.iterdir()]
        assert sorted(names) == [there[0].stem + ".blobs", there[0].name]
        shutil.rmtree(root)
    assert seen == {0, 1}


@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_a_session_that_grew_has_a_beginning_of_what_is_new(
    tmp_path: Path, stride: int
) -> None:
    root, source = tmp_path / "awl", cut(CLAUDE_LONG, tmp_path / "claude", 22)
    log = bring(root, source, CLAUDE).path
    assert log is not None
    old = log.read_bytes()
    cut(CLAUDE_LONG, tmp_path / "claude", 999)
    shutil.copytree(root, tmp_path / "whole")
    whole = bring(tmp_path / "whole", source, CLAUDE).path
    assert whole is not None
    expected = count_awl(as_json(whole, Range()))
    for _ in killed_at_each_step(lambda: bring(root, source, CLAUDE), stride):
        assert log.read_bytes().startswith(old)
        assert bring(root, source, CLAUDE).outcome in ("grown", "same")
        assert logs(root) == [log]
        assert count_awl(as_json(log, Range())) == expected
        assert not read(log).all_findings
        log.write_bytes(old)
