"""What a format is: how its files are recognised, read and written.

Reading gives `Facts`, which a header is made of, and an iterator of entries in the order of the
file. The entries have ids (of a `Chain`) and times, but no parents and seqs: each follows the one
before it, and where the source went back there is a `rewind`. They have no turn either: only what
awl itself recorded live has one. Where an entry names others by seq (a condensation, a compaction,
a fork point), it names them by their number among the entries of the source, from 1; 0 is the
`import` entry before them all.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from awl.conversation import BlobRef
from awl.entries import Entry
from awl.state import State

MOST_SHOWN: Final = 20
"""Damaged lines of one source that are named; the others are counted."""

TWICE: Final = "records that were there twice"
"""What is left out of a source whose records have ids, where one comes again."""

_PLURAL: Final = re.compile(r"(ies|s)(?=[ ,]|$)( that are\b| that were\b)?")
_VERBS: Final = {"": "", " that are": " that is", " that were": " that was"}

Keep = Callable[[bytes], BlobRef]
"""Puts a payload beside the log and gives the reference to it."""


def refer(data: bytes) -> BlobRef:
    """The reference to a payload that is kept nowhere."""
    return BlobRef(blob=hashlib.sha256(data).hexdigest(), size=len(data))


class Place(msgspec.Struct, frozen=True):
    """A folder in which a program keeps its sessions.

    `below` the folder that the environment variable `variable` names, else below `default` in the
    home directory, or with `here` in the directory in which awl runs.
    """

    variable: str
    default: str
    below: str = ""
    here: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a session as a whole. What a source does not tell is empty.

    `source` is the format's name; `source_id` the session's id over there; `created` as entries
    have times. `source_path` is the file, or the folder if the session is one. `title` is one that
    stands elsewhere than among the entries.
    """

    source: str
    source_id: str = ""
    source_path: Path
    cwd: str = ""
    provider: str = ""
    model: str = ""
    created: str = ""
    title: str = ""


class Damaged(msgspec.Struct, frozen=True):
    """A line, or another part, of a source that could not be read, and its bytes [start, end).
    `ends`: nothing behind it could be read either."""

    path: Path
    line: int
    start: int
    end: int
    reason: str
    ends: bool = False

    def __str__(self) -> str:
        return f"{self.path}: line {self.line} (bytes {self.start}-{self.end}): {self.reason}"


def counted(count: int, what: str) -> str:
    """A number of what a phrase in the plural names: "2 copies of texts", "1 copy of texts"."""
    return f"{count} {_PLURAL.sub(_singular, what, count=1) if count == 1 else what}"


def _singular(plural: re.Match[str]) -> str:
    ending, verb = plural.groups("")
    return ("y" if ending == "ies" else "") + _VERBS[verb]


@dataclass(slots=True)
class Report:
    """What did not come over. It is complete when the entries were read to their end.

    `damage` names the first damaged parts, `damaged` counts them all. `left_out` counts what awl
    has no place for, by a phrase that fits behind a number ("copies of requests").
    """

    damaged: int = 0
    damage: list[Damaged] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)

    def add(self, damaged: Damaged) -> None:
        """Count a damaged part."""
        self.damaged += 1
        if len(self.damage) < MOST_SHOWN:
            self.damage.append(damaged)

    def lines(self, source: Path) -> list[str]:
        """The report on a source for a person, a line each."""
        found = [
            f"{one}; {'what follows is lost too' if one.ends else 'only this is lost'}"
            for one in self.damage
        ]
        if self.damaged > len(self.damage):
            found.append(f"{source}: {self.damaged - len(self.damage)} more parts are damaged")
        left = [counted(count, what) for what, count in sorted(self.left_out.items()) if count]
        return [*found, f"{source}: left out: {', '.join(left)}"] if left else found


@dataclass(slots=True)
class Imported:
    """A session of another program while it is read.

    `entries` can be walked once; their ids are of a `Chain` of the facts' `source_id`. `size` is
    how many bytes the source has, for progress, and `at` tells how many of them were read.
    """

    facts: Facts
    entries: Iterator[Entry]
    report: Report
    size: int
    at: Callable[[], int]


@dataclass(slots=True)
class Source:
    """A session that is to be written in another format.

    `blob` gives the bytes of a blob and raises `BlobDamaged`. `left_out` is filled while it is
    written, as in `Report`; `blobs` with the blobs that belong beside the file.
    """

    state: State
    blob: Callable[[BlobRef], bytes]
    left_out: Counter[str] = field(default_factory=Counter)
    blobs: dict[str, BlobRef] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Format:
    """Another program's session files.

    Attributes:
        name: as on the command line.
        title: the program's name for people.
        places: where the program keeps its sessions.
        recognise: whether a file is one of its sessions, by what its head holds.
        belongs: whether a file is part of another one's session and none by itself.
        of_subagent: whether a file is a conversation that another session started.
        read: the session in a file; payloads are given to `Keep` before the entry that names them.
            None where awl only writes the format.
        write: the bytes of a file, in pieces; None where awl only reads the format.
        blobs: the folder beside a written file that its blobs go to; None if it has none.
        cannot_carry: what a written file cannot hold, for the documentation.
    """

    name: str
    title: str
    recognise: Callable[[Head], bool] = lambda head: False
    read: Callable[[Path, Keep], Imported] | None = None
    places: tuple[Place, ...] = ()
    belongs: Callable[[Head], bool] = lambda head: False
    of_subagent: Callable[[Head], bool] = lambda head: False
    write: Callable[[Source], Iterator[bytes]] | None = None
    blobs: str | None = None
    cannot_carry: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Head:
    """The beginning of a file: its first bytes, and the JSON objects on its first whole lines."""

    path: Path
    data: bytes
    objects: tuple[dict[str, object], ...]
