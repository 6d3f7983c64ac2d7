"""The trash: a session is in it, or where it was, whole; nothing else is touched."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import killed_at_each_step
from log.making import names_in
from running import Awl, say, until

from awl.conversation import ModelRef, text_message
from awl.errors import AmbiguousId, AwlError, NotInTrash, SessionBusy, SessionExists
from awl.index.conversations import Logless, Said
from awl.log.blobs import Blobs
from awl.log.lock import open_locked
from awl.session import Session
from awl.store import trash as trash_module
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")
OLD = "01a10000-0000-7000-8000-000000000000"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions")


def make(store: Store, cwd: Path, words: str = "hello") -> Path:
    """A session with a blob and a torn tail beside it."""
    session = store.create(str(cwd), MODEL)
    session.append_message(text_message("user", words))
    session.blobs.put(words.encode())
    session.close()
    path = session.path
    path.with_name(path.name + ".torn-2026-04-25T17-40-15-990Z").write_bytes(b"torn")
    return path


def id_of(path: Path) -> str:
    return path.stem.split("_")[1]


def tree(root: Path) -> dict[str, bytes]:
    """All files below a folder but the databases."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".awl" not in path.parts
    }


def trashed(root: Path) -> dict[str, bytes]:
    """What is in the trash, by its place when it was not."""
    return {
        "/".join(name.split("/")[2:]): data
        for name, data in tree(root).items()
        if name.startswith(".trash/")
    }


def live(root: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(root).items() if not name.startswith(".trash/")}


def ids(store: Store) -> list[str]:
    return [info.id for info in store.list().sessions]


# -- deleting and restoring ----------------------------------------------------------------------


def test_a_deleted_session_is_whole_in_the_trash_and_comes_back_as_it_was(
    store: Store, tmp_path: Path
) -> None:
    path, other = make(store, tmp_path), make(store, tmp_path, "other")
    before = tree(store.root)
    number = store.number_of(path)
    assert store.delete(id_of(path)) == id_of(path)
    assert ids(store) == [id_of(other)]
    assert {**trashed(store.root), **live(store.root)} == before
    assert len(trashed(store.root)) == 3
    assert store.trash.restore(id_of(path)[:-1]) == id_of(path)
    assert tree(store.root) == before
    assert store.number_of(path) == number
    assert names_in(store.root / ".trash") == []


def test_the_trash_is_matched_by_no_id_list_or_search(store: Store, tmp_path: Path) -> None:
    path = make(store, tmp_path, "findme")
    assert len(store.search("findme").hits) == 1
    store.delete(path)
    assert ids(store) == []
    assert store.latest(str(tmp_path)) is None
    assert list(store.logs()) == []
    assert store.search("findme").hits == ()
    for query in (id_of(path), id_of(path)[:10], "#1"):
        with pytest.raises(AwlError, match="no session matches"):
            store.resolve(query)


def test_files_in_the_trash_are_private(store: Store, tmp_path: Path) -> None:
    path = make(store, tmp_path)
    old = os.umask(0)
    try:
        store.delete(path)
    finally:
        os.umask(old)
    for found in (store.root / ".trash", *(store.root / ".trash").rglob("*")):
        assert found.stat().st_mode & 0o077 == 0 or found.name.endswith("990Z"), found


def test_a_number_is_not_given_again(store: Store, tmp_path: Path) -> None:
    first = make(store, tmp_path)
    assert store.number_of(first) == 1
    store.delete(first, purge=True)
    assert store.number_of(make(store, tmp_path)) == 2


def test_an_open_session_is_not_deleted(store: Store, tmp_path: Path) -> None:
    session = Session.open(make(store, tmp_path))
    before = tree(store.root)
    for purge in (False, True):
        with pytest.raises(SessionBusy, match=str(os.getpid())):
            store.delete(session.path, purge=purge)
    assert tree(store.root) == before
    session.close()
    store.delete(session.path)


def test_what_is_restored_never_takes_the_place_of_what_is_there(
    store: Store, tmp_path: Path
) -> None:
    path = make(store, tmp_path)
    data = path.read_bytes()
    store.delete(path)
    path.write_bytes(data + b'{"type":"title","id":"aa","title":"newer"}\n')
    before = tree(store.root)
    with pytest.raises(SessionExists, match="delete that one first"):
        store.trash.restore(id_of(path))
    elsewhere = path.with_name(path.name.replace("20", "19", 1))
    path.rename(elsewhere)
    with pytest.raises(SessionExists):
        store.trash.restore(id_of(path))
    elsewhere.rename(path)
    assert tree(store.root) == before


