"""`conversations.db`: the numbers of sessions, and the conversations that have no log.

A number is given once and never again, whatever becomes of its session. Unlike the index this file
is nobody's copy, so it is never rebuilt: where it cannot be used, there are no numbers, and no
conversation without a log, until a person has seen to it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from awl.conversation import ModelRef
from awl.index.patience import Patience
from awl.index.sqlite import (
    SYMPTOMS,
    Damaged,
    Unusable,
    connect,
    copied,
    is_busy,
    reason,
    translated,
    writing,
)
from awl.log.durable import create_private, make_directories, sync_directory

T = TypeVar("T")

_SCHEMAS: Final = (
    """
CREATE TABLE meta (instance TEXT NOT NULL);
CREATE TABLE numbers (
    number INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL UNIQUE
);
CREATE TABLE conversations (
    session_id TEXT PRIMARY KEY, cwd BLOB NOT NULL,
    provider TEXT NOT NULL, model TEXT NOT NULL, endpoint TEXT, created TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY, session_id TEXT NOT NULL,
    role TEXT NOT NULL, text TEXT NOT NULL, timestamp TEXT NOT NULL
);
CREATE INDEX messages_session ON messages (session_id, id);
INSERT INTO meta VALUES (lower(hex(randomblob(16))));
""",
    """
