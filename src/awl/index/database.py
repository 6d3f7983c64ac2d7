"""The file `index.db`: opened, checked, replaced when it is damaged, and done without."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from awl.errors import AwlError
from awl.index import rows
from awl.index.disk import is_settled
from awl.index.patience import Patience
from awl.index.sqlite import SYMPTOMS, Damaged, Unusable, connect, reason, translated, writing
from awl.log.durable import create_private, make_directories

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

SCHEMA_VERSION: Final = 5
"""An index of another version is built anew; one of a later version belongs to a newer awl."""

# `meta` has: version, which counts changes of `sessions`; seen, the logs that the index was level
# with; instance, the file that the numbers are from; contents, what there is of texts; dead, how
# many docs were deleted since the texts were begun.
_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
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
    seal INTEGER NOT NULL,
    number INTEGER,
    texts BLOB, texts_done INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX sessions_updated ON sessions (updated, id, path);
CREATE INDEX sessions_cwd ON sessions (cwd, updated, id, path);
CREATE INDEX sessions_folded ON sessions (folded);
CREATE INDEX sessions_number ON sessions (number);
CREATE INDEX sessions_behind ON sessions (key) WHERE texts_done < done;
CREATE TABLE messages (
    doc INTEGER PRIMARY KEY, about BLOB, text BLOB, checksum INTEGER, seal INTEGER
);
CREATE TABLE words (first INTEGER PRIMARY KEY, words BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE segments (id INTEGER PRIMARY KEY, runs BLOB NOT NULL, checksum INTEGER NOT NULL);
CREATE TABLE postings (
    segment INTEGER, word INTEGER, part INTEGER, data BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (segment, word, part)
) WITHOUT ROWID;
"""
_STATEMENTS: Final = tuple(filter(None, map(str.strip, _SCHEMA.split(";"))))

_STAMP_SIZE: Final = 256
_IN_USE: Final = "other processes are using it"
_NO_FILE: Final[tuple[int, ...]] = (0, 0, 0, 0, 0)


