"""awl's own files come in: with their ids, byte for byte, each as often as one likes."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from histories import JUMPS, NAMING, TALK, Step, examples, histories, story
from hypothesis import assume, given
from hypothesis import strategies as st
from killing import killed_at_each_step
from log.making import names_in
from rawlog import SESSION_ID, RawLog
from running import Awl

from awl.errors import NewerFormat, NotASession, SessionBusy, SessionExists
from awl.index.conversations import Logless, Said
from awl.log.blobs import Blobs
from awl.replay import read
from awl.store.alone import alone
from awl.store.exporting import Backup, export
from awl.store.files import Store
from awl.store.receiving import Received, is_own, own_files
from store.having import body, go_on, head, ids, make, outputs, tree


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions")


@pytest.fixture
def other(tmp_path: Path) -> Store:
    """A store on another machine."""
    return Store(tmp_path / "other")


def take(store: Store, path: Path, *, keep_id: bool = False) -> Received:
    return store.reception(keep_id=keep_id).take(path)


def exported(log: Path, target: Path) -> Path:
    export(log, target, None, root=log.parent, force=True)
    return target


# -- an id that is free --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.jsonl", "x", None])
def test_an_export_comes_in_as_the_session_that_it_was(
    store: Store, other: Store, tmp_path: Path, name: str | None
) -> None:
    log = make(store, tmp_path, "one", "two").path
    file = exported(log, tmp_path / (name or log.name))
    before, times = tree(tmp_path / "sessions"), file.stat()
    received = take(other, file)
    assert (received.outcome, received.notices) == ("new", ())
    assert received.session_id == log.stem.split("_")[1]
    assert received.path.read_bytes() == log.read_bytes()
    assert received.path.relative_to(other.root) == log.relative_to(store.root)
    assert outputs(received.path) == outputs(log)
    assert received.path.stat().st_mode & 0o777 == 0o600
    assert ids(other) == ids(store)
    assert tree(tmp_path / "sessions") == before
    assert (file.stat().st_mtime_ns, file.stat().st_atime_ns) == (
        times.st_mtime_ns,
        times.st_atime_ns,
    ) or file.stat().st_mtime_ns == times.st_mtime_ns


def test_a_log_with_what_lies_beside_it_comes_in_as_well(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    received = take(other, log)
    assert tree(other.root) == tree(store.root)
    assert outputs(received.path) == outputs(log)


@given(histories(*TALK, *NAMING, *JUMPS, "damage", "kill", "reopen", most=10), st.booleans())
@examples(40)
def test_out_and_in_again_changes_no_byte(steps: list[Step], renamed: bool) -> None:
    with story() as told:
        told.play([("prompt", 1, "begin"), *steps])
        told.session.close()
        log = told.session.path
        assume(log.exists())
        name = "x" if renamed and head_is_sound(log) else log.name
        file = exported(log, told.root / name)
        with closing(Store(told.root / "other")) as there:
            received = take(there, file)
            assert received.path.read_bytes() == file.read_bytes()
            assert take(there, file).outcome == "same"
            assert len(list(there.logs())) == 1


def head_is_sound(log: Path) -> bool:
    try:
        return bool(head(log).get("type") == "session")
    except ValueError:
        return False


# -- an id that is there -------------------------------------------------------------------------


def test_what_is_here_already_makes_nothing(store: Store, tmp_path: Path) -> None:
    log = make(store, tmp_path, "one").path
    file = exported(log, tmp_path / "x")
    go_on(store, log, "two")
    before = tree(store.root)
    for path in (file, log):
        for keep_id in (False, True):
            received = take(store, path, keep_id=keep_id)
            assert (received.outcome, received.path) == ("same", log)
    assert tree(store.root) == before


def test_of_a_file_that_goes_on_what_is_new_is_appended(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    there = take(other, exported(log, tmp_path / "x")).path
    old = there.read_bytes()
    go_on(store, log, "two", "three")
    received = take(other, exported(log, tmp_path / "x"), keep_id=True)
    assert (received.outcome, received.path) == ("grown", there)
    assert there.read_bytes() == log.read_bytes()
    assert there.read_bytes().startswith(old)
    assert outputs(there) == outputs(log)
    go_on(other, there, "on")
    assert not read(there).all_findings


def test_what_is_appended_is_complete_also_where_the_last_line_was_not(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    there = take(other, exported(log, tmp_path / "x")).path
    go_on(store, log, "two")
    file = exported(log, tmp_path / "x")
    there.write_bytes(there.read_bytes()[:-1])
    file.write_bytes(file.read_bytes()[:-1])
    assert take(other, file).outcome == "grown"
    assert there.read_bytes() == log.read_bytes()
    there.write_bytes(there.read_bytes() + b'{"torn')
    assert take(other, file).outcome == "same"


def test_an_open_session_gets_nothing(store: Store, other: Store, tmp_path: Path) -> None:
    log = make(store, tmp_path, "one").path
    there = take(other, exported(log, tmp_path / "x")).path
    go_on(store, log, "two")
    session = other.open(there)
    before = tree(other.root)
    with pytest.raises(SessionBusy, match=str(os.getpid())):
        take(other, exported(log, tmp_path / "x"))
    assert tree(other.root) == before
    session.close()


def test_what_went_another_way_comes_in_under_a_new_id_once(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    there = take(other, exported(log, tmp_path / "x")).path
    shared = read(log).seqs[-1]
    go_on(store, log, "here")
    go_on(other, there, "there")
    file = exported(log, tmp_path / "x")
    before = tree(other.root)
    with pytest.raises(SessionExists, match="--keep-id"):
        take(other, file, keep_id=True)
    assert tree(other.root) == before
    received = take(other, file)
    assert received.outcome == "apart"
    assert received.session_id in " ".join(received.notices)
    new, old = head(received.path), head(log)
    assert new.pop("forkedFrom") == {"sessionId": old["id"], "seq": shared}
    assert {**new, "id": old["id"]} == old
    assert new["id"] == received.session_id != old["id"]
    assert body(received.path) == body(log)
    assert outputs(received.path) == outputs(log)
    assert {name: data for name, data in tree(other.root).items() if name in before} == before
    again = take(other, file)
    assert (again.outcome, again.path) == ("same", received.path)
    go_on(store, log, "more")
    grown = take(other, exported(log, tmp_path / "x"))
    assert (grown.outcome, grown.path) == ("grown", received.path)
    assert body(received.path) == body(log)


def test_a_file_never_goes_on_in_a_fork(store: Store, other: Store, tmp_path: Path) -> None:
    log = make(store, tmp_path, "one").path
    there = take(other, exported(log, tmp_path / "x")).path
    fork = other.fork(there)
    data = fork.read_bytes()
    go_on(store, log, "here")
    received = take(other, exported(log, tmp_path / "x"))
    assert received.outcome == "apart"
    assert fork.read_bytes() == data


def test_another_session_under_the_same_id_shares_nothing_with_it(
    store: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    raw = RawLog(id=log.stem.split("_")[1])
    raw.prompt("quite another")
    file = tmp_path / "x"
    file.write_bytes(raw.data)
    received = take(store, file)
    assert received.outcome == "apart"
    assert head(received.path)["forkedFrom"]["seq"] == 0
    assert take(store, file).path == received.path


def test_a_file_with_a_rewind_to_an_entry_that_is_lost_comes_in_apart(
    store: Store, tmp_path: Path
) -> None:
    raw = RawLog()
    raw.prompt("one")
    raw.add("rewind", parentId="lost")
    store.root.mkdir()
    here = raw.write(store.root)
    shared = raw.data
    raw.prompt("another way")
    file = tmp_path / "x"
    file.write_bytes(raw.data)
    here.write_bytes(shared + shared.splitlines(keepends=True)[1].replace(b"one", b"two"))
    received = take(store, file)
    assert (received.outcome, head(received.path)["forkedFrom"]["seq"]) == ("apart", 2)


WAITING = b"awl: another awl is importing or restoring: waiting for its end\n"


def test_two_imports_of_one_folder_at_once_bring_each_session_once(
    awl: Awl, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    for n in range(3):
        raw = RawLog(id=f"019dc5ba-53f6-71a5-ab8f-b1f8709c257{n}")
        raw.prompt("one")
        (folder / f"{n}.jsonl").write_bytes(raw.data)
    with alone(awl.sessions, lambda: None):
        second = awl.start("sessions", "import", str(folder))
        assert second.stderr is not None
        assert second.stderr.readline() == WAITING
        reception = Store(awl.sessions).reception()
        assert [reception.take(path).outcome for path in own_files(folder)] == ["new"] * 3
    out, err = second.communicate(timeout=30)
    assert (second.returncode, b"3 unchanged" in err) == (0, True)
    assert len(out.splitlines()) == len(list(awl.sessions.rglob("*.jsonl"))) == 3


def test_a_session_that_is_imported_while_it_is_restored_stays(awl: Awl, tmp_path: Path) -> None:
    store = Store(awl.sessions)
    session = make(store, tmp_path, "one")
    file = exported(session.path, tmp_path / "x")
    store.delete(session.id)
    with alone(store.root, lambda: None):
        other = awl.start("sessions", "restore", session.id)
        assert other.stderr is not None
        assert other.stderr.readline() == WAITING
        received = Store(store.root).reception().take(file)
    _, err = other.communicate(timeout=30)
    assert (other.returncode, b"there is such a session already" in err) == (1, True)
    assert received.path.read_bytes() == file.read_bytes()


def test_files_of_one_session_come_in_in_any_order(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    files = [exported(log, tmp_path / "0")]
    for n in (1, 2):
        go_on(store, log, str(n))
        files.append(exported(log, tmp_path / str(n)))
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        shutil.rmtree(other.root, ignore_errors=True)
        reception = Store(other.root).reception()
        assert len({reception.take(files[n]).path for n in order}) == 1
        (there,) = other.root.glob("*/*.jsonl")
        assert there.read_bytes() == log.read_bytes()


# -- damage --------------------------------------------------------------------------------------


def test_of_a_damaged_file_what_is_complete_comes_in_and_the_rest_is_said(
    store: Store, tmp_path: Path
) -> None:
    raw = RawLog()
    for n in range(4):
        raw.prompt(f"question {n}")
    raw.lines[2] = b"\xff\x00damaged"
    file = tmp_path / "x"
    file.write_bytes(raw.data[:-10])
    received = take(store, file)
    damaged, torn = received.notices
    assert "line 3" in damaged
    assert "incomplete last line are left out" in torn
    whole = b"".join(line + b"\n" for line in raw.lines[:-1])
    assert received.path.read_bytes() == whole
    assert received.session_id == SESSION_ID
    file.write_bytes(raw.data)
    assert take(store, file).outcome == "grown"
    assert received.path.read_bytes() == raw.data


def test_every_cut_of_a_file_comes_in_and_the_next_brings_the_rest(
    store: Store, tmp_path: Path
) -> None:
    raw = RawLog()
    raw.prompt("q")
    raw.answer("a")
    file = tmp_path / "x"
    data = raw.data
    first = len(raw.lines[0])
    reception = store.reception()
    for end in range(first, len(data) + 1, 7):
        file.write_bytes(data[:end])
        there = reception.take(file).path
        found = there.read_bytes()
        assert data.startswith(found)
        assert len(found) >= data[:end].rfind(b"\n") + 1
    file.write_bytes(data)
    assert reception.take(file).path.read_bytes() == data
    assert len(list(store.logs())) == 1


def test_a_file_without_its_header_gets_one_and_the_same_id_each_time(
    store: Store, tmp_path: Path
) -> None:
    raw = RawLog()
    raw.prompt("q")
    raw.add("cwdChange", cwd="/home/dev/elsewhere")
    raw.lines[:1] = [raw.lines[0][:40], b"garbage"]
    named = raw.write(tmp_path / "moved")
    received = take(store, named)
    assert received.session_id == SESSION_ID
    assert received.path.read_bytes() == raw.data
    nameless = tmp_path / "x"
    nameless.write_bytes(raw.data)
    first = take(store, nameless)
    assert [notice.rpartition(": ")[2].split(";")[0] for notice in first.notices] == [
        "it has no header that can be read, and gets one",
        "not a complete JSON object",
    ]
    mine = head(first.path)
    assert first.session_id not in (SESSION_ID, "")
    assert (mine["id"], mine["cwd"]) == (first.session_id, "/home/dev/elsewhere")
    assert (mine["provider"], mine["model"]) == ("anthropic", "claude-1")
    assert body(first.path) == body(nameless)
    assert (take(store, nameless).path, take(store, nameless).outcome) == (first.path, "same")


def test_a_file_whose_first_line_is_an_entry_comes_in_once_and_grows(
    store: Store, tmp_path: Path
) -> None:
    raw = RawLog()
    raw.prompt("q")
    del raw.lines[0]
    named, nameless = raw.write(tmp_path / "moved"), tmp_path / "x"
    for file in (named, nameless):
        file.write_bytes(raw.data)
        first = take(store, file)
        assert (first.outcome, take(store, file).outcome) == ("new", "same")
        more = RawLog()
        more.prompt("q")
        more.answer("a")
        file.write_bytes(b"".join(line + b"\n" for line in more.lines[1:]))
        assert (take(store, file).outcome, take(store, file).outcome) == ("grown", "same")
        assert first.path.read_bytes().endswith(file.read_bytes())
    assert len(ids(store)) == 2


def test_blobs_that_are_not_there_are_named(store: Store, other: Store, tmp_path: Path) -> None:
    log = make(store, tmp_path, "one", "two").path
    file = exported(log, tmp_path / "x")
    one, two = outputs(log)
    (tmp_path / "x.blobs" / one).write_bytes(b"changed")
    (tmp_path / "x.blobs" / two).unlink()
    received = take(other, file)
    assert sorted(one in name or two in name for name in received.notices) == [False, False]
    assert all(name[:12] in " ".join(received.notices) for name in (one, two))
    assert not Blobs(received.path).directory.exists()


def test_what_is_no_session_is_refused(store: Store, tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b'{"type":"sess', b"words\n"):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(NotASession):
            take(store, tmp_path / "x")
    with pytest.raises(OSError, match="regular"):
        take(store, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular"):
        take(store, tmp_path / "pipe")
    assert not store.root.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cwd", "/x\x00y"),
        ("cwd", ""),
        ("cwd", "../../../etc"),
        ("cwd", "/" + "long/" * 200),
        ("timestamp", "../../x"),
        ("timestamp", ""),
        ("timestamp", "x" * 500),
    ],
)
def test_no_header_leads_out_of_the_store(
    store: Store, tmp_path: Path, key: str, value: str
) -> None:
    fields: dict[str, Any] = {key: value}
    raw = RawLog(**fields)
    raw.prompt("q")
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "x"
    file.write_bytes(raw.data)
    received = take(store, file)
    assert received.path.read_bytes() == raw.data
    assert received.path.parent.parent == store.root
    assert ids(store) == [SESSION_ID]
    assert names_in(tmp_path) == ["in", "sessions"]


@pytest.mark.parametrize("name", ["../../x", "/etc/x", "a/b", "", "CON\x00", "x" * 200, ".x"])
def test_an_id_that_is_none_is_never_a_name(store: Store, tmp_path: Path, name: str) -> None:
    raw = RawLog(id=name)
    raw.prompt("q")
    file = tmp_path / "x"
    file.write_bytes(raw.data)
    received = take(store, file)
    assert received.path.parent.parent == store.root
    assert received.session_id != name
    assert names_in(tmp_path) == ["sessions", "x"]


def test_a_newer_format_comes_in_as_it_is_and_is_not_appended_to(
    store: Store, tmp_path: Path
) -> None:
    raw = RawLog(version=9)
    raw.prompt("q")
    file = tmp_path / "x"
    file.write_bytes(raw.data)
    there = take(store, file).path
    assert there.read_bytes() == raw.data
    raw.prompt("more")
    file.write_bytes(raw.data)
    with pytest.raises(NewerFormat):
        take(store, file)
    assert there.read_bytes() != raw.data


# -- folders -------------------------------------------------------------------------------------


def test_own_files_are_told_from_others(tmp_path: Path) -> None:
    data = Path(__file__).parent.parent / "data" / "formats"
    assert not any(is_own(path) for path in data.rglob("*") if path.is_file())
    raw = RawLog()
    raw.prompt("q")
    file = tmp_path / "x"
    for lines in (raw.data, b"\xef\xbb\xbf" + raw.data, b"\n\n" + raw.data):
        file.write_bytes(lines)
        assert is_own(file)
    headless = b"garbage\n" + raw.data.split(b"\n", 1)[1]
    named = raw.write(tmp_path)
    for first in (b"garbage", b"{}"):
        named.write_bytes(headless.replace(b"garbage", first))
        file.write_bytes(named.read_bytes())
        assert (is_own(named), is_own(file)) == (True, False)


def test_a_backup_comes_in_whole_and_again_makes_nothing(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    make(store, tmp_path / "elsewhere", "two")
    store.fork(log)
    store.delete(make(store, tmp_path, "deleted").path)
    said = [Said("user", "old words", "2026-04-25T17:40:15.990Z")]
    rows = Logless("01a1-x", str(tmp_path), make(store, tmp_path).active_model, "", ())
    store.catalog.conversations.append(rows, said)
    folder = tmp_path / "backup"
    backup = Backup(folder, store.root)
    for path in store.logs():
        backup.keep(path)
    backup.keep_conversations(store.catalog.conversations)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    for outcome in ("new", "same"):
        reception = other.reception()
        assert {reception.take(path).outcome for path in own_files(folder)} == {outcome}
        taken = other.take_conversations(folder)
        assert taken == (["01a1-x"] if outcome == "new" else [])
    assert ids(other) == ids(store)
    assert tree(other.root) == {
        name: data for name, data in tree(store.root).items() if ".trash" not in name
    }
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    assert len(other.search("old words").hits) == 1
    other.delete("01a1-x")
    assert other.take_conversations(folder) == []


def test_torn_tails_in_a_backup_come_in_and_no_lost_seq_is_given_again(
    store: Store, other: Store, tmp_path: Path
) -> None:
    log = make(store, tmp_path, "one").path
    last = len(read(log).seqs)
    with log.open("ab") as file:
        file.write(b"garbage\n{\n")
    store.open(log).close()
    backup = Backup(tmp_path / "backup", store.root)
    backup.keep(log)
    (file_,) = own_files(backup.root)
    received = take(other, file_)
    torn = [path for path in names_in(received.path.parent) if ".torn-" in path]
    assert torn == [path for path in names_in(log.parent) if ".torn-" in path]
    go_on(other, received.path, "two")
    assert last + 2 < read(received.path).seqs[last]
    received.path.with_name(torn[0]).unlink()
    assert take(other, file_).outcome == "same"  # what an import that was killed had not brought
    assert received.path.with_name(torn[0]).read_bytes() == b"garbage\n{\n"


# -- whole or absent -----------------------------------------------------------------------------


@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_an_import_is_whole_or_absent(
    store: Store, other: Store, tmp_path: Path, stride: int
) -> None:
    log = make(store, tmp_path, "one", "two").path
    file = exported(log, tmp_path / "x")
    rest = take(other, exported(make(store, tmp_path, "rest").path, tmp_path / "y")).path
    before = tree(other.root)
    seen = set()
    for _ in killed_at_each_step(lambda: take(Store(other.root), file), stride):
        assert rest.read_bytes() == before[str(rest.relative_to(other.root))]
        there = [path for path in other.root.glob("*/*.jsonl") if path != rest]
        for path in there:
            assert path.read_bytes() == file.read_bytes()
            assert outputs(path) == outputs(log)
        seen.add(len(there))
        assert len(Store(other.root).list().sessions) == 1 + len(there)
        take(Store(other.root), file)
        names = names_in(rest.parent)
        assert len(names) == 4, names
        for path in other.root.glob("*/*"):
            if path.stem != rest.stem:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert seen == {0, 1}


@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_what_is_appended_is_a_beginning_of_the_rest(
    store: Store, other: Store, tmp_path: Path, stride: int
) -> None:
    log = make(store, tmp_path, "one").path
    there = take(other, exported(log, tmp_path / "x")).path
    old = there.read_bytes()
    go_on(store, log, "two", "three")
    file = exported(log, tmp_path / "x")
    for _ in killed_at_each_step(lambda: take(Store(other.root), file), stride):
        found = there.read_bytes()
        assert found.startswith(old)
        assert file.read_bytes().startswith(found)
        assert take(Store(other.root), file).outcome in ("grown", "same")
        assert there.read_bytes() == file.read_bytes()
        assert outputs(there) == outputs(log)
        there.write_bytes(old)
