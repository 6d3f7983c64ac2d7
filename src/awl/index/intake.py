"""Taking in what was said: the texts of all logs, as far as the lists know them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.index.catalog import Catalog
from awl.index.database import begin_anywhere, count_dead
from awl.index.rows import Taken, packed, unpacked
from awl.index.segments import (
    KEY,
    Run,
    Segments,
    add_pending,
    begin_anew,
    make_segments,
    read_contents,
    write_docs,
)
from awl.index.sqlite import writing
from awl.index.texts import Doc, Docs
from awl.log.scan import scan

Progress = Callable[[int, int], None]
"""Told how many bytes of how many were taken in."""

_PORTION: Final = 1 << 20  # bytes of logs that go into one transaction
_MOST_DEAD: Final = 10_000  # docs that are gone, before the texts are taken in anew

_TEXTS: Final = "SELECT texts, texts_done FROM sessions WHERE key = ?"


def rebuild(catalog: Catalog, progress: Progress | None = None) -> None:
    """Build the index anew, with all texts.

    Raises:
        Unusable: another process does the same, it is a newer awl's, or it cannot be written.
    """

    def fill(db: sqlite3.Connection) -> None:
        catalog.catch_up(db)
        intake = Intake(db, catalog.root, Segments(db), progress)
        while behind := intake.behind():
            intake.take_in(behind)

    catalog.database.rebuild(fill)


class Behind(NamedTuple):
    """A log of which not all texts were taken in."""

    key: int
    path: bytes
    texts_done: int
    done: int


class _Portion(NamedTuple):
    """Some lines of a log, read. `before` is what the index had of its texts then: the mark, and
    how far they were taken."""

    key: int
    before: tuple[bytes | None, int]
    mark: Taken
    docs: list[Doc]
    after: Taken
    end: int


class Intake:
    """Takes in the texts of logs, each as far as the lists knew it when it was first seen behind.

    `unreadable` are the logs that cannot be read, with why.
    """

    def __init__(
        self, db: sqlite3.Connection, root: Path, segments: Segments, progress: Progress | None
    ) -> None:
        self.unreadable: list[str] = []
        self._db = db
        self._root = os.fsencode(root)
        self._segments = segments
        self._progress = progress
        self._goals: dict[int, int] = {}
        self._lost: set[int] = set()
        self._taken = 0
        self._total = 0

    def behind(self) -> list[Behind]:
        """The logs whose texts are still to be taken in."""
        query = "SELECT key, path, texts_done, done FROM sessions WHERE texts_done < done"
        found = []
        for row in map(Behind._make, self._db.execute(query)):
            if row.key not in self._goals:
                self._goals[row.key] = row.done
                self._total += row.done - row.texts_done
            if row.texts_done < self._goals[row.key]:
                found.append(row)
        return found

    def take_in(self, behind: list[Behind]) -> None:
        """Take in these logs, but for those that another process takes in meanwhile."""
        _renew(self._db)
        self._lost.clear()
        for batch in self._batches(behind):
            with writing(self._db):
                runs: list[Run] = []
                for portion in batch:
                    if (made := _record(self._db, portion)) is None:
                        self._lost.add(portion.key)
                    else:
                        runs += made
                add_pending(self._db, runs)
            self._taken += sum(portion.end - portion.before[1] for portion in batch)
            if self._progress is not None:
                self._progress(min(self._taken, self._total), self._total)
            make_segments(self._db, self._segments, full=True)
        make_segments(self._db, self._segments, full=False)

    def _batches(self, behind: list[Behind]) -> Iterator[list[_Portion]]:
        """Portions of logs, as many as make a short transaction."""
        batch: list[_Portion] = []
        size = 0
        for log in begin_anywhere(behind):
            full = self._root + b"/" + log.path
            before = self._db.execute(_TEXTS, (log.key,)).fetchone()
            if before is None or before[1] >= self._goals[log.key]:
                continue
            try:
                for portion in _read(full, log, before):
                    batch.append(portion)
                    size += portion.end - portion.mark.start
                    if size >= _PORTION:
                        yield batch
                        batch, size = [], 0
                        if log.key in self._lost:
                            break
            except OSError as error:
                self._goals[log.key] = 0
                self.unreadable.append(f"{os.fsdecode(full)}: {error.strerror or error}")
        if batch:
            yield batch


def _read(path: bytes, log: Behind, before: tuple[bytes | None, int]) -> Iterator[_Portion]:
    """The docs of a log that were not taken in, in portions at whose ends nothing is open, but for
    the last."""
    mark = unpacked(before[0], log.key, before[1])
    docs = Docs(mark)
    found: list[Doc] = []
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        for line in scan(fd, start=mark.start):
            if line.end >= log.done:
                break
            found += docs.take(line)
            if line.end - mark.start >= _PORTION and docs.settled:
                portion = _portion(log.key, before, mark, docs, found, line.end + 1)
                yield portion
                mark, found = portion.after, []
                docs = Docs(mark)
                before = packed(mark, log.key, portion.end), portion.end
    finally:
        os.close(fd)
    if before[1] < log.done:
        yield _portion(log.key, before, mark, docs, found, log.done)


def _portion(
    key: int,
    before: tuple[bytes | None, int],
    mark: Taken,
    docs: Docs,
    found: list[Doc],
    end: int,
) -> _Portion:
    """What was open before is voided, for its lines were read again. Docs get numbers that were
    never used: those of voided ones are still in segments."""
    rest, after = docs.finish(end)
    found += rest
    after = msgspec.structs.replace(
        after,
        from_doc=after.from_doc + mark.next_doc - mark.from_doc,
        next_doc=mark.next_doc + len(found),
        gone=mark.voided().gone,
    )
    return _Portion(key, before, mark, found, after, end)


def _record(db: sqlite3.Connection, portion: _Portion) -> list[Run] | None:
    """Record a portion. None if another process has recorded something meanwhile."""
    key, before, mark, docs, after, end = portion
    if db.execute(_TEXTS, (key,)).fetchone() != before:
        return None
    first = key << KEY | mark.next_doc
    if mark.from_doc < mark.next_doc:
        void = (key << KEY | mark.from_doc, first - 1)
        db.execute("DELETE FROM messages WHERE doc BETWEEN ? AND ?", void)
        count_dead(db, mark.next_doc - mark.from_doc)
    db.execute(
        "UPDATE sessions SET texts = ?, texts_done = ? WHERE key = ?",
        (packed(after, key, end), end, key),
    )
    return write_docs(db, first, docs)


def _renew(db: sqlite3.Connection) -> None:
    """Begin the texts anew where most docs are gone."""
    if not _is_mostly_dead(db):
        return
    with writing(db):
        if _is_mostly_dead(db):
            begin_anew(db)
            db.execute("UPDATE sessions SET texts = NULL, texts_done = 0")
            db.execute("UPDATE meta SET value = 0 WHERE key = 'dead'")


def _is_mostly_dead(db: sqlite3.Connection) -> bool:
    (dead,) = db.execute("SELECT value FROM meta WHERE key = 'dead'").fetchone()
    return bool(dead >= _MOST_DEAD) and bool(dead >= read_contents(db).docs() - dead)
