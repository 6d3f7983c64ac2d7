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

from awl.entries import VERSION, Header
from awl.errors import AwlError, NewerFormat, NotASession
from awl.log.file import LogFile, lost_lines
from awl.log.line import decode
from awl.log.names import cwd_of_label, header_of_name, parse_log_name
from awl.log.scan import BLOCK, BOM, read_at, scan
from awl.state import Finding, State

_CONDENSED: Final = b'{"type":"condensation"'
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
    fd: int, path: Path, lost_lines: int, *, lazily: bool | None = None
) -> tuple[State, int]:
    """The state of an open log, and the number of its last line.

    `lazily` leaves bodies that the fold does not need on disk: by default where a condensation
    makes that likely to pay.
    """
    state = State(read=fd_reader(fd))
    if lazily is None:
        lazily = _holds(fd, _CONDENSED)
    collecting = gc.isenabled()
    gc.disable()  # nothing that is read is garbage, and looking for it costs as much as reading
    last = 0
    try:
        for line in scan(fd, outer=lazily):
            state.add(line)
            last = line.line
    finally:
        if collecting:
            gc.enable()
    if state.header is None:
        if not state.entries:
            empty = os.fstat(fd).st_size == 0
            raise NotASession(path, "it is empty" if empty else "its only line is incomplete")
        state.header = _rebuilt_header(path)
        rebuilt = "no session header: rebuilt from the file's name and what follows"
        state.findings.insert(0, Finding(1, rebuilt))
    state.settle(lost_lines)
    return state, last


def _rebuilt_header(path: Path) -> Header:
    """A header for a log whose first line is damaged."""
    header = header_of_name(path)
    if header is None:
        raise NotASession(path, _NO_HEADER)
    return msgspec.structs.replace(header, cwd=cwd_of_label(path.parent.name))


def _holds(fd: int, needle: bytes) -> bool:
    """Whether the file has a line that begins with these bytes."""
    needle = b"\n" + needle
    offset, kept = 0, b""
    while block := read_at(fd, BLOCK, offset):
        if needle in kept + block[: len(needle)] or needle in block:
            return True
        offset += len(block)
        kept = block[-len(needle) :]
    return False


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
