"""What lists show: as the index keeps it, and as callers get it."""

from __future__ import annotations

from typing import Literal

import msgspec

from awl.entries import ForkedFrom

Status = Literal["open", "interrupted", "idle"]


class Summary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What lists show of a session. `cwd` is in the file system's bytes; empty: the log does not
    tell it."""

    id: str
    title: str
    cwd: bytes
    provider: str
    model: str
    created: str
    updated: str
    message_count: int
    event_count: int
    interrupted: bool
    forked_from: ForkedFrom | None


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A session as lists show it. Times are ISO 8601 in UTC.

    `status`: open (a process holds it), interrupted (its last turn has an open call or no finished
    answer) or idle. `updated` is when something last happened in it, by its own entries.
    `conversation_id` is its number on this machine; None while numbers cannot be given. `path` is
    that of its log; empty when it has none.
    """

    id: str
    conversation_id: int | None = None
    title: str
    status: Status
    cwd: str
    provider: str
    model: str
    created: str
    updated: str
    message_count: int
    event_count: int
    path: str
    forked_from: ForkedFrom | None = None


class Listing(msgspec.Struct, frozen=True):
    """Sessions, oldest `updated` first; and the files that cannot be read as one, with why."""

    sessions: tuple[SessionInfo, ...]
    unreadable: tuple[str, ...]
