"""Every error that a caller of awl can meet.

Each carries its facts as attributes; `str(error)` is the one line that a person reads, and it says
what to do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

_NO_SPACE: Final = "free some space, then try again"
_NOT_ALLOWED: Final = "see to the permissions, or name another place"
_MOVED: Final = (
    "another process may have moved or deleted the session: `awl sessions --all` and"
    " `awl sessions restore` list what there is"
)
_ADVICE: Final = {
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EROFS: "the disk is read-only: name another place, or make it writable",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
}


def told(error: Exception) -> str:
    """An error as one line for a person. Of the system's it is what happened, to which file, and
    what to do where that is known."""
    if not isinstance(error, OSError):
        return str(error)
    said = error.strerror or str(error)
    if not isinstance(error.filename, str | bytes | os.PathLike):
        return said
    where = os.fsdecode(error.filename)
    advice = _ADVICE.get(error.errno or 0)
    if isinstance(error, FileNotFoundError) and where.endswith(".jsonl"):
        advice = _MOVED
    return f"{said}: {where}" + (f" ({advice})" if advice else "")


class AwlError(Exception):
    """Base of all errors that awl raises on purpose."""


class ConfigError(AwlError):
    """A setting has a value that is not allowed, or the file cannot be read."""

    def __init__(self, message: str, *, path: Path | None = None, key: str | None = None) -> None:
        self.path, self.key = path, key
        super().__init__(message)


class SessionNotFound(AwlError):
    """No session has this id, or a prefix of it. `candidates` are ids that look alike."""

    def __init__(self, query: str, candidates: Sequence[str] = ()) -> None:
        self.query, self.candidates = query, tuple(candidates)
        there = "; did you mean " + ", ".join(candidates) + "?" if candidates else ""
        super().__init__(
            f"no session matches {query!r}{there or ': `awl sessions --all` lists what there is'}"
        )


class AmbiguousId(AwlError):
    """A prefix, or an id that two files claim, fits several sessions: these, and `more`."""

    def __init__(self, query: str, candidates: Sequence[str], more: int = 0) -> None:
        self.query, self.candidates, self.more = query, tuple(candidates), more
        rest = f", and {more} more" if more else ""
        super().__init__(f"{query!r} is ambiguous: it could be {', '.join(candidates)}{rest}")


class NotInTrash(SessionNotFound):
    """No deleted session has this id, or a prefix of it. `candidates` are what is in the trash."""

    def __init__(self, query: str, candidates: Sequence[str] = ()) -> None:
        AwlError.__init__(
            self,
            f"nothing in the trash matches {query!r}"
            + (f": there are {', '.join(candidates)}" if candidates else ": it is empty"),
        )
        self.query, self.candidates = query, tuple(candidates)


class SessionExists(AwlError):
    """There is another session with this id, or in this place, already."""

    def __init__(self, path: Path, advice: str) -> None:
        self.path = path
        super().__init__(f"there is such a session already ({path}): {advice}")


class NoLog(AwlError):
    """A conversation was kept without a log, and what is asked for needs one."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"conversation {session_id} has no log, because [session] enabled was false: set it to"
            f" true and say `awl --resume {session_id}`, and it gets one from there on"
        )


class SessionBusy(AwlError):
    """Another process holds the session's lock. Nothing was written."""

    def __init__(self, path: Path, pid: int | None, host: str | None) -> None:
        self.path, self.pid, self.host = path, pid, host
        who = f"process {pid}" if pid is not None else "another process"
        where = f" on {host}" if host else ""
        end = f", or end it with `kill {pid}`" if pid is not None else ""
        super().__init__(f"the session is open in {who}{where}: close it there first{end} ({path})")