CREATE TABLE trashed (session_id TEXT PRIMARY KEY, deleted TEXT NOT NULL) WITHOUT ROWID;
""",
)
"""What each version adds to the one before it."""

SCHEMA_VERSION: Final = len(_SCHEMAS)


_WORDS: Final = {"messages": ("text",), "conversations": ("provider", "model", "endpoint")}


class Said(msgspec.Struct, frozen=True):
    """One message of a conversation that has no log: who said what, and when."""

    role: str
    text: str
    timestamp: str


class Logless(msgspec.Struct, frozen=True):
    """A conversation that has no log."""

    session_id: str
    cwd: str
    model: ModelRef
    created: str
    said: tuple[Said, ...]


class Conversations:
    """The database in a folder. Thread-safe. Every method raises `Unusable` or `Damaged` where it
    cannot be used; both say why. On a disk that cannot be written (`read_only`) it is read."""

    def __init__(self, folder: Path, patience: Patience) -> None:
        self.path = folder / "conversations.db"
        self._log = folder / "conversations.db-wal"
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, ...] = ()
        self.read_only = False
        self._guard = threading.RLock()

    def lock_path(self, session_id: str) -> Path:
        """The file whose lock the process holds that goes on with a conversation."""
        return self.path.with_name(f"{session_id}.lock")

    # -- numbers -----------------------------------------------------------------------------------

    def instance(self) -> str:
        """What tells this file from another in its place."""
        return self._run(lambda db: str(db.execute("SELECT instance FROM meta").fetchone()[0]))

    def numbers(self, session_ids: Iterable[str]) -> dict[str, int]:
        """The numbers of sessions. Those that have none yet are given one, in order of id, unless
        the disk is read-only."""
        ids = sorted(set(session_ids))

        def work(db: sqlite3.Connection) -> dict[str, int]:
            found = _numbers(db, ids)
            if self.read_only:
                return found
            if missing := [(known,) for known in ids if known not in found]:
                with writing(db):
                    db.executemany(
                        "INSERT INTO numbers (session_id) VALUES (?) ON CONFLICT DO NOTHING",
                        missing,
                    )
                found |= _numbers(db, [known for (known,) in missing])
            return found

        return self._run(work)

    def highest(self) -> int:
        """The highest number that was given by this file."""

        def work(db: sqlite3.Connection) -> int:
            row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'numbers'").fetchone()
            return int(row[0]) if row else 0

        return self._run(work)

    def remember(self, given: Iterable[tuple[int, str]]) -> None:
        """Take in numbers that were given already: this file is older, from a backup."""
        pairs = list(given)

        def work(db: sqlite3.Connection) -> None:
            with writing(db):
                db.executemany(
                    "INSERT INTO numbers (number, session_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    pairs,
                )

        self._write(work)

    # -- conversations without a log ---------------------------------------------------------------

    def append(self, conversation: Logless, said: Iterable[Said]) -> None:
        """Keep what was said. Durable on return."""
        session_id, model = conversation.session_id, conversation.model
        facts = (session_id, os.fsencode(conversation.cwd), *model, conversation.created)
        rows = [(session_id, one.role, one.text, one.timestamp) for one in said]

        def work(db: sqlite3.Connection) -> None:
            with writing(db):
                db.execute(
                    "INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                    " cwd = excluded.cwd, provider = excluded.provider, model = excluded.model,"
                    " endpoint = excluded.endpoint",
                    facts,
                )
                db.executemany(
                    "INSERT INTO messages (session_id, role, text, timestamp) VALUES (?, ?, ?, ?)",
                    rows,
                )
                # Who goes on with it wants to find it again.
                db.execute("DELETE FROM trashed WHERE session_id = ?", (session_id,))

        self._write(work)

    def all(self) -> list[Logless]:
        """Every conversation that is kept here, in order of id. Some may have a log now."""
        if not self.path.exists():
            return []
        return self._run(lambda db: _all(db, "NOT IN"))

    def get(self, session_id: str) -> Logless | None:
        """One conversation."""
        return next((one for one in self.all() if one.session_id == session_id), None)

    def trash(self, session_id: str, when: str) -> None:
        """Keep a conversation out of `all`. That it had none here is no error."""
        self._change(
            "INSERT OR REPLACE INTO trashed SELECT session_id, ? FROM conversations"
            " WHERE session_id = ?",
            (when, session_id),
        )

    def restore(self, session_id: str) -> None:
        """Undo `trash`."""
        self._change("DELETE FROM trashed WHERE session_id = ?", (session_id,))

    def forget(self, session_id: str) -> None:
        """Remove what was said in a conversation for good. Its number is not given again."""
        for table in ("messages", "conversations", "trashed"):
            self._change(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))  # noqa: S608

    def rewrite(self, session_ids: Iterable[str], change: Callable[[str], str]) -> int:
        """Change what was said in conversations, for good: nothing of what it was stays in the
        file. Returns how many messages are others now."""
        ids = list(session_ids)

        def work(db: sqlite3.Connection) -> int:
            count = 0
            with writing(db):
                for session_id in ids:
                    for table, fields in _WORDS.items():
                        count += _rewrite(db, table, fields, session_id, change)
            db.execute("VACUUM")
            busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise Unusable("another process is using it: try again")
            return count

        return self._write(work) if self.path.exists() else 0

    def trashed(self) -> list[tuple[Logless, str]]:
        """The conversations that `trash` keeps out of `all`, and since when."""
        if not self.path.exists():
            return []

        def work(db: sqlite3.Connection) -> list[tuple[Logless, str]]:
            when = dict(db.execute("SELECT * FROM trashed").fetchall())
            return [(one, when[one.session_id]) for one in _all(db, "IN")]

        return self._run(work)

    def copy_to(self, path: Path) -> None:
        """Write a copy of this file, as it is at one moment, over what is there.

        Raises:
            AwlError: this one cannot be used.
            OSError: the copy cannot be written.
        """

        def work(db: sqlite3.Connection) -> OSError | None:
            try:
                make_directories(path.parent)
                _copy(db, path)
            except OSError as error:  # of the copy: this file is none the worse
                return error
            return None

        if self.path.exists():
            made = not path.parent.exists()
            failed = self._run(work)
            if failed is not None:
                if made:
                    with contextlib.suppress(OSError):
                        path.parent.rmdir()
                raise failed

    def close(self) -> None:
        """Let go of the file."""
        with self._guard:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # -- inside ------------------------------------------------------------------------------------

    def _change(self, statement: str, values: tuple[str, ...]) -> None:
        def work(db: sqlite3.Connection) -> None:
            with writing(db):
                db.execute(statement, values)

        if self.path.exists():
            self._write(work)

    def identity(self) -> int:
        """The inode of the file; 0 when there is none."""
        try:
            return self.path.stat().st_ino
        except OSError:
            return 0

    def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._guard:
            try:
                return translated(self._opened(), work, SYMPTOMS)
            except Unusable as error:
                raise Unusable(f"{self.path} cannot be used: {error}") from error
            except Damaged as error:
                raise Damaged(
                    f"{self.path} is damaged ({error}): restore it from a backup, or move it"
                    " away to begin anew"
                ) from error
            except OSError as error:
                raise Unusable(f"{self.path}: {error.strerror or error}") from None

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `_run`, for work that changes something, but for giving numbers."""

        def if_possible(db: sqlite3.Connection) -> T:
            if self.read_only:
                raise Unusable("the disk is read-only")
            return work(db)

        return self._run(if_possible)

    def _opened(self) -> sqlite3.Connection:
        there = self._seen()
        if self._connection is not None and there != self._file:
            self._connection.close()
            self._connection = None
        if self._connection is None:
            try:
                self._connection = self._made()
            except SYMPTOMS as error:
                raise reason(error) from error
            self._file = self._seen()
        return self._connection

    def _seen(self) -> tuple[int, ...]:
        """What tells that there is another file; of one that was copied, that it has changed."""
        found: list[int] = []
        for path in (self.path, self._log) if self.read_only else (self.path,):
            try:
                here = path.stat()
            except OSError:
                continue
            found += (here.st_dev, here.st_ino)
            if self.read_only:
                found += (here.st_size, here.st_mtime_ns)
        return tuple(found)

    def _made(self) -> sqlite3.Connection:
        self.read_only = False
        try:
            make_directories(self.path.parent)
            with contextlib.suppress(FileExistsError):
                os.close(create_private(self.path))
                sync_directory(self.path.parent)
            if os.access(self.path, os.W_OK):
                return _prepared(connect(self.path, self._patience))
        except (OSError, sqlite3.Error) as error:
            barred = isinstance(error, OSError) or isinstance(reason(error), Unusable)
            if not barred or is_busy(error) or not self.path.exists():
                raise
        db = _prepared(copied(self.path))
        self.read_only = True
        return db


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    try:
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten
        if _version(db) > SCHEMA_VERSION:
            raise Unusable("it was made by a newer awl: upgrade awl to use it")
        if _version(db) < SCHEMA_VERSION:
            with writing(db):
                for schema in _SCHEMAS[_version(db) :]:
                    for statement in filter(str.strip, schema.split(";")):
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        db.close()
        raise
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _rewrite(
    db: sqlite3.Connection,
    table: str,
    fields: tuple[str, ...],
    session_id: str,
    change: Callable[[str], str],
) -> int:
    key = "id" if table == "messages" else "session_id"
    query = f"SELECT {key}, {', '.join(fields)} FROM {table} WHERE session_id = ?"  # noqa: S608
    count = 0
    for row, *before in db.execute(query, (session_id,)).fetchall():
        after = [None if text is None else change(text) for text in before]
        if after != before:
            places = ", ".join(f"{name} = ?" for name in fields)
            db.execute(f"UPDATE {table} SET {places} WHERE {key} = ?", (*after, row))  # noqa: S608
            count += table == "messages"
    return count


