"""What the commands share: settings, the store, and how things are said and printed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from awl.errors import AwlError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from awl.config import Config
    from awl.formats import Format
    from awl.index.intake import Progress
    from awl.store.files import Store

_WIPED: Final = "\r\x1b[K"
"""Empties the line that the cursor is on."""

MOST_COMPLETED: Final = 200
"""Sessions that the shell offers, the newest first."""


class InOrder(click.Group):
    """Help in the order in which the commands were written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class SessionId(click.types.StringParamType):
    """A session's id, as `Store.find` takes it. The shell completes it from the newest sessions."""

    name = "id"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from awl.config import load, sessions_dir
        from awl.printing import one_line
        from awl.store.files import Store

        try:  # a shell that asks in the middle of a line must not be told of faults
            store = Store(sessions_dir(load(os.environ), os.environ))
            newest = store.list(limit=MOST_COMPLETED).sessions[::-1]
            names = store.short_ids([info.id for info in newest])
        except (AwlError, OSError):
            return []
        typed = incomplete.lower()
        return [
            CompletionItem(
                info.id if len(typed) > len(names[info.id]) else names[info.id],
                help=one_line(info.title, 60),
            )
            for info in newest
            if info.id.startswith(typed)
        ]


SESSION: Final = SessionId()


AWL: Final = "awl"
"""The name of awl's own format."""


class FormatName(click.types.StringParamType):
    """The name of a format: awl's own, another program's, or one for people. `also` are more words
    that are taken."""

    name = "format"

    def __init__(self, *also: str) -> None:
        self.also = also

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = self.names()
        if value not in names:
            self.fail(f"{value!r} is none of {', '.join(names)}", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]

    def names(self) -> list[str]:
        """What is taken."""
        from awl.formats import NAMES  # most commands do without them

        return [*self.also, AWL, *NAMES]


def format_named(name: str) -> Format | None:
    """A format by its name; None: awl's own."""
    from awl.formats import find

    return None if name == AWL else find(name)


def load_config(cwd: str | None) -> Config:
    from awl.config import load

    if cwd is None:
        with contextlib.suppress(FileNotFoundError):  # gone: then it has no settings either
            cwd = os.getcwd()  # noqa: PTH109
    return load(os.environ, Path(cwd) if cwd else None)


def open_store() -> Store:
    from awl.config import sessions_dir
    from awl.store.files import Store

    loaded = load_config(None)
    for warning in loaded.warnings:
        say(warning)
    return Store(sessions_dir(loaded, os.environ))


def resolved(store: Store, query: str) -> Path:
    """The log that is meant; what there is to say of the index is said."""
    try:
        return store.resolve(query)
    finally:
        say_all(store.notices)


_shown = False  # whether a line of progress is where the next text goes


def progress(doing: str = "indexing") -> Progress | None:
    """Shows on a terminal how far something is, if that takes longer than a moment."""
    if not sys.stderr.isatty():
        return None
    import time

    begun = time.monotonic()

    def show(done: int, total: int) -> None:
        global _shown
        if time.monotonic() - begun > 0.5:
            share = 100 * done // max(total, 1)
            _shown = done < total
            end = "" if _shown else _WIPED
            click.echo(f"\rawl: {doing} {share:3} % {end}", nl=False, err=True)

    return show


def directory(given: str) -> str:
    from awl.log.names import expanded

    path = expanded(given)
    if not path.is_dir():
        raise AwlError(f"there is no directory {given}")
    return str(path.absolute())


def here(cwd: str | None) -> str:
    """The directory that is meant; it need not exist any more."""
    from awl.log.names import expanded

    try:
        return str(expanded(cwd).absolute()) if cwd else os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise AwlError("the current directory was deleted: name one with --cwd DIR") from None


def print_text(text: str) -> None:
    from awl.printing import safe

    click.echo(safe(text))


def print_json(value: Any) -> None:
    """JSON that is harmless on a terminal too: nothing but ASCII is written."""
    import json

    import msgspec

    plain = msgspec.to_builtins(value)
    try:  # json itself takes six times as long for lines with an indent
        text = msgspec.json.format(json.dumps(plain), indent=2)
    except (msgspec.MsgspecError, RecursionError):  # half of a surrogate pair, say
        text = json.dumps(plain, indent=2)
    click.echo(text)


def say_all(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say(text: str) -> None:
    from awl.printing import safe

    global _shown
    line = safe(text).replace("\n", "␊")
    if _shown:
        _shown = False
        click.echo(_WIPED, nl=False, err=True)
    with contextlib.suppress(OSError):  # then there is nobody to tell
        click.echo(f"awl: {line}", err=True)
