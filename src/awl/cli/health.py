"""`awl sessions`: whether they are sound, and what to do when they are not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from awl.cli.common import (
    SESSION,
    directory,
    here,
    open_store,
    print_json,
    print_text,
    progress,
    resolved,
    say,
    say_all,
)

if TYPE_CHECKING:
    from awl.health.findings import Checked
    from awl.store.files import Store


@click.command()
@click.argument("session_id", metavar="[ID]", type=SESSION, required=False)
@click.option("--all", "everywhere", is_flag=True, help="All that is kept, the databases too.")
@click.option("--cwd", metavar="DIR", help="The sessions of DIR.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_context
def verify(
    ctx: click.Context, session_id: str | None, everywhere: bool, cwd: str | None, as_json: bool
) -> None:
    """Check a session, or all of this directory, to the last line and blob. Nothing is changed.

    Every finding names its line and its bytes. What costs nothing (an incomplete last line, a file
    that nothing names) is a note. The exit code is 1 if anything is damaged.

    \b
    Examples:
      awl sessions verify 019dc5ba
      awl sessions verify --all --json | jq '.[] | select(.ok | not)'
    """
    if session_id is not None and (everywhere or cwd is not None):
        raise click.UsageError("give an ID, or --all, or --cwd DIR")
    store = open_store()
    found = _verified(store, session_id, None if everywhere else cwd, everywhere)
    if as_json:
        checked = list(found)
        print_json(checked[0] if session_id is not None else checked)
    else:
        checked = list(_printed(found, short=session_id is None))
        if session_id is None:
            _say_sum(checked)
    if not all(one.ok for one in checked):
        ctx.exit(1)


def _verified(
    store: Store, session_id: str | None, cwd: str | None, everywhere: bool
) -> Iterator[Checked]:
    from awl.health.places import claims, verify_all, verify_rest

    unreadable: list[str] = []
    every = list(store.logs(unreadable)) if session_id is None else []
    if session_id is not None:
        logs = [resolved(store, session_id)]
    elif everywhere:
        logs = every
    else:
        logs = _of_directory(store, every, here(cwd))
    say_all([f"cannot be read: {problem}" for problem in unreadable])
    advance = _progress("checking", sum(map(_size, logs)))
    yield from verify_all(logs, advance, claims(every))
    if everywhere:
        yield from verify_rest(store.root)


def _of_directory(store: Store, every: list[Path], where: str) -> list[Path]:
    """The logs of a directory, and those in its folder that say nothing."""
    from awl.log.names import encode_cwd

    mine = {info.path for info in store.list(where).sessions}
    told = {info.path for info in store.list().sessions}
    say_all(store.notices)
    label = encode_cwd(os.path.realpath(where))
    return [
        log
        for log in every
        if str(log) in mine or (str(log) not in told and log.parent.name == label)
    ]


def _printed(found: Iterable[Checked], *, short: bool) -> Iterator[Checked]:
    """Print what is found as it is found."""
    for checked in found:
        name = checked.session_id or checked.path
        if checked.findings or not short:
            lines = [f"{name}  {'sound' if checked.ok else 'DAMAGED'}"]
            lines += [f"  {finding}" for finding in checked.findings]
            if checked.findings and checked.session_id:
                lines.insert(1, f"  {checked.path}")
            print_text("\n".join(line.replace("\n", "␊") for line in lines))
        yield checked


def _say_sum(checked: list[Checked]) -> None:
    sessions = [one for one in checked if one.session_id]
    damaged = sum(not one.ok for one in sessions)
    many = f"{len(sessions)} session{'' if len(sessions) == 1 else 's'} checked"
    say(
        f"{many}, {damaged} damaged: `awl sessions repair ID` helps"
        if damaged
        else f"{many}, all sound"
    )


@click.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.option("--cwd", metavar="DIR", help="Its directory, where nothing tells that any more.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
def repair(session_id: str, cwd: str | None, dry_run: bool) -> None:
    """Make a sound copy of a damaged session, as a new session. The original stays as it is.

    All that can be read is in the copy, also whole entries in lines that are none, with ids and
    seqs. Where something is missing, a gap says so, to you and to the model. The new id is on
    stdout; what was done is said, and kept in the copy.

    \b
    Examples:
      awl sessions repair 019dc5ba --dry-run
      awl --resume "$(awl sessions repair 019dc5ba)"
    """
    from awl.health.repair import repair as mend

    store = open_store()
    path = resolved(store, session_id)
    made = mend(
        path,
        store.root,
        cwd=None if cwd is None else directory(cwd),
        dry=dry_run,
        progress=_progress("repairing", 3 * _size(path)),
    )
    if made is None:
        say(f"{path.name} is sound: there is nothing to repair")
        return
    say_all(made.changes)
    if dry_run:
        say("nothing was made: this is what would be done")
        return
    say(f"the copy is {made.path}")
    print_text(made.session_id)


def _progress(doing: str, total: int) -> Callable[[int], None]:
    """Shows how far something is that reads so many bytes."""
    shown = progress(doing)
    done = 0

    def advance(read: int) -> None:
        nonlocal done
        done += read
        if shown:
            shown(done, total)

    return advance


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


VERBS: Final = (verify, repair)
