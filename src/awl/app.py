"""A running conversation: the settings, the session, the agent, and what commands ask of them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from awl.agent import Agent, Approver
from awl.commands import HistoryItem
from awl.config import Config, ProviderSettings, choose_provider, sessions_dir
from awl.conversation import ModelRef
from awl.errors import AwlError, ConfigError
from awl.events import AgentEvent
from awl.history import history
from awl.index.conversations import Logless
from awl.logless import LoglessSession, with_log
from awl.providers import Provider, connect, with_base_url
from awl.session import Session
from awl.store.files import Store
from awl.tools import all_tools

_WORDS_ALONE = "only what is said is kept, without a log: [session] enabled = false"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for on the command line; None where they left the choice to awl."""

    provider: str | None = None
    model: str | None = None
    system: str | None = None
    cwd: str | None = None
    max_turns: int | None = None
    kept: bool = True


class App:
    """One conversation and what it needs. `notices` are lines to show before it begins."""

    def __init__(
        self, config: Config, environ: Mapping[str, str], session: Session, agent: Agent
    ) -> None:
        self.config = config
        self.session = session
        self.agent = agent
        self.notices: list[str] = [*config.warnings, *session.notices]
        self._environ = environ
        self._store = open_store(config, environ)
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
        try:
            found = self._store.resolve(self.session_id)
        except (AwlError, OSError):
            return str(self.session.path)
        elsewhere = isinstance(found, Path) and found.resolve() != self.session.path.resolve()
        return str(self.session.path) if elsewhere else self.session_id

    @property
    def unsaved(self) -> int:
        return self.session.unsaved

    def prompt(self, text: str) -> AsyncIterator[AgentEvent]:
        return self.agent.prompt(text)

    def cancel(self) -> None:
        self.agent.cancel()

    def warm(self) -> None:
        self.agent.provider.warm()

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

    async def close(self) -> None:
        """Let go of the model and of the background work. The session stays open."""
        await self.agent.close()
        await self.agent.provider.close()


def open_store(config: Config, environ: Mapping[str, str]) -> Store:
    """The sessions that these settings name."""
    return Store(sessions_dir(config, environ))


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
        return _new(config, environ, wanted, approve)
    if isinstance(resume, Logless):
        session = _logless(config, environ, wanted, resume)
    else:
        session = Session.open(resume, cwd=wanted.cwd)
        if not config.session.enabled:
            session.notices.append("this session has a log and keeps it: [session] enabled = false")
    try:
        return _resumed(config, environ, wanted, approve, session)
    except BaseException:
        session.close()
        raise


def _new(
    config: Config, environ: Mapping[str, str], wanted: Wanted, approve: Approver | None
) -> App:
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
    return _app(config, environ, wanted, approve, session, provider, system)


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
) -> App:
    provider = connect(restored_model(config, environ, wanted, session.active_model), environ)
    if wanted.cwd is not None:
        session.move(wanted.cwd)
    elif not Path(session.cwd).is_dir():
        raise AwlError(
            f"the session's directory is gone: {session.cwd}; tools would run elsewhere."
            f" To go on in another directory: awl --resume {session.id} --cwd DIR"
        )
    if provider.ref != session.active_model:
        session.switch_model(provider.ref)
    system = wanted.system
    if system is None and not session.born:  # there is no log that has one
        settings = next(one for one in config.providers if one.name == provider.ref.provider)
        system = _default_system(session.cwd, settings)
    return _app(config, environ, wanted, approve, session, provider, system)


def _app(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    approve: Approver | None,
    session: Session,
    provider: Provider,
    system: str | None,
) -> App:
    agent = Agent(
        session,
        provider,
        all_tools(),
        approve=approve,
        system=system,
        max_turns=wanted.max_turns or config.agent.max_turns,
    )
    return App(config, environ, session, agent)


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
            f" choose one with `awl --resume ID --provider NAME` ({choices})",
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