class NotASession(AwlError):
    """The file holds nothing that was ever acknowledged, or is no session log at all."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path} cannot be opened as a session: {reason}")


class NewerFormat(AwlError):
    """The log has a higher format version than this awl can append to."""

    def __init__(self, path: Path, version: int) -> None:
        self.path, self.version = path, version
        super().__init__(
            f"{path} has log format {version}, newer than this awl: upgrade awl to continue it"
            " (`awl sessions show` can read it)"
        )


class LogChanged(AwlError):
    """The file no longer ends where this writer left it."""

    def __init__(self, path: Path, expected: int, found: int) -> None:
        self.path, self.expected, self.found = path, expected, found
        super().__init__(
            f"{path} was changed by another program (it should end at byte {expected},"
            f" it ends at {found}): resume the session again"
        )


class NotSaved(AwlError):
    """An append failed. The file ends where it did before.

    `kind` is that of what was appended. An intent (a prompt, the start of a tool) is not acted on.
    A fact (an answer, a tool's result) is `queued`, to be written later, unless too much waits
    already. A partial answer is only shown.
    """

    def __init__(
        self,
        path: Path,
        cause: Exception,
        *,
        kind: Literal["intent", "fact", "partial"],
        queued: bool,
        waiting: int = 0,
    ) -> None:
        self.path, self.cause, self.kind = path, cause, kind
        self.queued, self.waiting = queued, waiting
        reason = getattr(cause, "strerror", None) or str(cause)
        where = getattr(cause, "filename", None)
        if where and os.fspath(where) != os.fspath(path):
            reason = f"{reason} ({where})"
        if queued:
            then = f"it is kept in memory and written as soon as that works ({waiting} waiting)"
        elif kind == "intent":
            then = "nothing was done; free space or mend the disk, then try again"
        elif kind == "partial":
            then = "what is shown of the answer is not kept so far"
        else:
            then = f"{waiting} entries wait already, and this one is lost with this process"
        super().__init__(f"NOT SAVED to {path}: {reason}; {then}")


class SessionClosed(AwlError):
    """The session was closed, or belongs to the process that this one was forked from."""


class InvalidEntry(AwlError):
    """An entry cannot be written as JSON. Nothing was written."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the entry cannot be logged: {reason}")


class InvalidTarget(AwlError):
    """An entry id that a rewind or a label cannot point at."""


class NoSuchEntry(AwlError):
    """A session has no entry with this seq. `last` is its last one's, and `near` are those around
    it where it is damaged."""

    def __init__(self, session_id: str, seq: int, last: int, near: Sequence[int] = ()) -> None:
        self.session_id, self.seq, self.last, self.near = session_id, seq, last, tuple(near)
        if near:
            what = f"is damaged: choose {' or '.join(map(str, near))}"
        elif last:
            what = f"does not exist: choose one of 1 to {last}"
        else:
            what = "does not exist: it has none"
        super().__init__(f"entry {seq} of session {session_id} {what}")


class InvalidRange(AwlError):
    """Entries that a condensation cannot replace. Nothing was written."""

    def __init__(self, replaced: tuple[int, int], fault: str) -> None:
        self.replaced, self.fault = replaced, fault
        super().__init__(f"a condensation of entries {replaced[0]}-{replaced[1]} {fault}")


class CannotCondense(AwlError):
    """A conversation was not condensed. Nothing was written, and the whole history is sent."""


class MissingExtra(AwlError):
    """An optional part is not installed."""

    def __init__(self, what: str, command: str) -> None:
        self.what, self.command = what, command
        super().__init__(f"{what} is not installed: run `{command}`")


ProviderFault = Literal[
    "auth",  # the key is missing or refused
    "context_length",  # the request is longer than the model can take
    "rate_limit",  # 429
    "overloaded",  # 5xx
    "connection",  # no answer, or the stream broke off
    "refused",  # 4xx: the request itself was refused
    "picture",  # a picture in the request was refused: this one, or any
    "model",  # no such model
    "internal",  # the provider's part in this process failed
]


class ProviderError(AwlError):
    """A provider did not answer. `fault` says of what kind; `status` is the HTTP status, if any."""

    def __init__(self, message: str, *, fault: ProviderFault, status: int | None = None) -> None:
        self.fault, self.status = fault, status
        super().__init__(message)

    @property
    def transient(self) -> bool:
        """Whether the same request may work in a moment."""
        return self.fault in ("rate_limit", "overloaded", "connection")
