"""Sessions as files in one folder: make, find, open and list them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from awl.conversation import ModelRef
from awl.entries import ForkedFrom, Header
from awl.errors import AmbiguousId, AwlError, NotASession, SessionNotFound
from awl.log.file import is_locked, owner_path
from awl.log.line import BadLine, decode
from awl.log.names import parse_log_name, same_directory
from awl.log.scan import BOM
from awl.replay import read
from awl.session import Session
from awl.state import State

SHORTEST_PREFIX: Final = 8
"""Characters of an id that are printed at least."""

_LONGEST_HEADER: Final = 1 << 16  # bytes; a longer first line is not a header that awl wrote

Paths = list[Path]
Lines = list[str]
Status = Literal["open", "interrupted", "idle"]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session as lists show it. Times are ISO 8601 in UTC.

    `status`: open (a process holds it), interrupted (its last turn has an open call or no finished
    answer) or idle. `updated` is when something last happened in it, by its own entries.
    """

    id: str
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


class Store:
    """The sessions below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, cwd: str, model: ModelRef) -> Session:
        """A new session; its file appears with the first append."""
        return Session.create(self.root, cwd, model)

    def open(self, query: str | Path, *, cwd: str | None = None) -> Session:
        """Open a session for writing by id, unique prefix or path.

        Raises:
            SessionNotFound, AmbiguousId, and what `Session.open` raises.
        """
        path = query if isinstance(query, Path) else self.resolve(query)
        return Session.open(path, cwd=cwd)

    def latest(self, cwd: str) -> Path | None:
        """The log of the session of a directory in which something happened last."""
        sessions = self.list(cwd).sessions
        return Path(sessions[-1].path) if sessions else None

    def list(self, cwd: str | None = None) -> Listing:
        """The sessions of a directory, or all. A file that cannot be read hides no other."""
        found: list[SessionInfo] = []
        unreadable: list[str] = []
        for path in self.logs(unreadable):
            try:
                state = read(path)
            except NotASession:
                continue  # nothing in it was ever acknowledged
            except (OSError, AwlError) as error:
                unreadable.append(f"{path}: {_reason(error)}")
                continue
            if cwd is None or same_directory(state.cwd, cwd):
                found.append(describe(path, state))
        found.sort(key=lambda info: (info.updated, info.id))
        return Listing(tuple(found), tuple(unreadable))

    def logs(self, unreadable: Lines | None = None) -> Iterator[Path]:
        """All logs, in order of name. The trash and the databases are passed over; a folder that
        cannot be read is added to `unreadable` and hides no other."""
        for folder in _entries(self.root):
            if folder.name.startswith(".") or not folder.is_dir():
                continue
            try:
                files = _entries(folder.path)
            except OSError as error:
                if unreadable is not None:
                    unreadable.append(f"{folder.path}: {_reason(error)}")
                continue
            for file in files:
                if parse_log_name(file.name) and file.is_file():
                    path = Path(file.path)
                    # What belongs to a log lies beside the real one.
                    yield path.resolve() if file.is_symlink() else path

    def ids(self) -> dict[str, Paths]:
        """The logs by the id of their session: of the header, else of the file's name."""
        found: dict[str, Paths] = {}
        for path in self.logs():
            session_id = _id_of(path)
            if session_id:
                found.setdefault(session_id, []).append(path)
        return found

    def resolve(self, query: str) -> Path:
        """The log that an id, a unique prefix of one, or a path names.

        Raises:
            SessionNotFound: nothing matches; the error lists what looks alike.
            AmbiguousId: several match, or two files have this id.
        """
        if os.sep in query or query.endswith(".jsonl"):
            path = Path(query).expanduser()
            if path.is_file():
                return path.resolve()  # what belongs to a log lies beside the real one
            raise SessionNotFound(query)
        ids = self.ids()
        wanted = query.strip().lower()
        matches = [known for known in ids if known.lower() == wanted] or [
            known for known in ids if wanted and known.lower().startswith(wanted)
        ]
        if len(matches) > 1:
            raise AmbiguousId(query, self._shown(matches, ids))
        if not matches:
            raise SessionNotFound(query, self._shown(_alike(wanted, list(ids)), ids))
        paths = ids[matches[0]]
        if len(paths) > 1:
            raise AmbiguousId(query, [str(path) for path in paths])
        return paths[0]

    def short_ids(self, ids: Sequence[str] | None = None) -> dict[str, str]:
        """For each id, its shortest prefix that names it alone."""
        everything = sorted(self.ids(), key=str.lower)
        short = {}
        for index, session_id in enumerate(everything):
            shared = max(
                (
                    _shared(session_id, other)
                    for other in everything[max(0, index - 1) : index + 2]
                    if other != session_id
                ),
                default=0,
            )
            short[session_id] = session_id[: max(SHORTEST_PREFIX, shared + 1)]
        wanted = everything if ids is None else ids
        return {session_id: short.get(session_id, session_id) for session_id in wanted}

    def _shown(self, ids: Sequence[str], known: Collection[str]) -> Sequence[str]:
        short = self.short_ids(ids)
        return [short[session_id] for session_id in sorted(ids) if session_id in known][:10]


def describe(path: Path, state: State) -> SessionInfo:
    """What lists show of a session."""
    header = state.header
    assert header is not None
    model = state.active_model
    return SessionInfo(
        id=header.id,
        title=state.given_title or title_of(state.first_prompt),
        status=status_of(path, state),
        cwd=state.cwd,
        provider=model.provider,
        model=model.model,
        created=header.timestamp,
        updated=state.updated or header.timestamp,
        message_count=state.message_count,
        event_count=len(state.entries),
        path=str(path),
        forked_from=header.forked_from,
    )


def status_of(path: Path, state: State) -> Status:
    """Whether a session is open, was interrupted, or rests."""
    if owner_path(path).exists() and is_locked(path):
        return "open"
    return "interrupted" if state.interrupted else "idle"


def title_of(prompt: str) -> str:
    """A title from a prompt: its first line that has words."""
    first = next((line.strip() for line in prompt.split("\n") if line.strip()), "")
    return first if len(first) <= 80 else first[:79].rstrip() + "…"


def _id_of(path: Path) -> str | None:
    """The id of a log's session, from its first line alone."""
    try:
        with path.open("rb") as file:
            header = decode(file.readline(_LONGEST_HEADER).removeprefix(BOM))
        if isinstance(header, Header) and header.id:
            return header.id
    except (OSError, BadLine):
        pass
    named = parse_log_name(path.name)
    return named.session_id if named else None


def _shared(one: str, other: str) -> int:
    """How many characters two ids have in common at their beginning, whatever their case."""
    pairs = zip(one.lower(), other.lower(), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _alike(query: str, ids: list[str]) -> list[str]:
    import difflib  # only when a person mistyped

    size = max(len(query), SHORTEST_PREFIX)
    heads = {session_id[:size].lower() for session_id in ids}
    close = difflib.get_close_matches(query, heads, n=5, cutoff=0.6)
    return [session_id for session_id in ids if session_id[:size].lower() in close]


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
