"""Reading files of JSON lines that another program wrote, whole or damaged, as a stream.

A damaged line costs itself. Memory is bounded by the longest line. Sources are opened for reading
alone, and their times stay as they are.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import BufferedReader, BytesIO
from itertools import accumulate, chain, compress, filterfalse
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, Final, Generic, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from awl.errors import AwlError
from awl.formats.format import Damaged, Head, Report
from awl.log.line import loads, without_lone_surrogates
from awl.log.names import TIMESTAMP, are_times, of_milliseconds, written
from awl.log.scan import BOM

T = TypeVar("T", bound=msgspec.Struct)

_is_time: Final = TIMESTAMP.fullmatch

LONGEST: Final = 256 << 20
"""Bytes of a line; a longer one is damage."""

_BLOCK: Final = 128 << 10
_HEAD: Final = 64 << 10
_LARGEST_HEAD: Final = 48 << 20
"""Bytes of a first line: it may be a prompt with pictures, of which providers take 32 MB."""
_MOST_OBJECTS: Final = 32


class NoFile(AwlError):
    """What is to be read is no file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is no regular file")


def check_is_file(path: Path) -> None:
    """Check that something can be read without waiting.

    Raises:
        NoFile: it is a pipe or a device.
        OSError: it is not there.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # a directory is told by the opening
        raise NoFile(path)


def open_source(path: Path) -> BufferedReader:
    """Open a source for reading; what is compressed (`.zst`) reads as what it holds.

    Raises:
        OSError: it cannot be read.
        NoFile: it is a pipe or a device, which may have no end.
        NoZstandard: it is compressed and nothing here can read that.
    """
    check_is_file(path)
    if is_compressed(path):
        from awl.formats.zst import open_zst  # few sources are

        return open_zst(path)
    return BufferedReader(path.open("rb", buffering=0), 1 << 16)


def is_compressed(path: Path) -> bool:
    """Whether a source's bytes are others than those that are read of it."""
    return path.suffix == ".zst"


def head_of(path: Path) -> Head:
    """The beginning of a file: at least its first whole line, if that is not endless. Of a damaged
    one, what stands before the damage.

    Raises:
        OSError: nothing of it can be read.
    """
    whole = False
    with open_source(path) as file:
        data, damage = read_until_damage(file, _HEAD)
        if damage is None:
            with contextlib.suppress(OSError):
                if b"\n" not in data:
                    data += file.readline(_LARGEST_HEAD)
                whole = not file.read(1)
        elif not data:
            raise damage
    lines = data.removeprefix(BOM).split(b"\n")
    if not whole:
        lines.pop()
    objects = []
    for line in lines:
        found = lenient(line)
        if isinstance(found, dict):
            objects.append(found)
            if len(objects) == _MOST_OBJECTS:
                break
    return Head(path, data, tuple(objects))


def read_until_damage(file: BufferedReader, size: int) -> tuple[bytes, OSError | None]:
    """Up to so many bytes of a file; and why no more of it can be read, if it cannot."""
    pieces: list[bytes] = []
    try:
        while size > 0 and (piece := file.read1(size)):
            pieces.append(piece)
            size -= len(piece)
    except OSError as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


def lenient(line: bytes) -> object:
    """What a line says, None where it is no JSON."""
    try:
        return msgspec.json.decode(line)
    except Exception:  # noqa: S110  the tolerant decoder has the last word
        pass
    try:
        return loads(line.decode())
    except (ValueError, RecursionError):
        return None


class Lines:
    """The lines of a file, many at a time.

    `number`, `start` and `end` are those of the line that was given last, or of the last ones where
    they were given together: its number from 1, and the bytes that it or they have.
    """

    def __init__(self, path: Path, report: Report) -> None:
        self.path = path
        self.report = report
        self.number = 0
        self.start = 0
        self.end = 0

    def blocks(self) -> Iterator[list[bytes]]:
        """The lines in order, newlines included. Those of a block are to be `passed` before the
        next is taken."""
        begun = b""  # a line whose end was not read yet
        with open_source(self.path) as file:
            try:
                while data := file.read1(_BLOCK):
                    if b"\n" not in data:
                        begun += data
                        begun += file.readline(LONGEST - len(begun))
                        if len(begun) >= LONGEST and begun[-1:] != b"\n":
                            self._pass_over(len(begun), file)
                            begun = b""
                        lines = [begun] if begun else []
                    else:
                        lines = BytesIO(data).readlines()
                        lines[0] = begun + lines[0]
                    begun = b"" if not lines or lines[-1][-1:] == b"\n" else lines.pop()
                    if lines:
                        yield lines
            except OSError as error:
                self.passed(0)
                self.bad(f"cannot be read from here on: {error.strerror or error}", ends=True)
                return
        if begun:
            yield [begun]

    def passed(self, size: int, count: int = 1) -> None:
        """So many bytes were given, and so many lines in them."""
        self.number += count
        self.start = self.end
        self.end += size

    def bad(self, reason: str, *, ends: bool = False) -> None:
        """Report the line given last as damaged. `ends`: there are no more."""
        self.report.add(Damaged(self.path, self.number, self.start, self.end, reason, ends))

    def _pass_over(self, size: int, file: BinaryIO) -> None:
        """Pass over a line that is too long, of which so many bytes were read."""
        while rest := file.readline(1 << 20):
            size += len(rest)
            if rest.endswith(b"\n"):
                break
        self.passed(size)
        self.bad(f"longer than {LONGEST >> 20} MiB")


