"""Lists, ids and numbers of sessions, from an index that has caught up with the logs."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from awl.errors import AwlError
from awl.index.conversations import Conversations, Logless
from awl.index.database import Database
from awl.index.disk import Disk, Folder
from awl.index.info import Listing, SessionInfo, Status, Summary
from awl.index.patience import Patience
from awl.index.titles import Title
from awl.log.lock import is_locked, owner_path
from awl.log.names import cwd_of_label, encode_cwd, same_directory

SHORTEST_PREFIX: Final = 8
"""Characters of an id that are printed at least."""

if TYPE_CHECKING:
    from awl.index.segments import Segments

# How the file system's names become text: `os.fsdecode`, without its cost for each name.
_NAMES: Final = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
_ORDER: Final = attrgetter("updated", "id", "path")
_TRIES: Final = 3
_MANY: Final = 64  # ids that are shortened all at once
_summary: Final = msgspec.msgpack.Decoder(Summary)


_Ids = list[tuple[str, bytes]]
"""Ids of sessions and the paths of their logs below the root, in order."""


class Catalog:
    """The sessions below a folder. `notices` are lines for a person."""

    def __init__(self, root: Path) -> None:
        self.root = root
        patience = Patience()
        self.database = Database(root / ".awl", patience)
        self.conversations = Conversations(root / ".awl", patience)
        self.segments: Segments | None = None  # of the texts, once there was a search
        self._prefix = f"{root}{os.sep}"
        self._conversations_fault = ""
        self._folders: dict[bytes, Folder] = {}

    @property
    def notices(self) -> list[str]:
        """What a person should know of the databases."""
        fault = self._conversations_fault
        return [*self.database.notices, *([fault] if fault else [])]

    def close(self) -> None:
        """Let go of the databases."""
        self.database.close()
        self.conversations.close()

    def _look(self) -> Disk:
        return Disk(self.root, self._folders)

    def catch_up(self, db: sqlite3.Connection, disk: Disk | None = None) -> list[str]:
        """Bring the index level with the logs. Returns what cannot be read, and why."""
        disk = disk or self._look()
        if is_level(db, disk, self.conversations):
            return disk.unreadable
        from awl.index.level import Level  # a list that nothing changed for does without it

        level = Level(db, self.root, disk, self.conversations)
        if level.fault:
            self._conversations_fault = level.fault
        return level.unreadable

    # -- lists -------------------------------------------------------------------------------------

    def listing(self, cwd: str | None = None, limit: int | None = None) -> Listing:
        """The sessions of a directory, or all; the newest `limit`, oldest first."""

        def work(db: sqlite3.Connection) -> Listing:
            for _ in range(_TRIES):
                disk = self._look()
                unreadable = self.catch_up(db, disk)
                found = self._infos(db, disk, cwd, limit)
                # Another process may have taken in a session that it has not numbered yet.
                if self._conversations_fault or all(info.conversation_id for info in found):
                    break
            found += self._logless_infos(db, cwd)
            found.sort(key=_ORDER)
            return Listing(tuple(found[-limit:] if limit else found), tuple(unreadable))

        return self.database.run(work)

    def _infos(
        self, db: sqlite3.Connection, disk: Disk, cwd: str | None, limit: int | None
    ) -> list[SessionInfo]:
        where, values = scope(db, cwd)
        query = f"SELECT path, info, checksum, number FROM sessions WHERE {where}"  # noqa: S608
        if limit is not None:
            query += " ORDER BY updated DESC, id DESC, path DESC LIMIT ?"
            values.append(limit)
        return [self._info(disk, *row) for row in db.execute(query, values)]

    def _info(
        self, disk: Disk, path: bytes, info: bytes, checksum: int, number: int | None
    ) -> SessionInfo:
        if zlib.crc32(info) != checksum:
            raise sqlite3.DatabaseError("a row's checksum is wrong")
        summary = _decode_summary(info)
        full = f"{self._prefix}{path.decode(*_NAMES)}"
        status: Status = "interrupted" if summary.interrupted else "idle"
        owned = path in disk.owned
        if path in disk.links:  # what belongs to a log lies beside the real one
            full = os.path.realpath(full)
            owned = owner_path(Path(full)).exists()
        if owned and is_locked(Path(full)):
            status = "open"
        cwd = summary.cwd.decode(*_NAMES) or cwd_of_label(os.fsdecode(path.split(b"/")[0]))
        return SessionInfo(
            id=summary.id,
            conversation_id=number,
            title=summary.title,
            status=status,
            cwd=cwd,
            provider=summary.provider,
            model=summary.model,
            created=summary.created,
            updated=summary.updated,
            message_count=summary.message_count,
            event_count=summary.event_count,
            path=full,
            forked_from=summary.forked_from,
        )

    # -- conversations without a log ---------------------------------------------------------------

    def logless(
        self, db: sqlite3.Connection, cwd: str | None = None, ids: _Ids | None = None
    ) -> list[Logless]:
        """The conversations of a directory, or all, that have no log. `ids` are those of the logs,
        where the index is not level."""
        logged = None if ids is None else {session_id for session_id, _ in ids}
        query = "SELECT 1 FROM sessions WHERE folded = ? AND id = ?"

        def has_log(session_id: str) -> bool:
            if logged is not None:
                return session_id in logged
            return db.execute(query, (session_id.lower(), session_id)).fetchone() is not None

        with self._tolerated():
            return [
                one
                for one in self.conversations.all()
                if not has_log(one.session_id) and (cwd is None or same_directory(one.cwd, cwd))
            ]
        return []

    def _logless_infos(self, db: sqlite3.Connection, cwd: str | None) -> list[SessionInfo]:
        found = self.logless(db, cwd)
        numbers: dict[str, int] = {}
        with self._tolerated():
            numbers = self.conversations.numbers(one.session_id for one in found) if found else {}
        return [
            info_of(
                one,
                numbers.get(one.session_id),
                held=is_locked(self.conversations.lock_path(one.session_id)),
            )
            for one in found
        ]

    @contextlib.contextmanager
    def _tolerated(self) -> Iterator[None]:
        """Whatever becomes of the numbers, lists do without them."""
        try:
            yield
        except AwlError as error:
            self._conversations_fault = str(error)

    # -- ids ---------------------------------------------------------------------------------------

    def matching(self, folded: str) -> dict[str, list[Path]]:
        """The logs of the sessions with this id, else of those whose id begins so; by id. A
        conversation without a log has none."""

        def work(db: sqlite3.Connection) -> dict[str, list[Path]]:
            ids = self._glanced(db)
            known = {one.session_id: one.session_id.lower() for one in self.logless(db, ids=ids)}
            found = self._paths(_equal(db, folded, ids))
            found |= {one: [] for one, lower in known.items() if lower == folded}
            if not found and folded:
                found = self._paths(_beginning(db, folded, ids))
                found |= {one: [] for one, lower in known.items() if lower.startswith(folded)}
            return found

        return self.database.run(work)

    def _glanced(self, db: sqlite3.Connection) -> _Ids | None:
        """The ids of all logs, where a glance at those that changed is enough to know them; else
        None, and the index is level."""
        disk = self._look()
        if is_level(db, disk, self.conversations):
            return None
        from awl.index.level import glance  # a list that nothing changed for does without it

        if (ids := glance(db, self.root, disk)) is None:
            self.catch_up(db, disk)
        return ids

    def numbered(self, number: int) -> dict[str, list[Path]]:
        """The logs of the session with this number; by id."""

        def work(db: sqlite3.Connection) -> dict[str, list[Path]]:
            self.catch_up(db)
            query = "SELECT id, path FROM sessions WHERE number = ? ORDER BY path"
            found = self._paths(db.execute(query, (number,)))
            if not found:
                ids = [one.session_id for one in self.logless(db)]
                with self._tolerated():
                    numbers = self.conversations.numbers(ids) if ids else {}
                    found = {one: [] for one, n in numbers.items() if n == number}
            return found

        return self.database.run(work)

    def number_of(self, path: Path) -> int | None:
        """The number of a log's session; None when it has none, or lies elsewhere."""
        name = os.fsencode(Path(path.parent.name, path.name))

        def work(db: sqlite3.Connection) -> int | None:
            self.catch_up(db)
            query = "SELECT number FROM sessions WHERE path = ?"
            row = db.execute(query, (name,)).fetchone()
            return row[0] if row and self._full(name).samefile(path) else None

        return self.database.run(work)

    def ids(self) -> dict[str, list[Path]]:
        """The logs of all sessions by id."""

        def work(db: sqlite3.Connection) -> dict[str, list[Path]]:
            self.catch_up(db)
            found = self._paths(db.execute("SELECT id, path FROM sessions ORDER BY id, path"))
            return found | {one.session_id: [] for one in self.logless(db)}

        return self.database.run(work)

    def short_ids(self, ids: Sequence[str], *, listed: bool = False) -> dict[str, str]:
        """For each id, its shortest prefix that names it alone. What was `listed` just now needs no
        second look at the disk."""

        def work(db: sqlite3.Connection) -> dict[str, str]:
            if not listed:
                self.catch_up(db)
            others = [one.session_id.lower() for one in self.logless(db)]
            if len(ids) > _MANY:
                rows = db.execute("SELECT DISTINCT id FROM sessions")
                return shortened(ids, [*others, *(one.lower() for (one,) in rows)])
            return {one: one[: _length(db, one.lower(), others)] for one in ids}

        return self.database.run(work)

    def _paths(self, rows: Iterable[tuple[str, bytes]]) -> dict[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for session_id, path in rows:
            found.setdefault(session_id, []).append(self._full(path))
        return found

    def _full(self, path: bytes) -> Path:
        full = Path(self._prefix + path.decode(*_NAMES))
        return full.resolve() if full.is_symlink() else full


def _decode_summary(info: bytes) -> Summary:
    try:
        return _summary.decode(info)
    except msgspec.MsgspecError as error:
        raise sqlite3.DatabaseError(f"a row cannot be read: {error}") from None


def is_level(db: sqlite3.Connection, disk: Disk, conversations: Conversations) -> bool:
    """Whether the index was level with just these logs, and nothing changed since."""
    seen = db.execute("SELECT value FROM meta WHERE key = 'seen'").fetchone()
    return seen is not None and seen[0] == disk.digest(conversations.identity())


def _equal(db: sqlite3.Connection, folded: str, ids: _Ids | None) -> _Ids:
    """The logs whose id is this."""
    if ids is not None:
        return [one for one in ids if one[0].lower() == folded]
    query = "SELECT id, path FROM sessions WHERE folded = ? ORDER BY id, path"
    return db.execute(query, (folded,)).fetchall()


def _beginning(db: sqlite3.Connection, folded: str, ids: _Ids | None) -> _Ids:
    """The logs whose id begins so."""
    if ids is not None:
        return [one for one in ids if one[0].lower().startswith(folded)]
    query = "SELECT id, path FROM sessions WHERE folded >= ? AND folded < ? ORDER BY id, path"
    return db.execute(query, (folded, folded + "\U0010ffff")).fetchall()


def scope(db: sqlite3.Connection, cwd: str | None) -> tuple[str, list[bytes | int]]:
    """The condition for the sessions of a directory, or for all, and its values. A session whose
    log does not tell its directory any more belongs where its folder's label says."""
    if cwd is None:
        return "info IS NOT NULL", []
    wanted = os.fsencode(cwd)
    known = [
        directory
        for (directory,) in db.execute("SELECT DISTINCT cwd FROM sessions WHERE cwd != x''")
        if directory == wanted or same_directory(os.fsdecode(directory), cwd)
    ]
    label = os.fsencode(encode_cwd(os.path.realpath(cwd))) + b"/"
    return (
        f"info IS NOT NULL AND (cwd IN ({', '.join('?' * len(known))})"
        " OR (cwd = x'' AND substr(path, 1, ?) = ?))"
    ), [*known, len(label), label]


def info_of(one: Logless, number: int | None, *, held: bool = False) -> SessionInfo:
    """A conversation without a log, as lists show it; `held` by a process that goes on with it."""
    title = Title()
    for said in one.said:
        if said.role == "user":
            title.take(said.text)
    unanswered = bool(one.said) and one.said[-1].role == "user"
    status: Status = "open" if held else "interrupted" if unanswered else "idle"
    return SessionInfo(
        id=one.session_id,
        conversation_id=number,
        title=title.text,
        status=status,
        cwd=one.cwd,
        provider=one.model.provider,
        model=one.model.model,
        created=one.created,
        updated=one.said[-1].timestamp if one.said else one.created,
        message_count=len(one.said),
        event_count=0,
        path="",
    )


def _length(db: sqlite3.Connection, folded: str, others: list[str]) -> int:
    """How many characters of an id tell it from all others."""
    near = [
        *db.execute(
            "SELECT folded FROM sessions WHERE folded < ? ORDER BY folded DESC LIMIT 1", (folded,)
        ),
        *db.execute(
            "SELECT folded FROM sessions WHERE folded > ? ORDER BY folded LIMIT 1", (folded,)
        ),
    ]
    twins = db.execute("SELECT count(DISTINCT id) FROM sessions WHERE folded = ?", (folded,))
    if twins.fetchone()[0] + others.count(folded) != 1:  # unknown, or one of two but for its case
        return len(folded)
    rest = [*(other for (other,) in near), *(other for other in others if other != folded)]
    shared = max((_shared(folded, other) for other in rest), default=0)
    return max(SHORTEST_PREFIX, shared + 1)


def shortened(ids: Sequence[str], known: Iterable[str]) -> dict[str, str]:
    """As `_length` says for each, with one pass over all that are known, in lower case."""
    everything = sorted(known)
    before = [0, *map(_shared, everything, everything[1:]), 0]
    lengths = {
        folded: max(SHORTEST_PREFIX, 1 + max(before[at], before[at + 1]))
        for at, folded in enumerate(everything)
    }
    return {one: one[: lengths.get(one.lower(), len(one))] for one in ids}


def _shared(one: str, other: str) -> int:
    """How many characters two ids have in common at their beginning."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count
