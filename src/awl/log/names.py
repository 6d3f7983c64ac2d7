"""The names of logs and of the folders they lie in."""

from __future__ import annotations

import functools
import os
import re
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from awl.entries import VERSION, Header

_ID: Final = r"[0-9A-Za-z][0-9A-Za-z._-]{0,99}"
_NAME: Final = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{{3}})Z_({_ID})\.jsonl", re.ASCII
)

_TIME: Final = "0000-00-00T00:00:00.000Z"
_AS_ZERO: Final = str.maketrans("123456789", "0" * 9)
TIMESTAMP: Final = re.compile(re.escape(_TIME).replace("0", r"\d"), re.ASCII)
"""How entries have times: ISO 8601 in UTC, to the millisecond."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_FOLDER: Final = 200  # bytes; file systems allow 255

_MILLISECONDS: Final = tuple(f"{n:03d}Z" for n in range(1000))  # as times end
_second = (-1, "")  # the last second that `now` was asked in, and how it is written


class LogName(msgspec.Struct, frozen=True):
    """What a log's file name says: when the session was created, and its id."""

    timestamp: str
    session_id: str


def now() -> str:
    """The time as entries have it."""
    global _second
    milliseconds = time.time_ns() // 1_000_000
    seconds = milliseconds // 1000
    at, text = _second
    if at != seconds:
        text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        _second = seconds, text
    return text + _MILLISECONDS[milliseconds % 1000]


def are_times(given: Sequence[str]) -> bool:
    """Whether all are times as entries have them: what `TIMESTAMP` tells of each, sooner."""
    return "\n".join(given).translate(_AS_ZERO) == "\n".join([_TIME] * len(given))


def in_utc(timestamp: str) -> str:
    """A logged time as `now` gives it, so that times compare as texts: other programs write theirs
    with an offset, or without milliseconds. What is no time stays as it is."""
    if TIMESTAMP.fullmatch(timestamp):
        return timestamp
    try:
        return written(datetime.fromisoformat(timestamp))
    except (ValueError, OverflowError):
        return timestamp


def written(moment: datetime) -> str:
    """A moment as entries have it; one without a zone is meant in UTC.

    Raises:
        OverflowError: it lies outside what UTC has years for.
    """
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def of_milliseconds(moment: int) -> str:
    """A moment in milliseconds since 1970 as entries have it.

    Raises:
        OverflowError: it lies outside what UTC has years for.
    """
    minute, rest = divmod(moment, 60_000)
    second, milliseconds = divmod(rest, 1000)
    return _minute(minute) + _two_digits(second) + _fraction(milliseconds)


@functools.lru_cache
def _minute(number: int) -> str:
    return (_EPOCH + timedelta(minutes=number)).isoformat()[: len("2026-04-25T17:40:")]


@functools.cache
def _two_digits(number: int) -> str:
    return f"{number:02}"


@functools.cache
def _fraction(milliseconds: int) -> str:
    return f".{milliseconds:03}Z"


def new_session_id() -> str:
    """A UUIDv7 (RFC 9562, section 5.7): 48 bits of Unix time in ms, then random bits."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | int.from_bytes(os.urandom(10))
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def is_session_id(text: str) -> bool:
    """Whether a text can be a session's id: nothing that a shell, a path or a terminal acts on."""
    return re.fullmatch(_ID, text, re.ASCII) is not None


def encode_cwd(cwd: str) -> str:
    """The label of a directory's folder: `/` becomes `--`; a long one ends in a hash."""
    label = cwd.replace(os.sep, "--").replace("\0", "")  # a header from elsewhere may hold anything
    if os.name == "nt":
        label = label.replace(":", "")
    raw = os.fsencode(label)
    if len(raw) > _LONGEST_FOLDER:
        import hashlib  # most do without it

        digest = hashlib.sha256(os.fsencode(cwd)).hexdigest()[:16]
        raw = raw[: _LONGEST_FOLDER - 17] + b"-" + digest.encode()
        # A cut in the middle of a character would make a name that is not UTF-8.
        label = raw.decode("utf-8", "ignore")
    # A name that begins with a dot is never a session folder.
    return "_" + label if label.startswith(".") or not label else label


def log_path(root: Path, cwd: str, timestamp: str, session_id: str) -> Path:
    """Where the log of a new session goes."""
    stamp = re.sub(r"[:./\\]", "-", timestamp)  # from elsewhere it may be anything
    return root / encode_cwd(cwd) / f"{stamp}_{session_id}.jsonl"


def parse_log_name(name: str) -> LogName | None:
    """What a file name says; None when it is not a log's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    day, hour, minute, second, ms, session_id = match.groups()
    return LogName(f"{day}T{hour}:{minute}:{second}.{ms}Z", session_id)


def header_of_name(path: Path) -> Header | None:
    """A header for a log whose first line is damaged, from its file's name; None if that tells no
    id.

    It names no directory and no model: what follows does, and a guess would change with the next
    entry.
    """
    named = parse_log_name(path.name)
    if named is None:
        return None
    return Header(
        version=VERSION,
        id=named.session_id,
        timestamp=named.timestamp,
        cwd="",
        provider="",
        model="",
    )


def cwd_of_label(label: str) -> str:
    """The present directory if a folder's label names it, else nothing: a label is no address."""
    try:
        here = os.path.realpath(Path.cwd())
    except OSError:  # it was removed
        return ""
    return here if encode_cwd(here) == label else ""


def same_directory(one: str, other: str) -> bool:
    """Whether two spellings name one directory: by identity where both exist, else by their
    resolved paths. A directory that is not known is none."""
    if not one or not other:
        return False
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        pass
    try:
        first, second = (os.path.normcase(os.path.realpath(path)) for path in (one, other))
    except (OSError, ValueError):
        return one == other
    return first == second


def expanded(path: str) -> Path:
    """A path as a person gives it: with `~` for a home directory. That of nobody is a name like any
    other."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