class Block(NamedTuple, Generic[T]):
    """Lines that were read together: the byte at which each starts, the line, and what it says."""

    starts: list[int]
    lines: list[bytes]
    records: Sequence[T | None]


class Records(Generic[T]):
    """The records on the lines of a file: each the line's bytes and what it says.

    The bytes are JSON that every reader takes: what is not is written anew. What the decoder of
    `kind` refuses is read as the `looser` one, then field by field; a record is None where even
    that fails. What is no JSON object is reported and passed over.

    `wanted` has a byte for each line, as far as it goes; one with a 0 is passed over unread.
    """

    def __init__(
        self,
        lines: Lines,
        kind: type[T],
        looser: type[T] | None = None,
        wanted: bytearray | None = None,
    ) -> None:
        self.lines = lines
        self._decode = msgspec.json.Decoder(kind).decode
        self._looser = looser or kind
        self._wanted = wanted or bytearray()

    def __iter__(self) -> Iterator[tuple[bytes, T | None]]:
        return chain.from_iterable(
            zip(one.lines, one.records, strict=True) for one in self.blocks()
        )

    def timed(self) -> Iterator[tuple[bytes, T | None, str]]:
        """The same, of a kind with a `timestamp`, each with its time; empty where it has none."""
        return chain.from_iterable(map(_timed, self.blocks()))

    def blocks(self) -> Iterator[Block[T]]:
        """The records, as many together as were read together and are sound."""
        for lines in self.lines.blocks():
            starts = list(accumulate(map(len, lines), initial=self.lines.end))
            size = starts.pop() - self.lines.end
            first, after = self.lines.number, self.lines.number + len(lines)
            wanted = self._wanted[first:after].ljust(len(lines), b"\1")
            chosen = lines
            if 0 in wanted:
                starts, chosen = list(compress(starts, wanted)), list(compress(lines, wanted))
            try:
                for line in filterfalse(bytes.isascii, lines):
                    str(line, "utf-8")  # parts that are kept as they are go unread
                records = list(map(self._decode, chosen))
            except Exception:
                yield from self._one_by_one(lines, wanted)
            else:
                self.lines.passed(size, len(lines))
                yield Block(starts, chosen, records)

    def _one_by_one(self, lines: list[bytes], wanted: bytearray) -> Iterator[Block[T]]:
        for line, is_wanted in zip(lines, wanted, strict=True):
            self.lines.passed(len(line))
            if is_wanted:
                at = self.lines.start
                line = line if at else line.removeprefix(BOM)
                for one, record in self._carefully(line):
                    yield Block([at], [one], [record])

    def _carefully(self, line: bytes) -> Iterator[tuple[bytes, T | None]]:
        try:
            record = self._decode(line)
            line.isascii() or str(line, "utf-8")
        except Exception:
            if line := line.strip():
                yield from self._tolerant(line)
        else:
            yield line, record

    def _tolerant(self, line: bytes) -> Iterator[tuple[bytes, T | None]]:
        with contextlib.suppress(Exception):
            line = without_lone_surrogates(line.decode()).encode()
            yield line, msgspec.json.decode(line, type=self._looser)
            return
        found = lenient(line)
        if not isinstance(found, dict):
            self.lines.bad(why_bad(line))
            return
        try:
            msgspec.json.decode(line)  # its values are odd, but they are JSON
        except Exception:
            line = msgspec.json.encode(found)
        yield line, salvage(found, self._looser)


def _timed(block: Block[T]) -> Iterator[tuple[bytes, T | None, str]]:
    records: Sequence[Any] = block.records
    times = times_of([None if record is None else record.timestamp for record in records])
    return zip(block.lines, block.records, times, strict=True)


