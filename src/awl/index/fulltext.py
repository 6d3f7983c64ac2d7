"""Search in all that was ever said, from texts that have caught up with the logs.

Every entry's text is a row of `messages`; `postings` has the words in it, each as the number it has
in `terms`; `parts` finds the words that a piece of a word occurs in. A needle becomes the words
that hold it, those the rows to look at, and each row is looked at: so what is found is what a plain
search of the texts finds, and the index only spares looking where nothing can be.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.errors import AwlError
from awl.index.catalog import Catalog, info_of, scope
from awl.index.database import begin_anywhere, count_dead, dead, reading, writing
from awl.index.texts import Doc, Docs, Needle, Open, fold, holds, needles, snippet, words
from awl.log.scan import scan

Progress = Callable[[int, int], None]
"""Told how many bytes of how many were taken in."""

_PORTION: Final = 1 << 20  # bytes of a log that go into one transaction
_MOST_WORDS: Final = 256  # known words that a piece may occur in, to be looked up one by one
_TRIGRAM: Final = 3
_FEW: Final = 300  # rows that are sorted at once
_MOST_DEAD: Final = 10_000  # postings that lead nowhere, before the texts are taken in anew
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MILLISECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")

_open_decoder: Final = msgspec.msgpack.Decoder(Open)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in which all of a query occurs. `snippet` is on one line, the hit in « ».

    `role` is user, assistant, system or tool, or for an entry that is no message title, label,
    summary or import. An entry of a conversation without a log has no `entry_id`; its `seq` counts
    messages.
    """

    session_id: str
    seq: int
    entry_id: str
    role: str
    timestamp: str
    snippet: str


class Found(msgspec.Struct, frozen=True):
    """Hits by session, those whose session is newest last. `more`: older ones were left off.
    `unreadable` are the files that were not searched, with why."""

    hits: tuple[Hit, ...]
    more: bool
    unreadable: tuple[str, ...]


class _Session(NamedTuple):
    """A session in order of what happened last."""

    updated: str
    id: str
    path: bytes
    key: int


class _Place(NamedTuple):
    """Where in the order of all results a hit stands."""

    session: _Session
    doc: int