class Database:
    """`index.db` in a folder, for one piece of work at a time. Thread-safe.

    `notices` are lines for a person, each said once.
    """

    def __init__(self, folder: Path, patience: Patience) -> None:
        self.path = folder / "index.db"
        self._log = _beside(self.path, "-wal")
        self._root = str(folder.parent)
        self._folder = f"{folder}{os.sep}"
        self.notices: list[str] = []
        self._patience = patience
        self._trusted = _NO_FILE
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
                with self._locked("index.new.lock", "another process is at it"):
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
            with self._locked("index.new.lock"), self._alone():
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
        if not os.path.isdir(self._root):  # noqa: PTH112 - once for each list
            raise Unusable  # there are no sessions yet, and looking makes nothing
        for last_try in (False, True):
            try:
                with self._in_use() as lock:
                    return translated(self._opened(), partial(self._checked, lock, work), SYMPTOMS)
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
                    return translated(self._spare, work, SYMPTOMS)
                self._drop_spare()
        if self._spare is None:
            self._spare = _prepared(_temporary())
        return translated(self._spare, work, (sqlite3.Error,))  # all else is awl's own error

    def _checked(
        self, lock: int, work: Callable[[sqlite3.Connection], T], db: sqlite3.Connection
    ) -> T:
        """Do some work on the file. It is checked first, unless it is still as it was when awl last
        wrote or checked it: the file of the lock tells processes that come later."""
        main = _times(self.path)
        if main != self._trusted:
            self._check(lock, main, db)
        found = work(db)
        self._trusted = _times(self.path)
        return found

    def _check(self, lock: int, main: tuple[int, ...], db: sqlite3.Connection) -> None:
        log = _times(self._log)
        stamp = repr((main, log)).encode().ljust(_STAMP_SIZE)
        if os.read(lock, _STAMP_SIZE) == stamp:
            return
        _check(db)
        now = time.time_ns()
        if is_settled(main[3], main[4], now) and is_settled(log[3], log[4], now):
            os.lseek(lock, 0, os.SEEK_SET)
            os.write(lock, stamp)

    def _opened(self) -> sqlite3.Connection:
        """The connection to the file that has the name now."""
        file = _identity(self.path)
        if file != self._file:
            self._drop_connection()
        if self._connection is None:
            try:
                make_directories(self.path.parent)
                if self.path.is_symlink():  # what it leads to is not awl's to write to
                    self._file = file
                    raise Damaged("it was a link")
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
            translated(db, fill, (sqlite3.Error,))
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
    def _in_use(self) -> Iterator[int]:
        """Hold the right to use the file, together with others. It dies with the process."""
        gate = self._lock("index.gate", shared=True)
        try:
            lock = self._lock("index.lock", shared=True)
        finally:
            os.close(gate)
        try:
            yield lock
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the right to replace the file. The gate is closed first: nobody else begins to use
        it, and those who do are soon done."""
        with self._locked("index.gate"), self._locked("index.lock"):
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, why: str = _IN_USE) -> Iterator[None]:
        lock = self._lock(name, shared=False, why=why)
        try:
            yield
        finally:
            os.close(lock)

    def _lock(self, name: str, *, shared: bool, why: str = _IN_USE) -> int:
        """A descriptor that holds the lock of a file until it is closed."""
        try:
            fd = self._opened_lock(f"{self._folder}{name}")
        except OSError as error:
            raise Unusable(error.strerror or str(error)) from None
        try:
            if self._patience.persist(partial(_flock, fd, shared=shared)):
                return fd
            raise Unusable(why)
        except BaseException:
            os.close(fd)
            raise

    def _opened_lock(self, path: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            make_directories(self.path.parent)
            return os.open(path, flags, 0o600)

    def _notice(self, line: str) -> None:
        if line not in self.notices:
            self.notices.append(line)


def begin_anywhere(things: Sequence[T]) -> Sequence[T]:
    """The same in a circle from any one on, so that processes with the same to do share it."""
    start = random.randrange(len(things)) if len(things) > 1 else 0  # noqa: S311
    return [*things[start:], *things[:start]]


def count_dead(db: sqlite3.Connection, count: int) -> None:
    """Count docs that are deleted."""
    db.execute("UPDATE meta SET value = value + ? WHERE key = 'dead'", (count,))


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
        if isinstance(error, SYMPTOMS) and not isinstance(error, AwlError):
            raise reason(error) from None
        raise


def _check(db: sqlite3.Connection) -> None:
    """Look for damage that SQLite passes over, in all that is not checked when it is read."""
    found = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    if found != {*_STATEMENTS, "CREATE TABLE sqlite_sequence(name,seq)"}:
        raise Damaged("its schema is not awl's")
    rows.check(db)


def _check_whole(db: sqlite3.Connection, path: Path) -> None:
    """Notice a file that was cut, which SQLite reads on as if zeros followed. The order keeps other
    processes from misleading it: a write-ahead log is emptied only when the file has its pages."""
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    size = pages * db.execute("PRAGMA page_size").fetchone()[0]
    if _times(_beside(path, "-wal")) == _NO_FILE and _times(path)[2] < size:
        raise Damaged("its end is missing")


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
                for statement in _STATEMENTS:
                    db.execute(statement)
                db.execute(
                    "INSERT INTO meta VALUES ('version', 0), ('contents', NULL), ('dead', 0)"
                )
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return db


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _remove(path: Path) -> None:
    """Remove a database. The file first: SQLite passes over what it finds beside an empty one."""
    for suffix in ("", "-wal", "-shm"):
        _beside(path, suffix).unlink(missing_ok=True)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _times(path: Path) -> tuple[int, ...]:
    """Device, inode, size and times of a file; all 0 if there is nothing in it."""
    try:
        found = path.stat()
    except OSError:
        return _NO_FILE
    if not found.st_size:
        return _NO_FILE
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
