"""The trash: deleted sessions, whole, until they are restored or purged.

`.trash/<time>/<folder>/` holds the log and what belongs to it. Where the log lies decides where the
session is: it leaves first when it is deleted, and comes back last when it is restored, each time
by one rename. What a kill left on the other side is moved after it the next time.

A conversation without a log is marked as deleted in `conversations.db`; so are the rows of one that
got a log later, which would be listed again without it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from awl.entries import Header
from awl.errors import AmbiguousId, AwlError, NotInTrash, SessionExists
from awl.index.catalog import Catalog, info_of, shortened
from awl.index.conversations import Logless
from awl.index.summary import read_on
from awl.log.birth import sweep
from awl.log.blobs import Blobs
from awl.log.durable import make_directories, sync_directory, sync_name
from awl.log.file import torn_files
from awl.log.line import BadLine, decode
from awl.log.lock import open_locked, owner_path
from awl.log.names import expanded, now, parse_log_name
from awl.log.scan import BOM

NAME: Final = ".trash"

_STAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3})Z(?:-\d+)?", re.ASCII)
_COMPANION: Final = re.compile(r"(.+?)(?:\.jsonl\.torn-.*|\.blobs)", re.DOTALL)


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted session as lists show it. `deleted` is when that was; `path` is that of its log in
    the trash, empty for a conversation that has none."""

    id: str
    title: str
    cwd: str
    created: str
    updated: str
    message_count: int
    deleted: str
    path: str


class _Item(NamedTuple):
    """A session in the trash: its log there, where that belongs, and when it was deleted."""

    log: Path
    home: Path
    deleted: str

    @property
    def place(self) -> Path:
        return self.log.parent


