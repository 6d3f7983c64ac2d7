"""Forking: a new session that begins as another one's log does, up to a cut.

The header is the parent's with a new id and time and `forkedFrom`; then come the parent's own bytes
behind its header line. Nothing of them is decoded for a whole fork, and neither session can tell
the other's bytes from its own. The parent is not locked while it is copied: what lies before its
last newline never changes.
"""

from __future__ import annotations

import errno
import os
import secrets
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from awl.entries import ForkedFrom, ForkPointEntry, Header
from awl.errors import NoSuchEntry
from awl.log.birth import birth, sweep
from awl.log.blobs import Blobs
from awl.log.durable import is_at
from awl.log.file import FIRST_READ, LogFile
from awl.log.line import BadLine, decode_outer, encode
from awl.log.lock import is_locked
from awl.log.names import log_path, new_session_id, now
from awl.log.scan import read_at
from awl.replay import check_first_line, recovery_notices, replay
from awl.state import LARGEST, State
from awl.store.copying import (
    blobs_named,
    complete,
    copy_bytes,
    header_line,
    line_start,
    open_log,
    read_head,
)


class Cut(NamedTuple):
    """Where a copy of a log ends: at byte `end`, with the entry `seq` (0: none). `newline`: whether
    one stands before `end`. `leaf` is the id of the log's last entry where that is it for sure."""

    end: int
    newline: bool
    seq: int
    leaf: str | None = None


def fork(
    root: Path, parent: Path, at: int | None, tell: Callable[[ForkPointEntry, Cut], None]
) -> Path:
    """Make a child of a log, complete or not at all, and tell its parent. Returns the child's log.

    Raises:
        NoSuchEntry: `at` is outside the log, or damaged; the error names what is there.
        NotASession: the parent holds nothing that was ever acknowledged.
        OSError: it cannot be read, or was moved meanwhile, or the child not be written.
    """
    with open_log(parent) as fd:
        head = read_head(fd, parent)
        cut = _whole(fd, parent) if at is None else _at(fd, parent, head.header.id, at)
        header = msgspec.structs.replace(
            head.header,
            id=new_session_id(),
            timestamp=now(),
            forked_from=ForkedFrom(head.header.id, cut.seq),
        )
        path = _place(root, parent, header, sound=head.line is not None)
        sweep(path.parent)
        with birth(path) as child:
            child.write(header_line(head, header))
            copy_bytes(fd, child.fd, head.end, cut.end)
            if not cut.newline and cut.end > head.end:
                child.write(b"\n")
            blobs = Blobs(parent)
            names = blobs.names()
            for name in names if at is None or not names else names & blobs_named(fd, cut.end):
                child.adopt(blobs.directory / name)
            if not is_at(fd, parent):  # deleted meanwhile: a log goes before its blobs
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(parent))
            child.appear()
            tell(ForkPointEntry(new_session_id=header.id, at=cut.seq), cut)
    return path


def note_in(parent: Path, point: ForkPointEntry, cut: Cut) -> list[str]:
    """Record a fork in its parent's log, unless someone holds that. Returns what a person should
    know of it.

    Raises:
        AwlError, OSError: it cannot be written to.
    """
    if is_locked(parent):
        return []
    check_first_line(parent)
    log = LogFile.open(parent, briefly=True)
    try:
        leaf, seq = _leaf(log, cut)
        # Nobody has read all ids that were drawn; this one is named by none but the next entry.
        entry = msgspec.structs.replace(
            point, id=secrets.token_hex(4), parent_id=leaf, timestamp=now(), seq=seq
        )
        log.append(encode(entry))
        return recovery_notices(log)
    finally:
        log.close()


def _whole(fd: int, path: Path) -> Cut:
    end, newline = complete(fd, path)
    found = _last(fd, end, newline)
    if found is not None:
        return Cut(end, newline, found[1], found[0])
    state, _ = replay(fd, path, 0, lazily=True, fold=False)
    seqs = [seq for seq, start in zip(state.seqs, state.starts, strict=True) if start < end]
    return Cut(end, newline, max(seqs, default=0))


def _at(fd: int, path: Path, session_id: str, at: int) -> Cut:
    state, _ = replay(fd, path, 0, lazily=True, fold=False)
    seqs = array("Q", state.seqs)
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
    """The id and the seq of the last entry in a log's first `end` bytes; None where its last lines
    do not tell them for sure: where some are damaged, repeated or out of order, or have no seq."""
    start = max(0, end - FIRST_READ)
    lines = read_at(fd, end - start, start).removesuffix(b"\n").split(b"\n")[1:]
    if not lines:
        start = line_start(fd, end - newline)
        lines = [read_at(fd, end - newline - start, start)]
    try:
        entries = [decode_outer(line) for line in lines]
    except BadLine:
        return None
    seqs = [0 if isinstance(entry, Header) else entry.seq for entry in entries]
    first = seqs[0] if start else 1
    in_order = seqs == list(range(first, first + len(seqs)))
    if not in_order or not 0 < seqs[-1] <= LARGEST or len({one.id for one in entries}) < len(seqs):
        return None
    return entries[-1].id, seqs[-1]


def _place(root: Path, parent: Path, header: Header, *, sound: bool) -> Path:
    """Where the child's log goes. The folder of a parent whose header is damaged may tell its
    directory."""
    path = log_path(root, State(header).cwd, header.timestamp, header.id)
    return path if sound else root / parent.parent.name.lstrip(".") / path.name
