"""Exports: the log's bytes with their blobs, whole or not at all, over nothing unasked."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from killing import killed_at_each_step
from log.making import names_in
from rawlog import everything

from awl.errors import AwlError, NotASession
from awl.formats import find
from awl.index.conversations import Logless, Said
from awl.log.blobs import Blobs
from awl.store.exporting import Backup, Exists, Outgoing, export
from awl.store.files import Store
from store.having import go_on, ids, make, outputs, say, tree


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder to export to."""
    made = tmp_path / "out"
    made.mkdir()
    return made


# -- one session ---------------------------------------------------------------------------------


def test_an_export_is_the_log_byte_for_byte_with_its_blobs(
    store: Store, tmp_path: Path, out: Path
) -> None:
    log = make(store, tmp_path, "one", "two").path
    before = tree(store.root)
    target = out / "x.jsonl"
    assert export(log, target, None, root=store.root) == []
    assert target.read_bytes() == log.read_bytes()
    assert outputs(target, out / "x.jsonl.blobs") == outputs(log)
    assert names_in(out) == ["x.jsonl", "x.jsonl.blobs"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert tree(store.root) == before
    for blob in (out / "x.jsonl.blobs").iterdir():
        assert blob.stat().st_nlink == 1


def test_an_open_session_is_exported_up_to_its_last_line(
    store: Store, tmp_path: Path, out: Path
) -> None:
    session = make(store, tmp_path, "one", close=False)
    export(session.path, out / "x", None, root=store.root)
    assert (out / "x").read_bytes() == session.path.read_bytes()
    say(session, "two")
    session.close()


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda data: data + b'{"type":"mess', 13),
        (lambda data: data + b"\0" * 100, 100),
        (lambda data: data[:-1], 0),
        (lambda data: data.replace(b'"seq":2', b"damaged", 1), 0),
    ],
)
def test_damage_is_exported_as_it_is_and_a_torn_tail_is_said(
    store: Store, out: Path, change: object, lost: int
) -> None:
    assert callable(change)
    log = everything().write(store.root)
    whole = log.read_bytes()
    log.write_bytes(change(whole))
    said = export(log, out / "x", None, root=store.root)
    assert said == ([f"left out: {lost} bytes of an incomplete last line"] if lost else [])
    kept = log.read_bytes() if b"damaged" in log.read_bytes() else whole
    assert (out / "x").read_bytes() == kept


def test_nothing_is_replaced_unless_that_is_asked_for(
    store: Store, tmp_path: Path, out: Path
) -> None:
    first, second = make(store, tmp_path, "one").path, make(store, tmp_path, "two").path
    target = out / "x"
    export(first, target, None, root=store.root)
    before = tree(out)
    with pytest.raises(Exists, match="--force"):
        export(second, target, None, root=store.root)
    assert tree(out) == before
    export(second, target, None, root=store.root, force=True)
    assert target.read_bytes() == second.read_bytes()
    assert outputs(target, out / "x.blobs") == outputs(second)
    assert len(names_in(out / "x.blobs")) == 1
    (out / "folder").mkdir()
    (out / "link").symlink_to("nowhere")
    for taken in ("folder", "link"):
        with pytest.raises(Exists, match=r"no file: name another file$"):
            export(second, out / taken, None, root=store.root, force=taken == "folder")
    for among in (first, second.parent / "x", store.root / "new" / "x"):
        with pytest.raises(AwlError, match="another place"):
            export(second, among, None, root=store.root, force=True)
    with pytest.raises(AwlError, match="no directory"):
        export(second, out / "missing" / "x", None, root=store.root)


def test_blobs_that_are_missing_or_damaged_are_named_and_stop_nothing(
    store: Store, tmp_path: Path, out: Path
) -> None:
    log = make(store, tmp_path, "one", "two", "three").path
    one, two, _ = outputs(log)
    (Blobs(log).directory / one).unlink()
    (Blobs(log).directory / two).write_bytes(b"changed")
    said = export(log, out / "x", None, root=store.root)
    assert len(said) == 2
    assert all(name[:12] in " ".join(said) for name in (one, two))
    assert len(names_in(out / "x.blobs")) == 1
    assert (out / "x").read_bytes() == log.read_bytes()


def test_what_a_format_cannot_hold_is_said(store: Store, out: Path) -> None:
    log = everything().write(store.root)
    said = export(log, out / "events.jsonl", find("zeph"), root=store.root)
    assert any("system text" in line for line in said)
    export(log, out / "x.md", find("markdown"), root=store.root)
    assert (out / "x.md").read_text().startswith("# ")
    with pytest.raises(AwlError, match="does not write"):
        export(log, out / "y", find("claude-code"), root=store.root)
    assert names_in(out) == ["events.jsonl", "x.md"]


def test_a_stream_tells_what_would_lie_beside_it(store: Store, tmp_path: Path) -> None:
    log = make(store, tmp_path, "one").path
    session = Outgoing(log, None)
    assert b"".join(session.pieces()) == log.read_bytes()
    assert session.blobs == set(outputs(log))


