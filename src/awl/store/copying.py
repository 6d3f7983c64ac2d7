"""What copies of logs have in common: where a log begins and ends, and the blobs that it names."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.conversation import BlobRef
from awl.entries import Header
from awl.errors import NotASession
from awl.log.blobs import BlobDamaged, Blobs
from awl.log.durable import begin_writing, write_all
from awl.log.file import last_object
from awl.log.line import BadLine, decode, encode, with_fields
from awl.log.lock import is_locked
from awl.log.scan import BLOCK, BOM, read_at
from awl.replay import read

_REFERENCE: Final = re.compile(rb'"blob":\s*"([0-9a-f]{64})"')
_LONGEST_REFERENCE: Final = 128
_PIECE: Final = 1 << 19


class Head(NamedTuple):
    """How a log begins: its header, the header's line (None where it cannot be read), and where
    the lines behind it begin."""

    header: Header
    line: bytes | None
    end: int


@contextmanager
def open_log(path: Path) -> Iterator[int]:
    """A descriptor to read a log through.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
    fd = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe must keep nobody waiting
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        yield fd
    finally:
        os.close(fd)


def read_head(fd: int, path: Path) -> Head:
    """The beginning of an open log.

    Where its first line is damaged, the header is made of the file's name and what follows.

    Raises:
        NotASession: nothing is readable, or neither the header nor the name tells an id.
    """
    end = first = 0
    with open(fd, "rb", closefd=False) as file:
        file.seek(0)
        for line in file:
            text = line.removeprefix(BOM) if not end else line
            end += len(line)
            try:
                entry = decode(text)
            except BadLine:
                first = first or end
                continue
            if isinstance(entry, Header):
                return Head(entry, text.rstrip(b"\n"), end)
            state = read(path)
            assert state.header is not None
            model = state.active_model
            header = msgspec.structs.replace(
                state.header,
                cwd=state.cwd,
                provider=model.provider,
                model=model.model,
                endpoint=model.endpoint,
            )
            return Head(header, None, first)
    raise NotASession(path, "its only line is incomplete" if end else "it is empty")


def header_line(head: Head, header: Header) -> bytes:
    """The line of a header with the id, the time and the lineage of another one; everything else in
    it stays as it is."""
    if head.line is None:
        return encode(header)
    fields = {"id": header.id, "timestamp": header.timestamp, "forkedFrom": header.forked_from}
    return with_fields(head.line, **fields)


def complete(fd: int, path: Path) -> tuple[int, bool]:
    """Where the last complete entry of an open log ends, and whether with a newline. What another
    process is just writing is not complete.

    Raises:
        NotASession: there is nothing that was ever acknowledged.
    """
    end, newline = last_object(fd)
    if end and not newline and is_locked(path):
        end, newline = line_start(fd, end), True
    if not end:
        empty = os.fstat(fd).st_size == 0
        raise NotASession(path, "it is empty" if empty else "its only line is incomplete")
    return end, newline


def line_start(fd: int, end: int) -> int:
    """Where the line begins that ends at a byte, its newline excluded."""
    step = 1 << 16
    at = end
    while at > 0:
        start = max(0, at - step)
        cut = read_at(fd, at - start, start).rfind(b"\n")
        if cut >= 0:
            return start + cut + 1
        at, step = start, step * 2
    return 0


def copy_bytes(source: int, target: int, start: int, end: int) -> None:
    """Append bytes [start, end) of an open file to another.

    Through one buffer: in the kernel it would take longer, as the two files' pages do not line up
    behind headers of different lengths. Nor could they share their blocks. The disk begins with
    each piece at once, so that less is left for the sync to wait for.
    """
    if not hasattr(os, "preadv"):
        while start < end and (block := read_at(source, min(_PIECE, end - start), start)):
            write_all(target, block)
            start += len(block)
        return
    buffer = memoryview(bytearray(min(_PIECE, max(0, end - start))))
    at = os.lseek(target, 0, os.SEEK_END)
    while start < end and (size := os.preadv(source, [buffer[: end - start]], start)):
        write_all(target, buffer[:size])
        begin_writing(target, at, size)
        start, at = start + size, at + size


def same_until(one: int, other: int, size: int, start: int = 0, other_start: int = 0) -> int:
    """How many bytes of two open files are the same, of `size` from their starts."""
    done = 0
    while done < size:
        step = min(BLOCK, size - done)
        first, second = read_at(one, step, start + done), read_at(other, step, other_start + done)
        if first != second or not first:
            pairs = enumerate(zip(first, second, strict=False))
            shorter = min(len(first), len(second))
            return done + next((at for at, (a, b) in pairs if a != b), shorter)
        done += len(first)
    return done


def copy_blobs(source: Blobs, names: Iterable[str], to: Blobs) -> dict[str, BlobDamaged]:
    """Put blobs into another folder, as far as they are what their names say. Returns the others,
    and why.

    Raises:
        OSError: they cannot be written.
    """
    missing = {}
    for name in sorted(names):
        try:
            to.put(source.get(BlobRef(blob=name, size=0)))
        except BlobDamaged as damaged:
            missing[name] = damaged
    return missing


def blobs_named(fd: int, end: int, start: int = 0) -> set[str]:
    """The blobs that bytes [start, end) of a log name."""
    found: set[str] = set()
    kept = b""
    while start < end and (block := read_at(fd, min(BLOCK, end - start), start)):
        found.update(name.decode() for name in _REFERENCE.findall(kept + block))
        kept = block[-_LONGEST_REFERENCE:]
        start += len(block)
    return found
