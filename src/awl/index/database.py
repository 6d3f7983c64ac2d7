"""The file `index.db`: opened, checked, replaced when it is damaged, and done without."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from awl.errors import AwlError
from awl.log.file import create_private, make_directories

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")

SCHEMA_VERSION: Final = 2
"""An index of another version is built anew; one of a later version belongs to a newer awl."""

PATIENCE: Final = 0.9
"""Seconds to wait for other processes before the index is done without."""

_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('version', 0);
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    path BLOB NOT NULL UNIQUE,
    size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,
    dev INTEGER NOT NULL, ino INTEGER NOT NULL,
    settled INTEGER NOT NULL,
    mark BLOB NOT NULL,
    done INTEGER NOT NULL,
    id TEXT NOT NULL, folded TEXT NOT NULL,
    cwd BLOB NOT NULL, updated TEXT NOT NULL,
    info BLOB, checksum INTEGER NOT NULL,
    number INTEGER,
    texts BLOB, texts_done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_updated ON sessions (updated, id, path);
CREATE INDEX sessions_cwd ON sessions (cwd, updated, id, path);
CREATE INDEX sessions_folded ON sessions (folded);
CREATE INDEX sessions_number ON sessions (number);
CREATE INDEX sessions_behind ON sessions (key) WHERE texts_done < done;
CREATE TABLE messages (
    doc INTEGER PRIMARY KEY, seq INTEGER, entry TEXT, role TEXT, time, text TEXT
);
CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE parts USING fts5(
    term, content='terms', content_rowid='id', detail=none, columnsize=0,
    tokenize='trigram case_sensitive 1'
);
CREATE VIRTUAL TABLE postings USING fts5(
    terms, content='', detail=none, columnsize=0, tokenize='ascii'
);
"""

_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_BARRED: Final = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
    }
)

# What reading a damaged file can raise: SQLite's own words, and what comes of values that awl never
# wrote. Some of SQLite's messages quote the file, and are then no text.
_SYMPTOMS: Final = (
    sqlite3.Error,
    msgspec.MsgspecError,
    zlib.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)


class Unusable(AwlError):
    """A database cannot be used now. The reason is for people."""


class Damaged(AwlError):
    """A database is not what awl left."""


