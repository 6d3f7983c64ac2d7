"""A running conversation: the settings, the session, the agent, and what commands ask of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from awl.agent import Agent, Approver
from awl.commands import BannerInfo, HistoryItem, SessionRow, Sessions, Wish
from awl.condense import Progress
from awl.config import Config, ProviderSettings, choose_provider, sessions_dir
from awl.conversation import ModelRef
from awl.entries import Entry, RewindEntry, TitleEntry
from awl.errors import AwlError, ConfigError, NoLog
from awl.events import AgentEvent, Notice
from awl.fitting import configured
from awl.history import banner_info, history
from awl.index.conversations import Logless
from awl.logless import LoglessSession, with_log
from awl.others import Others
from awl.places import GoingBack, Prompt, going_back, labelling, prompts
from awl.providers import Provider, connect, with_base_url
from awl.replay import read
from awl.session import Session
from awl.store.files import Store, describe
from awl.tools import all_tools

_WORDS_ALONE = "only what is said is kept, without a log: [session] enabled = false"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for; None where they left the choice to awl. `how` is what they said
    before the options, for messages that name another one."""

    provider: str | None = None
    model: str | None = None
    system: str | None = None
    cwd: str | None = None
    max_turns: int | None = None
    kept: bool = True
    how: str = "awl --resume"


class Running(NamedTuple):
    """An open session, and the agent that works in it."""

    session: Session
    agent: Agent


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
        return [_ref(with_base_url(known, self._environ)) for known in self.config.providers]

    async def switch_model(self, name: str) -> ModelRef:
        settings = named_model(self.config, name, self.agent.model.provider)
        provider = connect(settings, self._environ)
        before = self.agent.provider
        await self.agent.switch(provider)
        await before.close()
        return provider.ref

    async def history(self, limit: int | None) -> Iterable[HistoryItem]:
        items = await asyncio.to_thread(history, self.session.state)
        return items if limit is None else items[-limit:]

    async def prompts(self, limit: int | None) -> Sequence[Prompt]:
        found = prompts(self.session.state)
        return await asyncio.to_thread(lambda: list(islice(found, limit)))

    async def rewind(self, name: str) -> GoingBack:
        self._check_log()
        went = await asyncio.to_thread(going_back, self.session.state, name)
        await self._append(RewindEntry(parent_id=went.entry_id))
        return went

    async def label(self, words: str) -> str:
        self._check_log()
        label, entries = labelling(self.session.state, words)
        await self._append(*entries)
        return label

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
            lambda: _go_on(self.config, self._environ, wanted, self._approve, found)
        )

    async def fork(self, query: str | None, wish: Wish) -> BannerInfo:
        self._check_leaving()
        wanted = self._wanted_now(wish, "/conv fork")
        found = await asyncio.to_thread(self._found, query)
        source = self.session if self._is_here(found) else found

        def begin() -> Running:
            copy = forked(self.config, self._environ, wanted, source, wish.at)
            try:
                return _go_on(self.config, self._environ, wanted, self._approve, copy)
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
            directory = Path(self.session.cwd) / Path(wish.cwd).expanduser()
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


def open_store(config: Config, environ: Mapping[str, str]) -> Store:
    """The sessions that these settings name."""
    return Store(sessions_dir(config, environ))


def forked(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    source: Session | Path | Logless,
    at: int | None,
) -> Path:
    """Copy a session to go on in the copy. Returns the copy's log.

    Raises:
        AwlError: it cannot be gone on with, or not be copied. There is no copy.
    """
    store = open_store(config, environ)
    if isinstance(source, Logless):
        if not config.session.enabled:
            raise NoLog(source.session_id)
        session_id, model, cwd = source.session_id, source.model, source.cwd
    else:
        state = source.state if isinstance(source, Session) else read(source)
        assert state.header is not None
        session_id, model, cwd = state.header.id, state.active_model, state.cwd
    connect(restored_model(config, environ, wanted, model), environ)
    _check_directory(wanted, cwd, session_id)
    return store.fork(session_id if isinstance(source, Logless) else source, at=at)


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
        running = _new(config, environ, wanted, approve)
    else:
        running = _go_on(config, environ, wanted, approve, resume)
    return App(config, environ, wanted, approve, running)


def _go_on(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    approve: Approver | None,
    found: Path | Logless,
) -> Running:
    """Open a conversation to go on with it; on an error, it is let go of."""
    if isinstance(found, Logless):
        session = _logless(config, environ, wanted, found)
    else:
        session = Session.open(found, cwd=wanted.cwd)
        if not config.session.enabled:
            session.notices.append("this session has a log and keeps it: [session] enabled = false")
    try:
        return _resumed(config, environ, wanted, approve, session)
    except BaseException:
        session.close()
        raise


def _new(
    config: Config, environ: Mapping[str, str], wanted: Wanted, approve: Approver | None
) -> Running:
    cwd = wanted.cwd or os.getcwd()  # noqa: PTH109 - the spelling is resolved by the session
    settings = choose_provider(config, environ, wanted.provider)
    if wanted.model:
        settings = named_model(config, wanted.model, settings.name)
    provider = connect(settings, environ)
    store = open_store(config, environ)
    if not wanted.kept:
        session = Session.unkept(cwd, provider.ref)
    elif config.session.enabled:
        session = store.create(cwd, provider.ref)
    else:
        session = LoglessSession.begin(store.catalog.conversations, cwd, provider.ref)
        session.notices.append(_WORDS_ALONE)
    system = _default_system(session.cwd, settings) if wanted.system is None else wanted.system
    return _running(config, environ, wanted, approve, session, provider, system)


