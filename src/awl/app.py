"""A running conversation: the settings, the session, the agent, and what commands ask of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from awl.access import BannerInfo, HistoryItem, SessionRow, Sessions, Wish
from awl.agent import Approver
from awl.beginning import (
    Running,
    Wanted,
    forked,
    go_on,
    named_model,
    new,
    open_store,
)
from awl.config import Config
from awl.conversation import ModelRef
from awl.entries import Entry, RewindEntry, TitleEntry
from awl.errors import AwlError, NoLog
from awl.events import AgentEvent, Notice
from awl.history import banner_info, history
from awl.index.conversations import Logless
from awl.log.names import expanded
from awl.logless import LoglessSession
from awl.others import Others
from awl.places import GoingBack, Labelling, Prompt, going_back, labelling, prompts
from awl.providers import connect, with_base_url
from awl.session import Session
from awl.store.files import describe

_AWL: Final = "awl"


class App:
    """The running conversation and what it needs. Another one may take its place between turns.

    Attributes:
        session, agent: of the conversation that is running now.
        notices: lines to show before it begins.
        notify: takes events that happen between turns.
    """

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        wanted: Wanted,
        approve: Approver | None,
        running: Running,
    ) -> None:
        self.config = config
        self._environ = environ
        self._wanted = wanted
        self._approve = approve
        self._store = open_store(config, environ)
        self.notify: Callable[[AgentEvent], None] = lambda event: None
        self._doing = ""
        self._opening: asyncio.Future[Running] | None = None
        self._others = Others(self._store)
        self._change_to(running)
        self.notices: list[str] = [*config.warnings, *self.session.notices]

    def _change_to(self, running: Running) -> None:
        self.session, self.agent = running
        self.agent.notify = lambda event: self.notify(event)
        self._short_id = ""

    # -- what a terminal asks ----------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The session's id, as short as is unique now; empty while there is no file, and a standing
        notice where there never will be one."""
        if not self.session.kept and not isinstance(self.session, LoglessSession):
            return "not kept"
        if not self.session.resumable:
            return ""
        if not self._short_id:  # asked before each prompt; it takes a look at all sessions
            try:
                self._short_id = self._store.short_ids([self.session.id])[self.session.id]
            except (AwlError, OSError):  # what is shown beside a conversation must not end it
                return self.session.id
        return self._short_id

    @property
    def resume_name(self) -> str:
        """What `--resume` takes for this session: its short id, or its path where that names
        another or none."""
        self._short_id = ""  # there may be others by now that begin so
        try:
            found = self._store.resolve(self.session_id)
        except (AwlError, OSError):
            return str(self.session.path)
        elsewhere = isinstance(found, Path) and found.resolve() != self.session.path.resolve()
        return str(self.session.path) if elsewhere else self.session_id

    @property
    def unsaved(self) -> int:
        return self.session.unsaved

    async def prompt(self, text: str) -> AsyncGenerator[AgentEvent, None]:
        with self._busy("a turn is running"):
            async for event in self.agent.prompt(text):
                yield event

    def cancel(self) -> None:
        self.agent.cancel()

    def warm(self) -> None:
        self.agent.provider.warm()

    def banner(self, notices: Sequence[str]) -> BannerInfo:
        """What a person is told when they go on with this session."""
        info = banner_info(self.session.state, self.session_id, [*notices])
        parent = self.session.header.forked_from
        return msgspec.structs.replace(
            info,
            forked_from=f"{self._short(parent.session_id)} at {parent.seq}" if parent else "",
            brief=not self.config.session.resume.show_banner,
        )

    def _short(self, session_id: str) -> str:
        try:
            return self._store.short_ids([session_id])[session_id]
        except (AwlError, OSError):
            return session_id

    # -- what commands ask -------------------------------------------------------------------------

    @property
    def model(self) -> ModelRef:
        return self.agent.model

    def models(self) -> Sequence[ModelRef]:
        known = [with_base_url(one, self._environ) for one in self.config.providers]
        return [ModelRef(one.name, one.model, one.endpoint) for one in known]

    async def switch_model(self, name: str) -> ModelRef:
        settings = named_model(self.config, name, self.agent.model.provider)
        provider = connect(settings, self._environ)
        before = self.agent.provider
        await self.agent.switch(provider)
        await before.close()
        return provider.ref

    async def history(self, limit: int | None) -> Iterable[HistoryItem]:
        found = history(self.session.state)
        return await asyncio.to_thread(lambda: deque(found, limit))

    async def prompts(self, limit: int | None) -> Sequence[Prompt]:
        found = prompts(self.session.state)
        return await asyncio.to_thread(lambda: list(islice(found, limit)))

    async def rewind(self, name: str) -> GoingBack:
        self._check_log()
        went = await asyncio.to_thread(going_back, self.session.state, name)
        await self._append(RewindEntry(parent_id=went.entry_id))
        return went

    async def label(self, words: str) -> Labelling:
        self._check_log()
        given = labelling(self.session.state, words)
        await self._append(*given.entries)
        return given

    async def title(self, title: str | None) -> str:
        if title is not None:
            self._check_log()
            if not self.session.state.entries:
                raise AwlError("nothing was said yet: a title can be given after the first prompt")
            await self._append(TitleEntry(title=" ".join(title.split())))
        return describe(self.session.path, self.session.state).title

    async def tree(self) -> Sequence[str]:
        self._check_log()
        return await asyncio.to_thread(self._others.tree, self.session)

    async def export(self, path: str, format_name: str | None, *, force: bool) -> Sequence[str]:
        self._check_log()
        if not self.session.resumable:
            raise AwlError("nothing of this conversation was written so far")
        lines = await asyncio.to_thread(
            _exported, self._store.root, self.session, path, format_name, force
        )
        if self.unsaved:
            lines.append(f"left out: {self.unsaved} entries that are not saved yet")
        return lines

    def _check_log(self) -> None:
        """That something can be named or gone back to: there is a log, and nothing is going on."""
        if isinstance(self.session, LoglessSession):
            raise NoLog(self.session.id)
        self._check_idle()

    def _check_idle(self) -> None:
        if self._doing:
            raise AwlError(f"{self._doing}: wait for its end, or stop it")

    @contextlib.contextmanager
    def _busy(self, doing: str) -> Iterator[None]:
        """One thing at a time: a turn, or a change of conversations."""
        self._check_idle()
        self._doing = doing
        try:
            yield
        finally:
            self._doing = ""

    async def _append(self, *entries: Entry) -> None:
        # Given up half-way, nobody would know whether it was done.
        await asyncio.shield(
            asyncio.create_task(asyncio.to_thread(self.session.append_many, entries))
        )

    # -- other conversations -----------------------------------------------------------------------

    async def sessions(self, limit: int | None) -> Sessions:
        return await asyncio.to_thread(self._others.rows, limit, self.session.id)

    async def session_row(self, query: str | None) -> SessionRow:
        return await asyncio.to_thread(
            lambda: self._others.row(self._found(query), self.session.id)
        )

    def session_names(self) -> Iterable[tuple[str, str]]:
        return self._others.completions()

    async def resume(self, query: str, wish: Wish) -> BannerInfo:
        self._check_leaving()
        wanted = self._wanted_now(wish, "/conv resume")
        found = await asyncio.to_thread(self._store.find, query)
        if self._is_here(found):
            raise AwlError(f"{self.session_id} is the conversation that you are in")
        return await self._swap(
            lambda: go_on(self.config, self._environ, wanted, self._approve, found)
        )

    async def fork(self, query: str | None, wish: Wish) -> BannerInfo:
        self._check_leaving()
        wanted = self._wanted_now(wish, "/conv fork")
        found = await asyncio.to_thread(self._found, query)
        source = self.session if self._is_here(found) else found

        def begin() -> Running:
            copy = forked(self.config, self._environ, wanted, source, wish.at)
            try:
                return go_on(self.config, self._environ, wanted, self._approve, copy)
            except AwlError as error:
                raise AwlError(f"{error}; the copy is kept: {copy}") from error

        return await self._swap(begin)

    def _found(self, query: str | None) -> Path | Logless:
        """The session that a person names, by default the running one."""
        if query is not None:
            return self._store.find(query)
        if not self.session.resumable:
            raise AwlError("nothing was said yet: this conversation is no session so far")
        return self._store.find(self.session.id) if not self.session.born else self.session.path

    def _is_here(self, found: Path | Logless) -> bool:
        if isinstance(found, Logless):
            return found.session_id == self.session.id
        return self.session.born and found.samefile(self.session.path)

    def _wanted_now(self, wish: Wish, how: str) -> Wanted:
        """What holds for a conversation that takes this one's place: its own provider, model and
        directory, whatever awl was started with, unless the person says otherwise now."""
        cwd = None
        if wish.cwd is not None:
            directory = Path(self.session.cwd) / expanded(wish.cwd)
            if not directory.is_dir():
                raise AwlError(f"there is no directory {wish.cwd}")
            cwd = str(directory)
        return Wanted(
            provider=wish.provider,
            model=wish.model,
            cwd=cwd,
            max_turns=self._wanted.max_turns,
            how=how,
        )

    def _check_leaving(self) -> None:
        """That another conversation may take this one's place."""
        self._check_idle()
        if waiting := self.session.unsaved:
            entries = "1 entry is" if waiting == 1 else f"{waiting} entries are"
            raise AwlError(
                f"{entries} not saved yet: awl tries again every second, and nothing else begins"
                " before"
            )
        if not self._wanted.kept:
            raise AwlError(
                "nothing of this conversation is kept (--no-session), so it would be gone:"
                " start another awl"
            )

    async def _swap(self, begin: Callable[[], Running]) -> BannerInfo:
        """Let a conversation that `begin` opens take this one's place, which goes on until then,
        and for good if that fails."""
        with self._busy("another conversation is being opened"):
            left = Running(self.session, self.agent)
            self._change_to(await self._opened(begin))
            leaving = asyncio.ensure_future(_leave(left))
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                await leaving  # it is done, so the person must hear of it
        return self.banner(self.session.notices)

    async def _opened(self, begin: Callable[[], Running]) -> Running:
        """What `begin` opens, in a thread. Nothing stays open if that is given up."""
        if self._opening is not None:  # given up, and it may hold the same lock still
            with contextlib.suppress(Exception):
                await asyncio.shield(self._opening)
        self.notify(Notice("Replaying conversation…"))
        given_up = threading.Event()

        def open_it() -> Running:
            running = begin()
            if given_up.is_set():  # here, and not only below: awl may be leaving
                running.session.close("switched")
            return running

        opening = self._opening = asyncio.ensure_future(asyncio.to_thread(open_it))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            given_up.set()
            opening.add_done_callback(_let_go)
            raise

    async def compact(self) -> str:
        self._check_log()
        if not self.session.kept:
            raise AwlError("nothing of this conversation is kept: there is no log to condense")
        with self._busy("the conversation is being condensed"):
            return str(await self.agent.compact())

    async def close(self) -> None:
        """Let go of the model and of the background work. The session stays open."""
        await self.agent.close()
        await self.agent.provider.close()


