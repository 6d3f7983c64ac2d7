"""Forking: a new session that begins as another one's log does, up to a cut.

The header is the parent's with a new id and time and `forkedFrom`; then come the parent's own bytes
behind its header line. Nothing of them is decoded for a whole fork, and neither session can tell
the other's bytes from its own. The parent is not locked while it is copied: what lies before its
last newline never changes.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.entries import ForkedFrom, ForkPointEntry, Header
from awl.errors import NoSuchEntry, NotASession
from awl.log.birth import birth, sweep
from awl.log.blobs import Blobs, is_blob_name
from awl.log.file import LogFile, is_locked, last_object, write_all
from awl.log.line import BadLine, decode, decode_outer, encode, with_fields
from awl.log.names import log_path, new_session_id, now
from awl.log.scan import BLOCK, BOM, read_at, scan
from awl.replay import check_first_line, read, recovery_notices, replay
from awl.state import LARGEST, State

_REFERENCE: Final = re.compile(rb'"blob":\s*"([0-9a-f]{64})"')
_LONGEST_REFERENCE: Final = 128


class Head(NamedTuple):
    """How a log begins: its header, the header's line (None where it cannot be read), and where
    the lines behind it begin."""

    header: Header
    line: bytes | None
    end: int


class Cut(NamedTuple):
    """Where a copy of a log ends: at byte `end`, with the entry `seq` (0: none). `newline`: whether
    one stands before `end`. `leaf` is the id of the log's last entry where that is it for sure."""

    end: int
    newline: bool
    seq: int
    leaf: str | None = None


