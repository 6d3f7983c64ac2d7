"""Search in all that was ever said, from texts that have caught up with the logs.

A needle becomes the words that hold it, those the docs to look at, and each doc is looked at: so
what is found is what a plain search of the texts finds, and the index only spares looking where
nothing can be.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from awl.errors import AwlError
from awl.index.catalog import Catalog, info_of, scope
from awl.index.intake import Intake, Progress
from awl.index.places import Group, common, size
from awl.index.segments import (
    KEY,
    TOO_LONG,
    Segment,
    Segments,
    Stretch,
    numbers_with,
    read_docs,
)
from awl.index.sqlite import reading
from awl.index.texts import Needle, excerpt, needles
from awl.log.names import in_utc

_MOST_WORDS: Final = 256  # words that a piece may occur in, to be looked up one by one
_FEW: Final = 100  # docs that are sorted at once
_AT_ONCE: Final = 64  # docs that are read at once


class Hit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


_Placed = tuple[_Session, int, Hit]
"""A hit behind what says where in the order of all it stands: its session and the doc."""


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
        segments = catalog.segments
        if segments is None or segments.db is not db:
            segments = catalog.segments = Segments(db)
        intake = Intake(db, catalog.root, segments, progress)
        while True:
            with reading(db):  # from here on nothing that others do is seen
                if not (behind := intake.behind()):
                    segments.refresh()
                    look = _Look(db, segments, wanted, cwd)
                    unreadable += [one for one in intake.unreadable if one not in unreadable]
                    return _found(catalog, look, limit, unreadable)
            intake.take_in(behind)

    return catalog.database.run(work)


def _found(catalog: Catalog, look: _Look, limit: int | None, unreadable: list[str]) -> Found:
    most = None if limit is None else limit + 1
    found = [*islice(look.hits(most or _AT_ONCE), most)]
    found.reverse()
    if others := _logless(catalog, look):
        found = sorted([*found, *others], key=lambda one: one[:2])
    hits = [hit for _, _, hit in found]
    more = limit is not None and len(hits) > limit
    return Found(tuple(hits[-limit:] if limit else hits), more, tuple(unreadable))


class _Look:
    """One look at the texts, for all needles."""

    def __init__(
        self,
        db: sqlite3.Connection,
        segments: Segments,
        wanted: tuple[Needle, ...],
        cwd: str | None,
    ) -> None:
        self.db = db
        self.wanted = wanted
        self.cwd = cwd
        self._segments = segments
        self._longest = max(wanted, key=lambda one: len(one.text))
        self._pieces = self._words()
        self._places: dict[int, list[Group]] = {}

    def hits(self, at_once: int) -> Iterator[_Placed]:
        """What is found in the logs, newest first. So many docs are read at once."""
        seen: set[tuple[int, int, str]] = set()
        candidates = self._candidates()
        while some := list(islice(candidates, min(at_once, _AT_ONCE))):
            docs = read_docs(self.db, [number for _, number in some])
            for session, number in some:
                if (doc := docs.get(number)) is None:
                    continue
                same = (session.key, doc.seq, doc.entry_id)  # a line that is in the log twice
                if same in seen or (snippet := excerpt(doc.text, self.wanted)) is None:
                    continue
                seen.add(same)
                hit = Hit(
                    session_id=session.id,
                    seq=doc.seq,
                    entry_id=doc.entry_id,
                    role=doc.role,
                    timestamp=doc.timestamp,
                    snippet=snippet,
                )
                yield session, number, hit

    def _candidates(self) -> Iterator[tuple[_Session, int]]:
        """The docs to look at, newest first."""
        if not self._pieces:
            return self._all()
        if (few := self._few()) is not None:
            return self._sorted(few)
        return self._many()

    # -- where all must be looked at ---------------------------------------------------------------

    def _all(self) -> Iterator[tuple[_Session, int]]:
        """The docs in which the longest needle occurs, of all that there are."""
        for session in self._sessions():
            first, end = session.key << KEY, session.key + 1 << KEY
            for number in self._looked_at(first, end - first):
                yield session, number

    def _looked_at(self, first: int, count: int) -> Iterator[int]:
        """The docs of so many in which the longest needle occurs, newest first."""
        return numbers_with(self.db, first, first + count - 1, self._longest)

    # -- where words tell --------------------------------------------------------------------------

    def _words(self) -> list[list[int]]:
        """For each needle that has a word, the words that hold it, unless those are too many."""
        found = []
        for piece in {needle.piece for needle in self.wanted if needle.piece}:
            numbers = self._segments.words_with(piece, _MOST_WORDS)
            if numbers is not None:
                found.append([TOO_LONG, *numbers])
        return found

    def _in_segment(self, segment: Segment) -> list[Group]:
        """For each needle, where the words that hold it occur in a segment."""
        if segment.id not in self._places:
            self._places[segment.id] = [
                [
                    found
                    for number in numbers
                    if (number != TOO_LONG or segment.long)
                    and (found := self._segments.read(segment.id, number))
                ]
                for numbers in self._pieces
            ]
        return self._places[segment.id]

    def _few(self) -> list[int] | None:
        """The docs in which all needles may occur; None if they are not few."""
        count = 0
        segments = self._segments.contents.segments
        for segment in reversed(segments):
            count += min(map(size, self._in_segment(segment)))
            if count > _FEW:
                return None
        found: list[int] = []
        for run in self._segments.contents.pending:
            found += self._looked_at(run.first, run.docs)
        for segment in segments:
            starts, firsts = self._segments.places(segment)
            for place in common(self._in_segment(segment), 0, starts[-1]):
                at = bisect_right(starts, place) - 1
                found.append(firsts[at] + place - starts[at])
        return found

    def _sorted(self, docs: list[int]) -> Iterator[tuple[_Session, int]]:
        by_key: dict[int, list[int]] = defaultdict(list)
        for doc in docs:
            by_key[doc >> KEY].append(doc)
        for session in self._sessions(by_key):
            for doc in sorted(by_key[session.key], reverse=True):
                yield session, doc

    def _many(self) -> Iterator[tuple[_Session, int]]:
        for session in self._sessions():
            for stretch in self._segments.of_session(session.key):
                for doc in self._in_stretch(stretch):
                    yield session, doc

    def _in_stretch(self, stretch: Stretch) -> Iterable[int]:
        """The docs of a stretch in which all needles may occur, newest first."""
        first, docs, segment, place = stretch
        if segment is None:
            return self._looked_at(first, docs)
        here = common(self._in_segment(segment), place, place + docs)
        return map((first - place).__add__, here)

    def _sessions(self, keys: Iterable[int] | None = None) -> Iterator[_Session]:
        """The sessions of a directory, or all, or some of them, newest first."""
        where, values = scope(self.db, self.cwd)
        query = f"SELECT updated, id, path, key FROM sessions WHERE {where}"  # noqa: S608
        if keys is not None:
            query += f" AND key IN ({', '.join(map(str, keys))})"
        query += " ORDER BY updated DESC, id DESC, path DESC"
        for row in self.db.execute(query, values):
            yield _Session(*row)


def _logless(catalog: Catalog, look: _Look) -> list[_Placed]:
    """The hits in conversations that have no log. Those are few, and are simply looked through."""
    found: list[_Placed] = []
    for one in catalog.logless(look.db, look.cwd):
        session = _Session(info_of(one, None).updated, one.session_id, b"", 0)
        for seq, said in enumerate(one.said, 1):
            if (snippet := excerpt(said.text, look.wanted)) is not None:
                hit = Hit(
                    session_id=one.session_id,
                    seq=seq,
                    entry_id="",
                    role=said.role,
                    timestamp=in_utc(said.timestamp),
                    snippet=snippet,
                )
                found.append((session, seq, hit))
    return found