def test_what_was_never_a_session_makes_no_file(store: Store, tmp_path: Path, out: Path) -> None:
    log = make(store, tmp_path).path
    log.write_bytes(b'{"type":"sess')
    with pytest.raises(NotASession):
        export(log, out / "x", None, root=store.root)
    assert names_in(out) == []


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("force", [False, True])
def test_killed_at_any_step_an_export_is_whole_or_absent(
    store: Store, tmp_path: Path, out: Path, force: bool
) -> None:
    log, old = make(store, tmp_path, "one", "two").path, make(store, tmp_path, "old").path
    before, target = tree(store.root), out / "x.jsonl"
    seen = set()
    for _ in killed_at_each_step(lambda: export(log, target, None, root=store.root, force=force)):
        assert tree(store.root) == before
        if target.exists() and target.read_bytes() == log.read_bytes():
            assert outputs(target, out / "x.jsonl.blobs") == outputs(log)
            seen.add("new")
        elif force and target.exists():
            assert target.read_bytes() == old.read_bytes()
            seen.add("old")
        else:
            assert not target.exists()
            seen.add("absent")
        export(log, target, None, root=store.root, force=True)  # takes away what was left
        assert names_in(out) == ["x.jsonl", "x.jsonl.blobs"]
        shutil.rmtree(out)
        out.mkdir()
        if force:
            export(old, target, None, root=store.root)
    assert seen >= ({"new", "old"} if force else {"new", "absent"})


# -- backups -------------------------------------------------------------------------------------


def back_up(store: Store, folder: Path, *, force: bool = False) -> list[str]:
    backup = Backup(folder, store.root, force=force)
    kept: list[str] = [backup.keep(log) for log in store.logs()]
    backup.keep_conversations(store.catalog.conversations)
    return kept


def test_a_backup_holds_all_and_can_be_looked_into_itself(
    store: Store, tmp_path: Path, out: Path
) -> None:
    log = make(store, tmp_path, "one").path
    make(store, tmp_path / "elsewhere", "two")
    store.fork(log)
    torn = log.with_name(log.name + ".torn-2026-04-25T17-40-15-990Z")
    torn.write_bytes(b"torn")
    store.list()
    folder = out / "new" / "backup"
    assert back_up(store, folder) == ["new", "new", "new"]
    assert tree(folder) == tree(store.root)
    there = Store(folder)
    assert {info.id: info.conversation_id for info in there.list().sessions} == {
        info.id: info.conversation_id for info in store.list().sessions
    }
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_backup_writes_only_what_is_new(store: Store, tmp_path: Path, out: Path) -> None:
    logs = [make(store, tmp_path, word).path for word in ("one", "two")]
    back_up(store, out)
    times = {path: path.stat().st_ino for path in out.rglob("*.jsonl")}
    assert back_up(store, out) == ["same", "same"]
    go_on(store, logs[0], "more")
    os.utime(logs[1])
    assert sorted(back_up(store, out)) == ["grown", "same"]
    assert tree(out) == tree(store.root)
    changed = [path.name for path, ino in times.items() if path.stat().st_ino != ino]
    assert changed == [logs[0].name]


def test_a_backup_loses_nothing_that_the_store_has_lost(
    store: Store, tmp_path: Path, out: Path
) -> None:
    deleted, cut, changed = (make(store, tmp_path, word, "more").path for word in "abc")
    back_up(store, out)
    before = tree(out)
    store.delete(deleted)
    cut.write_bytes(b"".join(cut.read_bytes().splitlines(keepends=True)[:3]))
    changed.write_bytes(changed.read_bytes().replace(b'"c"', b'"d"'))
    assert sorted(back_up(store, out)) == ["apart", "longer"]
    assert tree(out) == before
    assert sorted(back_up(store, out, force=True)) == ["apart", "longer"]
    assert (out / changed.relative_to(store.root)).read_bytes() == changed.read_bytes()


def test_a_backup_among_the_sessions_is_refused(store: Store, tmp_path: Path) -> None:
    make(store, tmp_path)
    for folder in (store.root, store.root / "backup"):
        with pytest.raises(AwlError, match="another place"):
            Backup(folder, store.root)


def test_conversations_without_a_log_are_in_the_backup(
    store: Store, tmp_path: Path, out: Path
) -> None:
    said = [Said("user", "old words", "2026-04-25T17:40:15.990Z")]
    facts = Logless("01a1-x", str(tmp_path), make(store, tmp_path).active_model, "", ())
    store.catalog.conversations.append(facts, said)
    back_up(store, out)
    assert ids(Store(out)) == ids(store)
    store.catalog.conversations.append(facts, [Said("assistant", "new words", "")])
    back_up(store, out)
    assert len(Store(out).search("new words").hits) == 1


@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_a_backup_has_each_log_as_it_was_or_is(
    store: Store, tmp_path: Path, out: Path, stride: int
) -> None:
    grown, new = make(store, tmp_path, "one").path, make(store, tmp_path, "two")
    where = out / "b"
    name = str(new.path.relative_to(store.root))
    new.path.rename(tmp_path / "later")
    back_up(store, where)
    old = grown.read_bytes()
    (tmp_path / "later").rename(new.path)
    go_on(store, grown, "more")
    shutil.copytree(where, out / "template")
    for _ in killed_at_each_step(lambda: back_up(Store(store.root), where), stride):
        found = tree(where)
        assert found[str(grown.relative_to(store.root))] in (old, grown.read_bytes())
        assert found.get(name, new.path.read_bytes()) == new.path.read_bytes()
        assert Store(where).list().unreadable == ()
        back_up(store, where)
        assert tree(where) == tree(store.root)
        shutil.rmtree(where)
        shutil.copytree(out / "template", where)