def test_of_several_deletions_of_one_id_the_last_is_restored_and_all_can_be(
    store: Store, tmp_path: Path
) -> None:
    path = make(store, tmp_path)
    data = path.read_bytes()
    store.delete(path)
    path.write_bytes(data + b'{"type":"title","id":"aa","title":"newer"}\n')
    store.delete(path)
    older, newer = store.trash.contents()
    assert (older.id, newer.title) == (newer.id, "newer")
    store.trash.restore(id_of(path))
    assert path.read_bytes() != data
    store.delete(path)
    store.trash.restore(older.path)
    assert path.read_bytes() == data
    assert Blobs(path).directory.is_dir()


def test_what_is_not_in_the_trash_is_an_error_that_names_what_is(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(NotInTrash, match="it is empty"):
        store.trash.restore("019")
    paths = [make(store, tmp_path), make(store, tmp_path)]
    for path in paths:
        store.delete(path)
    with pytest.raises(NotInTrash) as missed:
        store.trash.restore("zzz")
    assert all(
        any(id_of(path).startswith(one) for one in missed.value.candidates) for path in paths
    )
    with pytest.raises(AmbiguousId):
        store.trash.restore(id_of(paths[0])[:6])
    with pytest.raises(NotInTrash):
        store.trash.restore("")
    assert store.trash.restore("#2") == id_of(paths[1])


def test_only_sessions_of_the_store_are_deleted(store: Store, tmp_path: Path) -> None:
    path = make(store, tmp_path)
    outside = tmp_path / path.name
    outside.write_bytes(path.read_bytes())
    nameless = path.with_name("x.jsonl")
    nameless.write_bytes(path.read_bytes())
    store.delete(path)
    (inside,) = (store.root / ".trash").rglob("*.jsonl")
    before = tree(tmp_path)
    for other in (outside, nameless, inside):
        with pytest.raises(AwlError, match="is no session in"):
            store.delete(other)
    assert tree(tmp_path) == before


def test_a_log_that_cannot_be_read_can_be_deleted_and_restored(
    store: Store, tmp_path: Path
) -> None:
    path = make(store, tmp_path)
    for data in (b"", b"\xff\xff\n", b"garbage\n" + path.read_bytes().split(b"\n", 1)[1]):
        path.write_bytes(data)
        store.delete(path)
        (one,) = store.trash.contents()
        assert one.id == id_of(path)
        store.trash.restore(one.id)
        assert path.read_bytes() == data


# -- purging -------------------------------------------------------------------------------------


def test_what_is_purged_is_gone_with_all_that_belongs_to_it(store: Store, tmp_path: Path) -> None:
    path, other = make(store, tmp_path, "findme"), make(store, tmp_path, "other")
    child = store.fork(other)
    store.search("findme")
    store.delete(path, purge=True)
    assert id_of(path) not in " ".join(tree(store.root))
    assert store.trash.contents() == []
    store.delete(other, purge=True)
    (blob,) = Blobs(child).directory.iterdir()
    assert blob.read_bytes() == b"other"
    assert ids(store) == [id_of(child)]


# -- conversations without a log -----------------------------------------------------------------


def logless(store: Store, cwd: Path) -> None:
    said = [Said("user", "old words", "2026-04-25T17:40:15.990Z")]
    facts = Logless(OLD, str(cwd), MODEL, said[0].timestamp, ())
    store.catalog.conversations.append(facts, said)


def test_a_conversation_without_a_log_is_deleted_restored_and_purged(
    store: Store, tmp_path: Path
) -> None:
    logless(store, tmp_path)
    assert ids(store) == [OLD]
    store.delete(OLD[:10])
    assert ids(store) == []
    assert store.search("words").hits == ()
    (one,) = store.trash.contents()
    assert (one.id, one.title, one.message_count, one.path) == (OLD, "old words", 1, "")
    store.trash.restore("#1")
    assert ids(store) == [OLD]
    assert len(store.search("words").hits) == 1
    store.delete(OLD, purge=True)
    assert (ids(store), store.trash.contents()) == ([], [])
    store.close()
    assert b"old words" not in (store.root / ".awl" / "conversations.db").read_bytes()


def test_who_goes_on_with_a_deleted_conversation_finds_it_again(
    store: Store, tmp_path: Path
) -> None:
    logless(store, tmp_path)
    store.delete(OLD)
    logless(store, tmp_path)
    assert ids(store) == [OLD]
    assert store.trash.contents() == []


def test_the_rows_of_a_deleted_session_do_not_come_up_again(store: Store, tmp_path: Path) -> None:
    logless(store, tmp_path)
    store.fork(OLD)
    log = store.resolve(OLD)
    store.delete(OLD)
    assert OLD not in ids(store)
    assert [one.path != "" for one in store.trash.contents()] == [True]
    store.trash.restore(OLD)
    assert log.exists()
    assert store.trash.contents() == []
    store.delete(OLD, purge=True)
    assert OLD not in ids(store)
    assert store.trash.contents() == []


def test_numbers_of_an_earlier_version_are_taken_over(store: Store, tmp_path: Path) -> None:
    import sqlite3

    logless(store, tmp_path)
    store.close()
    db = sqlite3.connect(store.root / ".awl" / "conversations.db")
    db.executescript("DROP TABLE trashed; PRAGMA user_version = 1")
    db.close()
    store = Store(store.root)
    assert ids(store) == [OLD]
    store.delete(OLD)
    assert ids(store) == []


# -- whole or absent -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["delete", "restore", "purge"])
@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_a_session_is_in_one_place_whole(
    store: Store, tmp_path: Path, verb: str, stride: int
) -> None:
    path, other = make(store, tmp_path), make(store, tmp_path, "other")
    store.list()
    there = tree(store.root)
    mine = {name: data for name, data in there.items() if path.stem in name}
    rest = {name: data for name, data in there.items() if path.stem not in name}
    if verb == "restore":
        store.delete(path)
    store.close()
    template = tmp_path / "template"
    shutil.copytree(store.root, template)
    work: Callable[[], object] = {
        "delete": lambda: Store(store.root).delete(id_of(path)),
        "restore": lambda: Store(store.root).trash.restore(id_of(path)),
        "purge": lambda: Store(store.root).delete(id_of(path), purge=True),
    }[verb]
    ends = set()
    for _ in killed_at_each_step(work, stride):
        after = Store(store.root)
        listed, deleted = id_of(path) in ids(after), [one.id for one in after.trash.contents()]
        assert id_of(other) in ids(after)
        log = str(path.relative_to(store.root))
        assert (log in live(store.root)) == listed
        assert (log in trashed(store.root)) == bool(deleted)
        assert not (listed and deleted)
        ends.add("here" if listed else "trash" if deleted else "gone")
        # The next deletion brings what was left behind after its log.
        after.delete(other)
        now, thrown = live(store.root), trashed(store.root)
        if not listed:
            assert now == {}
        if deleted:
            assert thrown == {**mine, **rest}
            after.trash.restore(id_of(path))
            assert live(store.root) == mine
        elif listed:
            assert now == mine
        else:
            assert thrown == rest
        after.close()
        shutil.rmtree(store.root)
        shutil.copytree(template, store.root)
    assert ends == ({"here", "trash", "gone"} if verb == "purge" else {"here", "trash"})


def test_what_another_process_moves_is_left_alone(store: Store, tmp_path: Path) -> None:
    path, other = make(store, tmp_path), make(store, tmp_path, "other")
    store.delete(path)
    (item,) = trash_module._items(store.root)
    held = open_locked(item.log)  # as if it were being restored
    before = trashed(store.root)
    trash_module._follow(item.log, item.home.parent)
    store.delete(other)
    assert Blobs(path).directory.is_dir()
    os.close(held)
    store.trash.restore(id_of(path))
    assert live(store.root) == before


# -- the command line ----------------------------------------------------------------------------


def test_delete_and_restore_on_the_command_line(awl: Awl) -> None:
    awl("-p", "hello")
    session_id = awl.id
    done = awl("sessions", "delete", session_id[:12])
    assert f"awl sessions restore {session_id}" in done.err
    assert "the trash is empty" not in awl("sessions", "restore").err
    (row,) = awl("sessions", "restore").lines
    assert row.startswith(session_id[:8])
    assert row.endswith("hello")
    (one,) = awl("sessions", "restore", "--json").json
    assert (one["id"], one["title"], one["message_count"]) == (session_id, "hello", 3)
    assert session_id[:8] in awl("sessions", "restore", "zzz", code=1).err
    assert awl("sessions", "restore", session_id[:12]).out == session_id + "\n"
    assert awl("--resume", session_id, "-p", "again").out == "Hello there.\n"
    assert "the trash is empty" in awl("sessions", "restore").err


def test_purging_asks_and_without_a_terminal_wants_a_yes(awl: Awl) -> None:
    awl("-p", "hello")
    before = awl.log.read_bytes()
    done = awl("sessions", "delete", awl.id, "--purge", code=2)
    assert "-y" in done.err
    assert awl.log.read_bytes() == before
    awl("sessions", "delete", awl.id, "--purge", "-y")
    assert awl.logs == []
    assert "the trash is empty" in awl("sessions", "restore").err


def test_an_open_session_is_named_with_its_holder(awl: Awl) -> None:
    awl.plays([say("word " * 400, delay=0.05)], loop=True)
    with awl.started("-p", "go") as process:
        until(lambda: awl.logs)
        done = awl("sessions", "delete", awl.id, code=1)
        assert str(process.pid) in done.err
        assert len(awl.logs) == 1
