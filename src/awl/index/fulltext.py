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
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.errors import AwlError
from awl.index.catalog import Catalog, info_of, scope
from awl.index.database import count_dead, dead, writing
from awl.index.texts import Doc, Docs, Needle, Open, holds, needles, snippet, words
from awl.log.scan import scan

Progress = Callable[[int, int], None]
"""Told how many bytes of how many were taken in."""

_PORTION: Final = 1 << 20  # bytes of a log that go into one transaction
_MOST_WORDS: Final = 256  # known words that a piece may occur in, to be looked up one by one
_FEW: Final = 2000  # rows that are sorted at once
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
        unreadable += _advance(db, catalog.root, progress)
        most = None if limit is None else limit + 1
        found = _logged(db, wanted, cwd, most) + _logless(catalog, db, wanted, cwd)
        found.sort(key=lambda one: one[0])
        hits = [hit for _, hit in found]
        more = limit is not None and len(hits) > limit
        return Found(tuple(hits[-limit:] if limit else hits), more, tuple(unreadable))

    return catalog.database.run(work)


# -- taking texts in -----------------------------------------------------------------------------


def _advance(db: sqlite3.Connection, root: Path, progress: Progress | None) -> list[str]:
    """Take in the texts of all logs, as far as the lists know them."""
    _renew(db)
    behind = db.execute(
        "SELECT key, path, texts_done, done FROM sessions WHERE texts_done < done ORDER BY key"
    ).fetchall()
    total = sum(done - start for _, _, start, done in behind)
    before, unreadable = 0, []
    known: dict[str, str] = {}
    for key, path, start, done in behind:
        full = os.fsencode(root) + b"/" + path
        try:
            for at in _advance_log(db, key, full, known):
                if progress is not None:
                    progress(before + at - start, total)
        except OSError as error:
            unreadable.append(f"{os.fsdecode(full)}: {error.strerror or error}")
        before += done - start
    return unreadable


def _advance_log(
    db: sqlite3.Connection, key: int, path: bytes, known: dict[str, str]
) -> Iterator[int]:
    """Take in a log's texts, a portion a transaction. Yields how far it has come."""
    query = "SELECT texts, done FROM sessions WHERE key = ? AND texts_done < done"
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        while (row := db.execute(query, (key,)).fetchone()) is not None:
            before, done = row
            mark = _decode_open(before)
            docs, after, end = _portion(fd, mark, done)
            split = [(doc, words(doc.text)) for doc in docs]
            with writing(db):
                if db.execute(query, (key,)).fetchone() == row:
                    _void(db, key, mark)
                    after = _insert(db, key, mark, after, split, known)
                    db.execute(
                        "UPDATE sessions SET texts = ?, texts_done = ? WHERE key = ?",
                        (msgspec.msgpack.encode(after), end, key),
                    )
            yield end
    finally:
        os.close(fd)


def _portion(fd: int, mark: Open, done: int) -> tuple[list[Doc], Open, int]:
    """The docs of a log's next lines, up to a place where nothing is open or to the end."""
    found: list[Doc] = []
    docs = Docs(mark)
    for line in scan(fd, start=mark.start):
        if line.end >= done:
            break
        found += docs.take(line)
        if line.end - mark.start >= _PORTION and docs.settled:
            _, after = docs.finish(line.end + 1)
            return found, after, line.end + 1
    rest, after = docs.finish(done)
    return found + rest, after, done


def _void(db: sqlite3.Connection, key: int, mark: Open) -> None:
    """Drop the docs of what was open: its lines are read again."""
    if mark.from_doc < mark.next_doc:
        db.execute(
            "DELETE FROM messages WHERE doc BETWEEN ? AND ?",
            (key << 32 | mark.from_doc, key << 32 | mark.next_doc),
        )
        count_dead(db, mark.next_doc - mark.from_doc)


def _insert(
    db: sqlite3.Connection,
    key: int,
    mark: Open,
    after: Open,
    split: list[tuple[Doc, set[str]]],
    known: dict[str, str],
) -> Open:
    """Insert docs under numbers that were never used: the postings of voided ones are still there.
    Returns the mark, whose docs were counted from `mark.from_doc` on, in these numbers."""
    _learn(db, set[str]().union(*(found for _, found in split)) - known.keys(), known)
    first = key << 32 | mark.next_doc
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?)",
        [
            (first + n, doc.seq, doc.entry_id, doc.role, _packed(doc.timestamp), doc.text)
            for n, (doc, _) in enumerate(split)
        ],
    )
    db.executemany(
        "INSERT INTO postings (rowid, terms) VALUES (?, ?)",
        [(first + n, " ".join(map(known.__getitem__, f))) for n, (_, f) in enumerate(split)],
    )
    moved = mark.next_doc - mark.from_doc
    return msgspec.structs.replace(
        after, from_doc=after.from_doc + moved, next_doc=mark.next_doc + len(split)
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
        mark = msgspec.msgpack.encode(Open())
        db.execute("UPDATE sessions SET texts = ?, texts_done = 0", (mark,))
        db.execute("DELETE FROM meta WHERE key = 'dead'")


# -- searching -----------------------------------------------------------------------------------


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
    row = "SELECT doc, seq, entry, role, time, text FROM messages"
    if match is None:
        for session in _sessions(db, cwd):
            for found in db.execute(
                f"{row} WHERE doc BETWEEN ? AND ? ORDER BY doc DESC", _range(session.key)
            ):
                yield session, *found
        return
    for session, doc in _matching(db, match, cwd):
        found = db.execute(f"{row} WHERE doc = ?", (doc,)).fetchone()
        if found is not None:
            yield session, *found


def _match(db: sqlite3.Connection, wanted: tuple[Needle, ...]) -> str | None:
    """The query for `postings`; None where every row must be looked at, empty where none has it."""
    groups = []
    too_long = db.execute("SELECT id FROM terms WHERE term = ''").fetchone()
    for piece in {needle.piece for needle in wanted if needle.piece}:
        numbers = [
            number
            for number, term in db.execute(
                "SELECT rowid, term FROM parts WHERE term GLOB ? LIMIT ?",
                (f"*{piece}*", _MOST_WORDS + 1),
            )
            if piece in term
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
    few = [doc for (doc,) in db.execute(f"{query} LIMIT ?", (match, _FEW + 1))]
    if len(few) <= _FEW:
        keys = {doc >> 32 for doc in few}
        sessions = {session.key: session for session in _sessions(db, cwd, keys)}
        places = [_Place(sessions[doc >> 32], doc) for doc in few if doc >> 32 in sessions]
        yield from sorted(places, reverse=True)
        return
    for session in _sessions(db, cwd):
        within = f"{query} AND rowid BETWEEN ? AND ? ORDER BY rowid DESC"
        for (doc,) in db.execute(within, (match, *_range(session.key))):
            yield session, doc


def _sessions(
    db: sqlite3.Connection, cwd: str | None, keys: set[int] | None = None
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


def _decode_open(mark: bytes) -> Open:
    try:
        return _open_decoder.decode(mark)
    except msgspec.MsgspecError as error:
        raise sqlite3.DatabaseError(f"a mark cannot be read: {error}") from None
