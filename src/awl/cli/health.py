"""`awl sessions`: whether they are sound, and what to do when they are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
    from awl.health.pattern import Pattern
    from awl.health.redact import Survey
    from awl.health.usage import Usage
    from awl.index.info import SessionInfo
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


@click.command()
@click.argument("session_id", metavar="ID", type=SESSION)
@click.argument("pattern")
@click.option("--regex", is_flag=True, help="PATTERN is a regular expression.")
@click.option("--replace", "replacement", metavar="TEXT", help="Comes in its place: [redacted].")
@click.option("-y", "--yes", is_flag=True, help="Without asking, forks and copies too.")
@click.pass_context
def redact(
    ctx: click.Context,
    session_id: str,
    pattern: str,
    regex: bool,
    replacement: str | None,
    yes: bool,
) -> None:
    """Get a text out of a session and of all that derives from it, for good.

    PATTERN is the text itself, or - to be asked for it (or to read it from stdin), so that no
    history of commands keeps it. It is found however JSON escapes it, in the log with all its
    branches, in blobs, torn tails, titles, the history of prompts, the index, the trash, and in
    forks and copies of the session. What a provider has signed is dropped, never edited. The
    session keeps its id, its number and all entries. An open session is refused.

    The exit code is 1 if anything that awl keeps still holds it.

    \b
    Examples:
      awl sessions redact 019dc5ba -
      awl sessions redact 019dc5ba 'sk-[A-Za-z0-9]{20,}' --regex
    """
    from awl.health.pattern import Pattern
    from awl.health.redact import redact as take_out
    from awl.health.redact import survey
    from awl.secrets import MASK

    store = open_store()
    try:
        found = store.find(session_id)
    finally:
        say_all(store.notices)
    wanted = Pattern(
        _asked() if pattern == "-" else pattern,
        regex=regex,
        replacement=MASK if replacement is None else replacement,
    )
    size = sum(map(_size, store.root.rglob("*.jsonl")))
    where = survey(store, found, wanted, _progress("looking", size))
    if where:
        _say_where(where)
        if not yes:
            where = _agreed(where)
        take_out(store, where, wanted, _progress("redacting", size))
    left = _left(store, wanted)
    if left:
        say_all(f"it is still in {path}" for path in left)
        ctx.exit(1)
    say(f"nothing in {store.root} holds it{' any more' if where else ''}")
    say("exports, backups, and what was sent to a provider, cannot be reached from here")


def _say_where(where: Survey) -> None:
    if where.own:
        say(f"it is in {where.own.session_id}: {where.own}")
    for held in where.related:
        say(f"it is in {held.session_id}, which has the same entries ({held.log}): {held}")
    if where.rows:
        many = "message that was" if where.rows == 1 else "messages that were"
        say(f"it is in {where.rows} {many} kept without a log")
    if where.prompts:
        say("it is in the history of prompts")


def _agreed(where: Survey) -> Survey:
    """What a person says that it shall be taken out of."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("there is nobody to ask: say -y")
    click.confirm("Take it out for good?", abort=True, err=True)
    if where.related and not click.confirm(
        "Out of the others with the same entries, too?", err=True
    ):
        return where.alone()
    return where


@click.command()
@click.option("--all", "everywhere", is_flag=True, help="All that is kept, the trash too.")
@click.option("--cwd", metavar="DIR", help="The sessions of DIR.")
@click.option("--json", "as_json", is_flag=True, help="For programs: bytes.")
def du(everywhere: bool, cwd: str | None, as_json: bool) -> None:
    """Show where the space is: what each session of this directory takes, the largest last.

    \b
    Examples:
      awl sessions du
      awl sessions du --all --json | jq .trash
    """
    from awl.health.usage import usage_below, usage_of

    store = open_store()
    where = None if everywhere else here(cwd)
    infos = {info.path: info for info in store.list(where).sessions if info.path}
    short = store.short_ids([info.id for info in infos.values()])
    say_all(store.notices)
    store.close()  # what the databases take while they are open is no more then
    usage = usage_below(store.root, store.logs()) if where is None else usage_of(map(Path, infos))
    if as_json:
        print_json(_usage_json(usage, infos))
        return
    for taken in usage.sessions:
        info = infos.get(taken.path)
        name = f"{short[info.id]}  {info.title}" if info else taken.path
        beside = [
            f"{what} {_in_words(size)}"
            for what, size in (("blobs", taken.blobs), ("torn tails", taken.torn))
            if size
        ]
        rest = f"  ({', '.join(beside)})" if beside else ""
        row = f"{_in_words(taken.total):>8}  {name}{rest}"
        print_text(row.rstrip().replace("\n", "␊"))
    for size, what in (
        (usage.databases, "databases and the history of prompts"),
        (usage.trash, "trash"),
        (usage.other, "what belongs to no session"),
        (usage.total, "in all"),
    ):
        if size or what == "in all":
            print_text(f"{_in_words(size):>8}  {what}")


def _usage_json(usage: Usage, infos: Mapping[str, SessionInfo]) -> dict[str, Any]:
    return {
        "sessions": [
            {
                "id": infos[taken.path].id if taken.path in infos else None,
                "title": infos[taken.path].title if taken.path in infos else "",
                "path": taken.path,
                "log": taken.log,
                "blobs": taken.blobs,
                "torn": taken.torn,
                "total": taken.total,
            }
            for taken in usage.sessions
        ],
        "shared": usage.shared,
        "databases": usage.databases,
        "trash": usage.trash,
        "other": usage.other,
        "total": usage.total,
    }


def _asked() -> str:
    if sys.stdin.isatty():
        text: str = click.prompt("What is to go", hide_input=True, err=True)
        return text
    return sys.stdin.read().removesuffix("\n")


def _left(store: Store, wanted: Pattern) -> list[str]:
    """Where it still is."""
    from awl.health.redact import leftovers

    total = sum(_size(path) for path in store.root.rglob("*") if path.is_file())
    store.close()
    return [str(path) for path in leftovers(store.root, wanted, _progress("checking", total))]


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


def _in_words(size: int) -> str:
    """A number of bytes, as people read it."""
    if size < 1000:
        return f"{size} B"
    amount, units = size / 1000, ["kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.1f} {units[0]}" if amount < 99.95 else f"{amount:.0f} {units[0]}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


VERBS: Final = (verify, repair, redact, du)
