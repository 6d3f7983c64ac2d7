"""Talking: which session is gone on with, and what is sent."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from awl.cli.common import here, load_config, say, say_all
from awl.errors import AwlError

if TYPE_CHECKING:
    from awl.beginning import Wanted
    from awl.config import Config
    from awl.index.conversations import Logless

LATEST = "\0"
"""In the place of an id: the newest session here. No id, and nothing an empty variable gives."""


class Copy(NamedTuple):
    """What to go on with in a copy: a session, up to a seq or whole."""

    session: str
    at: int | None


def talk(
    wanted: Wanted, resume: str | Copy | None, prompt: str | None, output: str, yes: bool
) -> int:
    """Talk in the terminal, or play one turn with -p."""
    from awl import talk

    config = load_config(wanted.cwd)
    found = None if resume is None else _found(config, wanted, resume)
    text = None if prompt is None else _with_stdin(prompt)
    if text is not None and not text.strip():
        raise click.UsageError("there is nothing to send: give -p a TEXT, or pipe something in")
    if text is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise AwlError("a conversation needs a terminal: for one turn, say awl -p TEXT")
    if isinstance(resume, Copy) and found is not None:
        from awl.beginning import forked

        found = forked(config, os.environ, wanted, found, resume.at)
    if text is not None:
        return talk.once(config, os.environ, wanted, found, text, output, yes=yes)
    return talk.terminal(config, os.environ, wanted, found, yes=yes)


def _found(config: Config, wanted: Wanted, named: str | Copy) -> Path | Logless | None:
    """What to go on with; None, said aloud, when this directory has none yet."""
    from awl.beginning import open_store

    store = open_store(config, os.environ)
    query = named.session if isinstance(named, Copy) else named
    if query != LATEST:
        try:
            return store.find(query)
        finally:
            say_all(store.notices)
    cwd = here(wanted.cwd)
    listing = store.list(cwd, limit=1)
    say_all(store.notices)
    say_all([f"cannot be read: {problem}" for problem in listing.unreadable])
    found = store.newest(listing)
    if found is None:
        say(f"no session of {cwd} yet: starting one")
    return found


def _with_stdin(prompt: str) -> str:
    """The prompt, and behind it what was piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        return prompt
    piped = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    return f"{prompt}\n\n{piped}" if piped and prompt else piped or prompt
