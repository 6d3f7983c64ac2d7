"""`awl sessions import`: files become sessions, awl's own and those of other programs."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from awl.cli.common import (
    AWL,
    FormatName,
    format_named,
    here,
    open_store,
    print_text,
    progress,
    say,
    say_all,
)
from awl.errors import AwlError
from awl.log.names import parse_log_name

if TYPE_CHECKING:
    from awl.formats import Format
    from awl.index.intake import Progress
    from awl.store.files import Store
    from awl.store.importing import Brought, Tally


class ProgramName(FormatName):
    """The name of a program whose sessions lie in a usual place."""

    name = "program"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "opencode":
            self.fail("opencode has a database: write `opencode export ID > x.json`, import x.json")
        return super().convert(value, param, ctx)

    def names(self) -> list[str]:
        from awl.formats import NAMES, find

        return [name for name in NAMES if find(name).places]


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, type=click.Path())
@click.option(
    "--from", "program", metavar="PROGRAM", type=ProgramName(), help="All of a program's sessions."
)
@click.option(
    "--format",
    "name",
    metavar="NAME",
    type=FormatName("auto"),
    default="auto",
    help="Of what, if their content does not tell: awl, claude-code, codex, gemini-cli, kimi-cli, "
    "openai, opencode, pi, qwen-code or zeph.",
)
@click.option("--dry-run", is_flag=True, help="List what would come, and write nothing.")
@click.option("--keep-id", is_flag=True, help="Fail rather than give a new id.")
def import_(
    paths: tuple[str, ...], program: str | None, name: str, dry_run: bool, keep_id: bool
) -> None:
    """Make sessions of files, or of all files in folders. Prints the ids.

    The files of other programs are only read: those of Claude Code, Codex, Gemini CLI, Kimi CLI,
    opencode, pi, Qwen Code and zeph, and arrays of messages as OpenAI's API has them. The
    conversations go on here with any model. What comes and what does not is said on stderr.

    Nothing comes twice. A file that goes on brings what is new; where the session here has turns of
    its own, it comes as another one. A file that awl exported becomes the session that it was, with
    its id.

    \b
    Examples:
      awl sessions import session.jsonl
      awl sessions import /media/stick/awl
      awl sessions import ~/.claude/projects/-home-me-src
      awl sessions import --from codex --dry-run
    """
    if (program is None) == (not paths):
        raise click.UsageError("name files or folders, or a program with --from")
    if program is not None and name not in ("auto", program):
        raise click.UsageError("--from tells the format")
    folders = [Path(path) for path in paths] if program is None else _places(program)
    from awl.store.alone import alone

    store = open_store()
    with nullcontext() if dry_run else alone(store.root, say_waiting):
        arrivals = Arrivals(store, name if program is None else program, keep_id, dry_run)
        try:
            arrivals.take(folders)
        finally:
            say_all(store.notices)
            for session_id in dict.fromkeys(arrivals.ids):
                click.echo(session_id)
    if arrivals.failed:
        raise click.exceptions.Exit(1)


def say_waiting() -> None:
    """Say that another process is at what may go on in one alone."""
    say("another awl is importing or restoring: waiting for its end")


def _places(program: str) -> list[Path]:
    """The folders in which a program keeps its sessions."""
    from awl.formats import find
    from awl.formats.listing import places_of

    known = find(program)
    places = places_of(known, os.environ, Path.home())
    found = [place for place in places if place.is_dir()]
    if not found:
        usual = " or ".join(map(str, places))
        raise AwlError(f"{known.title} keeps its sessions in {usual}, and that is not there")
    return found


class _Source(NamedTuple):
    """A file that is to come in, its format (None: awl's own), and how many bytes it has."""

    path: Path
    known: Format | None
    size: int


_CAME: Final = {
    "new": "new",
    "grown": "with more",
    "apart": "apart",
    "same": "unchanged",
    "empty": "without messages",
    "failed": "failed",
    "unknown": "not recognised",
}


_MOST_SAID: Final = 20
"""Files in folders that are no sessions: so many are named, the others are counted."""


class Arrivals:
    """Files that become sessions, one after the other. `ids` are those of the sessions."""

    def __init__(self, store: Store, name: str, keep_id: bool, dry_run: bool) -> None:
        from awl.store.importing import Importer, Tally

        self.ids: list[str] = []
        self._store = store
        self._name = name
        self._dry_run = dry_run
        self._own = store.reception(keep_id=keep_id, dry_run=dry_run)
        self._others = Importer(store.root, store.logs(), here(None), dry_run=dry_run)
        self._came: Counter[str] = Counter()
        self._of_subagents = 0
        self._tally: Tally = Tally()

    @property
    def failed(self) -> bool:
        """Whether a file could not come in."""
        return self._came["failed"] > 0

    def take(self, paths: Sequence[Path]) -> None:
        """Take in files, and those in folders; say what a person should know."""
        from awl.formats.format import counted

        sources = [source for path in paths for source in self._sources(path)]
        total = sum(source.size for source in sources)
        show = progress("importing")
        before = 0
        for source in sources:
            self._bring(source, _part_of(show, before, source.size, total))
            before += source.size
            if show is not None:
                show(before, total)
        if self._of_subagents:
            left = counted(self._of_subagents, "conversations of subagents in files of their own")
            say(f"left out: {left}; one comes if its file is named")
        if self._came.total() != 1 or self._dry_run:
            self._say_sum()

    def _sources(self, path: Path) -> Iterator[_Source]:
        """The files that a path names, and of what format they are."""
        from awl.formats import listing

        try:
            if path.is_dir():
                found = 0
                for one in self._within(path):
                    found += 1
                    yield one
                if not found and not self.ids and not self._of_subagents:
                    say(f"{path}: there is no session in it")
            elif self._name != "auto":
                yield _sized(path, format_named(self._name))
            else:
                from awl.store.receiving import is_own

                yield _sized(path, None if is_own(path) else listing.recognise(path))
        except (AwlError, OSError) as error:
            self._fail(path, error)

    def _within(self, folder: Path) -> Iterator[_Source]:
        from awl.formats import find, listing
        from awl.store.receiving import own_files

        own = set()
        if self._name in ("auto", AWL):
            for path in own_files(folder):
                own.add(path)
                yield _sized(path, None)
            if not self._dry_run:
                self.ids += self._store.take_conversations(folder)
        if self._name != AWL:
            only = None if self._name == "auto" else find(self._name)
            for found in listing.sessions_in(folder, only):
                if found.path in own:
                    continue
                if isinstance(found, listing.NotRecognised) and parse_log_name(found.path.name):
                    self._fail(found.path, found)  # it was a log
                elif isinstance(found, listing.NotRecognised):
                    self._came["unknown"] += 1
                    if self._came["unknown"] <= _MOST_SAID:
                        say(str(found))
                elif isinstance(found, listing.OfSubagent):
                    self._of_subagents += 1
                else:
                    yield _sized(found.path, find(found.format))

    def _bring(self, source: _Source, show: Progress | None) -> None:
        """Take in one file."""
        path, known = source.path, source.known
        try:
            if known is None:
                received = self._own.take(path)
                say_all(received.notices)
                self._count(received.outcome, AWL, path)
                session_id = received.session_id
            else:
                brought = self._others.bring(path, known, show)
                self._say_brought(path, known, brought)
                session_id = brought.session_id
        except (AwlError, OSError) as error:
            self._fail(path, error)
        else:
            if session_id and not self._dry_run:
                self.ids.append(session_id)

    def _say_brought(self, path: Path, known: Format, brought: Brought) -> None:
        """Say what came of another program's file, and what did not."""
        self._count(brought.outcome, known.name, path, str(brought.tally))
        self._tally.add(brought.tally)
        if brought.outcome == "same":
            return
        if brought.outcome == "empty":
            say(f"{path}: there are no messages in it")
        elif not self._dry_run:
            what = {"grown": "it grew: ", "apart": "it comes as another session: "}
            say(f"{path}: {known.name}: {what.get(brought.outcome, '')}{brought.tally}")
        if brought.reason:
            say(f"{path}: it comes as another session, because {brought.reason}")
        say_all(brought.report.lines(path))

    def _count(self, outcome: str, name: str, path: Path, tally: str = "") -> None:
        self._came[outcome] += 1
        if self._dry_run:
            row = f"{_CAME[outcome]:16}  {name:11}  {path}  {tally if outcome != 'same' else ''}"
            print_text(row.rstrip().replace("\n", "␊"))

    def _say_sum(self) -> None:
        came = [f"{self._came[one]} {what}" for one, what in _CAME.items() if self._came[one]]
        said = f"; {self._tally}" if self._tally.messages else ""
        end = "; nothing was written" if self._dry_run else ""
        say(f"sessions: {', '.join(came) or 'none'}{said}{end}")

    def _fail(self, path: Path, error: AwlError | OSError) -> None:
        self._came["failed"] += 1
        reason = str(getattr(error, "strerror", None) or error)
        say(reason if str(path) in reason else f"{path}: {reason}")


def _sized(path: Path, known: Format | None) -> _Source:
    try:
        return _Source(path, known, path.stat().st_size)
    except OSError:
        return _Source(path, known, 0)


def _part_of(show: Progress | None, before: int, size: int, total: int) -> Progress | None:
    """Shows how far all sources are while one is read; a source may be read more than once."""
    if show is None:
        return None
    return lambda done, _: show(min(before + done, before + size, total - 1), total)