def _numbers(db: sqlite3.Connection, ids: list[str]) -> dict[str, int]:
    if len(ids) > 100:
        wanted = set(ids)
        rows = db.execute("SELECT session_id, number FROM numbers")
        return {session_id: number for session_id, number in rows if session_id in wanted}
    query = "SELECT number FROM numbers WHERE session_id = ?"
    found = ((known, db.execute(query, (known,)).fetchone()) for known in ids)
    return {known: row[0] for known, row in found if row}


def _all(db: sqlite3.Connection, which: str) -> list[Logless]:
    """The conversations that are `IN` the trash, or `NOT IN` it."""
    conversations = db.execute(
        f"SELECT * FROM conversations WHERE session_id {which}"  # noqa: S608
        " (SELECT session_id FROM trashed) ORDER BY session_id"
    ).fetchall()
    if not conversations:
        return []
    said: dict[str, list[Said]] = {}
    for session_id, *facts in db.execute(
        "SELECT session_id, role, text, timestamp FROM messages ORDER BY id"
    ):
        said.setdefault(session_id, []).append(Said(*facts))
    return [
        Logless(
            session_id,
            os.fsdecode(cwd),
            ModelRef(provider, model, endpoint),
            created,
            tuple(said.get(session_id, ())),
        )
        for session_id, cwd, provider, model, endpoint, created in conversations
    ]


def _copy(db: sqlite3.Connection, path: Path) -> None:
    """Write a copy of a database over what is there.

    Raises:
        OSError: it cannot be written.
    """
    copy = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        fd = create_private(copy)
        try:
            with contextlib.closing(sqlite3.connect(copy)) as target:
                db.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            os.fsync(fd)
            copy.replace(path)
        finally:
            os.close(fd)
    except sqlite3.OperationalError as error:
        copy.unlink(missing_ok=True)
        if error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
        raise
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)
