"""Finding sessions: what a file is, what a folder holds, where a program keeps its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from json import detect_encoding
from pathlib import Path
from typing import Final

import msgspec

from awl.errors import AwlError
from awl.formats import NAMES, Format, find
from awl.formats.format import Head
from awl.formats.records import head_of

_SUFFIXES: Final = (".jsonl", ".json", ".jsonl.zst")


class NotRecognised(AwlError):
    """A file is no session of any format that awl knows."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} is no session that awl can import: {reason}")


class Found(msgspec.Struct, frozen=True):
    """A session of another program: its file, and the format's name."""

    path: Path
    format: str


class OfSubagent(msgspec.Struct, frozen=True):
    """A conversation in a file of its own that another session started."""

    path: Path


def recognise(path: Path) -> Format:
    """The format of a file, by its content.

    Raises:
        NotRecognised: it is of none.
        AwlError, OSError: it cannot be read.
    """
    return _format_of(head_of(path))


def _format_of(head: Head) -> Format:
    path = head.path
    for name in NAMES:
        known = find(name)
        if known.recognise(head):
            return known
    if not head.data.strip():
        raise NotRecognised(path, "it is empty")
    if not head.data.strip(b"\0"):
        raise NotRecognised(path, "it holds zero bytes alone")
    encoding = detect_encoding(head.data).upper()
    if not encoding.startswith("UTF-8"):
        name = encoding.replace("-LE", "LE").replace("-BE", "BE")
        advice = f"rewrite it with `iconv -f {name} -t UTF-8` and import the result"
        raise NotRecognised(path, f"it is in {name}, not in UTF-8; {advice}")
    raise NotRecognised(path, "its content is of no format that is known")


def sessions_in(
    folder: Path, only: Format | None = None
) -> Iterator[Found | NotRecognised | OfSubagent]:
    """The sessions below a folder, in order of name; and what looks like one and is none.

    With `only`, nothing but sessions of that format. Links to folders are not followed, and what
    awl keeps for itself is passed over.
    """
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".awl")
        for name in sorted(files):
            path = Path(place, name)
            if name.startswith(".") or not name.endswith(_SUFFIXES) or not path.is_file():
                continue
            try:
                head = head_of(path)
            except (AwlError, OSError) as error:
                yield NotRecognised(path, str(getattr(error, "strerror", None) or error))
                continue
            of = next((known for known in map(find, NAMES) if known.of_subagent(head)), None)
            if of is not None:
                if only in (None, of):
                    yield OfSubagent(path)
                continue
            if any(find(known).belongs(head) for known in NAMES):
                continue
            try:
                found = _format_of(head)
            except NotRecognised as error:
                if only is None:
                    yield error
                continue
            if only is None or found == only:
                yield Found(path, found.name)


def places_of(known: Format, environ: Mapping[str, str], home: Path) -> list[Path]:
    """The folders in which a program keeps its sessions, whether they exist or not."""
    found: dict[Path, None] = {}
    for place in known.places:
        named = environ.get(place.variable) if place.variable else None
        usual = Path.cwd() if place.here else home
        base = Path(named).expanduser() if named else usual / place.default
        found[base / place.below] = None
    return list(found)
