"""The rows of `sessions`: what the index knows of each log, with the checksums that tell damage."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

FACTS: Final = (
    *("path", "size", "mtime", "ctime", "dev", "ino", "settled", "mark", "done"),
    *("id", "folded", "cwd", "updated", "checksum"),
)
"""The columns that a look at a log gives. `checksum` is that of `info`, which lists show."""

_encode: Final = msgspec.msgpack.Encoder().encode


def seal(facts: Sequence[Any]) -> int:
    """The checksum of a row's facts, in the order of `FACTS`."""
    return zlib.crc32(_encode(facts))


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """How far the texts of a log were taken in.

    What lies behind `start` is read again, and the docs from `from_doc` on, which it may void, are
    made anew. `next_doc` was never given to a doc; `gone` are the ranges of those that were voided.
    """

    start: int = 0
    from_doc: int = 0
    next_doc: int = 0
    last_seq: int = 0
    gone: tuple[tuple[int, int], ...] = ()

    def voided(self) -> Taken:
        """The same without the docs that are still open."""
        if self.from_doc == self.next_doc:
            return self
        begin = self.from_doc
        gone = self.gone
        if gone and gone[-1][1] == begin:
            begin, gone = gone[-1][0], gone[:-1]
        return msgspec.structs.replace(
            self, from_doc=self.next_doc, gone=(*gone, (begin, self.next_doc))
        )

    def holds(self, doc: int) -> bool:
        """Whether there is a doc of this number."""
        return doc < self.next_doc and not any(begin <= doc < end for begin, end in self.gone)

    def count(self, start: int, end: int) -> int:
        """How many docs there are with numbers from `start` up to `end`."""
        void = sum(max(0, min(e, end) - max(b, start)) for b, e in self.gone)
        return max(0, min(end, self.next_doc) - start) - void


_taken: Final = msgspec.msgpack.Decoder(Taken)


def packed(taken: Taken, key: int, done: int) -> bytes:
    """A mark as the row of this key keeps it, with its checksum."""
    data = _encode(taken)
    return _texts_checksum(data, key, done) + data


def unpacked(texts: bytes | None, key: int, done: int) -> Taken:
    """The mark that a row keeps."""
    check_texts(texts, key, done)
    return Taken() if texts is None else _taken.decode(texts[4:])


def check_texts(texts: bytes | None, key: int, done: int) -> None:
    """Raise an error of SQLite's if a mark is not what was written."""
    fits = done == 0 if texts is None else texts[:4] == _texts_checksum(texts[4:], key, done)
    if not fits:
        raise sqlite3.DatabaseError("a mark's checksum is wrong")


def _texts_checksum(data: bytes, key: int, done: int) -> bytes:
    return zlib.crc32(data, zlib.crc32(b"%d %d" % (key, done))).to_bytes(4, "big")


def check(db: sqlite3.Connection) -> None:
    """Raise an error of SQLite's if a row, or an index of them, is not what was written."""
    if (found := db.execute("PRAGMA integrity_check(sessions)").fetchone()) != ("ok",):
        raise sqlite3.DatabaseError(found[0])
    columns = ", ".join(FACTS)
    query = f"SELECT key, texts, texts_done, info, seal, {columns} FROM sessions"  # noqa: S608
    for key, texts, texts_done, info, sealed, *facts in db.execute(query):
        if seal(facts) != sealed or zlib.crc32(info or b"") != facts[-1]:
            raise sqlite3.DatabaseError("a row's checksum is wrong")
        check_texts(texts, key, texts_done)
