"""The conversations there are, as the running one sees them: what `/conv` lists and shows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from awl.access import SessionRow, Sessions
from awl.errors import AwlError
from awl.index.catalog import info_of
from awl.index.conversations import Logless
from awl.printing import one_line
from awl.replay import read
from awl.session import Session
from awl.store.files import SessionInfo, Store, describe
from awl.tree import children_of, drawn, tree

_NAMES: Final = 50
"""Sessions whose ids are completed."""

_FRESH: Final = 2.0
"""Seconds for which the names that complete an id are not looked up again: a key is pressed more
often than that."""


class Others:
    """Looks at all sessions. `here` is the id of the running one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._looked = 0.0
        self._names: list[tuple[str, str]] = []

    def rows(self, limit: int | None, here: str) -> Sessions:
        """The newest sessions of all directories, the newest last."""
        listing = self._store.list(limit=None if limit is None else limit + 1)
        found = listing.sessions[-limit:] if limit else listing.sessions
        names = self._store.short_ids([info.id for info in found])
        unreadable = [f"cannot be read: {problem}" for problem in listing.unreadable]
        return Sessions(
            rows=tuple(_row(info, names, here) for info in found),
            more=len(found) < len(listing.sessions),
            notices=(*self._store.notices, *unreadable),
        )

    def row(self, wanted: Path | Logless, here: str) -> SessionRow:
        """One session, with its parent and its forks."""
        known = self._store.list().sessions
        info = _info(wanted, known)
        parent = info.forked_from
        forks = [one.id for one in children_of(info.id, known)]
        names = self.names_of([info.id, *forks, *([parent.session_id] if parent else [])])
        return msgspec.structs.replace(
            _row(info, names, here),
            parent=f"{names[parent.session_id]} at {parent.seq}" if parent else "",
            forks=tuple(names[one] for one in forks),
        )

    def tree(self, session: Session) -> list[str]:
        """The branches of a session, drawn."""
        forks = children_of(session.id, self._store.list().sessions)
        return list(drawn(tree(session.state, forks), self.names_of([one.id for one in forks])))

    def names_of(self, ids: Sequence[str]) -> Mapping[str, str]:
        """Ids as short as is unique."""
        return self._store.short_ids(ids)

    def completions(self) -> list[tuple[str, str]]:
        """The ids of the newest sessions, the newest first, and their titles."""
        if time.monotonic() - self._looked > _FRESH:
            try:
                found = self._store.list(limit=_NAMES).sessions[::-1]
                names = self.names_of([info.id for info in found])
            except (AwlError, OSError):  # what is offered while a person types must not end that
                return []
            self._names = [(names[info.id], one_line(info.title, 60)) for info in found]
            self._looked = time.monotonic()
        return self._names


def _row(info: SessionInfo, names: Mapping[str, str], here: str) -> SessionRow:
    return SessionRow(name=names[info.id], info=info, here=info.id == here)


def _info(wanted: Path | Logless, known: Sequence[SessionInfo]) -> SessionInfo:
    if isinstance(wanted, Logless):
        listed = (one for one in known if not one.path and one.id == wanted.session_id)
        return next(listed, None) or info_of(wanted, None)
    listed = (one for one in known if one.path == str(wanted))
    return next(listed, None) or describe(wanted, read(wanted))  # it lies elsewhere
