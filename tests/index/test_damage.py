"""An index that is not what awl left is built anew, whatever the damage."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rawlog import RawLog

from awl.errors import AwlError
from awl.index import database, level, rows, segments
from awl.index.sqlite import Damaged
from awl.store.files import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Five sessions whose texts are in a segment, made of several rows."""
    for name, value in (("_LOOKED_AT", 4), ("_CHUNK", 90), ("_BLOCK", 900)):
        monkeypatch.setattr(segments, name, value)
    made = Store(tmp_path / "sessions")
    for number in range(5):
        session_id = f"019dc5ba-53f{number:x}-71a5-ab8f-b1f8709c2572"
        log = RawLog(cwd="/home/dev", id=session_id)
        log.prompt(f"needle {number} " + " ".join(f"w{number}x{n}" for n in range(200)))
        log.write(made.root, "/home/dev", session_id=session_id)
    made.list()
    made.search("needle")
    made.close()
    yield made
    made.close()


def answers(store: Store) -> tuple[object, ...]:
    listed = store.list().sessions
    return (
        listed,
        store.list("/home/dev", limit=2).sessions,
        [
            store.search(query).hits
            for query in ("needle", "w3x1", "w0x w0x77", "zzz", "edle 4", "$")
        ],
        store.short_ids(),
        [store.resolve(f"#{number}") for number in range(1, 6)],
        [store.resolve(info.id) for info in listed],
    )


def check_flips(store: Store, chance: random.Random, times: int) -> None:
    """Bits of the index that flip while nobody uses it."""
    right = answers(store)
    store.close()
    folder = store.root / ".awl"
    kept = folder.with_name("kept")
    shutil.copytree(folder, kept)
    path = folder / "index.db"
    data = path.read_bytes()
    healed = 0
    for _ in range(times):
        shutil.rmtree(folder)
        shutil.copytree(kept, folder)
        spoiled = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 5))):
            spoiled[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(spoiled)
        store = Store(store.root)
        assert answers(store) == right
        healed += any("built anew" in notice for notice in store.notices)
        store.close()
    assert healed


def test_bits_that_flip_change_no_answer(store: Store) -> None:
    check_flips(store, random.Random(7), 40)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_bits_that_flip_change_no_answer(store: Store) -> None:
    check_flips(store, random.Random(8), 3000)


def test_an_index_is_checked_once_until_it_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[object] = []
    real = rows.check

    def check(db: sqlite3.Connection) -> None:
        checked.append(db)
        real(db)

    monkeypatch.setattr(rows, "check", check)
    for module in (database, level):
        monkeypatch.setattr(module, "is_settled", lambda *arguments: True)

    def checks() -> int:
        checked.clear()
        again = Store(store.root)
        for _ in range(2):
            assert len(again.list().sessions) == 5
        again.close()
        return len(checked)

    assert checks() == 1  # and this may also note that the logs have rested
    checks()
    assert checks() == 0
    path = store.root / ".awl" / "index.db"
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        path.chmod(0o600)
    assert checks() == 1
    assert checks() == 0
    monkeypatch.setattr(database, "is_settled", lambda *arguments: False)
    path.write_bytes(path.read_bytes())
    assert [checks(), checks()] == [1, 1]


def change(store: Store, *statements: str) -> None:
    with closing(sqlite3.connect(store.root / ".awl" / "index.db")) as db:
        db.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            db.execute(statement)
        db.commit()


def check_healed(store: Store) -> None:
    """As a process finds it that remembers nothing."""
    store = Store(store.root)
    assert len(store.search("needle").hits) == 5
    for piece in ("x17", "x18", "x19"):  # of enough words that each row of postings has some
        assert len(store.search(piece).hits) == 5
    assert len(store.list().sessions) == 5
    assert [notice for notice in store.notices if "built anew" in notice] == store.notices != []
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta",
        "UPDATE meta SET value = 'x' WHERE key = 'version'",
        "UPDATE sessions SET mark = 7, settled = 0",
        "UPDATE messages SET text = x'07'",
        "UPDATE messages SET about = x'07'",
        "UPDATE messages SET checksum = 'x'",
        "UPDATE meta SET value = 'x' WHERE key = 'contents'",
        "UPDATE sessions SET texts = x'ff', texts_done = 0",
        "UPDATE sessions SET texts_done = done + 1",
        "UPDATE sessions SET cwd = x'2f746d70'",
        "UPDATE sessions SET updated = '2020'",
        "UPDATE sessions SET size = size + 1",
        "DROP INDEX sessions_updated",
        "DELETE FROM messages WHERE doc = (SELECT min(doc) FROM messages)",
        "UPDATE messages SET doc = doc + (1 << 40)",
        "DELETE FROM words",
        "UPDATE words SET words = CAST(replace(words, 'needle', 'noodle') AS BLOB)",
        "DELETE FROM segments",
        "UPDATE segments SET runs = x'90'",
        "DELETE FROM postings",
        "DELETE FROM postings WHERE word = 0",
        "DELETE FROM postings WHERE word > 0",
        "UPDATE postings SET data = zeroblob(length(data))",
    ],
)
def test_rows_that_awl_never_wrote_have_it_built_anew(store: Store, statement: str) -> None:
    change(store, statement, "DELETE FROM meta WHERE key = 'seen'")
    check_healed(store)


@pytest.mark.parametrize("cut", [1, 2000, 4095, 4096, 5000, 20_000])
def test_a_file_that_was_cut_is_built_anew(store: Store, cut: int) -> None:
    path = store.root / ".awl" / "index.db"
    os.truncate(path, path.stat().st_size - cut)
    check_healed(store)


def spoil_schema(path: Path) -> None:
    """Bytes that are no text, where SQLite's message quotes them."""
    data = path.read_bytes()
    assert b"CREATE TABLE meta" in data
    path.write_bytes(data.replace(b"CREATE TABLE meta", b"CREATE \xff\xfe\xff\xfe\xff meta"))


def test_a_schema_that_is_no_text_has_it_built_anew(store: Store) -> None:
    spoil_schema(store.root / ".awl" / "index.db")
    check_healed(store)


def test_numbers_whose_schema_is_no_text_are_damaged_and_left_alone(store: Store) -> None:
    path = store.root / ".awl" / "conversations.db"
    spoil_schema(path)
    before = path.read_bytes()
    with pytest.raises(Damaged, match=r"conversations\.db is damaged"):
        store.catalog.conversations.instance()
    assert len(store.list().sessions) == 5
    store.close()
    assert path.read_bytes() == before


def test_texts_that_seem_behind_for_ever_keep_no_search_from_its_end(store: Store) -> None:
    """An index of SQLite's that holds rows it should not hold gives them again and again."""
    edit = "UPDATE sqlite_master SET sql = replace(sql, '{}', '{}') WHERE name = 'sessions_behind'"
    right, wrong = "texts_done < done", "texts_done <= done"
    change(store, edit.format(right, wrong))
    change(store, "REINDEX sessions_behind")
    change(store, edit.format(wrong, right))
    assert len(store.search("needle").hits) == 5


def test_an_error_of_awl_itself_is_not_hidden(store: Store) -> None:
    def work(db: sqlite3.Connection) -> None:
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        store.catalog.database.run(work)

    def refuse(db: sqlite3.Connection) -> None:
        raise AwlError("no")

    with pytest.raises(AwlError, match="no"):
        Store(store.root).catalog.database.run(refuse)
