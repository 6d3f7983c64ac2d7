"""The file `index.db`: opened, checked, replaced when it is damaged, and done without."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from awl.errors import AwlError
from awl.index.patience import Patience
from awl.log.file import create_private, make_directories

if sys.platform == "win32":

    def _flock(fd: int, *, shared: bool) -> bool:
        """Nothing there keeps processes apart so: files in use cannot be replaced anyway."""
        return True

else:
    import fcntl

    def _flock(fd: int, *, shared: bool) -> bool:
        """Whether the lock could be had."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


T = TypeVar("T")

SCHEMA_VERSION: Final = 2
"""An index of another version is built anew; one of a later version belongs to a newer awl."""

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

_MOMENT: Final = 0.05  # seconds that one statement waits
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


class Connection(sqlite3.Connection):
    """A connection that waits no longer for other processes than the patience it is given."""

    patience: Patience


class Database:
    """`index.db` in a folder, for one piece of work at a time. Thread-safe.

    `notices` are lines for a person, each said once.
    """

    def __init__(self, folder: Path, patience: Patience) -> None:
        self.path = folder / "index.db"
        self.notices: list[str] = []
        self._patience = patience
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._spare: sqlite3.Connection | None = None
        self._guard = threading.RLock()

    def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on the index; on a temporary one, which it must fill, where the real one
        cannot be used. The work may be begun more than once."""
        with self._guard:
            try:
                found = self._on_disk(work)
            except Unusable as error:
                if str(error):
                    self._notice(f"the index cannot be used ({error}): the logs are read instead")
                return self._without(work)
            self._drop_spare()
            return found

    def rebuild(self, fill: Callable[[sqlite3.Connection], object]) -> None:
        """Build the index anew beside the one there is, which others use until it is done.

        Raises:
            Unusable: another process does the same, it is a newer awl's, or it cannot be written.
        """
        with self._guard:
            try:
                with contextlib.suppress(Damaged), self._in_use():
                    self._opened()
                with self._locked("index.new.lock", shared=False, why="another process is at it"):
                    self._take_the_place(self._made_beside(fill))
            except Unusable as error:
                raise Unusable(f"{self.path} cannot be built anew: {error}") from None

    @contextlib.contextmanager
    def gone(self) -> Iterator[None]:
        """Remove the index, and keep all others from it while the block runs: none that is built
        meanwhile knows what was in the logs before.

        Raises:
            Unusable: other processes use it and do not end, or it cannot be removed.
        """
        with self._guard:
            self._drop_connection()
            self._drop_spare()
            with self._locked("index.new.lock", shared=False), self._alone():
                try:
                    for path in (self.path, self.path.with_name("index.new.db")):
                        _remove(path)
                except OSError as error:
                    raise Unusable(f"{self.path} cannot be removed: {error.strerror}") from None
                yield

    def close(self) -> None:
        """Let go of the files."""
        with self._guard:
            self._drop_connection()
            self._drop_spare()

    # -- inside ------------------------------------------------------------------------------------

    def _on_disk(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if not self.path.parent.parent.is_dir():
            raise Unusable  # there are no sessions yet, and looking makes nothing
        for last_try in (False, True):
            try:
                with self._in_use():
                    return _translated(self._opened(), work, _SYMPTOMS)
            except Damaged as error:
                if last_try:
                    raise Unusable(f"damaged: {error}") from None
                self._replace()
                self._notice(f"the index is built anew from the logs ({error})")
        raise AssertionError("unreachable")

    def _without(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do some work on a private copy of the index, which nobody else can lock; if there is
        nothing to copy, on an empty one."""
        if self._spare is None and self._connection is not None:
            self._spare = _copied(self._connection)
            if self._spare is not None:
                with contextlib.suppress(Damaged, Unusable):
                    return _translated(self._spare, work, _SYMPTOMS)
                self._drop_spare()
        if self._spare is None:
            self._spare = _prepared(_temporary())
        return _translated(self._spare, work, (sqlite3.Error,))  # all else is awl's own error

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that has the name now."""
        file = _identity(self.path)
        if file != self._file:
            self._drop_connection()
        if self._connection is None:
            try:
                make_directories(self.path.parent)
                if file is None:
                    with contextlib.suppress(FileExistsError):
                        os.close(create_private(self.path))
            except OSError as error:
                raise Unusable(error.strerror or str(error)) from None
            self._file = _identity(self.path)
            self._connection = _connected(self.path, self._patience)
        return self._connection

    def _replace(self) -> None:
        """Remove the file that was used last."""
        used = self._file
        self._drop_connection()
        with self._alone():
            if used != _identity(self.path):
                return  # another process was quicker
            try:
                _remove(self.path)
            except OSError as error:
                raise Unusable(f"damaged, and not to be removed: {error.strerror}") from None

    def _made_beside(self, fill: Callable[[sqlite3.Connection], object]) -> Path:
        path = self.path.with_name("index.new.db")
        try:
            _remove(path)
            os.close(create_private(path))
        except OSError as error:
            raise Unusable(error.strerror or str(error)) from None
        with contextlib.closing(_connected(path, self._patience)) as db:
            _translated(db, fill, (sqlite3.Error,))
        return path

    def _take_the_place(self, path: Path) -> None:
        self._drop_connection()
        with self._alone():
            try:
                _remove(self.path)
                path.rename(self.path)
            except OSError as error:
                raise Unusable(error.strerror or str(error)) from None

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._file = None

    def _drop_spare(self) -> None:
        if self._spare is not None:
            self._spare.close()
        self._spare = None

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Hold the right to use the file, together with others. It dies with the process."""
        with contextlib.ExitStack() as gate:
            gate.enter_context(self._locked("index.gate", shared=True))
            with self._locked("index.lock", shared=True):
                gate.close()
                yield

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the right to replace the file. The gate is closed first: nobody else begins to use
        it, and those who do are soon done."""
        with self._locked("index.gate", shared=False), self._locked("index.lock", shared=False):
            yield

    @contextlib.contextmanager
    def _locked(
        self, name: str, *, shared: bool, why: str = "other processes are using it"
    ) -> Iterator[None]:
        try:
            make_directories(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
            fd = os.open(self.path.with_name(name), flags, 0o600)
        except OSError as error:
            raise Unusable(error.strerror or str(error)) from None
        try:
            if not self._patience.persist(lambda: _flock(fd, shared=shared)):
                raise Unusable(why)
            yield
        finally:
            os.close(fd)

    def _notice(self, line: str) -> None:
        if line not in self.notices:
            self.notices.append(line)


@contextlib.contextmanager
def writing(db: sqlite3.Connection) -> Iterator[None]:
    """One short transaction that writes: all of it, or nothing."""
    _begin(db)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _begin(db: sqlite3.Connection) -> None:
    if not isinstance(db, Connection):  # a private one
        db.execute("BEGIN")
        return
    refused: list[sqlite3.OperationalError] = []

    def attempt() -> bool:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            refused.append(error)
            return False
        return True

    if not db.patience.persist(attempt):
        raise refused[-1]


@contextlib.contextmanager
def reading(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction that reads: all of it sees the database as it is at its first statement."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def begin_anywhere(things: Sequence[T]) -> Sequence[T]:
    """The same in a circle from any one on, so that processes with the same to do share it."""
    start = random.randrange(len(things)) if len(things) > 1 else 0  # noqa: S311
    return [*things[start:], *things[:start]]


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
    if _is_busy(error):
        return Unusable("locked by another process")
    if _code(error) in _BARRED:
        return Unusable(str(error))
    return Damaged(str(error))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in _BUSY


def connect(path: Path, patience: Patience) -> Connection:
    """A connection to a database, each statement of which is its own transaction unless told."""
    db = sqlite3.connect(
        path, timeout=_MOMENT, isolation_level=None, check_same_thread=False, factory=Connection
    )
    db.patience = patience
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
    db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute("PRAGMA journal_mode = MEMORY")
    return db


def _copied(source: sqlite3.Connection) -> sqlite3.Connection | None:
    """A private copy of a database that others may write to; None if it cannot be read either."""

    def progress(status: int, remaining: int, total: int) -> None:
        if remaining:  # all of it is one step, or it is locked
            raise sqlite3.OperationalError

    db = _temporary()
    try:
        source.backup(db, progress=progress)
    except sqlite3.Error:
        db.close()
        return None
    return db


def _connected(path: Path, patience: Patience) -> sqlite3.Connection:
    db: sqlite3.Connection | None = None
    try:
        db = connect(path, patience)
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


def _remove(path: Path) -> None:
    """Remove a database. The file first: SQLite passes over what it finds beside an empty one."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
