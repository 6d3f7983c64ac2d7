"""How a conversation begins, or is gone on with: its model, its directory, its system text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from awl.agent import Agent, Approver
from awl.config import Config, ProviderSettings, choose_provider, has_key, sessions_dir
from awl.conversation import UNKNOWN_MODEL, ModelRef
from awl.entries import ImportEntry
from awl.errors import AwlError, ConfigError, NoLog
from awl.fitting import configured
from awl.index.conversations import Logless
from awl.log.scan import scan
from awl.logless import Hold, LoglessSession, with_log
from awl.printing import one_line
from awl.providers import Provider, connect, with_base_url
from awl.replay import path_reader, read
from awl.session import Session
from awl.state import State
from awl.store.copying import open_log
from awl.store.files import Store
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
        program = ""
    else:
        state = source.state if isinstance(source, Session) else read(source)
        if at is not None:
            state = _as_of(source.path if isinstance(source, Session) else source, state, at)
        assert state.header is not None
        session_id, model, cwd = state.header.id, state.active_model, state.cwd
        program = came_from(state)
    connect(restored_model(config, environ, wanted, model, program), environ)
    _check_directory(wanted, cwd, session_id)
    return store.fork(session_id if isinstance(source, Logless) else source, at=at)


def _as_of(log: Path, state: State, at: int) -> State:
    """The state of a session when entry `at` was its last; as it is where there is no such one."""
    if at not in state.seqs:
        return state
    then = State(state.header, path_reader(log))
    with open_log(log) as fd:
        for line in scan(fd):
            position = then.add(line)
            if position is not None and then.seqs[position] == at:
                break
    then.settle()
    return then


def go_on(
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


def new(
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
    rows = store.catalog.conversations
    hold = Hold(rows, before.session_id)
    try:
        found = store.find(before.session_id)  # as it is now that nobody else goes on with it
        if isinstance(found, Path):
            hold.release()
            return Session.open(found, cwd=wanted.cwd)
        if config.session.enabled:
            session = with_log(store.root, found, wanted.cwd or found.cwd, hold)
            session.notices.append(
                f"the {len(found.said)} messages before now were kept without a log; from here on"
                " everything is logged"
            )
            return session
        session = LoglessSession.go_on(rows, found, hold)
    except BaseException:
        hold.release()
        raise
    session.notices.append(_WORDS_ALONE)
    return session


def _resumed(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    approve: Approver | None,
    session: Session,
) -> Running:
    stored, program = session.active_model, came_from(session.state)
    settings = restored_model(config, environ, wanted, stored, program)
    provider = connect(settings, environ)
    if wanted.cwd is not None:
        session.move(wanted.cwd)
    _check_directory(wanted, session.cwd, session.id)
    if provider.ref != stored:
        if program and not (wanted.provider or wanted.model):
            named = stored.model != UNKNOWN_MODEL
            before = f"was with {stored} in {program}" if named else f"came from {program}"
            session.notices.append(f"the session {before}; it goes on with {provider.ref}")
        session.switch_model(provider.ref)
    system = wanted.system
    if system is None and (not session.born or (program and not _has_system(session.state))):
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


def came_from(state: State) -> str:
    """The program that a session was imported from, while no turn of it was awl's; else empty."""
    first = state.body(0) if state.entries and not state.turn else None
    if isinstance(first, ImportEntry) and first.source != "legacy":
        return first.source
    return ""


def _has_system(state: State) -> bool:
    return any(item.kind == "message" and item.message.role == "system" for item in state.items)


def restored_model(
    config: Config, environ: Mapping[str, str], wanted: Wanted, stored: ModelRef, program: str = ""
) -> ProviderSettings:
    """The model that a resumed session goes on with.

    Provider, endpoint and model are restored as one or not at all; what the person asks for wins.
    Where another `program` chose the stored one, and it cannot be used here, the default takes its
    place.

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
    endpoint = known and with_base_url(known, environ).endpoint
    if program and (known is None or endpoint != stored.endpoint or not has_key(known, environ)):
        return choose_provider(config, environ)
    if known is None:
        raise ConfigError(
            f"the session was with {one_line(str(stored), 80)}, and no provider"
            f" {one_line(repr(stored.provider), 80)} is configured:"
            f" choose one with `{wanted.how} ID --provider NAME` ({choices})",
            path=config.path,
        )
    if endpoint != stored.endpoint:
        raise ConfigError(
            f"the session was with {one_line(str(stored), 80)} at"
            f" {one_line(stored.endpoint or 'its own endpoint', 80)}, and"
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


def _default_system(cwd: str, provider: ProviderSettings) -> str | None:
    """The system text of a new session."""
    if provider.type == "local":
        return None  # the local model is too small for instructions: they lead it astray
    return (
        f"You are awl, an assistant in a terminal. You work in the directory {cwd}. Be brief and"
        " exact; use the tools to look before you answer, and say what you did."
    )
