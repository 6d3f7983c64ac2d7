"""Whether a session is sound: every line, and what lies beside its log. Nothing is changed.

No lock is taken: a session that is open is checked as far as it was written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from awl.entries import Header
from awl.errors import NotASession
from awl.health.beside import Folder, check_blobs, check_companions, check_mode, is_open, lost_lines
from awl.health.findings import Checked, Finding
from awl.health.lines import Lines
from awl.log.names import parse_log_name
from awl.log.scan import Line, read_at, scan

Progress = Callable[[int], None]
"""Is told how many bytes more have been read."""

_TRIES: Final = 3  # readings of a log that a writer cuts back at that moment
_STEP: Final = 1 << 24  # bytes between two reports of progress


def verify(path: Path, folder: Folder | None = None, progress: Progress | None = None) -> Checked:
    """Check one session.

    Args:
        path: its log.
        folder: what lies beside it, where that is known already.
        progress: is told how far it is.

    Raises:
        NotASession: it is no file.
        OSError: it cannot be read.
    """
    folder = folder or Folder(path.parent)
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        for last_try in (*[False] * (_TRIES - 1), True):
            before = os.fstat(fd)
            if not stat.S_ISREG(before.st_mode):
                raise NotASession(path, "it is not a regular file")
            checked = _check(fd, path, folder, progress)
            after = os.fstat(fd)
            if checked.ok or last_try or before.st_mtime_ns == after.st_mtime_ns:
                return checked
            folder, progress = Folder(path.parent), None
        raise AssertionError("unreachable")
    finally:
        os.close(fd)


def _check(fd: int, path: Path, folder: Folder, progress: Progress | None) -> Checked:
    opened = is_open(path)
    lines = Lines(lost_lines(folder.torn(path)))
    findings: list[Finding] = []
    end = told = 0
    for item in scan(fd):
        if isinstance(item, Line) and isinstance(item.entry, Header) and lines.header is None:
            findings += _check_header(fd, path, item)
        lines.take(item)
        end = item.end
        if progress and end - told >= _STEP:
            progress(end - told)
            told = end
    if not opened:
        end = os.fstat(fd).st_size
    if progress:
        progress(end - told)
    findings += lines.end(end)
    if opened:  # what stands there is being written
        findings = [finding for finding in findings if finding.kind != "tail"]
    if lines.header is None and not lines.seqs:
        text = "nothing in it can be read" if end else "it is empty"
        findings.append(Finding(severity="damage", kind="header", text=text))
    findings += check_mode(path)
    findings += check_companions(folder, path)
    findings += check_blobs(path, lines.blobs.values(), lines.mentioned, lines.lost_blobs)
    named = parse_log_name(path.name)
    return Checked(
        session_id=lines.header.id if lines.header else named.session_id if named else "",
        path=str(path),
        ok=not any(finding.severity == "damage" for finding in findings),
        findings=tuple(findings),
    )


def _check_header(fd: int, path: Path, line: Line) -> Iterator[Finding]:
    """Whether the header is as the format says, and belongs to this file."""
    header = line.entry
    assert isinstance(header, Header)
    faults = []
    try:
        msgspec.json.decode(read_at(fd, line.end - line.start, line.start), type=Header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        faults.append(f"the header is not as the format says: {error}")
    named = parse_log_name(path.name)
    if named and named.session_id != header.id:
        faults.append(f"the header is that of session {header.id}, the file's name is not")
    for text in faults:
        yield Finding(
            severity="damage",
            kind="header",
            text=text,
            line=line.line,
            start=line.start,
            end=line.end,
        )
