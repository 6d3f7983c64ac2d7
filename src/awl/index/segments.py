"""Which docs hold which words: in segments, each written once and never changed.

A doc is the text of one entry; its number is its session's key and a count. New docs are *pending*:
a search looks at each of them. When they are many they become a segment. Words are numbered in the
order in which they were first met; `words` has them as text, a block of them a row, in which a
piece of a word is looked for. `postings` has, for the words of a segment, the places of the docs
that hold them: some words and their places a row.

`contents` says what there is. It and every row have a checksum, and each row of postings says where
the next one begins, so that nothing is wrong or missing in silence.
"""

from __future__ import annotations

import os
import sqlite3
import time
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from awl.index.places import KINDS, Places
from awl.index.rows import Taken, unpacked
from awl.index.sqlite import Damaged, writing
from awl.index.texts import Doc, Needle, fold, words
from awl.log.names import in_utc

KEY: Final = 32
"""Bits of a doc's number that count within its session."""

TOO_LONG: Final = 0
"""The number of all words that are too long to be told apart."""

_MOST_DOCS: Final = 1 << 15  # of a segment: places are numbers of 16 bits
_MOST_TEXT: Final = 8 << 20  # characters of the texts of a segment
_LOOKED_AT: Final = 128  # docs that may be pending
_TEXT_LOOKED_AT: Final = 1 << 18  # characters of them
_SMALL: Final = 1 << 12  # docs of a segment that is made one with others when there are many
_SMALL_TEXT: Final = 2 << 20
_MOST_SMALL: Final = 16
_CHUNK: Final = 1 << 14  # bytes of places in a row
_BLOCK: Final = 1 << 14  # characters of a block of words that grows no more
_PIECE: Final = 1 << 13  # characters of words that are looked through together
_END: Final = 1 << 32  # no word has this number
_REMEMBERED: Final = 64  # pieces of words whose words are remembered
_MOST_PLACES: Final = 1024  # words whose places in a segment are remembered
_CLAIM: Final = 3.0  # seconds for which one process makes a segment, and no other tries

_LOW: Final = (1 << KEY) - 1
_TEXTS: Final = "SELECT doc, text, checksum FROM messages WHERE doc BETWEEN ? AND ? ORDER BY doc"

_encode: Final = msgspec.msgpack.Encoder().encode


class Run(NamedTuple):
    """Docs with consecutive numbers, and the characters of their texts."""

    first: int
    docs: int
    size: int


