"""SQLite as awl uses it: whole transactions, waits that end, errors that have a meaning."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from awl.errors import AwlError
from awl.index.patience import Patience

T = TypeVar("T")

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
SYMPTOMS: Final = (
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
            if not is_busy(error):
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


def reason(error: Exception) -> Exception:
    """What an error of a database means: `Unusable` now, or `Damaged`."""
    if not isinstance(error, sqlite3.Error):
        return Damaged(f"it holds what awl never wrote: {error!r}")
    if is_busy(error):
        return Unusable("locked by another process")
    if _code(error) in _BARRED:
        return Unusable(str(error))
    return Damaged(str(error))


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def is_busy(error: Exception) -> bool:
    """Whether an error is that another process holds a lock."""
    return isinstance(error, sqlite3.Error) and _code(error) in _BUSY


def connect(path: Path, patience: Patience) -> Connection:
    """A connection to a database, each statement of which is its own transaction unless told."""
    with contextlib.suppress(OSError):  # it may be another user's, or not be there
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:  # a copy that came back; what SQLite keeps beside takes after it
            path.chmod(mode & 0o700)
    db = sqlite3.connect(
        path, timeout=_MOMENT, isolation_level=None, check_same_thread=False, factory=Connection
    )
    db.patience = patience
    try:
        db.execute("PRAGMA page_size = 8192")
        db.execute("PRAGMA journal_mode = WAL")
    except BaseException as error:
        db.close()
        if isinstance(error, UnicodeDecodeError):
            raise sqlite3.DatabaseError("its schema is no text") from None
        raise
    return db


def copied(path: Path) -> sqlite3.Connection:
    """A private copy in memory of a database on a disk that cannot be written, where SQLite opens
    none that has a write-ahead log.

    Raises:
        sqlite3.Error, OSError: it cannot be read.
    """
    import tempfile
    from urllib.parse import quote

    log = path.with_name(path.name + "-wal")
    with contextlib.ExitStack() as left:
        if log.exists() and log.stat().st_size:
            folder = Path(left.enter_context(tempfile.TemporaryDirectory()))
            for file in (path, log):
                (folder / file.name).write_bytes(file.read_bytes())
            name, mode = folder / path.name, "rw"
        else:
            name, mode = path, "ro&immutable=1"
        address = f"file:{quote(os.fsencode(name))}?mode={mode}"
        source = left.enter_context(contextlib.closing(sqlite3.connect(address, uri=True)))
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            source.backup(db)
        except BaseException:
            db.close()
            raise
    return db


def translated(
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
