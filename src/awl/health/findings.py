"""What a check of a session finds."""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal[
    "header",  # the first line
    "line",  # a line that cannot be read
    "entry",  # an entry that can be read and is not as the format says
    "seq",
    "id",
    "parent",
    "range",  # the entries that a condensation or a compaction names
    "call",  # a tool result and the call that it belongs to
    "blob",
    "tail",  # what stands behind the last whole line
    "mode",  # who can read it
    "leftover",  # what lies beside a log, or without one
    "database",
    "file",
]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it should be.

    `damage`: something that was acknowledged is lost or hidden. A `note` costs nothing. `line` is
    the number of the first line meant (1 is the header's) and [start, end) its bytes, all 0 where
    no line is; `lines` is how many lines there are in a row, where it is more than one. `file` is
    the name of another file than the log.
    """

    severity: Literal["damage", "note"]
    kind: Kind
    text: str
    line: int = 0
    start: int = 0
    end: int = 0
    lines: int = 1
    file: str = ""

    def __str__(self) -> str:
        where = self.file
        if self.line:
            last = f"-{self.line + self.lines - 1}" if self.lines > 1 else ""
            where = f"line{'s' if last else ''} {self.line}{last} (bytes {self.start}-{self.end})"
        said = f"{where}: {self.text}" if where else self.text
        return said if self.severity == "damage" else f"note: {said}"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of one session, or of a file that belongs to none, found.

    `session_id` is empty where nothing tells it. `ok`: nothing of it is damaged.
    """

    session_id: str
    path: str
    ok: bool
    findings: tuple[Finding, ...]