class Segment(NamedTuple):
    """What a segment covers, and whether in it are words that are too long."""

    id: int
    docs: int
    size: int
    long: bool


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """What there is of texts. `era` changes when they are begun anew; `words` is the number that
    the next new word gets, `next` that of the next segment. `claimed`: until when a process may be
    making a segment."""

    era: int
    words: int = 1
    next: int = 1
    segments: tuple[Segment, ...] = ()
    pending: tuple[Run, ...] = ()
    claimed: float = 0.0

    def docs(self) -> int:
        """How many docs there are, with those that are gone since."""
        return sum(s.docs for s in self.segments) + sum(run.docs for run in self.pending)


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Words from the row's own up to `before`, where the places of each end, and the places. The
    number of a word has the kind of its places behind it. Those of a frequent word are in several
    chunks, which only the last one ends."""

    before: int
    words: bytes
    ends: bytes
    places: bytes


_contents: Final = msgspec.msgpack.Decoder(Contents)
_chunk: Final = msgspec.msgpack.Decoder(_Chunk)
_about: Final = msgspec.msgpack.Decoder(tuple[int, str, str, str]).decode
_runs: Final = msgspec.msgpack.Decoder(tuple[Run, ...])


def read_contents(db: sqlite3.Connection) -> Contents:
    """What there is."""
    (data,) = db.execute("SELECT value FROM meta WHERE key = 'contents'").fetchone()
    if data is None:
        return Contents(int.from_bytes(os.urandom(7), "big"))
    if data[:4] != crc32(data[4:]).to_bytes(4, "big"):
        raise Damaged("the checksum of the contents is wrong")
    return _contents.decode(data[4:])


def _write_contents(db: sqlite3.Connection, contents: Contents) -> None:
    data = _encode(contents)
    data = crc32(data).to_bytes(4, "big") + data
    db.execute("UPDATE meta SET value = ? WHERE key = 'contents'", (data,))


def begin_anew(db: sqlite3.Connection) -> None:
    """Forget all docs and words."""
    for table in ("messages", "words", "segments", "postings"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608
    db.execute("UPDATE meta SET value = NULL WHERE key = 'contents'")


# -- docs ----------------------------------------------------------------------------------------


def write_docs(db: sqlite3.Connection, first: int, docs: Sequence[Doc]) -> list[Run]:
    """Keep docs under consecutive numbers. They are to be pending."""
    rows = []
    runs = []
    for number, doc in enumerate(docs, first):
        text = doc.text.encode()
        about = _encode((doc.seq, doc.entry_id, doc.role, in_utc(doc.timestamp)))
        checksum = _text_checksum(text, number)
        rows.append((number, about, text, checksum, crc32(about, checksum)))
    db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", rows)
    for at in range(0, len(docs), _MOST_DOCS):
        some = docs[at : at + _MOST_DOCS]
        runs.append(Run(first + at, len(some), sum(len(doc.text) for doc in some)))
    return runs


def add_pending(db: sqlite3.Connection, runs: Iterable[Run]) -> None:
    """Have docs that were written be found."""
    contents = read_contents(db)
    pending = (*contents.pending, *runs)
    _write_contents(db, msgspec.structs.replace(contents, pending=pending))


def numbers_with(db: sqlite3.Connection, first: int, last: int, needle: Needle) -> Iterator[int]:
    """The docs of a session with these numbers in which a needle occurs, newest first; found by
    looking at all."""
    piece, cased, key = needle.text, needle.cased, first >> KEY
    query = f"{_TEXTS} DESC"
    count = 0
    # As `_texts`, without a call for each: these may be all texts that there are.
    for count, (number, text, checksum) in enumerate(db.execute(query, (first, last)), 1):  # noqa: B007
        if crc32(text, number & _LOW ^ key) != checksum:
            raise Damaged("a text's checksum is wrong")
        if piece in (fold(text.decode()) if cased else text.decode()):
            yield number
    taken = _taken(db, key)
    if taken is not None and taken.count(first & _LOW, (last & _LOW) + 1) != count:
        raise Damaged("texts are missing")


def _texts(db: sqlite3.Connection, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    for number, text, checksum in db.execute(_TEXTS, (first, last)):
        if _text_checksum(text, number) != checksum:
            raise Damaged("a text's checksum is wrong")
        yield number, text


def read_docs(db: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Doc]:
    """The docs with these numbers, but for those that are gone.

    Raises:
        Damaged: one is missing that is not gone.
    """
    marks = ", ".join("?" * len(numbers))
    query = f"SELECT doc, about, text, checksum, seal FROM messages WHERE doc IN ({marks})"  # noqa: S608
    found = {row[0]: _unpacked(*row) for row in db.execute(query, numbers)}
    if len(found) < len(numbers):
        _check_gone(db, set(numbers) - found.keys())
    return found


def _unpacked(number: int, about: bytes, text: bytes, checksum: int, seal: int) -> Doc:
    if crc32(text, number & _LOW ^ number >> KEY) != checksum or crc32(about, checksum) != seal:
        raise Damaged("a text's checksum is wrong")
    return Doc(*_about(about), text.decode())


def _text_checksum(text: bytes, number: int) -> int:
    return crc32(text, number & _LOW ^ number >> KEY)


def _check_gone(db: sqlite3.Connection, missing: Iterable[int]) -> None:
    """Docs are gone with their session, or because what was said later voids them."""
    for number in missing:
        taken = _taken(db, number >> KEY)
        if taken is not None and taken.holds(number & _LOW):
            raise Damaged("a text is missing")


def _taken(db: sqlite3.Connection, key: int) -> Taken | None:
    query = "SELECT texts, texts_done FROM sessions WHERE key = ?"
    row = db.execute(query, (key,)).fetchone()
    return None if row is None else unpacked(row[0], key, row[1])


# -- reading -------------------------------------------------------------------------------------


class Stretch(NamedTuple):
    """Docs of one session with consecutive numbers, and where they are: from this place on in a
    segment, or pending, where that is None."""

    first: int
    docs: int
    segment: Segment | None
    place: int


class Segments:
    """What there is, as searches in one database read it. What never changes is kept in memory
    between them. Another database may be a copy that went its own way: it has other segments under
    the same numbers."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.contents = Contents(0)
        self._words: dict[int, str] = {}  # some a piece, by the number of its first
        self._last_block = 1, ""
        self._end = 1
        self._runs: dict[int, tuple[Run, ...]] = {}
        self._asked: dict[tuple[str, int], list[int] | None] = {}
        self._places: dict[tuple[int, int], Places | None] = {}
        self._by_key: dict[int, list[Stretch]] = {}

    def refresh(self) -> None:
        """Bring what is in memory level with the database."""
        contents = read_contents(self.db)
        if contents == self.contents:
            return
        if contents.era != self.contents.era or contents.words < self._end:
            self._words, self._last_block, self._end, self._runs = {}, (1, ""), 1, {}
            self._asked.clear()
            self._places.clear()
        self._by_key = {}
        self._read_words(contents.words)
        ids = {segment.id for segment in contents.segments}
        self._runs = {known: runs for known, runs in self._runs.items() if known in ids}
        for segment in ids - self._runs.keys():
            self._runs[segment] = _read_runs(self.db, segment)
        self.contents = contents

    def _read_words(self, end: int) -> None:
        if self._end == end:
            return
        self._asked.clear()
        self._end, _ = self._last_block  # which may have grown
        self._words = {first: words for first, words in self._words.items() if first < self._end}
        query = "SELECT first, words, checksum FROM words WHERE first >= ? ORDER BY first"
        for first, data, checksum in self.db.execute(query, (self._end,)):
            if first != self._end or crc32(data, first) != checksum:
                raise Damaged("the checksum of words is wrong")
            block = data.decode()
            self._last_block = first, block
            start = 0
            while start < len(block):
                stop = block.find("\n", start + _PIECE) + 1 or len(block)
                self._words[self._end] = block[start:stop]
                self._end += block.count("\n", start, stop)
                start = stop
        if self._end != end:
            raise Damaged("words are missing")

    def words_with(self, piece: str, most: int) -> list[int] | None:
        """The numbers of the words that hold a piece; None if they are more than `most`. Who types
        a query asks for its first words again with every letter: some answers are remembered."""
        if (piece, most) not in self._asked:
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            self._asked[piece, most] = self._words_with(piece, most)
        return self._asked[piece, most]

    def _words_with(self, piece: str, most: int) -> list[int] | None:
        found = []
        for first, some in self._words.items():
            counted, number = 0, first
            at = some.find(piece)
            while at >= 0:
                number += some.count("\n", counted, at)
                found.append(number)
                if len(found) > most:
                    return None
                counted = some.index("\n", at)
                at = some.find(piece, counted)
        return found

    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        found = {"": TOO_LONG}
        for first, some in self._words.items():
            listed = some[:-1].split("\n")
            found.update(zip(listed, range(first, first + len(listed)), strict=True))
        if len(found) != self._end:
            raise Damaged("a word has two numbers")
        return found

    def last_block(self) -> tuple[int, str]:
        """The number of the first word of the last block, and its words."""
        return self._last_block

    def stretches(self) -> Iterator[Stretch]:
        """Where all docs are."""
        for segment in self.contents.segments:
            place = 0
            for run in self._runs[segment.id]:
                yield Stretch(run.first, run.docs, segment, place)
                place += run.docs
        for run in self.contents.pending:
            yield Stretch(run.first, run.docs, None, 0)

    def of_session(self, key: int) -> Sequence[Stretch]:
        """Where the docs of a session are, newest first."""
        if not self._by_key:
            for stretch in sorted(self.stretches(), reverse=True, key=lambda one: one.first):
                self._by_key.setdefault(stretch.first >> KEY, []).append(stretch)
        return self._by_key.get(key, ())

    def read(self, segment: int, word: int) -> Places | None:
        """The places in a segment of the docs that hold a word."""
        if (segment, word) not in self._places:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            self._places[segment, word] = read_places(self.db, segment, word)
        return self._places[segment, word]

    def runs(self, segment: Segment) -> tuple[Run, ...]:
        """The docs of a segment."""
        return self._runs[segment.id]

    def places(self, segment: Segment) -> tuple[list[int], list[int]]:
        """The places at which the runs of a segment begin, and their first docs."""
        runs = self._runs[segment.id]
        return [0, *accumulate(run.docs for run in runs)], [run.first for run in runs]


