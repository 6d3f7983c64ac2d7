"""An index that is not what awl left is built anew, whatever the damage."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from rawlog import RawLog

from awl.errors import AwlError
from awl.index.database import Damaged
from awl.store.files import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
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


def change(store: Store, *statements: str) -> None:
    with closing(sqlite3.connect(store.root / ".awl" / "index.db")) as db:
        db.execute("PRAGMA writable_schema = ON")
        for statement in statements:
            db.execute(statement)
        db.commit()


def check_healed(store: Store) -> None:
    assert len(store.search("needle").hits) == 5
    assert len(store.list().sessions) == 5
    assert [notice for notice in store.notices if "built anew" in notice] == store.notices != []


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta",
        "UPDATE meta SET value = 'x' WHERE key = 'version'",
        "UPDATE sessions SET mark = 7, settled = 0",
        "UPDATE messages SET text = x'07'",
        "UPDATE messages SET time = 1 << 62",
        "UPDATE sessions SET texts = x'ff', texts_done = 0",
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
