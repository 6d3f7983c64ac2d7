"""From a file to a State: reading a log, whole or damaged, and saying what is wrong with it.

Nothing here writes. `read` is the way to look at a session without opening it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from awl.entries import VERSION, CondensationEntry, Header
from awl.errors import AwlError, NewerFormat, NotASession
from awl.log.file import LogFile, lost_lines
from awl.log.line import decode
from awl.log.names import cwd_of_label, header_of_name, parse_log_name
from awl.log.scan import BOM, CHUNK, Line, Reader, read_at
from awl.state import LARGEST, Finding, State

_CONDENSED: Final = b'\n{"type":"condensation"'
_CONTEXT: Final = 4 << 20  # bytes of the largest, of which some have been condensed away
_SKIMMED: Final = 3  # chunks at a time where little of what is read is kept
_SURELY_CONDENSED: Final = 256 << 20  # bytes of a log
_NO_HEADER: Final = "its first line is no session header and its name tells no session id"


class UnknownDirectory(AwlError):
    """The log does not tell which directory it belongs to any more."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"the first line of {path} is damaged and nothing else names the session's directory:"
            " give it with --cwd DIR"
        )


def read(path: Path) -> State:
    """The state of a log, without locking or changing anything.

    Bodies of entries outside the live context are read from the file when they are asked for.

    Raises:
        NotASession: it holds nothing that was ever acknowledged.
        OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        state, _ = replay(fd, path, 0)
        if state.open_calls:  # what is known of them depends on lines that recovery cut off
            state.settle(lost_lines(path))
    finally:
        os.close(fd)
    state.read = path_reader(path)
    return state


def damage_notices(path: Path, state: State) -> list[str]:
    """What is damaged in a log, a line each, for a person."""
    notices = [f"{path.name}: {damage}; only this line is lost" for damage in state.damage]
    notices += [f"{path.name}: {finding}" for finding in state.all_findings]
    if state.gaps or any(damage.acknowledged for damage in state.damage):
        notices.append(
            "if a line that is lost held a rewind, turns that were gone back from may show again"
        )
    return notices


def replay(
    fd: int, path: Path, lost_lines: int, *, lazily: bool | None = None, fold: bool = True
) -> tuple[State, int]:
    """The state of an open log, and the number of its last line.

    `lazily` leaves bodies on disk, and reads those that the fold turns out to need: by default up
    to where the last condensation makes that likely to pay. Without `fold`, the state tells where
    entries are and not what they lead to.
    """
    state = State(read=fd_reader(fd))
    left = _condensed_up_to(fd) if lazily is None else LARGEST * lazily
    collecting = gc.isenabled()
    gc.disable()  # nothing that is read is garbage, and looking for it costs as much as reading
    try:
        last = _take_all(fd, state, left)
        if state.header is None:
            if not state.entries:
                empty = os.fstat(fd).st_size == 0
                raise NotASession(path, "it is empty" if empty else "its only line is incomplete")
            state.header = _rebuilt_header(path)
            rebuilt = "no session header: rebuilt from the file's name and what follows"
            state.findings.insert(0, Finding(1, rebuilt))
        if fold:
            state.settle(lost_lines)
    finally:
        if collecting:
            gc.enable()
    return state, last


def _take_all(fd: int, state: State, left: int) -> int:
    """Take in all lines; the bodies up to the seq `left` stay on disk. Returns the number of the
    last line."""
    reader = Reader(fd, chunks=_SKIMMED if left else 1)
    last = 0
    while batch := reader.read():
        state.take(batch, skim=state.next_seq <= left)
        gc.collect(0)  # takes what was read off the collector's list, while it is at hand
        last = batch.last or last
        if not state.entries and not left:
            state.settle()  # from here on the path is folded while its entries come in
        del batch  # the next one has its memory while that is at hand
    return last


def _rebuilt_header(path: Path) -> Header:
    """A header for a log whose first line is damaged."""
    header = header_of_name(path)
    if header is None:
        raise NotASession(path, _NO_HEADER)
    return msgspec.structs.replace(header, cwd=cwd_of_label(path.parent.name))


def _condensed_up_to(fd: int) -> int:
    """Up to which seq the last condensation replaces what came before it; 0 where none is found.

    What follows the last condensation fits into a model's context, or nearly so. So it is looked
    for in the last part of the log, and in all of one that has grown so far that there must be one.
    """
    end = size = os.fstat(fd).st_size
    least = max(0, size - max(size // 16, _CONTEXT)) if size < _SURELY_CONDENSED else 0
    behind = b""
    while end > least:
        start = max(least, end - CHUNK)
        data = read_at(fd, end - start, start) + behind
        at = data.rfind(_CONDENSED)
        if at >= 0:
            return _replaced_up_to(fd, start + at + 1)
        end, behind = start, data[: len(_CONDENSED)]
    return 0


def _replaced_up_to(fd: int, start: int) -> int:
    """The last seq that the condensation on the line at a byte replaces; 0 if it is none."""
    batch = Reader(fd, start).read()
    found = batch.one(0) if batch else None
    if isinstance(found, Line) and isinstance(found.entry, CondensationEntry):
        return found.entry.replaced[1]
    return 0


def check_first_line(path: Path) -> None:
    """Refuse, before anything of it is changed, a file that awl must not write to.

    Raises:
        NotASession: it is no session log: another program's file is only ever read.
        NewerFormat: its format is newer than this awl.
    """
    with path.open("rb") as file:
        for line in file:
            try:
                first = decode(line.removeprefix(BOM))
            except ValueError:
                continue
            if isinstance(first, Header):
                if first.version > VERSION:
                    raise NewerFormat(path, first.version)
                return
            break
    if parse_log_name(path.name) is None:
        raise NotASession(path, _NO_HEADER)


def recovery_notices(log: LogFile) -> list[str]:
    """What opening a log for writing mended, a line each, for a person."""
    found = log.recovery
    notices = []
    if found.torn is not None:
        notices.append(
            f"{log.path.name}: {found.torn_bytes} bytes of an incomplete last line were moved to"
            f" {found.torn.name}; everything before them is intact"
        )
    if found.newline_added:
        notices.append(f"{log.path.name}: the last line only lacked its newline; it is kept")
    return notices


def fd_reader(fd: int) -> Callable[[int, int], bytes]:
    """Gives bytes [start, end) of an open file."""

    def read_bytes(start: int, end: int) -> bytes:
        return read_at(fd, end - start, start)

    return read_bytes


def path_reader(path: Path) -> Callable[[int, int], bytes]:
    """Gives bytes [start, end) of a file that is opened each time."""

    def read_bytes(start: int, end: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    return read_bytes