def _read_runs(db: sqlite3.Connection, segment: int) -> tuple[Run, ...]:
    row = db.execute("SELECT runs, checksum FROM segments WHERE id = ?", (segment,)).fetchone()
    if row is None or crc32(row[0], segment) != row[1]:
        raise Damaged("the checksum of a segment is wrong")
    return _runs.decode(row[0])


def read_places(db: sqlite3.Connection, segment: int, word: int) -> Places | None:
    """The places in a segment of the docs that hold a word."""
    row = db.execute(
        "SELECT word, part, data, checksum FROM postings WHERE segment = ? AND word <= ?"
        " ORDER BY word DESC, part DESC LIMIT 1",
        (segment, word),
    ).fetchone()
    if row is None:
        raise Damaged("words of a segment are missing")
    chunk = _read_chunk(segment, *row)
    if chunk.before <= word:
        raise Damaged("words of a segment are missing")
    numbers = array("I", chunk.words)
    at = bisect_left(numbers, word << KINDS)
    if at == len(numbers) or numbers[at] >> KINDS != word:
        return None
    kind = numbers[at] & (1 << KINDS) - 1
    if row[1]:
        return Places(kind, _joined(db, segment, word, row[1]))
    ends = array("H", chunk.ends)
    start = ends[at - 1] if at else 0
    return Places(kind, chunk.places[start : ends[at]])


