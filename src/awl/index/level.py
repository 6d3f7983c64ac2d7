"""Bringing the index level with the logs: the one way by which anything gets into it."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from awl.entries import Header
from awl.errors import AwlError
from awl.index.conversations import Conversations
from awl.index.database import begin_anywhere, count_dead
from awl.index.disk import Disk, Log, is_settled
from awl.index.info import Summary
from awl.index.rows import FACTS, seal
from awl.index.sqlite import Unusable, writing
from awl.index.summary import Changed, Mark, fits, read_on, stands
from awl.log.durable import CLOEXEC, sync
from awl.log.line import BadLine, decode
from awl.log.scan import BOM, read_at

_MANY: Final = 32  # logs that are not sure to be on disk: all of the system is synced instead
_WRITTEN_OUT: Final = 120_000_000_000  # ns after which a system has written out what it holds back
_BATCH: Final = 0.1  # seconds of reading that go into one transaction
_GLANCES: Final = 16  # logs whose first line is read to know what session they are
_LONGEST_HEADER: Final = 1 << 14  # bytes of a line that is read for that
_TRIES: Final = 3  # readings of a log that changes under them
_TICK: Final = 2_000_000_000  # ns by which the times of files may be behind the clock

_ROWS: Final = "SELECT key, path, size, mtime, ctime, dev, ino, settled, mark FROM sessions"
_IDS: Final = "SELECT path, size, mtime, ctime, dev, ino, settled, id FROM sessions"
_mark_decoder: Final = msgspec.msgpack.Decoder(Mark)


class _Row(NamedTuple):
    """What the index knows of a log. `settled`: a later change of it is sure to show."""

    key: int
    log: Log
    settled: bool
    mark: bytes


class _Read(NamedTuple):
    """What reading a log gave. `before` is the row it goes on from; None when it was read anew."""

    log: Log
    settled: bool
    mark: Mark
    summary: Summary | None
    before: _Row | None


class Level:
    """One catch-up of a database with the logs below a root.

    `unreadable` are the folders and logs that cannot be read, with why; `fault` says why there are
    no numbers, if there are none.
    """

    def __init__(
        self, db: sqlite3.Connection, root: Path, disk: Disk, conversations: Conversations
    ) -> None:
        self.unreadable = list(disk.unreadable)
        self.fault = ""
        self._db = db
        self._root = os.fsencode(root)
        self._disk = disk
        self._conversations = conversations
        # What was changed before this is on disk. To a private database that does not matter.
        lasting = bool(db.execute("PRAGMA database_list").fetchone()[2])
        self._synced = time.time_ns() - _WRITTEN_OUT if lasting else sys.maxsize
        meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
        self._version: int = meta["version"]
        self._rows = {row.log.path: row for row in map(_row, db.execute(_ROWS))}
        self._drop_gone()
        self._take_in_stale()
        self._number(meta.get("instance"))
        self._vouch()

    def _drop_gone(self) -> None:
        missing = self._rows.keys() - {seen[0] for seen in self._disk.logs}
        if not missing:
            return
        with writing(self._db):
            # One that is there now was born after the look at the disk, and taken in by another
            # process, which may be searching it.
            for path in missing:
                if not self._is_there(path):
                    _forget(self._db, self._rows[path].key)
            self._count()

    def _is_there(self, path: bytes) -> bool:
        try:
            return Path(os.fsdecode(self._root + b"/" + path)).exists()
        except OSError:
            return False

    def _take_in_stale(self) -> None:
        stale = [
            Log(*seen)
            for seen in self._disk.logs
            if (row := self._rows.get(seen[0])) is None or not row.settled or row.log != seen
        ]
        if sys.platform == "linux" and sum(log.ctime >= self._synced for log in stale) > _MANY:
            begun = time.time_ns() - _TICK
            os.sync()  # a sync of each log costs thousands of times what reading it does
            self._synced = begun
        for batch in self._batches(stale):
            with writing(self._db):
                for read in batch:
                    self._take_in(read)
                self._count()

    def _take_in(self, read: _Read) -> None:
        """Record what was read of a log. If another process has recorded something else meanwhile,
        the log is read once more: that process may have read it before this look began."""
        path = read.log.path
        found = _found(self._db, path)
        if found != self._rows.get(path):
            if found is not None and (found.log, found.mark) == (read.log, _encode(read.mark)):
                return
            self._rows.pop(path, None)
            if found is not None:
                self._rows[path] = found
            again = self._try(read.log)
            if again is None:
                return
            read = again
        _record(self._db, read, found)

    def _batches(self, stale: list[Log]) -> Iterator[list[_Read]]:
        """The logs that must be read, read, in portions that make short transactions."""
        batch: list[_Read] = []
        deadline = time.monotonic() + _BATCH
        for log in begin_anywhere(stale):
            if log.name is None or self._is_taken_in(log):
                continue
            if (read := self._try(log)) is not None:
                batch.append(read)
            if time.monotonic() >= deadline:
                yield batch
                batch, deadline = [], time.monotonic() + _BATCH
        if batch:
            yield batch

    def _is_taken_in(self, log: Log) -> bool:
        """Whether another process has meanwhile taken in just this."""
        row = _found(self._db, log.path)
        return row is not None and row.settled and row.log == log

    def _try(self, log: Log) -> _Read | None:
        """What a log says; None if it is gone or cannot be read."""
        try:
            return self._read(log)
        except FileNotFoundError:
            return None
        except OSError as error:
            where = os.fsdecode(self._root + b"/" + log.path)
            self.unreadable.append(f"{where}: {error.strerror or error}")
            return None

    def _read(self, log: Log) -> _Read:
        path = Path(os.fsdecode(self._root + b"/" + log.path))
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
        fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe must keep nobody waiting
        try:
            for _ in range(_TRIES):
                row = self._rows.get(log.path)
                read = _read_open(fd, path, log.path, row, self._synced)
                if read is not None:
                    return read
        finally:
            os.close(fd)
        raise OSError("it is changed by another program all the time")

    def _number(self, known_instance: object) -> None:
        """Give numbers to the sessions that have none."""
        db = self._db
        try:
            if not db.execute("SELECT 1 FROM sessions WHERE info IS NOT NULL LIMIT 1").fetchone():
                return
            instance = self._conversations.instance()
            if instance != known_instance:
                with writing(db):
                    db.execute("UPDATE sessions SET number = NULL")
                    _set(db, "instance", instance)
            given = db.execute(
                "SELECT DISTINCT number, id FROM sessions WHERE number > ?",
                (self._conversations.highest(),),
            ).fetchall()
            if given:  # a number is never used twice, also where a backup knows nothing of it
                self._conversations.remember(given)
            ids = db.execute("SELECT id FROM sessions WHERE number IS NULL AND info IS NOT NULL")
            if missing := [session_id for (session_id,) in ids]:
                numbers = self._conversations.numbers(missing)
                if len(numbers) < len({*missing}):
                    where = self._conversations.path
                    self.fault = f"new sessions get no numbers: {where} cannot be written"
                with writing(db):
                    db.executemany(
                        "UPDATE sessions SET number = ?"
                        " WHERE folded = ? AND id = ? AND info IS NOT NULL",
                        [(number, known.lower(), known) for known, number in numbers.items()],
                    )
        except AwlError as error:
            self.fault = str(error)
            with writing(db):
                db.execute("UPDATE sessions SET number = NULL")

    def _vouch(self) -> None:
        """Note that the index is level with the logs as they were seen: the next look that sees
        the same need not compare. Only where nobody else wrote since this began."""
        if self.unreadable != self._disk.unreadable or self.fault:
            return
        with writing(self._db):
            if _counter(self._db) != self._version:
                return
            rows = {row.log: row.settled for row in map(_row, self._db.execute(_ROWS))}
            logs = [log for log in (Log(*seen) for seen in self._disk.logs) if log.name is not None]
            if len(rows) == len(logs) and all(rows.get(log) for log in logs):
                digest = self._disk.digest(self._conversations.identity())
                _set(self._db, "seen", digest)

    def _count(self) -> None:
        """Count a change, so that nobody vouches for what they did not see."""
        found = _counter(self._db)
        self._version = found + 1 if found == self._version else -1
        _set(self._db, "version", found + 1)
        _set(self._db, "seen", b"")


def glance(db: sqlite3.Connection, root: Path, disk: Disk) -> list[tuple[str, bytes]] | None:
    """The ids of all logs and their paths, in order, from an index that need not be level: of logs
    that changed, only the first line is read. None where they are many, or one has no such line."""
    rows = {row[0]: row for row in db.execute(_IDS)}
    ids = []
    changed = []
    for seen in disk.logs:
        row = rows.get(seen[0])
        if row is not None and row[1:-2] == seen[1:] and row[-2]:
            ids.append((row[-1], seen[0]))
        elif Log(*seen).name is not None:
            changed.append(seen[0])
    if len(changed) > _GLANCES:
        return None
    for path in changed:
        header = _header(os.fsencode(root) + b"/" + path)
        if header is None:
            return None
        ids.append((header.id, path))
    return sorted(ids)


def _header(path: bytes) -> Header | None:
    """What the first line of a log says; None if that takes more than a glance."""
    try:
        fd = os.open(path, os.O_RDONLY | CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    try:
        line, newline, _ = read_at(fd, _LONGEST_HEADER, 0).partition(b"\n")
        found = decode(line.removeprefix(BOM)) if newline else None
    except (OSError, BadLine):
        return None
    finally:
        os.close(fd)
    return found if isinstance(found, Header) else None


def _read_open(fd: int, path: Path, name: bytes, row: _Row | None, synced: int) -> _Read | None:
    """Read an open log on from its row; None if it changed meanwhile. A lasting index takes in no
    log before that is on disk: it must never know more than what a power cut leaves. What was
    changed before `synced` is."""
    now = time.time_ns()
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("not a regular file")
    log = Log(name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)
    before = _decode_mark(row.mark) if row else None
    if before is not None and not fits(fd, before):
        before = None
    try:
        summary, mark = read_on(fd, path, before)
    except Changed:
        return None
    if log.ctime >= synced and (before is None or mark.end != before.end):
        try:
            sync(fd)
        except OSError as error:
            raise Unusable(f"{path} cannot be synced: {error.strerror or error}") from None
    if os.fstat(fd).st_size < mark.end or not stands(fd, mark):
        return None
    return _Read(log, is_settled(log.mtime, log.ctime, now), mark, summary, row if before else None)


def _row(found: tuple[Any, ...]) -> _Row:
    key, *log, settled, mark = found
    return _Row(key, Log(*log), bool(settled), mark)


def _encode(mark: Mark) -> bytes:
    return msgspec.msgpack.encode(mark)


def _decode_mark(mark: bytes) -> Mark:
    try:
        return _mark_decoder.decode(mark)
    except msgspec.MsgspecError as error:
        raise sqlite3.DatabaseError(f"a mark cannot be read: {error}") from None


def _found(db: sqlite3.Connection, path: bytes) -> _Row | None:
    found = db.execute(f"{_ROWS} WHERE path = ?", (path,)).fetchone()
    return None if found is None else _row(found)


def _record(db: sqlite3.Connection, read: _Read, known: _Row | None) -> None:
    """Record what was read of a log in place of what was known."""
    summary = read.summary
    named = read.log.name
    assert named is not None
    session_id = summary.id if summary else named.session_id
    info = msgspec.msgpack.encode(summary) if summary else None
    values = {
        "path": read.log.path,
        "size": read.log.size,
        "mtime": read.log.mtime,
        "ctime": read.log.ctime,
        "dev": read.log.dev,
        "ino": read.log.ino,
        "settled": int(read.settled),
        "mark": _encode(read.mark),
        "done": read.mark.end,
        "id": session_id,
        "folded": session_id.lower(),
        "cwd": summary.cwd if summary else b"",
        "updated": summary.updated if summary else "",
        "checksum": zlib.crc32(info or b""),
    }
    values |= {"info": info, "seal": seal([values[name] for name in FACTS])}
    if known is not None and read.before is not None:
        columns = ", ".join(f"{name} = :{name}" for name in values)
        db.execute(
            f"UPDATE sessions SET {columns},"  # noqa: S608
            " number = CASE WHEN id = :id THEN number END WHERE key = :key",
            {**values, "key": known.key},
        )
        return
    if known is not None:
        _forget(db, known.key)
    names = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    db.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", values)  # noqa: S608


def _forget(db: sqlite3.Connection, key: int) -> None:
    """Drop a log's rows. Its docs stay in segments: its key is never given again."""
    db.execute("DELETE FROM sessions WHERE key = ?", (key,))
    docs = (key << 32, (key + 1 << 32) - 1)
    if deleted := db.execute("DELETE FROM messages WHERE doc BETWEEN ? AND ?", docs).rowcount:
        count_dead(db, deleted)


def _counter(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])


def _set(db: sqlite3.Connection, key: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))
