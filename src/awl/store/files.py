"""Sessions as files in one folder: make, find, open, list, search and name them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from awl.conversation import ModelRef
from awl.entries import ForkPointEntry, TitleEntry
from awl.errors import AmbiguousId, AwlError, NoLog, NoSuchEntry, SessionNotFound
from awl.index.catalog import SHORTEST_PREFIX, Catalog
from awl.index.conversations import Logless
from awl.index.info import Listing, SessionInfo, Status
from awl.index.titles import Title
from awl.log.lock import is_locked, owner_path
from awl.log.names import expanded, in_utc, parse_log_name
from awl.printing import is_text

if TYPE_CHECKING:
    from awl.index.fulltext import Found
    from awl.index.intake import Progress
    from awl.session import Session
    from awl.state import State
    from awl.store.receiving import Reception
    from awl.store.trash import Trash

__all__ = [
    "SHORTEST_PREFIX",
    "Listing",
    "SessionInfo",
    "Status",
    "Store",
    "describe",
    "status_of",
]

Paths = list[Path]
Lines = list[str]


class Store:
    """The sessions below one folder. What is asked of them comes from their index, which catches
    up with the logs first; where it cannot be used, from the logs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.catalog = Catalog(root)
        self._mended: Lines = []

    @property
    def notices(self) -> Lines:
        """What a person should know of the index, and of logs that were mended, a line each."""
        return [*self.catalog.notices, *self._mended]

    def close(self) -> None:
        """Let go of the index. Sessions that were opened stay open."""
        self.catalog.close()

    def create(self, cwd: str, model: ModelRef) -> Session:
        """A new session; its file appears with the first append."""
        from awl.session import Session  # lists do without it

        return Session.create(self.root, cwd, model)

    def open(self, query: str | Path, *, cwd: str | None = None) -> Session:
        """Open a session for writing by id, unique prefix, number or path.

        Raises:
            SessionNotFound, AmbiguousId, NoLog, and what `Session.open` raises.
        """
        from awl.session import Session

        path = query if isinstance(query, Path) else self.resolve(query)
        return Session.open(path, cwd=cwd)

    def rename(self, query: str | Path, title: str) -> None:
        """Give a session a title.

        Raises:
            SessionBusy: it is open elsewhere; the error names the holder.
            AwlError: the title is empty, and what `open` raises.
        """
        title = " ".join(title.split())
        if not title:
            raise AwlError("a title needs words")
        session = self.open(query)
        try:
            session.append(TitleEntry(title=title))
        finally:
            session.close()

    def fork(self, source: Session | str | Path, *, at: int | None = None) -> Path:
        """Begin a new session with what another one holds, up to entry `at`, or all of it.

        The child is complete or absent; the parent keeps every byte, and is told of the child where
        it can be: through its open `Session`, or else if nobody holds it. A conversation without a
        log gets one first.

        Args:
            source: an open session, or an id, a prefix, a number or the path of a log.
            at: the seq of the last entry that the child has.

        Returns:
            The child's log.

        Raises:
            NoSuchEntry: there is no entry `at`, or it is damaged; the error names what there is.
            NotSaved: the session has entries that wait to be written.
            NoLog: it is an open conversation that is kept without a log, or not at all.
            SessionNotFound, AmbiguousId, NotASession, OSError.
        """
        from awl.session import Session  # lists do without it
        from awl.store.fork import Cut, fork, note_in

        if isinstance(source, Session):
            return self._fork_open(source, at)
        # What belongs to a log lies beside the real one.
        parent = source.resolve() if isinstance(source, Path) else self.find(source)
        if not isinstance(parent, Path):
            return self._fork_logless(parent, at)

        def tell(point: ForkPointEntry, cut: Cut) -> None:
            with contextlib.suppress(AwlError, OSError):  # the child's header says it, too
                self._mended += note_in(parent, point, cut)

        return fork(self.root, parent, at, tell)

    def _fork_open(self, session: Session, at: int | None) -> Path:
        from awl.store.fork import Cut, fork

        if not session.resumable:
            raise AwlError("nothing of this conversation was written yet: there is nothing to fork")
        if not session.kept:
            raise NoLog(session.id)
        session.flush()

        def tell(point: ForkPointEntry, cut: Cut) -> None:
            with contextlib.suppress(AwlError, OSError):
                session.append(point)

        return fork(self.root, session.path, at, tell)

    def _fork_logless(self, parent: Logless, at: int | None) -> Path:
        from awl.logless import Hold, given_log

        if at not in (None, 1):  # what was said before is one entry
            raise NoSuchEntry(parent.session_id, at or 0, 1)
        hold = Hold(self.catalog.conversations, parent.session_id)
        try:
            now = self.find(parent.session_id)
            if isinstance(now, Path):  # another process has meanwhile given it a log
                return self.fork(now, at=at)
            session = given_log(self.root, now)
        finally:
            hold.release()
        try:
            return self._fork_open(session, at)
        finally:
            session.close()

    def children(self, session_id: str) -> Sequence[SessionInfo]:
        """The forks of a session, as their own headers tell."""
        return [
            info
            for info in self.list().sessions
            if info.forked_from and info.forked_from.session_id == session_id
        ]

    def reception(self, *, keep_id: bool = False, dry_run: bool = False) -> Reception:
        """What takes in awl's own files; with `keep_id`, it fails rather than give a new id, and
        with `dry_run` it only tells what would become of them."""
        from awl.store.receiving import Reception

        forks: dict[str, Paths] = {}
        for info in self.list().sessions:
            if info.forked_from is not None:
                forks.setdefault(info.forked_from.session_id, []).append(Path(info.path))
        return Reception(self.root, self.ids(), forks, keep_id=keep_id, dry_run=dry_run)

    def take_conversations(self, folder: Path) -> Lines:
        """Take in the conversations without a log that a backup holds. Returns their ids.

        Raises:
            AwlError: the backup's, or the ones here, cannot be used.
        """
        from awl.store.receiving import conversations_in

        rows, taken = self.catalog.conversations, []
        known = {*self.ids(), *(one.session_id for one, _ in rows.trashed())}
        for one in conversations_in(folder):
            if one.session_id not in known:
                rows.append(one, one.said)
                taken.append(one.session_id)
        return taken

    # -- the trash ---------------------------------------------------------------------------------

    @property
    def trash(self) -> Trash:
        """What was deleted."""
        from awl.store.trash import Trash

        return Trash(self.root, self.catalog)

    def delete(self, query: str | Path, *, purge: bool = False) -> str:
        """Move a session to the trash, whole or not at all; with `purge`, remove it for good. Its
        number is never given again. Returns its id.

        Raises:
            SessionBusy: it is open; the error names the holder.
            AwlError: its log lies outside the store.
            SessionNotFound, AmbiguousId, OSError.
        """
        found = query if isinstance(query, Path) else self.find(query)
        session_id = self.trash.take(found, purge=purge)
        if purge:
            self.list(limit=1)  # what was said leaves the index, too
        return session_id

    # -- lists and search --------------------------------------------------------------------------

    def latest(self, cwd: str) -> Path | None:
        """The log of the session of a directory in which something happened last."""
        logged = [info for info in self.list(cwd).sessions if info.path]
        return Path(logged[-1].path) if logged else None

    def newest(self, listing: Listing) -> Path | Logless | None:
        """The last of a list: the log of a session, or a conversation that has none."""
        found = listing.sessions[-1] if listing.sessions else None
        if found is not None and not found.path:
            return self.catalog.conversations.get(found.id)
        return Path(found.path) if found is not None else None

    def find(self, query: str) -> Path | Logless:
        """The log that `resolve` gives, or a conversation that has none.

        Raises:
            SessionNotFound, AmbiguousId: as `resolve`.
        """
        try:
            return self.resolve(query)
        except NoLog as error:
            found = self.catalog.conversations.get(error.session_id)
            if found is None:
                raise SessionNotFound(query) from None
            return found

    def list(self, cwd: str | None = None, *, limit: int | None = None) -> Listing:
        """The sessions of a directory, or all; only the newest `limit`. A file that cannot be read
        hides no other."""
        return self.catalog.listing(cwd, limit)

    def search(
        self,
        query: str,
        *,
        cwd: str | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Found:
        """The entries of a directory's sessions, or of all, that hold every word of a query, and
        whole what is in quotes; wherever in a word, whatever the case.

        Raises:
            AwlError: the query is empty.
        """
        from awl.index.fulltext import search  # lists do without it

        return search(self.catalog, query, cwd=cwd, limit=limit, progress=progress)

    def reindex(self, progress: Progress | None = None) -> Listing:
        """Build the index anew, with all texts.

        Raises:
            Unusable: another process does the same, it is a newer awl's, or it cannot be written.
        """
        from awl.index.intake import rebuild  # lists do without it

        rebuild(self.catalog, progress)
        return self.list()

    def logs(self, unreadable: Lines | None = None) -> Iterator[Path]:
        """All logs, in order of name. The trash and the databases are passed over; a folder or
        a log that cannot be read is added to `unreadable` and hides no other."""
        missed: Lines = [] if unreadable is None else unreadable
        for folder in _entries(self.root):
            if folder.name.startswith("."):
                continue
            try:
                files = _entries(folder.path) if folder.is_dir() else []
            except OSError as error:
                missed.append(f"{folder.path}: {error.strerror or error}")
                continue
            for file in files:
                try:
                    if not parse_log_name(file.name) or not file.is_file():
                        continue
                except OSError as error:
                    missed.append(f"{file.path}: {error.strerror or error}")
                    continue
                path = Path(file.path)
                # What belongs to a log lies beside the real one.
                yield path.resolve() if file.is_symlink() else path

    # -- ids ---------------------------------------------------------------------------------------

    def ids(self) -> dict[str, Paths]:
        """The logs by the id of their session: of the header, else of the file's name. A
        conversation without a log has none."""
        return self.catalog.ids()

    def resolve(self, query: str) -> Path:
        """The log that an id, a unique prefix of one, a number (`#7`) or a path names.

        Raises:
            SessionNotFound: nothing matches; the error lists what looks alike.
            AmbiguousId: several match, or two files have this id.
            NoLog: it is a conversation that was kept without a log.
        """
        if os.sep in query or query.endswith(".jsonl"):
            path = expanded(query)
            if path.is_file():
                return path.resolve()  # what belongs to a log lies beside the real one
            raise SessionNotFound(query)
        session_id, paths = self._found(query)
        if len(paths) > 1:
            raise AmbiguousId(query, [str(path) for path in paths])
        if not paths:
            raise NoLog(session_id)
        return paths[0]

    def _found(self, query: str) -> tuple[str, Paths]:
        wanted = query.strip().lower()
        if not is_text(wanted):  # bytes that are not UTF-8: no id has any
            raise SessionNotFound(query)
        number = wanted.removeprefix("#")
        if number != wanted and number.isascii() and number.isdigit() and len(number) < 19:
            matches = self.catalog.numbered(int(number))
        else:
            matches = self.catalog.matching(wanted)
        if not matches:
            raise SessionNotFound(query, self._shown(_alike(wanted, list(self.ids()))))
        if len(matches) > 1 and query.strip() in matches:  # ids may differ in case alone
            return query.strip(), matches[query.strip()]
        if len(matches) > 1:
            shown = self._shown(list(matches))
            raise AmbiguousId(query, shown, len(matches) - len(shown))
        return next(iter(matches.items()))

    def number_of(self, path: Path) -> int | None:
        """The number of a log's session on this machine; None for a log that lies elsewhere."""
        return self.catalog.number_of(path)

    def short_ids(
        self, ids: Sequence[str] | None = None, *, listed: bool = False
    ) -> dict[str, str]:
        """For each id, its shortest prefix that names it alone. Those that were `listed` just now
        cost no second look at the disk."""
        return self.catalog.short_ids(list(self.ids()) if ids is None else ids, listed=listed)

    def _shown(self, ids: Sequence[str]) -> Sequence[str]:
        short = self.short_ids(ids)
        return [short[session_id] for session_id in sorted(ids)][:10]


def describe(path: Path, state: State, conversation_id: int | None = None) -> SessionInfo:
    """What lists show of a session."""
    header = state.header
    assert header is not None
    model = state.active_model
    return SessionInfo(
        id=header.id,
        conversation_id=conversation_id,
        title=_title(state) if state.given_title is None else state.given_title,
        status=status_of(path, state),
        cwd=state.cwd,
        provider=model.provider,
        model=model.model,
        created=in_utc(header.timestamp),
        updated=in_utc(state.updated or header.timestamp),
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


def _title(state: State) -> str:
    title = Title()
    for prompt in state.prompts():
        title.take(prompt)
        if title.found:
            break
    return title.text


def _alike(query: str, ids: list[str]) -> list[str]:
    import difflib  # only when a person mistyped

    size = max(len(query), SHORTEST_PREFIX)
    heads = {session_id[:size].lower() for session_id in ids}
    close = difflib.get_close_matches(query, heads, n=5, cutoff=0.6)
    return [session_id for session_id in ids if session_id[:size].lower() in close]


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