def _joined(db: sqlite3.Connection, segment: int, word: int, last: int) -> bytes:
    """The places of a word that are in several chunks."""
    query = "SELECT part, data, checksum FROM postings WHERE segment = ? AND word = ? ORDER BY part"
    found = [
        (part, _read_chunk(segment, word, part, data, checksum).places)
        for part, data, checksum in db.execute(query, (segment, word))
    ]
    if [part for part, _ in found] != list(range(last + 1)):
        raise Damaged("places are missing")
    return b"".join(places for _, places in found)


def _read_chunk(segment: int, word: int, part: int, data: bytes, checksum: int) -> _Chunk:
    if _chunk_checksum(data, segment, word, part) != checksum:
        raise Damaged("the checksum of places is wrong")
    return _chunk.decode(data)


def _chunk_checksum(data: bytes, segment: int, word: int, part: int) -> int:
    return crc32(data, crc32(b"%d %d %d" % (segment, word, part)))


# -- making --------------------------------------------------------------------------------------


def make_segments(db: sqlite3.Connection, segments: Segments, *, full: bool) -> None:
    """Make segments of what is pending, unless it is little; with `full`, only of full size. While
    another process does, there is nothing to do: what is pending is found all the same."""
    most_docs, most_text = (_MOST_DOCS, _MOST_TEXT) if full else (_LOOKED_AT, _TEXT_LOOKED_AT)
    left = len(read_contents(db).pending)
    while left > 0:
        docs, size = _extent(read_contents(db).pending)
        if docs <= most_docs and size <= most_text:
            return
        claim = time.time() + _CLAIM
        with writing(db):
            contents = read_contents(db)
            if 0 < contents.claimed - time.time() <= _CLAIM:
                return
            _write_contents(db, msgspec.structs.replace(contents, claimed=claim))
        segments.refresh()
        if not (taken := _make_segment(db, segments)):
            return
        left -= taken