class Trash:
    """What was deleted of the sessions below a root.

    Attributes:
        notices: what a person should know of it, a line each.
    """

    def __init__(self, root: Path, catalog: Catalog) -> None:
        self._root = root
        self._catalog = catalog
        self._rows = catalog.conversations
        self.notices: list[str] = []

    def take(self, found: Path | Logless, *, purge: bool) -> str:
        """Delete a session, for good if it is to be purged. Returns its id.

        Raises:
            SessionBusy: it is open; the error names the holder.
            AwlError: its log lies outside the root.
            OSError: it cannot be moved; then it is where it was.
        """
        self._tidy()
        if isinstance(found, Logless):
            session_id = found.session_id
            self._rows.trash(session_id, now())
        else:
            session_id = self._take_log(found, purge=purge)
        if purge:
            self._rows.forget(session_id)
        return session_id

    def contents(self) -> list[Deleted]:
        """What can be restored, the oldest deletion first."""
        found = [_describe(item) for item in _items(self._root)]
        known = {one.id for one in found}
        for rows, when in self._deleted_rows():
            if rows.session_id not in known:
                info = info_of(rows, None)
                found.append(
                    Deleted(
                        id=info.id,
                        title=info.title,
                        cwd=info.cwd,
                        created=info.created,
                        updated=info.updated,
                        message_count=info.message_count,
                        deleted=when,
                        path="",
                    )
                )
        return sorted(found, key=lambda one: one.deleted)

    def restore(self, query: str) -> str:
        """Bring back a session by its id, a unique prefix of it, its number, or the path of its log
        in the trash. Of several with one id it is the one that was deleted last. Returns the id.

        Raises:
            NotInTrash, AmbiguousId: nothing matches, or several do; the error lists candidates.
            SessionExists: there is a session with this id again.
            SessionBusy: another process is at it.
            OSError: it cannot be moved; then it is in the trash.
        """
        self._tidy()
        session_id, item = self._found(query)
        if item is not None:
            paths = self._catalog.matching(session_id.lower()).get(session_id)
            if paths:
                raise SessionExists(paths[0], "delete that one first")
            _bring_back(item)
        with contextlib.suppress(*([AwlError] if item else [])):  # its rows show nowhere
            self._rows.restore(session_id)
        return session_id

    # -- inside ------------------------------------------------------------------------------------

    def _take_log(self, log: Path, *, purge: bool) -> str:
        home = log.parent
        inside = home.parent == self._root.resolve() and not home.name.startswith(".")
        if not inside or parse_log_name(log.name) is None:
            raise AwlError(f"{log} is no session in {self._root}: remove the file yourself")
        sweep(home)
        fd = open_locked(log)
        try:
            session_id = _id_of(log)
            sync_name(log)  # who made it may have been killed before: it must not be there twice
            with contextlib.suppress(AwlError):  # numbers are missing, too, where it is unusable
                self._rows.trash(session_id, now())
            item = _throw(self._root, log)
            if purge:
                item.log.unlink()  # first, so that no part of a session is left
                sync_directory(item.place)
                _remove_rest(item.place)
        finally:
            os.close(fd)
        return session_id

    def _found(self, query: str) -> tuple[str, _Item | None]:
        there: dict[str, _Item | None] = {rows.session_id: None for rows, _ in self._deleted_rows()}
        there |= {_id_of(item.log): item for item in _items(self._root)}
        if os.sep in query and "\0" not in query:
            wanted = expanded(query).resolve()
            for item in _items(self._root.resolve()):
                if item.log == wanted:
                    return _id_of(item.log), item
        folded = query.strip().lower()
        if folded.startswith("#"):
            numbers = self._rows.numbers(there) if there else {}
            matches = [one for one in there if f"#{numbers[one]}" == folded]
        else:
            matches = [one for one in there if one.lower() == folded] or [
                one for one in there if folded and one.lower().startswith(folded)
            ]
        short = shortened(list(there), map(str.lower, there))
        if not matches:
            raise NotInTrash(query, [short[one] for one in there][-10:])
        if len(matches) > 1:
            raise AmbiguousId(query, [short[one] for one in matches][-10:])
        return matches[0], there[matches[0]]

    def _deleted_rows(self) -> list[tuple[Logless, str]]:
        """The deleted conversations that have no log now; where nobody can tell, none."""
        try:
            trashed = self._rows.trashed()
        except AwlError as error:
            self.notices.append(f"{error}: conversations without a log are not looked for")
            return []
        return [
            (rows, when)
            for rows, when in trashed
            if not self._catalog.matching(rows.session_id.lower()).get(rows.session_id)
        ]

    def _tidy(self) -> None:
        """End what a kill interrupted. What another process is at, or what cannot be moved, stays:
        it is in nobody's way."""
        with contextlib.suppress(OSError):
            for item in _items(self._root):
                with contextlib.suppress(OSError, AwlError):
                    _bring_after(item)
            for _, place in _places(self._root):
                _remove_rest(place)


def _items(root: Path) -> Iterator[_Item]:
    """What is in the trash, the oldest deletion first."""
    for deleted, place in _places(root):
        for log in sorted(place.iterdir()):
            if parse_log_name(log.name) is not None:
                yield _Item(log, root / place.name / log.name, deleted)


def _places(root: Path) -> Iterator[tuple[str, Path]]:
    """The folders of the trash that hold a session each, and when that was deleted."""
    trash = root / NAME
    for deletion in sorted(trash.iterdir()) if trash.is_dir() else ():
        match = _STAMP.fullmatch(deletion.name)
        if match is not None:
            day, hour, minute, second, ms = match.groups()
            for place in sorted(deletion.iterdir()):
                yield f"{day}T{hour}:{minute}:{second}.{ms}Z", place


def _throw(root: Path, log: Path) -> _Item:
    """Move a log that is locked, and then what belongs to it, to a new folder of the trash."""
    make_directories(root / NAME)
    while True:
        deleted = now()
        place = _new_folder(root / NAME / re.sub(r"[:.]", "-", deleted)) / log.parent.name
        item = _Item(place / log.name, log, deleted)
        try:
            make_directories(place)
            # A log must not move to where nothing may be left: who made the trash may have been
            # killed before its name was durable.
            for folder in (root, root / NAME):
                sync_directory(folder)
            log.rename(item.log)
            break
        except FileNotFoundError:  # another process took the empty folder for a leftover
            if not log.exists():
                raise
    for folder in (item.place, log.parent):
        sync_directory(folder)
    _follow(log, item.place)
    return item


