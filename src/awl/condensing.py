"""Condensing a session that nobody talks in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from awl.beginning import Wanted, came_from, restored_model
from awl.config import Config, choose_provider
from awl.errors import AwlError
from awl.events import Condensing
from awl.fitting import configured
from awl.providers import Provider, connect
from awl.session import Session


async def condense(
    config: Config,
    environ: Mapping[str, str],
    path: Path,
    tell: Callable[[str], None],
    show: Callable[[Condensing], None] | None = None,
) -> str:
    """Condense a session that nobody talks in; what that came to, in one line. `tell` is told what
    a person should know of opening it, `show` each part that is begun.

    Raises:
        AwlError: nothing was changed; the message says why.
    """
    session = Session.open(path)
    try:
        for notice in session.notices:
            tell(notice)
        provider = _condensed_for(config, environ, session)
        try:
            done = await configured(config, environ).compact(session, provider, tell=show)
        finally:
            await provider.close()
    finally:
        session.close()
    return str(done)


def _condensed_for(config: Config, environ: Mapping[str, str], session: Session) -> Provider:
    """The model that a session is condensed for: its own; if that cannot be asked here, the one
    that summarises."""
    named = config.session.condense.condense_provider
    stored, program = session.active_model, came_from(session.state)
    try:
        return connect(restored_model(config, environ, Wanted(), stored, program), environ)
    except AwlError:
        if not named:
            raise
        return connect(choose_provider(config, environ, named), environ)