def search(
    catalog: Catalog,
    query: str,
    *,
    cwd: str | None = None,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Found:
    """The entries of a directory's sessions, or of all, in which all of a query occurs.

    Raises:
        AwlError: the query is empty.
    """
    wanted = needles(query)
    if not wanted:
        raise AwlError("there is nothing to search for: give some text")

    def work(db: sqlite3.Connection) -> Found:
        unreadable = catalog.catch_up(db)
        intake = _Intake(db, catalog.root, progress)
        while True:
            with reading(db):  # from here on nothing that others do is seen
                if not (behind := intake.behind()):
                    return _found(catalog, db, wanted, cwd, limit, unreadable + intake.unreadable)
            intake.take_in(behind)

    return catalog.database.run(work)


def rebuild(catalog: Catalog, progress: Progress | None = None) -> None:
    """Build the index anew, with all texts.

    Raises:
        Unusable: another process does the same, it is a newer awl's, or it cannot be written.
    """

    def fill(db: sqlite3.Connection) -> None:
        catalog.catch_up(db)
        intake = _Intake(db, catalog.root, progress)
        while behind := intake.behind():
            intake.take_in(behind)

    catalog.database.rebuild(fill)


# -- taking texts in -----------------------------------------------------------------------------


class _Behind(NamedTuple):
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
    mark: Open
    docs: list[tuple[Doc, set[str]]]
    after: Open
    end: int


class _Intake:
    """Takes in the texts of logs, each as far as the lists knew it when it was first seen behind.

    `unreadable` are the logs that cannot be read, with why.
    """

    def __init__(self, db: sqlite3.Connection, root: Path, progress: Progress | None) -> None:
        self.unreadable: list[str] = []
        self._db = db
        self._root = os.fsencode(root)
        self._progress = progress
        self._goals: dict[int, int] = {}
        self._known: dict[str, str] = {}
        self._taken = 0
        self._total = 0
        _renew(db)

    def behind(self) -> list[_Behind]:
        """The logs whose texts are still to be taken in."""
        query = "SELECT key, path, texts_done, done FROM sessions WHERE texts_done < done"
        found = []
        for row in map(_Behind._make, self._db.execute(query)):
            if row.key not in self._goals:
                self._goals[row.key] = row.done
                self._total += row.done - row.texts_done
            if row.texts_done < self._goals[row.key]:
                found.append(row)
        return found

    def take_in(self, behind: list[_Behind]) -> None:
        """Take in the next lines of each log."""
        for batch in self._batches(behind):
            with writing(self._db):
                for portion in batch:
                    _take_in(self._db, portion, self._known)
            self._taken += sum(portion.end - portion.before[1] for portion in batch)
            if self._progress is not None:
                self._progress(min(self._taken, self._total), self._total)

    def _batches(self, behind: list[_Behind]) -> Iterator[list[_Portion]]:
        """The next portions of logs, as many as make a short transaction."""
        batch: list[_Portion] = []
        size = 0
        for log in begin_anywhere(behind):
            full = self._root + b"/" + log.path
            before = self._db.execute(_TEXTS, (log.key,)).fetchone()
            if before is None or before[1] >= self._goals[log.key]:
                continue
            try:
                portion = _read(full, log, before)
            except OSError as error:
                self._goals[log.key] = 0
                self.unreadable.append(f"{os.fsdecode(full)}: {error.strerror or error}")
                continue
            batch.append(portion)
            size += portion.end - portion.mark.start
            if size >= _PORTION:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


_TEXTS: Final = "SELECT texts, texts_done FROM sessions WHERE key = ?"


def _read(path: bytes, log: _Behind, before: tuple[bytes | None, int]) -> _Portion:
    """A log's next docs, up to a place where nothing is open or to the end."""
    mark, done = _decode_open(before[0]), log.done
    found: list[Doc] = []
    docs = Docs(mark)
    end = done
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        for line in scan(fd, start=mark.start):
            if line.end >= done:
                break
            found += docs.take(line)
            if line.end - mark.start >= _PORTION and docs.settled:
                end = line.end + 1
                break
    finally:
        os.close(fd)
    rest, after = docs.finish(end)
    split = [(doc, words(doc.text)) for doc in found + rest]
    return _Portion(log.key, before, mark, split, after, end)


def _take_in(db: sqlite3.Connection, portion: _Portion, known: dict[str, str]) -> None:
    """Record a portion, unless another process has recorded something meanwhile.

    What was open before is voided, for its lines were read again. Docs get numbers that were never
    used: the postings of voided ones are still there.
    """
    key, before, mark, docs, after, end = portion
    if db.execute(_TEXTS, (key,)).fetchone() != before:
        return
    first = key << 32 | mark.next_doc
    if mark.from_doc < mark.next_doc:
        void = (key << 32 | mark.from_doc, first - 1)
        db.execute("DELETE FROM messages WHERE doc BETWEEN ? AND ?", void)
        count_dead(db, mark.next_doc - mark.from_doc)
    _learn(db, set[str]().union(*(found for _, found in docs)) - known.keys(), known)
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)",
        [
            (first + n, doc.seq, doc.entry_id, doc.role, _packed(doc.timestamp), doc.text)
            for n, (doc, _) in enumerate(docs)
        ],
    )
    db.executemany(
        "INSERT INTO postings (rowid, terms) VALUES (?, ?)",
        [(first + n, " ".join([known[word] for word in f])) for n, (_, f) in enumerate(docs)],
    )
    after = msgspec.structs.replace(
        after,
        from_doc=after.from_doc + mark.next_doc - mark.from_doc,
        next_doc=mark.next_doc + len(docs),
    )
    db.execute(
        "UPDATE sessions SET texts = ?, texts_done = ? WHERE key = ?",
        (msgspec.msgpack.encode(after), end, key),
    )


