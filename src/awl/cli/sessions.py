"""`awl sessions`: look at sessions, find them, go on with them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from awl.cli.common import (
    SESSION,
    InOrder,
    here,
    load_config,
    open_store,
    print_json,
    print_text,
    progress,
    resolved,
    say,
    say_all,
)
from awl.cli.talking import talk
from awl.printing import local_time, safe_json

if TYPE_CHECKING:
    from awl.events import Condensing
    from awl.index.conversations import Logless

MOST_SHOWN = 50
"""Hits of a search that people are shown unless they ask for more."""


def _list_options(command: Any) -> Any:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs."),
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N."),
        click.option("--cwd", metavar="DIR", help="The sessions of DIR."),
        click.option("--all", "everywhere", is_flag=True, help="The sessions of all directories."),
    ):
        command = option(command)
    return command


@click.group(cls=InOrder, invoke_without_command=True)
@_list_options
@click.pass_context
def sessions(ctx: click.Context, /, **options: Any) -> None:
    """List, show and continue sessions.

    \b
    Examples:
      awl sessions --all              the sessions of all directories
      awl sessions show 019dc5ba      what was said
      awl sessions show 019dc5ba --events --json
      awl sessions resume 019dc5ba --print > copy.jsonl
    """
    if ctx.invoked_subcommand is None:
        _list(**options)
    elif any(options.values()):
        raise click.UsageError(f"give the options behind `{ctx.invoked_subcommand}`")


@sessions.command("list")
@_list_options
def list_sessions(**options: Any) -> None:
    """List the sessions of this directory, the newest last.

    \b
    Examples:
      awl sessions list --limit 10
      awl sessions list --cwd ~/src/awl
      awl sessions list --all --json | jq -r .[].id
    """
    _list(**options)


def _list(everywhere: bool, cwd: str | None, limit: int | None, as_json: bool) -> None:
    store = open_store()
    where = None if everywhere else here(cwd)
    listing = store.list(where, limit=limit)
    say_all(store.notices)
    say_all([f"cannot be read: {problem}" for problem in listing.unreadable])
    found = listing.sessions
    if as_json:
        print_json(found)
        return
    parents = [info.forked_from.session_id for info in found if info.forked_from]
    short = store.short_ids([*(info.id for info in found), *parents], listed=True)
    rows = []
    for info in found:
        messages = f"{info.message_count} message{'' if info.message_count == 1 else 's'}"
        mark = "" if info.status == "idle" else f"({info.status}) "
        if info.forked_from:
            mark += f"(fork of {short[info.forked_from.session_id]}) "
        row = f"{short[info.id]}  {local_time(info.created)}  {messages}  {mark}{info.title}"
        rows.append(row.rstrip().replace("\n", "␊"))  # a row cannot be forged
    if rows:
        print_text("\n".join(rows))
    if not found:
        say("no sessions" if where is None else f"no sessions of {where}: --all lists all")


@sessions.command()
@click.argument("text", metavar="TEXT", nargs=-1, required=True)
@_list_options
def search(
    text: tuple[str, ...], everywhere: bool, cwd: str | None, limit: int | None, as_json: bool
) -> None:
    """Search in all that was said in the sessions of this directory, the newest last.

    An entry is found when it holds every word of TEXT, wherever in a word and whatever the case;
    what is in quotes is found as a whole. Without --limit, the newest 50 are shown.

    \b
    Examples:
      awl sessions search parser
      awl sessions search --all '"out of memory" cuda'
      awl sessions search --json parser | jq -r .[].session_id
    """
    store = open_store()
    where = None if everywhere else here(cwd)
    most = limit or (None if as_json else MOST_SHOWN)
    found = store.search(" ".join(text), cwd=where, limit=most, progress=progress())
    say_all(store.notices)
    say_all([f"cannot be searched: {problem}" for problem in found.unreadable])
    if as_json:
        print_json(found.hits)
        return
    short = store.short_ids([hit.session_id for hit in found.hits], listed=True)
    for hit in found.hits:
        facts = f"{short[hit.session_id]}  {hit.seq:>4}  {local_time(hit.timestamp)}  {hit.role}"
        print_text(f"{facts}  {hit.snippet}")
    if found.more:
        say(f"these are the newest {most}: --limit N shows more")
    if not found.hits:
        say("nothing found" if where is None else f"nothing found in {where}: --all searches all")


@sessions.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.argument("title", metavar="TITLE", nargs=-1, required=True)
def rename(session_id: str, title: tuple[str, ...]) -> None:
    """Give a session a title. Its place in lists stays the same.

    \b
    Examples:
      awl sessions rename 019dc5ba Fix the parser
    """
    store = open_store()
    store.rename(resolved(store, session_id), " ".join(title))


@sessions.command()
@click.argument("session_id", metavar="ID")
def condense(session_id: str) -> None:
    """Let a summary stand for the older history of a session, so that its model is sent less.

    The summary is added to the log, and nothing is taken away: `show`, search and export have all
    of it. The session's own model writes it, or [session.condense] condense_provider.

    \b
    Examples:
      awl sessions condense 019dc5ba
    """
    import asyncio
    import os

    from awl import condensing

    path = resolved(open_store(), session_id)
    working = condensing.condense(load_config(None), os.environ, path, say, _show_part)
    try:
        done = asyncio.run(working)
    finally:
        if sys.stderr.isatty():
            click.echo("\r\x1b[K", nl=False, err=True)
    print_text(done)


def _show_part(event: Condensing) -> None:
    """Show on a terminal which part of a history is being summarised: each may take a while."""
    if sys.stderr.isatty():
        part = f", part {event.part} of {event.parts}" if event.parts > 1 else ""
        click.echo(f"\r\x1b[Kawl: condensing{part} ...", nl=False, err=True)


@sessions.command()
def reindex() -> None:
    """Build the index anew from the logs. It may be deleted at any time, too.

    \b
    Examples:
      awl sessions reindex
    """
    store = open_store()
    listing = store.reindex(progress())
    say_all(store.notices)
    say_all([f"cannot be read: {problem}" for problem in listing.unreadable])
    messages = sum(info.message_count for info in listing.sessions)
    print_text(f"{len(listing.sessions)} sessions, {messages} messages")


@sessions.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.option("--events", is_flag=True, help="Every entry of the log, a line each.")
@click.option("--from", "lo", type=click.IntRange(min=0), metavar="N", help="From this seq on.")
@click.option("--to", "hi", type=click.IntRange(min=0), metavar="N", help="Up to this seq.")
@click.option("--json", "as_json", is_flag=True, help="For programs: the entries as they are.")
def show(session_id: str, events: bool, lo: int | None, hi: int | None, as_json: bool) -> None:
    """Show what was said in a session. Nothing of it is changed.

    \b
    Examples:
      awl sessions show 019dc5ba
      awl sessions show 019dc5ba --events --from 10 --to 20
      awl sessions show 019dc5ba --json | jq .session.title
    """
    from awl import show as shown

    store = open_store()
    found = store.find(session_id)
    say_all(store.notices)
    if not isinstance(found, Path):
        _show_logless(found, events or as_json)
        return
    path = found
    asked = shown.Range(lo or 0, hi)
    if as_json:
        print_json(shown.as_json(path, asked, store.number_of(path)))
    elif events:
        for line in shown.events(path, asked):
            print_text(line)
    else:
        lines = load_config(None).session.resume.expand_default_lines

        def forks(session_id: str) -> list[str]:
            children = [info.id for info in store.children(session_id)]
            return list(store.short_ids(children).values())

        shown.print_session(path, asked, lines=lines, forks=forks)


def _show_logless(found: Logless, needs_log: bool) -> None:
    from awl.errors import NoLog

    if needs_log:
        raise NoLog(found.session_id)
    for said in found.said:
        print_text(f"{said.role}: {said.text}\n")


@sessions.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.option("--print", "print_only", is_flag=True, help="The complete raw lines, to stdout.")
def resume(session_id: str, print_only: bool) -> None:
    """Go on with a session, in its own directory.

    With --print no agent is started, and nothing is locked or repaired.

    \b
    Examples:
      awl sessions resume 019dc5ba
      awl sessions resume 019dc5ba --print | jq -c .type
    """
    from awl import show as shown
    from awl.beginning import Wanted

    if not print_only:
        click.get_current_context().exit(talk(Wanted(), session_id, None, "text", yes=False))
    path = resolved(open_store(), session_id)
    to_terminal = sys.stdout.isatty()
    for line in shown.raw_lines(path):
        if to_terminal:
            print_text(safe_json(line.decode("utf-8", "replace").removesuffix("\n")))
        else:
            sys.stdout.buffer.write(line)


@sessions.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.option("--json", "as_json", is_flag=True, help="For programs: every branch in full.")
def tree(session_id: str, as_json: bool) -> None:
    """Show the branches of a session: what was gone back from, and what was said instead.

    A branch that was left hangs where it was left; the current path stands at the left and ends
    in the last row. In a conversation, `/rewind ID` goes back to any entry.

    \b
    Examples:
      awl sessions tree 019dc5ba
      awl sessions tree 019dc5ba --json | jq '.nodes[] | select(.kind == "prompt") | .text'
    """
    from awl import show as shown
    from awl.tree import drawn

    store = open_store()
    path = resolved(store, session_id)
    found = shown.tree_of(path, store)
    say_all([*store.notices, *found.damage])
    if as_json:
        print_json(found)
        return
    parent = found.session.forked_from
    names = [one.session_id for one in found.nodes if one.session_id]
    short = store.short_ids([found.session.id, *names, *([parent.session_id] if parent else [])])
    of = f"  fork of {short[parent.session_id]} at {parent.seq}" if parent else ""
    print_text(f"{short[found.session.id]}{of}  {found.session.title}".replace("\n", "␊"))
    for line in drawn(found.nodes, short):
        print_text(line)