def _bring_back(item: _Item) -> None:
    fd = open_locked(item.log)
    try:
        if os.path.lexists(item.home):
            raise SessionExists(item.home, "move that file away first")
        make_directories(item.home.parent)
        _settle(item.place)
        _follow(item.log, item.home.parent)
        item.log.rename(item.home)
        sync_directory(item.home.parent)
        sync_directory(item.place)
    finally:
        os.close(fd)
    _remove_rest(item.place)


def _bring_after(item: _Item) -> None:
    """Move what belongs to a log in the trash after it."""
    if not any(path.exists() for path in _companions(item.home)):
        return
    fd = open_locked(item.log, patience=0)
    try:
        if not os.path.lexists(item.home):
            _settle(item.place)
            _follow(item.home, item.place)
    finally:
        os.close(fd)


def _new_folder(path: Path) -> Path:
    wanted, n = path, 1
    while True:
        try:
            wanted.mkdir(mode=0o700)
        except FileExistsError:
            n += 1
            wanted = path.with_name(f"{path.name}-{n}")
        else:
            wanted.chmod(0o700)
            return wanted


def _companions(log: Path) -> list[Path]:
    """What lies beside a log and belongs to it, as far as it is there."""
    with contextlib.suppress(FileNotFoundError):
        return [path for path in (Blobs(log).directory, *torn_files(log)) if path.exists()]
    return []


def _follow(log: Path, place: Path) -> None:
    """Move what belongs to a log to another folder."""
    owner_path(log).unlink(missing_ok=True)  # nobody has it open
    for path in _companions(log):
        _move(path, place / path.name)
        sync_directory(place)
        sync_directory(log.parent)


def _move(source: Path, target: Path) -> None:
    """Move a file or a folder; into what is there of the folder already, and over no other file."""
    if source.is_dir() and target.is_dir():
        for inside in source.iterdir():
            _move(inside, target / inside.name)
        sync_directory(target)
        source.rmdir()
    elif target.is_file() and source.read_bytes() == target.read_bytes():
        source.unlink()
    else:
        free, n = target, 1
        while os.path.lexists(free):
            n += 1
            free = target.with_name(f"{target.name}-{n}")
        source.rename(free)


def _settle(place: Path) -> None:
    """Make durable where the log of a folder of the trash is: who moved it may have been killed
    before, and what belongs to it must not be moved or removed on the strength of that."""
    root = place.parent.parent.parent
    for folder in (root / place.name, place):
        with contextlib.suppress(FileNotFoundError):
            sync_directory(folder)


def _remove_rest(place: Path) -> None:
    """Remove what belongs to logs that are not in this folder of the trash any more, and the folder
    if nothing is left. A log comes here before what belongs to it and leaves after it, unless it
    was purged: that is what this tells."""
    with contextlib.suppress(OSError):
        if any(parse_log_name(path.name) for path in place.iterdir()):
            return
        _settle(place)
        for path in place.iterdir():
            match = _COMPANION.fullmatch(path.name)
            if match is None or os.path.lexists(place / f"{match[1]}.jsonl"):
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        place.rmdir()
        place.parent.rmdir()


def _id_of(log: Path) -> str:
    """The id in a log's header, else in its name."""
    named = parse_log_name(log.name)
    assert named is not None
    try:
        with log.open("rb") as file:
            header = decode(file.readline().removeprefix(BOM))
    except (OSError, BadLine):
        return named.session_id
    return header.id if isinstance(header, Header) else named.session_id


def _describe(item: _Item) -> Deleted:
    """What lists show of a log in the trash. What cannot be read of it is empty."""
    summary = None
    with contextlib.suppress(OSError):
        fd = os.open(item.log, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        try:
            summary, _ = read_on(fd, item.log, None)
        finally:
            os.close(fd)
    return Deleted(
        id=_id_of(item.log),
        title=summary.title if summary else "",
        cwd=os.fsdecode(summary.cwd) if summary else "",
        created=summary.created if summary else "",
        updated=summary.updated if summary else "",
        message_count=summary.message_count if summary else 0,
        deleted=item.deleted,
        path=str(item.log),
    )