def _learn(db: sqlite3.Connection, new: set[str], known: dict[str, str]) -> None:
    """Find the numbers of words, and give one to each word that has none."""
    query = "SELECT id FROM terms WHERE term = ?"
    for word in new:
        row = db.execute(query, (word,)).fetchone()
        if row is None:
            number = db.execute("INSERT INTO terms (term) VALUES (?)", (word,)).lastrowid
            db.execute("INSERT INTO parts (rowid, term) VALUES (?, ?)", (number, word))
        else:
            number = row[0]
        known[word] = f"{number:x}"


def _renew(db: sqlite3.Connection) -> None:
    """Begin the texts anew where most postings lead to docs that are gone."""
    if dead(db) < _MOST_DEAD:
        return
    with writing(db):
        if dead(db) < max(_MOST_DEAD, db.execute("SELECT count(*) FROM messages").fetchone()[0]):
            return
        for table in ("messages", "terms"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608
        for table in ("parts", "postings"):
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")  # noqa: S608
        db.execute("UPDATE sessions SET texts = NULL, texts_done = 0")
        db.execute("DELETE FROM meta WHERE key = 'dead'")


# -- searching -----------------------------------------------------------------------------------


def _found(
    catalog: Catalog,
    db: sqlite3.Connection,
    wanted: tuple[Needle, ...],
    cwd: str | None,
    limit: int | None,
    unreadable: list[str],
) -> Found:
    most = None if limit is None else limit + 1
    found = _logged(db, wanted, cwd, most) + _logless(catalog, db, wanted, cwd)
    found.sort(key=lambda one: one[0])
    hits = [hit for _, hit in found]
    more = limit is not None and len(hits) > limit
    return Found(tuple(hits[-limit:] if limit else hits), more, tuple(unreadable))


def _logged(
    db: sqlite3.Connection, wanted: tuple[Needle, ...], cwd: str | None, most: int | None
) -> list[tuple[_Place, Hit]]:
    """The newest hits in the logs, newest first."""
    found: list[tuple[_Place, Hit]] = []
    seen: set[tuple[int, int, str]] = set()
    for session, doc, seq, entry, role, time, text in _candidates(db, wanted, cwd):
        same = (session.key, seq, entry)  # a line that stands in the log twice
        if same in seen or not holds(text, wanted):
            continue
        seen.add(same)
        hit = Hit(
            session_id=session.id,
            seq=seq,
            entry_id=entry,
            role=role,
            timestamp=_unpacked(time),
            snippet=snippet(text, wanted),
        )
        found.append((_Place(session, doc), hit))
        if len(found) == most:
            break
    return found


_Candidate = tuple[_Session, int, int, str, str, int | str, str]


def _candidates(
    db: sqlite3.Connection, wanted: tuple[Needle, ...], cwd: str | None
) -> Iterator[_Candidate]:
    """The rows in which a query may occur, newest first."""
    match = _match(db, wanted)
    if match == "":
        return
    matching = _looked_at(db, wanted, cwd) if match is None else _matching(db, match, cwd)
    query = "SELECT doc, seq, entry, role, time, text FROM messages WHERE doc = ?"
    for session, doc in matching:
        found = db.execute(query, (doc,)).fetchone()
        if found is not None:
            yield session, *found


def _looked_at(
    db: sqlite3.Connection, wanted: tuple[Needle, ...], cwd: str | None
) -> Iterator[tuple[_Session, int]]:
    """The rows in which the longest needle occurs, found by looking at every row."""
    needle = max(wanted, key=lambda one: len(one.text))
    query = "SELECT doc, text FROM messages WHERE doc BETWEEN ? AND ? ORDER BY doc DESC"
    for session in _sessions(db, cwd):
        rows = db.execute(query, _range(session.key))
        if needle.cased:
            found = (doc for doc, text in rows if needle.text in fold(text))
        else:
            found = (doc for doc, text in rows if needle.text in text)
        for doc in found:
            yield session, doc


def _match(db: sqlite3.Connection, wanted: tuple[Needle, ...]) -> str | None:
    """The query for `postings`; None where every row must be looked at, empty where none has it."""
    groups = []
    too_long = db.execute("SELECT id FROM terms WHERE term = ''").fetchone()
    for piece in {needle.piece for needle in wanted if needle.piece}:
        numbers = [
            number
            for (number,) in db.execute(
                # Too short a piece for the index of parts is looked for in every known word.
                "SELECT rowid FROM parts WHERE term GLOB ?1 LIMIT ?2"
                if len(piece) >= _TRIGRAM
                else "SELECT id FROM terms WHERE term GLOB ?1 LIMIT ?2",
                (f"*{piece}*", _MOST_WORDS + 1),
            )
        ]
        if len(numbers) > _MOST_WORDS:
            continue
        numbers += too_long or ()
        if not numbers:
            return ""
        groups.append("(" + " OR ".join(f"{number:x}" for number in numbers) + ")")
    return " AND ".join(groups) or None


def _matching(
    db: sqlite3.Connection, match: str, cwd: str | None
) -> Iterator[tuple[_Session, int]]:
    query = "SELECT rowid FROM postings WHERE postings MATCH ?"
    few = [doc for (doc,) in db.execute(f"{query} ORDER BY rowid LIMIT ?", (match, _FEW + 1))]
    if len(few) <= _FEW:
        docs: dict[int, list[int]] = {}
        for doc in few:
            docs.setdefault(doc >> 32, []).append(doc)
        for session in _sessions(db, cwd, docs):
            for doc in reversed(docs[session.key]):
                yield session, doc
        return
    for session in _sessions(db, cwd):
        within = f"{query} AND rowid BETWEEN ? AND ? ORDER BY rowid DESC"
        for (doc,) in db.execute(within, (match, *_range(session.key))):
            yield session, doc


def _sessions(
    db: sqlite3.Connection, cwd: str | None, keys: Iterable[int] | None = None
) -> Iterator[_Session]:
    """The sessions of a directory, or all, or some of them, newest first."""
    where, values = scope(db, cwd)
    query = f"SELECT updated, id, path, key FROM sessions WHERE {where}"  # noqa: S608
    if keys is not None:
        query += f" AND key IN ({', '.join(map(str, keys))})"
    query += " ORDER BY updated DESC, id DESC, path DESC"
    for row in db.execute(query, values):
        yield _Session(*row)


def _logless(
    catalog: Catalog, db: sqlite3.Connection, wanted: tuple[Needle, ...], cwd: str | None
) -> list[tuple[_Place, Hit]]:
    """The hits in conversations that have no log. Those are few, and are simply looked through."""
    found = []
    for one in catalog.logless(db, cwd):
        session = _Session(info_of(one, None).updated, one.session_id, b"", 0)
        for seq, said in enumerate(one.said, 1):
            if holds(said.text, wanted):
                hit = Hit(
                    session_id=one.session_id,
                    seq=seq,
                    entry_id="",
                    role=said.role,
                    timestamp=said.timestamp,
                    snippet=snippet(said.text, wanted),
                )
                found.append((_Place(session, seq), hit))
    return found


def _range(key: int) -> tuple[int, int]:
    """The numbers of a session's docs."""
    return key << 32, (key + 1 << 32) - 1


def _packed(timestamp: str) -> int | str:
    """A time in fewer bytes, if it is written as awl writes it."""
    if _MILLISECONDS.fullmatch(timestamp):
        try:
            return (datetime.fromisoformat(timestamp) - _EPOCH) // _MILLISECOND
        except ValueError:
            pass
    return timestamp


def _unpacked(time: int | str) -> str:
    if isinstance(time, str):
        return time
    text = (_EPOCH + time * _MILLISECOND).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _decode_open(mark: bytes | None) -> Open:
    try:
        return Open() if mark is None else _open_decoder.decode(mark)
    except msgspec.MsgspecError as error:
        raise sqlite3.DatabaseError(f"a mark cannot be read: {error}") from None