def _logless(
    config: Config, environ: Mapping[str, str], wanted: Wanted, before: Logless
) -> Session:
    """Go on with a conversation that has no log: with sessions enabled, it gets one now."""
    store = open_store(config, environ)
    if config.session.enabled:
        session = with_log(store.root, before, wanted.cwd or before.cwd)
        session.notices.append(
            f"the {len(before.said)} messages before now were kept without a log; from here on"
            " everything is logged"
        )
        return session
    session = LoglessSession.go_on(store.catalog.conversations, before)
    session.notices.append(_WORDS_ALONE)
    return session


def _resumed(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    approve: Approver | None,
    session: Session,
) -> Running:
    provider = connect(restored_model(config, environ, wanted, session.active_model), environ)
    if wanted.cwd is not None:
        session.move(wanted.cwd)
    _check_directory(wanted, session.cwd, session.id)
    if provider.ref != session.active_model:
        session.switch_model(provider.ref)
    system = wanted.system
    if system is None and not session.born:  # there is no log that has one
        settings = next(one for one in config.providers if one.name == provider.ref.provider)
        system = _default_system(session.cwd, settings)
    return _running(config, environ, wanted, approve, session, provider, system)


def _check_directory(wanted: Wanted, cwd: str, name: str) -> None:
    """That tools run where the session says, or where the person says, and nowhere else."""
    if wanted.cwd is None and not Path(cwd).is_dir():
        raise AwlError(
            f"the session's directory is gone: {cwd}; tools would run elsewhere."
            f" To go on in another directory: {wanted.how} {name} --cwd DIR"
        )


def _running(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    approve: Approver | None,
    session: Session,
    provider: Provider,
    system: str | None,
) -> Running:
    agent = Agent(
        session,
        provider,
        all_tools(),
        approve=approve,
        system=system,
        max_turns=wanted.max_turns or config.agent.max_turns,
        fitting=configured(config, environ),
    )
    return Running(session, agent)


async def condense(
    config: Config, environ: Mapping[str, str], path: Path, progress: Progress | None = None
) -> str:
    """Condense a session that nobody talks in; what that came to, in one line.

    Raises:
        AwlError: nothing was changed; the message says why.
    """
    session = Session.open(path)
    try:
        provider = connect(restored_model(config, environ, Wanted(), session.active_model), environ)
        try:
            done = await configured(config, environ).compact(session, provider, progress=progress)
        finally:
            await provider.close()
    finally:
        session.close()
    return str(done)


def restored_model(
    config: Config, environ: Mapping[str, str], wanted: Wanted, stored: ModelRef
) -> ProviderSettings:
    """The model that a resumed session goes on with.

    Provider, endpoint and model are restored as one or not at all; what the person asks for wins.

    Raises:
        ConfigError: the stored one is not configured (any more) and nothing was asked for.
    """
    if wanted.provider:
        settings = choose_provider(config, environ, wanted.provider)
        return named_model(config, wanted.model, settings.name) if wanted.model else settings
    if wanted.model:
        return named_model(config, wanted.model, stored.provider)
    known = next((one for one in config.providers if one.name == stored.provider), None)
    choices = ", ".join(one.name for one in config.providers)
    if known is None:
        raise ConfigError(
            f"the session was with {stored}, and no provider {stored.provider!r} is configured:"
            f" choose one with `{wanted.how} ID --provider NAME` ({choices})",
            path=config.path,
        )
    endpoint = with_base_url(known, environ).endpoint
    if endpoint != stored.endpoint:
        raise ConfigError(
            f"the session was with {stored} at {stored.endpoint or 'its own endpoint'}, and"
            f" {known.name} is configured for {endpoint or 'its own endpoint'}:"
            f" say `--provider {known.name}` to go on there, or choose another ({choices})",
            path=config.path,
        )
    return msgspec.structs.replace(known, model=stored.model or known.model)


def named_model(config: Config, name: str, provider: str) -> ProviderSettings:
    """The settings for a model by name: a provider's, PROVIDER/MODEL, a model that is configured,
    or another model of `provider`.

    Raises:
        ConfigError: there is none of that name. A local provider has the one model it loads.
    """
    by_name = {known.name: known for known in config.providers}
    if name in by_name:
        return by_name[name]
    head, slash, model = name.partition("/")
    if slash and head in by_name and model:
        return _with_model(by_name[head], model, config)
    own = by_name.get(provider)
    with_it = [known for known in config.providers if known.model == name and known != own]
    if with_it and (own is None or own.type == "local"):
        return with_it[0]
    if own is None:
        raise ConfigError(
            f"no provider is named {provider!r}: choose {', '.join(by_name)}", path=config.path
        )
    return _with_model(own, name, config)


def _with_model(settings: ProviderSettings, model: str, config: Config) -> ProviderSettings:
    if settings.type == "local" and model != settings.model:
        choices = ", ".join(f"{known.name}/{known.model}" for known in config.providers)
        raise ConfigError(
            f"{settings.name} has no model {model!r}: choose one of {choices}", path=config.path
        )
    return msgspec.structs.replace(settings, model=model)


def _ref(settings: ProviderSettings) -> ModelRef:
    return ModelRef(settings.name, settings.model, settings.endpoint)


def _default_system(cwd: str, provider: ProviderSettings) -> str | None:
    """The system text of a new session."""
    if provider.type == "local":
        return None  # the local model is too small for instructions: they lead it astray
    return (
        f"You are awl, an assistant in a terminal. You work in the directory {cwd}. Be brief and"
        " exact; use the tools to look before you answer, and say what you did."
    )