class Database:
    """`index.db` in a folder, for one piece of work at a time. Thread-safe.

    `notices` are lines for a person, each said once.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "index.db"
        self.notices: list[str] = []
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._spare: sqlite3.Connection | None = None
        self._guard = threading.RLock()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on the index; on a temporary one, which it must fill, where the real one
        cannot be used. The work may be begun more than once."""
        with self._guard:
            try:
                return self._on_disk(work)
            except Unusable as error:
                if str(error):
                    self._notice(f"the index cannot be used ({error}): the logs are read instead")
            if self._spare is None:
                self._spare = _temporary()
            return _translated(self._spare, work, (sqlite3.Error,))  # all else is awl's own error

    def rebuild(self) -> None:
        """Throw the index away; the next work builds it anew.

        Raises:
            Unusable: other processes use it, it is a newer awl's, or it cannot be removed.
        """
        with self._guard:
            with contextlib.suppress(Damaged), self._locked(shared=True):
                self._opened()
            self._replace()

    def close(self) -> None:
        """Let go of the files."""
        with self._guard:
            for connection in (self._connection, self._spare):
                if connection is not None:
                    connection.close()
            self._connection = self._spare = self._file = None

    # -- inside ------------------------------------------------------------------------------------

    def _on_disk(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if not self.path.parent.parent.is_dir():
            raise Unusable  # there are no sessions yet, and looking makes nothing
        for last_try in (False, True):
            try:
                with self._locked(shared=True):
                    return _translated(self._opened(), work, _SYMPTOMS)
            except Damaged as error:
                if last_try:
                    raise Unusable(f"damaged: {error}") from None
                self._replace()
                self._notice(f"the index is built anew from the logs ({error})")
        raise AssertionError("unreachable")

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that has the name now."""
        file = _identity(self.path)
        if self._connection is not None and file != self._file:
            self._connection.close()
            self._connection = None
        if self._connection is None:
            try:
                make_directories(self.path.parent)
                if file is None:
                    with contextlib.suppress(FileExistsError):
                        os.close(create_private(self.path))
            except OSError as error:
                raise Unusable(error.strerror or str(error)) from None
            self._connection = _connected(self.path)
            self._file = _identity(self.path)
        return self._connection

    def _replace(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with self._locked(shared=False):
            # The write-ahead log first: it must never be taken for that of a new file.
            for suffix in ("-wal", "-shm", ""):
                try:
                    self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
                except OSError as error:
                    raise Unusable(f"damaged, and not to be removed: {error.strerror}") from None

    @contextlib.contextmanager
    def _locked(self, *, shared: bool) -> Iterator[None]:
        """Hold the right to use the file, or alone to replace it. It dies with the process."""
        if sys.platform == "win32":
            yield
            return
        try:
            make_directories(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self.path.with_name("index.lock"), flags, 0o600)
        except OSError as error:
            raise Unusable(error.strerror or str(error)) from None
        try:
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() >= deadline:
                        raise Unusable("other processes are using it") from None
                    time.sleep(0.005)
            yield
        finally:
            os.close(fd)

    def _notice(self, line: str) -> None:
        if line not in self.notices:
            self.notices.append(line)


@contextlib.contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """One short transaction that writes: all of it, or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextlib.contextmanager
def reading(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction that reads: all of it sees the database as it is at its first statement."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def dead(db: sqlite3.Connection) -> int:
    """How many docs are gone whose postings are still there."""
    row = db.execute("SELECT value FROM meta WHERE key = 'dead'").fetchone()
    return int(row[0]) if row else 0


def count_dead(db: sqlite3.Connection, count: int) -> None:
    """Count docs that are deleted."""
    db.execute(
        "INSERT INTO meta VALUES ('dead', ?1) ON CONFLICT DO UPDATE SET value = value + ?1",
        (count,),
    )


def reason(error: Exception) -> Exception:
    """What an error of a database means: `Unusable` now, or `Damaged`."""
    if not isinstance(error, sqlite3.Error):
        return Damaged(f"it holds what awl never wrote: {error!r}")
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code in _BUSY:
        return Unusable("locked by another process")
    if code in _BARRED:
        return Unusable(str(error))
    return Damaged(str(error))


def connect(path: Path) -> sqlite3.Connection:
    """A connection to a database, each statement of which is its own transaction unless told."""
    db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        db.execute("PRAGMA journal_mode = WAL")
    except BaseException as error:
        db.close()
        if isinstance(error, UnicodeDecodeError):
            raise sqlite3.DatabaseError("its schema is no text") from None
        raise
    return db


def _temporary() -> sqlite3.Connection:
    """A private database that is in memory, and in a temporary file once it is large: there may be
    no disk to write to."""
    db = sqlite3.connect("", check_same_thread=False)
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("PRAGMA journal_mode = MEMORY")
    return _prepared(db)


def _connected(path: Path) -> sqlite3.Connection:
    db: sqlite3.Connection | None = None
    try:
        db = connect(path)
        _check_whole(db, path)
        return _prepared(db)
    except BaseException as error:
        if db is not None:
            db.close()
        if isinstance(error, _SYMPTOMS) and not isinstance(error, AwlError):
            raise reason(error) from None
        raise


def _check_whole(db: sqlite3.Connection, path: Path) -> None:
    """Notice a file that was cut, which SQLite reads on as if zeros followed. The order keeps other
    processes from misleading it: a write-ahead log is emptied only when the file has its pages."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    size = pages * db.execute("PRAGMA page_size").fetchone()[0]
    log = path.with_name(path.name + "-wal")
    if not _size(log) and _size(path) < size:
        raise Damaged("its end is missing")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _prepared(db: sqlite3.Connection) -> sqlite3.Connection:
    """The connection, with awl's tables in it."""
    db.isolation_level = None
    db.execute("PRAGMA synchronous = NORMAL")  # a lost transaction is caught up with
    db.execute("PRAGMA cache_size = -32000")
    version = _version(db)
    if version > SCHEMA_VERSION:
        raise Unusable("it was made by a newer awl: upgrade awl to use it")
    if version < SCHEMA_VERSION:
        with writing(db):
            if _version(db) < SCHEMA_VERSION:
                if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise Damaged("it was an older awl's")
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    db.execute(statement)
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _translated(
    db: sqlite3.Connection,
    work: Callable[[sqlite3.Connection], T],
    symptoms: tuple[type[Exception], ...],
) -> T:
    try:
        return work(db)
    except AwlError:
        raise
    except symptoms as error:
        raise reason(error) from error
    finally:
        if db.in_transaction:
            with contextlib.suppress(sqlite3.Error, UnicodeDecodeError):
                db.execute("ROLLBACK")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
