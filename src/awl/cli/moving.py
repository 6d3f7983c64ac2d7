"""`awl sessions`: sessions that are copied, deleted and brought back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from awl.cli.common import (
    SESSION,
    load_config,
    open_store,
    print_json,
    print_text,
    say,
    say_all,
)
from awl.errors import NoLog
from awl.log.names import parse_log_name
from awl.printing import local_time

if TYPE_CHECKING:
    from awl.index.conversations import Logless
    from awl.store.files import Store
    from awl.store.trash import Deleted


@click.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.option("--at", type=int, metavar="SEQ", help="Copy up to this entry; all without it.")
def fork(session_id: str, at: int | None) -> None:
    """Begin a new session with what another one holds. Prints the new id.

    The first stays as it is, and both go on by themselves. `awl sessions show ID --events` shows
    the seqs.

    \b
    Examples:
      awl sessions fork 019dc5ba
      awl sessions fork 019dc5ba --at 12
      awl --resume $(awl sessions fork 019dc5ba)
    """
    store = open_store()
    found = _found(store, session_id)
    if not isinstance(found, Path):
        if not load_config(None).session.enabled:
            raise NoLog(found.session_id)
        session_id = found.session_id
    child = store.fork(found if isinstance(found, Path) else session_id, at=at)
    say_all(store.notices)
    named = parse_log_name(child.name)
    assert named is not None
    click.echo(named.session_id)


@click.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.option("--purge", is_flag=True, help="Remove it for good instead.")
@click.option("-y", "--yes", is_flag=True, help="Purge without asking.")
def delete(session_id: str, purge: bool, yes: bool) -> None:
    """Move a session to the trash, from where `restore` brings it back.

    An open session is not deleted. Nothing is ever removed from the trash by itself.

    \b
    Examples:
      awl sessions delete 019dc5ba
      awl sessions delete 019dc5ba --purge
    """
    store = open_store()
    found = _found(store, session_id)
    if purge and not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError("there is nobody to ask: say --purge -y")
        what = str(found) if isinstance(found, Path) else f"conversation {found.session_id}"
        print_text(what)
        click.confirm("Remove it for good?", abort=True, err=True)
    deleted = store.delete(found if isinstance(found, Path) else found.session_id, purge=purge)
    if purge:
        say(f"{deleted} is removed for good")
    else:
        say(f"{deleted} is in the trash: `awl sessions restore {deleted}` brings it back")


@click.command()
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def restore(session_id: str | None, as_json: bool) -> None:
    """Bring a deleted session back, with its number. Without an ID: list what can be restored.

    \b
    Examples:
      awl sessions restore
      awl sessions restore 019dc5ba
    """
    store = open_store()
    if session_id is not None:
        if as_json:
            raise click.UsageError("--json goes with the list, without an ID")
        restored = store.trash.restore(session_id)
        say_all(store.notices)
        click.echo(restored)
        return
    deleted = store.trash.contents()
    if as_json:
        print_json(deleted)
        return
    _print_deleted(deleted)


def _print_deleted(deleted: list[Deleted]) -> None:
    from awl.index.catalog import shortened

    ids = [one.id for one in deleted]
    short = shortened(ids, {one.lower() for one in ids})
    for one in deleted:
        messages = f"{one.message_count} message{'' if one.message_count == 1 else 's'}"
        row = f"{short[one.id]}  deleted {local_time(one.deleted)}  {messages}  {one.title}"
        print_text(row.rstrip().replace("\n", "␊"))
    if not deleted:
        say("the trash is empty")


def _found(store: Store, query: str) -> Path | Logless:
    """What is meant; what there is to say of the index is said."""
    try:
        return store.find(query)
    finally:
        say_all(store.notices)


VERBS: Final = (fork, delete, restore)