def kept(value: bytes) -> msgspec.Raw:
    """A JSON value, to be kept as it is on one line."""
    value = value.strip()
    if b"\n" in value:
        try:
            value = msgspec.json.format(value, indent=-1)
        except msgspec.MsgspecError:
            value = msgspec.json.encode(lenient(value))
    return msgspec.Raw(value)


def json_text(value: msgspec.Raw) -> str:
    """A call's input as the text that the model wrote, as far as the file tells: numbers, escapes
    and order as they stand there, but not the line breaks of a file that is laid out for people."""
    text = str(value, "utf-8")
    if "\n" in text:
        with contextlib.suppress(msgspec.MsgspecError):
            text = msgspec.json.format(text, indent=-1)
    return text if text and text != "null" else "{}"


class Parts(Generic[T]):
    """Decodes the parts of a record that are read one by one, so that one which is odd costs no
    other: each comes with its bytes, and as None where it is not of the expected kind."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(kind).decode

    def __call__(self, raws: Sequence[msgspec.Raw]) -> Iterable[tuple[msgspec.Raw, T | None]]:
        return zip(raws, self.all(raws), strict=True)

    def all(self, raws: Sequence[bytes]) -> Sequence[T | None]:
        """What parts say, without their bytes."""
        try:
            return list(map(self._decode, raws))
        except Exception:
            return list(map(self.one, raws))

    def one(self, raw: bytes) -> T | None:
        """What a part says, as much of it as fits; None where it is no object."""
        try:
            return self._decode(raw)
        except Exception:
            found = lenient(bytes(raw))
            return salvage(found, self._kind) if isinstance(found, dict) else None


def salvage(found: dict[str, Any], kind: type[T]) -> T | None:
    """A struct from an object, as much of it as fits; None where a required field does not, or
    the kind refuses the whole."""
    given = {}
    for field in msgspec.structs.fields(kind):
        value = found.get(field.encode_name)
        fitting = None if value is None else _fitting(value, field.type)
        nothing = field.encode_name in found and value is None and NoneType in _options(field.type)
        if fitting is not None or nothing:
            given[field.name] = fitting
    try:
        return kind(**given)
    except (TypeError, ValueError):
        return None


def _fitting(value: Any, kind: Any) -> Any:
    """A value as a field of this type takes it; None where it does not fit."""
    options = (
        get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) is Union else (kind,)
    )
    for option in options:
        if option is msgspec.Raw:
            return msgspec.Raw(msgspec.json.encode(value))
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            struct: Any = salvage(value, option) if isinstance(value, dict) else None
            if struct is not None:
                return struct
        elif get_origin(option) is list and isinstance(value, list):
            items = (_fitting(item, get_args(option)[0]) for item in value)
            return [item for item in items if item is not None]
        elif option is not NoneType:
            with contextlib.suppress(msgspec.ValidationError, TypeError):
                return msgspec.convert(value, option, strict=False)
    return None


def _options(kind: Any) -> tuple[Any, ...]:
    united = isinstance(kind, UnionType) or get_origin(kind) is Union
    return get_args(kind) if united else (kind,)


def why_bad(line: bytes) -> str:
    """Why a line is no record."""
    if line.count(0) > len(line) // 2:
        return "zero bytes"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not UTF-8"
    return "not a complete JSON object"


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 where it cannot be told."""
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def time_of(given: object) -> str:
    """A time as entries have it: from ISO 8601, or from seconds or milliseconds since 1970.

    Empty where it is none of these.
    """
    if isinstance(given, str):
        if _is_time(given):  # only what is: it becomes part of a log's name
            return given
        try:
            return written(datetime.fromisoformat(given))
        except (ValueError, OverflowError):
            return ""
    if type(given) is float or type(given) is int:
        try:
            if abs(given) <= 1e11:
                return _moment(given)
            if (millis := int(given)) == given:
                return of_milliseconds(millis)
            return _moment(given / 1000)
        except (ValueError, OverflowError, OSError):
            return ""
    return ""


def times_of(given: Sequence[object]) -> Sequence[str]:
    """What `time_of` gives for each, sooner where all are as entries have times."""
    texts = [one for one in given if type(one) is str]
    if len(texts) == len(given) and are_times(texts):
        return texts
    return list(map(time_of, given))


def _moment(seconds: float) -> str:
    """Seconds since 1970 as entries have times: what `written` gives, sooner."""
    whole = math.floor(seconds)
    micros = round((seconds - whole) * 1_000_000)
    return of_milliseconds(whole * 1000 + micros // 1000)