def fork(root: Path, parent: Path, at: int | None) -> tuple[Path, ForkPointEntry, Cut]:
    """Make a child of a log, complete or not at all.

    Returns the child's log, what its parent is to be told, and where it was cut.

    Raises:
        NoSuchEntry: `at` is outside the log, or damaged; the error names what is there.
        NotASession: the parent holds nothing that was ever acknowledged.
        OSError: it cannot be read, or the child not be written.
    """
    fd = os.open(parent, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        head = read_head(fd, parent)
        cut = _whole(fd, parent) if at is None else _at(fd, head.header.id, at)
        header = msgspec.structs.replace(
            head.header,
            id=new_session_id(),
            timestamp=now(),
            forked_from=ForkedFrom(head.header.id, cut.seq),
        )
        path = _place(root, parent, header, sound=head.line is not None)
        sweep(path.parent)
        with birth(path) as child:
            child.write(_header_line(head, header))
            copy_bytes(fd, child.fd, head.end, cut.end)
            if not cut.newline and cut.end > head.end:
                child.write(b"\n")
            named = None if at is None else blobs_named(fd, cut.end)
            for blob in blobs_of(parent):
                if named is None or blob.name in named:
                    child.adopt(blob)
    finally:
        os.close(fd)
    return path, ForkPointEntry(new_session_id=header.id, at=cut.seq), cut


def tell(parent: Path, child: ForkPointEntry, cut: Cut) -> list[str]:
    """Record a fork in its parent's log, unless someone holds that. Returns what a person should
    know of it.

    Raises:
        AwlError, OSError: it cannot be written to.
    """
    if is_locked(parent):
        return []
    check_first_line(parent)
    log = LogFile.open(parent)
    try:
        leaf, seq = _leaf(log, cut)
        # Nobody has read all ids that were drawn; this one is named by none but the next entry.
        entry = msgspec.structs.replace(
            child, id=secrets.token_hex(4), parent_id=leaf, timestamp=now(), seq=seq
        )
        log.append(encode(entry))
        return recovery_notices(log)
    finally:
        log.close()


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


def copy_bytes(source: int, target: int, start: int, end: int) -> None:
    """Append bytes [start, end) of an open file to another, in the kernel where it can."""
    if hasattr(os, "copy_file_range"):
        try:
            while start < end and (done := os.copy_file_range(source, target, end - start, start)):
                start += done
        except OSError:  # other file systems, or one that knows no such thing
            pass
    while start < end and (block := read_at(source, min(BLOCK, end - start), start)):
        write_all(target, block)
        start += len(block)


def blobs_of(log: Path) -> Iterator[Path]:
    """The blobs that lie beside a log."""
    try:
        with os.scandir(Blobs(log).directory) as found:
            for item in found:
                if is_blob_name(item.name) and item.is_file(follow_symlinks=False):
                    yield Path(item.path)
    except FileNotFoundError:
        return


def blobs_named(fd: int, end: int, start: int = 0) -> set[str]:
    """The blobs that bytes [start, end) of a log name."""
    found: set[str] = set()
    kept = b""
    while start < end and (block := read_at(fd, min(BLOCK, end - start), start)):
        found.update(name.decode() for name in _REFERENCE.findall(kept + block))
        kept = block[-_LONGEST_REFERENCE:]
        start += len(block)
    return found


def _whole(fd: int, path: Path) -> Cut:
    end, newline = last_object(fd)
    if not newline and is_locked(path):  # a line that is being written
        end, newline = _line_start(fd, end), True
    if not end:
        raise NotASession(path, "its only line is incomplete" if os.fstat(fd).st_size else "empty")
    found = _last(fd, end, newline)
    if found is not None:
        return Cut(end, newline, found[1], found[0])
    state = _scanned(fd)
    seqs = [seq for seq, start in zip(state.seqs, state.starts, strict=True) if start < end]
    return Cut(end, newline, max(seqs, default=0))


def _at(fd: int, session_id: str, at: int) -> Cut:
    state = _scanned(fd)
    seqs = state.seqs
    last = max(seqs, default=0)
    if at not in seqs:
        inside = 1 <= at <= last
        before = [max(seq for seq in seqs if seq < at)] if inside and min(seqs) < at else []
        after = [min(seq for seq in seqs if seq > at)] if inside else []
        raise NoSuchEntry(session_id, at, last, before + after)
    position = seqs.index(at)
    end = state.ends[position]
    newline = read_at(fd, 1, end) == b"\n"
    return Cut(end + newline, newline, max(seqs[: position + 1]))


def _scanned(fd: int) -> State:
    state = State()
    for line in scan(fd, outer=True):
        state.add(line)
    return state


def _leaf(log: LogFile, cut: Cut) -> tuple[str | None, int]:
    """The id of a log's last entry, and the seq of the next one."""
    if not log.recovery.lost_lines:
        if cut.leaf is not None and cut.end == log.end:
            return cut.leaf, cut.seq + 1
        found = _last(log.fd, log.end, newline=True)
        if found is not None:
            return found[0], found[1] + 1
    state, _ = replay(log.fd, log.path, log.recovery.lost_lines)
    return state.leaf_id, state.next_seq


def _last(fd: int, end: int, newline: bool) -> tuple[str, int] | None:
    """The id and the seq of the entry on the last line of a log's first `end` bytes; None where
    that line alone does not tell them for sure.

    It does where there are as many entries as the seq says: nothing is repeated, nothing lost.
    """
    start = _line_start(fd, end - newline)
    try:
        entry = decode_outer(read_at(fd, end - newline - start, start))
    except BadLine:
        return None
    if isinstance(entry, Header) or not 0 < entry.seq <= LARGEST:
        return None
    return (entry.id, entry.seq) if _lines(fd, start) == entry.seq else None


def _line_start(fd: int, end: int) -> int:
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


def _lines(fd: int, end: int) -> int:
    """How many newlines there are in the first `end` bytes."""
    at = count = 0
    while at < end and (block := read_at(fd, min(1 << 18, end - at), at)):
        count += block.count(b"\n")
        at += len(block)
    return count


def _header_line(head: Head, header: Header) -> bytes:
    if head.line is None:
        return encode(header)
    return with_fields(
        head.line, id=header.id, timestamp=header.timestamp, forkedFrom=header.forked_from
    )


def _place(root: Path, parent: Path, header: Header, *, sound: bool) -> Path:
    """Where the child's log goes. The folder of a parent whose header is damaged may tell its
    directory."""
    path = log_path(root, State(header).cwd, header.timestamp, header.id)
    return path if sound else root / parent.parent.name.lstrip(".") / path.name