def _exported(
    root: Path, session: Session, path: str, format_name: str | None, force: bool
) -> list[str]:
    from awl.formats import find, named_by  # with what is seldom needed
    from awl.store.exporting import export

    target = Path(session.cwd) / expanded(path)
    name = format_name or named_by(target) or _AWL
    known = None if name == _AWL else find(name)
    left_out = export(session.path, target, known, root=root, force=force)
    return [f"Written to {target}.", *left_out]


async def _leave(left: Running) -> None:
    """Close a conversation that another one took the place of. Its log comes first."""
    await asyncio.to_thread(left.session.close, "switched")
    with contextlib.suppress(Exception):  # a connection that does not close is nobody's concern
        await left.agent.close()
        await left.agent.provider.close()


def _let_go(opening: asyncio.Future[Running]) -> None:
    """Close a conversation that was opened for nobody."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().session.close("switched")


def begin(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    *,
    approve: Approver | None,
    resume: Path | Logless | None = None,
) -> App:
    """A new conversation, or one that goes on.

    Raises:
        AwlError: a setting, a key, the model or the session's directory is missing; the message
            names the choices. Nothing was written.
    """
    if resume is None:
        running = new(config, environ, wanted, approve)
    else:
        running = go_on(config, environ, wanted, approve, resume)
    return App(config, environ, wanted, approve, running)
