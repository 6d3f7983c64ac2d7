"""Lists and ids from an index that can be lost, barred, or another awl's."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rawlog import RawLog

from awl.conversation import ModelRef, text_message
from awl.errors import AmbiguousId, AwlError, SessionNotFound
from awl.index import level
from awl.index.conversations import Logless, Said
from awl.index.sqlite import Unusable
from awl.log.scan import scan as whole_scan
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")
SAID = Said("user", "kept in words", "2026-04-25T18:00:00.000Z")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "sessions")
    yield made
    made.close()


def put(store: Store, number: int, words: str = "x", cwd: str = "/home/dev") -> Path:
    session_id = f"019dc5ba-53f{number:x}-71a5-ab8f-b1f8709c2572"
    log = RawLog(cwd=cwd, id=session_id)
    log.prompt(words)
    return log.write(store.root, cwd, session_id=session_id)


def again(store: Store) -> Store:
    """The store as another process sees it."""
    store.close()
    return Store(store.root)


def titles(store: Store) -> list[str]:
    return [info.title for info in store.list().sessions]


# -- what an id costs ----------------------------------------------------------------------------


def test_an_id_is_found_without_taking_in_what_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [put(store, number) for number in range(3)]
    store.list()
    with paths[0].open("ab") as log:
        log.write(b'{"type":"title","id":"aaaa0001","parentId":null,"seq":9,"title":"y"}\n')
    paths.append(put(store, 3))
    paths.pop(1).unlink()

    def never(*arguments: object) -> None:
        raise AssertionError("a log was read")

    monkeypatch.setattr(level, "_read_open", never)
    for path in paths:
        session_id = path.stem.partition("_")[2]
        assert store.resolve(session_id) == store.resolve(session_id[:13]) == path


@pytest.mark.parametrize("glances", [16, 0])
def test_an_id_is_what_the_log_says_now_however_it_changed(
    store: Store, monkeypatch: pytest.MonkeyPatch, glances: int
) -> None:
    monkeypatch.setattr(level, "_GLANCES", glances)
    edited, replaced, spoiled, copied, gone = (put(store, number) for number in range(5))
    store.list()
    before = edited.stat()
    edited.write_bytes(edited.read_bytes().replace(b"019dc5ba-53f0", b"019dc5ba-aaa0"))
    os.utime(edited, ns=(before.st_atime_ns, before.st_mtime_ns))
    other = replaced.with_suffix(".new")
    other.write_bytes(replaced.read_bytes().replace(b"019dc5ba-53f1", b"019dc5ba-aaa1"))
    other.replace(replaced)
    copied.with_name(copied.name.replace("019dc5ba-53f3", "copy-53f3")).write_bytes(
        copied.read_bytes()
    )
    gone.unlink()
    for path, session_id in ((edited, "019dc5ba-aaa0"), (replaced, "019dc5ba-aaa1")):
        assert store.resolve(session_id) == path
    for session_id in ("019dc5ba-53f0", "019dc5ba-53f1", "019dc5ba-53f4"):
        with pytest.raises(SessionNotFound):
            store.resolve(session_id)
    with pytest.raises(AmbiguousId):
        store.resolve("019dc5ba-53f3")
    spoiled.write_bytes(b"x" + spoiled.read_bytes())  # then the name tells
    assert store.resolve("019dc5ba-53f2") == spoiled


def test_a_conversation_whose_log_is_gone_is_found_again_by_its_id(store: Store) -> None:
    path = put(store, 1)
    session_id = path.stem.partition("_")[2]
    store.catalog.conversations.append(
        Logless(session_id, "/home/dev", MODEL, SAID.timestamp, ()), [SAID]
    )
    store.list()
    path.unlink()
    assert store.catalog.matching(session_id) == {session_id: []}
    path = put(store, 1)
    assert store.catalog.matching(session_id[:13]) == {session_id: [path]}


# -- what a list costs ---------------------------------------------------------------------------


def test_a_list_that_nothing_changed_for_reads_no_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    for number in range(5):
        put(store, number)
    listed = store.list()

    def never(*arguments: object) -> None:
        raise AssertionError("a log was read")

    monkeypatch.setattr(level, "_read_open", never)
    assert store.list() == listed
    store = again(store)
    assert store.list() == listed
    store.close()


@pytest.mark.parametrize("settled", [True, False])
def test_a_change_that_size_and_mtime_do_not_tell_is_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    """What was too fresh when it was read is looked at again; later, the ctime tells."""
    monkeypatch.setattr(level, "is_settled", lambda *arguments: settled)
    path = put(store, 1, "first")
    assert titles(store) == ["first"]
    before = path.stat()
    while settled and path.stat().st_ctime_ns == before.st_ctime_ns:
        path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"first", b"other"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert titles(store) == ["other"]


@pytest.mark.parametrize("times", [1, 100])
@pytest.mark.parametrize("changed", ["garbage", "header", "other"])
def test_a_log_that_is_rewritten_while_it_is_read_hides_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch, changed: str, times: int
) -> None:
    path = put(store, 1, "rewritten")
    put(store, 2, "beside it")
    data = path.read_bytes()
    first = data.index(b"\n") + 1
    size = len(data) - first - 1
    line = {
        "garbage": b"x" * size,
        "header": data[:first].strip()[:-1].ljust(size - 1) + b"}",
        "other": data[first:-1].replace(b'"e1"', b'"f1"'),
    }[changed]
    assert len(line) >= size
    other = data[:first] + line + b"\n"
    real = whole_scan
    left = times

    def scan(fd: int, **more: Any) -> Iterator[Any]:
        nonlocal left
        ours = os.fstat(fd).st_ino == path.stat().st_ino
        if ours:
            path.write_bytes(data)
        yield from real(fd, **more)
        if ours and left:
            left -= 1
            path.write_bytes(other)

    monkeypatch.setattr("awl.index.summary.scan", scan)
    listing = store.list()
    if times == 1:
        assert {info.title for info in listing.sessions} == {"rewritten", "beside it"}
        assert not listing.unreadable
    else:
        assert [info.title for info in listing.sessions] == ["beside it"]
        assert len(listing.unreadable) == 1
        assert listing.unreadable[0].startswith(str(path))
        assert "changed by another program" in listing.unreadable[0]


def test_a_log_that_may_not_be_on_disk_is_synced_before_it_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[object] = []
    monkeypatch.setattr(level, "sync", lambda fd: synced.append(fd))
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"))
    put(store, 1)
    assert len(store.list().sessions) == 1
    assert len(synced) == 1
    store.list()
    assert len(synced) == 1
    monkeypatch.setattr(level, "_WRITTEN_OUT", -1_000_000_000_000)
    put(store, 2)
    assert len(store.list().sessions) == 2
    assert len(synced) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="where all can be synced at once")
def test_many_logs_that_may_not_be_on_disk_are_synced_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[object] = []
    monkeypatch.setattr(level, "sync", lambda fd: synced.append(fd))
    monkeypatch.setattr(os, "sync", lambda: synced.append("all"))
    monkeypatch.setattr(level, "_MANY", 4)
    monkeypatch.setattr(level, "_TICK", -1_000_000_000_000)
    for number in range(5):
        put(store, number)
    assert len(store.list().sessions) == 5
    assert synced == ["all"]


def test_looking_changes_no_order_and_no_byte(store: Store) -> None:
    paths = [put(store, number) for number in (1, 2, 3)]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths]
    order = [info.id for info in store.list().sessions]
    os.utime(paths[0], (4e9, 4e9))
    before[0] = (before[0][0], paths[0].stat().st_mtime_ns)
    store.search("x")
    assert [info.id for info in store.list().sessions] == order
    assert [(path.read_bytes(), path.stat().st_mtime_ns) for path in paths] == before


# -- what can become of the index ----------------------------------------------------------------


def test_files_are_for_their_owner_alone_whatever_the_umask(store: Store) -> None:
    mask = os.umask(0)
    try:
        put(store, 1)
        store.search("x")
    finally:
        os.umask(mask)
    folder = store.root / ".awl"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = {path.name for path in folder.iterdir()}
    assert {"index.db", "conversations.db", "index.lock"} <= names
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("name", ["index.db", "conversations.db"])
def test_a_database_that_others_could_read_is_its_owners_alone_again(
    store: Store, name: str
) -> None:
    put(store, 1)
    store.search("x")
    store.close()
    path = store.root / ".awl" / name
    path.chmod(0o644)
    with contextlib.closing(Store(store.root)) as later:
        assert len(later.list().sessions) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["nothing", "text", "an index"])
def test_an_index_that_is_a_link_is_replaced_and_what_it_leads_to_is_left(
    store: Store, tmp_path: Path, kind: str
) -> None:
    put(store, 1, "found all the same")
    store.search("x")
    store.close()
    path, other = store.root / ".awl" / "index.db", tmp_path / "other"
    if kind == "an index":
        other.write_bytes(path.read_bytes())
    elif kind == "text":
        other.write_text("precious")
    before = other.read_bytes() if other.exists() else None
    path.unlink()
    path.symlink_to(other)
    with contextlib.closing(Store(store.root)) as later:
        assert len(later.search("same").hits) == 1
        put(later, 2, "and more")
        assert len(later.list().sessions) == 2
    assert not path.is_symlink()
    assert (other.read_bytes() if other.exists() else None) == before


def test_an_index_of_a_newer_awl_is_left_alone_and_done_without(store: Store) -> None:
    put(store, 1, "found all the same")
    store.list()
    store.close()
    path = store.root / ".awl" / "index.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    before = path.read_bytes()
    store = Store(store.root)
    assert titles(store) == ["found all the same"]
    assert len(store.search("same").hits) == 1
    assert [notice for notice in store.notices if "newer awl" in notice]
    with pytest.raises(Unusable, match="newer awl"):
        store.reindex()
    store.close()
    assert path.read_bytes() == before


def test_an_index_of_an_older_awl_is_built_anew(store: Store) -> None:
    put(store, 1, "found")
    folder = store.root / ".awl"
    folder.mkdir()
    db = sqlite3.connect(folder / "index.db")
    db.executescript("CREATE TABLE sessions (x); INSERT INTO sessions VALUES (1)")
    db.close()
    assert titles(store) == ["found"]


@pytest.mark.parametrize("barred", ["file", "folder"])
def test_where_no_index_can_be_the_logs_are_read(store: Store, barred: str) -> None:
    put(store, 1, "found")
    if barred == "folder":
        (store.root / ".awl").write_text("in the way")
    else:
        (store.root / ".awl").mkdir()
        (store.root / ".awl" / "index.db").mkdir()
    for _ in range(2):
        assert titles(store) == ["found"]
        assert len(store.search("found").hits) == 1
        assert store.resolve("019dc5ba") is not None
    assert any("the logs are read instead" in notice for notice in store.notices)
    assert len(store.notices) == len({*store.notices})


def on_a_read_only_disk(root: Path, code: str) -> str:
    """What a program prints that is given a folder on a real read-only file system."""
    in_namespace = ["unshare", "-rm", "sh", "-c"]
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"'
    allowed = subprocess.run([*in_namespace, mount, "sh", root], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip("private mounts are not allowed here")
    done = subprocess.run(
        [*in_namespace, f'{mount} && exec "$2" -c "$3" "$1"', "sh", root, sys.executable, code],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_disk_that_cannot_be_written_is_read(store: Store) -> None:
    put(store, 1, "found")
    code = (
        "import sys; from pathlib import Path; from awl.store.files import Store;"
        "s = Store(Path(sys.argv[1])); print([i.title for i in s.list().sessions]);"
        "print(len(s.search('found').hits)); print(*s.notices)"
    )
    told = on_a_read_only_disk(store.root, code)
    assert told.startswith("['found']\n1\n")
    assert "the logs are read instead" in told
    assert not (store.root / ".awl").exists()


@pytest.mark.parametrize("killed", [False, True])
def test_on_a_disk_that_cannot_be_written_numbers_and_conversations_are_found(
    store: Store, tmp_path: Path, killed: bool
) -> None:
    """Also where a process was killed and left its write-ahead log."""
    path = put(store, 1, "logged")
    assert store.resolve("#1") == path
    kept = store.catalog.conversations
    kept.append(Logless("0" * 36, "/home/dev", MODEL, SAID.timestamp, ()), [SAID])
    assert store.catalog.numbered(2) == {"0" * 36: []}
    if not killed:
        store.close()
    put(store, 3, "new there")
    copy = tmp_path / "copy"
    shutil.copytree(store.root, copy)
    code = (
        "import sys; from pathlib import Path; from awl.store.files import Store;"
        "s = Store(Path(sys.argv[1]));"
        "print([(i.title, i.conversation_id) for i in s.list().sessions]);"
        "print(s.catalog.numbered(2), s.resolve('#1').name, len(s.search('words').hits));"
        "print(*s.notices, sep='\\n');"
        "from awl.index.sqlite import Unusable\n"
        "try: s.catalog.conversations.trash('x', 'now')\n"
        "except Unusable as error: print(error)\n"
    )
    listed, found, *notices = on_a_read_only_disk(copy, code).splitlines()
    assert listed == "[('logged', 1), ('new there', None), ('kept in words', 2)]"
    assert found == f"{ {'0' * 36: []} } {path.name} 1"
    assert [line for line in notices if "new sessions get no numbers" in line]
    assert notices[-1].endswith("cannot be used: the disk is read-only")


def test_reindex_gives_the_same(store: Store) -> None:
    for number in range(4):
        put(store, number)
    listed, hits = store.list(), store.search("x")
    assert store.reindex() == listed
    assert store.search("x") == hits


# -- numbers -------------------------------------------------------------------------------------


def numbers(store: Store) -> dict[str, int | None]:
    return {info.id: info.conversation_id for info in store.list().sessions}


def test_a_number_names_a_session_for_ever_and_is_never_given_again(store: Store) -> None:
    first, second = put(store, 1), put(store, 2)
    given = numbers(store)
    assert sorted(given.values(), key=str) == [1, 2]
    assert store.resolve("#1") == first
    assert store.resolve(" #2 ") == second
    second.unlink()
    store.reindex()
    third = put(store, 3)
    assert store.resolve("#3") == third
    with pytest.raises(SessionNotFound):
        store.resolve("#2")
    put(store, 2)
    assert {**numbers(store), **given} == numbers(store)


@pytest.mark.parametrize("query", ["#", "#0", "#99", "#x", "#-1", "#1e3", "#" + "9" * 40, "##1"])
def test_what_is_no_number_names_nothing(store: Store, query: str) -> None:
    put(store, 1)
    with pytest.raises(SessionNotFound):
        store.resolve(query)


def test_lost_numbers_are_given_anew_in_order_of_id(store: Store) -> None:
    for number in (3, 1, 2):
        put(store, number)
        store.list()
    store.close()
    for path in (store.root / ".awl").glob("conversations.db*"):
        path.unlink()
    store = Store(store.root)
    assert [info.conversation_id for info in sorted(store.list().sessions, key=lambda i: i.id)] == [
        1,
        2,
        3,
    ]
    store.close()


def test_numbers_from_an_older_backup_are_made_whole(store: Store) -> None:
    path = store.root / ".awl" / "conversations.db"
    put(store, 1)
    assert len(numbers(store)) == 1
    store.close()
    backup = path.read_bytes()
    store = Store(store.root)
    put(store, 2)
    given = numbers(store)
    store.close()
    for beside in path.parent.glob("conversations.db-*"):
        beside.unlink()
    path.write_bytes(backup)
    store = Store(store.root)
    put(store, 3)
    found = numbers(store)
    assert {**found, **given} == found
    assert len(set(found.values())) == 3
    store.close()


def test_damaged_numbers_are_missed_and_not_overwritten(store: Store) -> None:
    put(store, 1)
    store.list()
    store.close()
    path = store.root / ".awl" / "conversations.db"
    path.write_bytes(b"garbage " * 2000)
    store = Store(store.root)
    put(store, 2)
    assert list(numbers(store).values()) == [None, None]
    assert any("conversations.db is damaged" in notice for notice in store.notices)
    store.close()
    assert path.read_bytes() == b"garbage " * 2000


def test_two_files_with_one_id_share_its_number_and_are_named(store: Store) -> None:
    path = put(store, 1)
    copy = path.with_name(path.name.replace("2026", "2027"))
    copy.write_bytes(path.read_bytes())
    infos = store.list().sessions
    assert [info.conversation_id for info in infos] == [1, 1]
    assert {info.path for info in infos} == {str(path), str(copy)}
    for query in ("#1", "019dc5ba"):
        with pytest.raises(AmbiguousId) as caught:
            store.resolve(query)
        assert set(caught.value.candidates) == {str(path), str(copy)}


# -- names ---------------------------------------------------------------------------------------


def test_order_is_that_of_instants_however_times_are_written(store: Store) -> None:
    times = {
        1: "2026-04-25T20:00:00.000+05:00",
        2: "2026-04-25T16:00:00Z",
        3: "2026-04-25T16:00:00.001Z",
        4: "2026-04-25T09:00:01.000-08:00",
    }
    for number in (3, 4, 2, 1):
        log = RawLog(cwd="/home/dev", id=f"{number:036}")
        log.prompt("x", timestamp=times[number])
        log.write(store.root, "/home/dev", session_id=f"{number:036}")
    found = store.list().sessions
    assert [int(info.id) for info in found] == [1, 2, 3, 4]
    assert [info.updated[11:] for info in found] == [
        "15:00:00.000Z",
        "16:00:00.000Z",
        "16:00:00.001Z",
        "17:00:01.000Z",
    ]
    assert [hit.timestamp for hit in store.search("x").hits] == [info.updated for info in found]


def test_a_title_is_an_entry_and_changes_no_order(store: Store) -> None:
    paths = [put(store, 1, "one"), put(store, 2, "two")]
    order = [info.id for info in store.list().sessions]
    store.rename(paths[0], "  A new\n title ")
    assert titles(store) == ["A new title", "two"]
    assert [info.id for info in store.list().sessions] == order
    with pytest.raises(AwlError, match="needs words"):
        store.rename(paths[0], " \n")


def test_a_session_behind_a_folder_that_was_renamed_is_found(store: Store, tmp_path: Path) -> None:
    session = store.create(str(tmp_path), MODEL)
    session.append_message(text_message("user", "x"))
    session.close()
    assert store.resolve(session.id) == session.path
    moved = session.path.parent.rename(store.root / "elsewhere") / session.path.name
    assert store.resolve(session.id) == moved
    assert [info.path for info in store.list(str(tmp_path)).sessions] == [str(moved)]


def test_a_link_that_leads_in_a_circle_is_named_and_hides_nothing(store: Store) -> None:
    path = put(store, 1, "healthy")
    folder = store.root / "loop"
    link = path.with_name(path.name.replace("53f1", "53f2"))
    for loop in (folder, link, path.with_name("x.jsonl")):
        loop.symlink_to(loop.name)
    for listing in (store.list(), store.reindex()):
        assert [info.title for info in listing.sessions] == ["healthy"]
        named = {line.split(": ")[0] for line in listing.unreadable}
        assert named == {str(folder), str(link), str(path.with_name("x.jsonl"))}
    assert store.latest("/home/dev") == path
    assert len(store.search("healthy").hits) == 1
    unreadable: list[str] = []
    assert list(store.logs(unreadable)) == [path]
    assert [line.split(": ")[0] for line in unreadable] == [str(link), str(folder)]


def test_a_link_that_leads_in_a_circle_does_not_have_all_compared_each_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    put(store, 1)
    loop = store.root / "loop"
    loop.symlink_to(loop.name)
    listing = store.list()

    def never(*arguments: object) -> None:
        raise AssertionError("the index was compared")

    with monkeypatch.context() as context:
        context.setattr(level, "Level", never)
        assert store.list() == listing
        assert listing.unreadable
    loop.unlink()
    assert store.list().unreadable == ()


def test_directories_that_are_not_utf8_are_kept_exactly(store: Store, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    session = store.create(str(tmp_path), MODEL)
    session.append_message(text_message("user", "x"))
    session.move(str(odd))
    for _ in range(2):
        session.append_message(text_message("user", "x"))
        assert [info.cwd for info in store.list(str(odd)).sessions] == [str(odd)]
        assert store.list(str(tmp_path)).sessions == ()
    session.close()
