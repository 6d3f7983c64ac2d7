"""`awl sessions`: sessions that are copied, deleted and brought back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from awl.cli.arriving import import_, say_waiting
from awl.cli.common import (
    AWL,
    SESSION,
    FormatName,
    format_named,
    load_config,
    open_store,
    print_json,
    print_text,
    progress,
    resolved,
    say,
    say_all,
)
from awl.errors import AwlError, NoLog, told
from awl.log.names import parse_log_name
from awl.printing import local_time, safe_json

if TYPE_CHECKING:
    from awl.formats import Format
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
@click.argument("names", metavar="[ID] PATH", nargs=-1, required=True, type=SESSION)
@click.option("--all", "everything", is_flag=True, help="All sessions, to a folder: a backup.")
@click.option(
    "--format",
    "name",
    metavar="NAME",
    type=FormatName(),
    help="As what: awl (the log as it is), html, markdown, openai, pi or zeph. Without it, PATH "
    "tells: .html, .md, else awl.",
)
@click.option("--redact", is_flag=True, help="Without what looks like a secret.")
@click.option("--force", is_flag=True, help="Replace what is there.")
def export(
    names: tuple[str, ...], everything: bool, name: str | None, redact: bool, force: bool
) -> None:
    """Write a session to a file, as it is or in another format. Its blobs go to PATH.blobs/.

    PATH `-` is stdout. What a format cannot hold is said. With --all, a folder gets or updates a
    copy of all that is kept: what it has already is not written again, and nothing that differs is
    overwritten.

    With --redact, keys of well-known shapes and the values of variables that are called a key, a
    token, a secret or a password are masked. It is a net, not a proof: look before you publish.

    \b
    Examples:
      awl sessions export 019dc5ba session.jsonl
      awl sessions export 019dc5ba page.html --redact
      awl sessions export 019dc5ba - --format markdown | less
      awl sessions export --all /media/stick/awl
    """
    from awl.formats import named_by

    if everything:
        if len(names) != 1 or name not in (None, AWL) or redact:
            raise click.UsageError("--all takes a folder, and copies all as it is")
        _back_up(Path(names[0]), force)
        return
    if len(names) != 2:
        raise click.UsageError("name the session and the file: ID PATH")
    known = format_named(name or named_by(Path(names[1])) or AWL)
    store = open_store()
    path = resolved(store, names[0])
    with _masked(path) if redact else contextlib.nullcontext(path) as source:
        if names[1] == "-":
            _print_session(source, known)
            return
        from awl.store.exporting import export

        say_all(export(source, Path(names[1]), known, root=store.root, force=force))


@contextlib.contextmanager
def _masked(log: Path) -> Iterator[Path]:
    """A copy of a log, for a while, without what looks like a secret."""
    import tempfile

    from awl.health.pattern import Pattern
    from awl.health.redact import copy_without
    from awl.secrets import MASK, secret_pattern

    pattern = Pattern(secret_pattern(os.environ).pattern, regex=True, replacement=MASK)
    with tempfile.TemporaryDirectory(prefix="awl-") as folder:
        copy = Path(folder, log.name)
        held = copy_without(log, pattern, copy)
        say(f"masked: {held}" if held.entries or held.blobs else "nothing looked like a secret")
        yield copy


def _print_session(path: Path, known: Format | None) -> None:
    from awl.store.exporting import Outgoing

    session = Outgoing(path, known)
    to_terminal = sys.stdout.isatty()
    is_json = known is None or known.read is not None  # what is only written is for people
    for piece in session.pieces():
        if to_terminal:
            text = piece.decode("utf-8", "replace").removesuffix("\n")
            print_text(safe_json(text) if is_json else text)
        else:
            sys.stdout.buffer.write(piece)
    say_all(session.left_out)
    if session.blobs:
        count = len(session.blobs)
        say(f"left out: {count} blob{'s' * (count > 1)}, which would go beside a file")


def _back_up(folder: Path, force: bool) -> None:
    from collections import Counter

    from awl.errors import NotASession
    from awl.store.exporting import Backup

    store = open_store()
    backup = Backup(folder, store.root, force=force)
    unreadable: list[str] = []
    logs = list(store.logs(unreadable))
    show = progress("exporting")
    kept: Counter[str] = Counter()
    faults = [f"cannot be read: {problem}" for problem in unreadable]
    for number, log in enumerate(logs):
        try:
            found = backup.keep(log)
        except NotASession as error:
            backup.notices.append(str(error))
        except (AwlError, OSError) as error:
            faults.append(f"{log.name}: {told(error)}")
        else:
            kept[found] += 1
            if found == "apart":
                what = "replaced" if force else "kept: --force replaces it"
                line = f"{log.name}: the backup is another session by now; it was {what}"
                (backup.notices if force else faults).append(line)
        if show is not None:
            show(number + 1, len(logs))
    try:
        backup.keep_conversations(store.catalog.conversations)
    except (AwlError, OSError) as error:
        faults.append(f"the numbers of conversations are not in the backup: {told(error)}")
    say_all([*backup.notices, *faults])
    counts = {"new": "new", "grown": "updated", "apart": "apart", "longer": "longer there"}
    said = [f"{kept[one]} {what}" for one, what in counts.items() if kept[one]]
    print_text(", ".join((f"{kept['same']} unchanged", *said)))
    if faults:
        raise click.exceptions.Exit(1)


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
        for line in _described(store, found):
            say(line)
        if not click.confirm("Remove it for good?", err=True):
            raise click.exceptions.Exit(1)
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
    trash = store.trash
    if session_id is not None:
        if as_json:
            raise click.UsageError("--json goes with the list, without an ID")
        from awl.store.alone import alone

        there = store.root.is_dir()  # looking in vain makes no folder
        try:
            with alone(store.root, say_waiting) if there else contextlib.nullcontext():
                restored = trash.restore(session_id)
        finally:
            say_all([*trash.notices, *store.notices])
        click.echo(restored)
        return
    deleted = trash.contents()
    say_all(trash.notices)
    if as_json:
        print_json(deleted)
        return
    _print_deleted(deleted)


def _described(store: Store, found: Path | Logless) -> list[str]:
    """What a person should see before a session is removed for good."""
    infos = [
        info
        for info in store.list().sessions
        if (Path(info.path) == found if isinstance(found, Path) else info.id == found.session_id)
    ]
    facts = [f"{info.id}  {_count(info.message_count)}  {info.title}".rstrip() for info in infos]
    return facts or [str(found)]


def _count(messages: int) -> str:
    return f"{messages} message{'' if messages == 1 else 's'}"


def _print_deleted(deleted: list[Deleted]) -> None:
    from awl.index.catalog import shortened

    ids = [one.id for one in deleted]
    short = shortened(ids, map(str.lower, ids))
    for one in deleted:
        messages = _count(one.message_count)
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


VERBS: Final = (fork, export, import_, delete, restore)