def _make_segment(db: sqlite3.Connection, segments: Segments) -> int:
    """Make one segment of what is pending first, and of small ones if there are many. Returns how
    many runs are pending no more; 0 if another process was quicker."""
    before = segments.contents
    pending = _portion(before.pending)
    small = sorted(
        (s for s in before.segments if s.docs < _SMALL and s.size < _SMALL_TEXT),
        key=lambda segment: segment.docs,
    )
    merged: list[Segment] = []
    runs = pending
    if len(small) >= _MOST_SMALL:
        for segment in small:
            more = [*runs, *segments.runs(segment)]
            if len(_portion(more)) < len(more):
                break
            merged.append(segment)
            runs = more
    runs, found = _inverted(db, runs)
    numbers = segments.numbers()
    new = [word for word in found if word not in numbers]
    numbers.update(zip(new, range(before.words, before.words + len(new)), strict=True))
    first, block = segments.last_block()
    docs, size = _extent(runs)
    made = Segment(before.next, docs, size, "" in found)
    rows = [
        (made.id, word, part, data, _chunk_checksum(data, made.id, word, part))
        for word, part, data in _chunks({numbers[word]: found[word] for word in found})
    ]
    with writing(db):
        now = read_contents(db)
        if (now.era, now.words, now.next) != (before.era, before.words, before.next) or (
            now.pending[: len(pending)] != tuple(pending)
        ):
            return 0
        for segment in merged:
            db.execute("DELETE FROM segments WHERE id = ?", (segment.id,))
            db.execute("DELETE FROM postings WHERE segment = ?", (segment.id,))
        if new:
            if len(block) >= _BLOCK:
                first, block = before.words, ""
            data = (block + "\n".join(new) + "\n").encode()
            row = (first, data, crc32(data, first))
            db.execute("INSERT OR REPLACE INTO words VALUES (?, ?, ?)", row)
        data = _encode(runs)
        row = (made.id, data, crc32(data, made.id))
        db.execute("INSERT INTO segments VALUES (?, ?, ?)", row)
        db.executemany("INSERT INTO postings VALUES (?, ?, ?, ?, ?)", rows)
        kept = [segment for segment in now.segments if segment not in merged]
        _write_contents(
            db,
            Contents(
                now.era,
                words=before.words + len(new),
                next=now.next + 1,
                segments=(*kept, made) if docs else tuple(kept),
                pending=now.pending[len(pending) :],
            ),
        )
    return len(pending)


def _extent(runs: Iterable[Run]) -> tuple[int, int]:
    docs = size = 0
    for run in runs:
        docs, size = docs + run.docs, size + run.size
    return docs, size


def _portion(runs: Sequence[Run]) -> list[Run]:
    """As many of these as make a segment, but one at least."""
    docs = size = 0
    for at, run in enumerate(runs):
        docs, size = docs + run.docs, size + run.size
        if at and (docs > _MOST_DOCS or size > _MOST_TEXT):
            return list(runs[:at])
    return list(runs)


def _inverted(
    db: sqlite3.Connection, runs: Iterable[Run]
) -> tuple[list[Run], dict[str, array[int]]]:
    """Where each word occurs in the docs that are not gone, and the runs that are not gone."""
    found: dict[str, array[int]] = defaultdict(partial(array, "H"))
    kept = []
    shift = 0  # from the number of a doc to its place
    for run in runs:
        last = run.first + run.docs - 1
        seen = set()
        for number, text in _texts(db, run.first, last):
            seen.add(number)
            place = shift + number - run.first
            for word in words(text.decode()):
                found[word].append(place)
        if len(seen) < run.docs:
            _check_gone(db, set(range(run.first, last + 1)) - seen)
        if seen:
            kept.append(run)
            shift += run.docs
    return kept, found


def _chunks(found: dict[int, array[int]]) -> Iterator[tuple[int, int, bytes]]:
    """The rows of a segment's postings: word, part and data."""
    begin = 0
    group: list[int] = []
    ends = array("H")
    pieces: list[bytes] = []

    def chunk(before: int) -> tuple[int, int, bytes]:
        words = array("I", group).tobytes()
        return begin, 0, _encode(_Chunk(before, words, ends.tobytes(), b"".join(pieces)))

    for word in sorted(found):
        places = Places.of(found[word])
        data, number = places.data, word << KINDS | places.kind
        size = ends[-1] if ends else 0
        if group and size + len(data) > _CHUNK:
            yield chunk(word)
            begin, group, ends, pieces, size = word, [], array("H"), [], 0
        if len(data) <= _CHUNK:
            group.append(number)
            ends.append(size + len(data))
            pieces.append(data)
            continue
        if begin < word:
            yield chunk(word)  # of no words: it says where they begin
        for part, at in enumerate(range(0, len(data), _CHUNK)):
            before = word if at + _CHUNK < len(data) else word + 1
            piece = _Chunk(before, array("I", [number]).tobytes(), b"", data[at : at + _CHUNK])
            yield word, part, _encode(piece)
        begin = word + 1
    yield chunk(_END)
