"""The command line. What is slow to import is imported by the command that needs it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from awl import __version__
from awl.errors import AwlError

if TYPE_CHECKING:
    from awl.app import Wanted
    from awl.config import Config
    from awl.index.conversations import Logless
    from awl.index.fulltext import Progress
    from awl.store.files import Store

MOST_SHOWN = 50
"""Hits of a search that people are shown unless they ask for more."""

EPILOG = """\b
Examples:
  awl                                  talk; the session is kept from the first prompt on
  awl --resume                         go on with the latest session of this directory
  awl --resume 019dc5ba                go on with that session
  awl -p "What does this repo do?"     one turn, the answer on stdout
  git diff | awl -p "Review this"      with something to read
  awl sessions                         list the sessions of this directory
"""


_LATEST = "\0"  # no id, and nothing that an empty variable could give


class _InOrder(click.Group):
    """Help in the order in which the commands were written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="awl", message="%(prog)s %(version)s")
@click.option(
    "--resume",
    metavar="[ID]",
    is_flag=False,
    flag_value=_LATEST,
    default=None,
    help="Continue the latest session of this directory, or the one with this id, prefix or path.",
)
@click.option("-p", "--print", "prompt", metavar="TEXT", help="One turn; print the answer.")
@click.option(
    "--output",
    type=click.Choice(["text", "json", "stream-json"]),
    default=None,
    help="With -p: the answer, one JSON object, or one event a line.",
)
@click.option("--provider", metavar="NAME", help="Ask this provider.")
@click.option("--model", metavar="NAME", help="Ask this model: MODEL or PROVIDER/MODEL.")
@click.option("--system", metavar="TEXT", help="The system text.")
@click.option("-y", "--yes", is_flag=True, help="Let tools change things without asking.")
@click.option("--cwd", metavar="DIR", help="Work in DIR instead of the current directory.")
@click.option(
    "--max-turns", type=click.IntRange(min=1), metavar="N", help="Answers that one prompt may take."
)
@click.option("--no-session", is_flag=True, help="Keep nothing of this conversation.")
@click.pass_context
def cli(
    ctx: click.Context,
    resume: str | None,
    prompt: str | None,
    output: str | None,
    provider: str | None,
    model: str | None,
    system: str | None,
    yes: bool,
    cwd: str | None,
    max_turns: int | None,
    no_session: bool,
) -> None:
    """awl: an AI agent whose conversations cannot be lost.

    Everything that is said is in an append-only log before it counts. Without a command, awl
    talks; kill it at any moment and `awl --resume` goes on where it stopped.
    """
    if ctx.invoked_subcommand is not None:
        if any(value not in (None, False) for value in ctx.params.values()):
            raise click.UsageError(f"these options do not go with `{ctx.invoked_subcommand}`")
        return
    if output is not None and prompt is None:
        raise click.UsageError("--output goes with -p TEXT")
    if no_session and resume is not None:
        raise click.UsageError("--no-session keeps nothing: it does not go with --resume")
    from awl.app import Wanted

    wanted = Wanted(
        provider=provider,
        model=model,
        system=system,
        cwd=None if cwd is None else _directory(cwd),
        max_turns=max_turns,
        kept=not no_session,
    )
    ctx.exit(_talk(wanted, resume, prompt, output or "text", yes))


def _talk(wanted: Wanted, resume: str | None, prompt: str | None, output: str, yes: bool) -> int:
    """Talk in the terminal, or play one turn with -p."""
    from awl import talk

    config = _config(wanted.cwd)
    path = None if resume is None else _to_resume(config, wanted, resume)
    if prompt is not None:
        text = _with_stdin(prompt)
        if not text.strip():
            raise click.UsageError("there is nothing to send: give -p a TEXT, or pipe something in")
        return talk.once(config, os.environ, wanted, path, text, output, yes=yes)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise AwlError("a conversation needs a terminal: for one turn, say awl -p TEXT")
    return talk.terminal(config, os.environ, wanted, path, yes=yes)


def _to_resume(config: Config, wanted: Wanted, resume: str) -> Path | Logless | None:
    """What to go on with; None, said aloud, when this directory has none yet."""
    from awl.app import open_store

    store = open_store(config, os.environ)
    if resume != _LATEST:
        try:
            return store.find(resume)
        finally:
            _say_all(store.notices)
    cwd = _here(wanted.cwd)
    listing = store.list(cwd, limit=1)
    _say_all(store.notices)
    _say_all([f"cannot be read: {problem}" for problem in listing.unreadable])
    found = store.newest(listing)
    if found is None:
        _say(f"no session of {cwd} yet: starting one")
    return found


def _with_stdin(prompt: str) -> str:
    """The prompt, and behind it what was piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        return prompt
    piped = sys.stdin.buffer.read().decode("utf-8", "replace").rstrip("\n")
    return f"{prompt}\n\n{piped}" if piped and prompt else piped or prompt


# -- sessions --------------------------------------------------------------------------------------


def _list_options(command: Any) -> Any:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="For programs."),
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The newest N."),
        click.option("--cwd", metavar="DIR", help="The sessions of DIR."),
        click.option("--all", "everywhere", is_flag=True, help="The sessions of all directories."),
    ):
        command = option(command)
    return command


@cli.group(cls=_InOrder, invoke_without_command=True)
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
    store = _store()
    where = None if everywhere else _here(cwd)
    listing = store.list(where, limit=limit)
    _say_all(store.notices)
    _say_all([f"cannot be read: {problem}" for problem in listing.unreadable])
    found = listing.sessions
    if as_json:
        _print_json(found)
        return
    parents = [info.forked_from.session_id for info in found if info.forked_from]
    short = store.short_ids([*(info.id for info in found), *parents])
    rows = []
    for info in found:
        messages = f"{info.message_count} message{'' if info.message_count == 1 else 's'}"
        mark = "" if info.status == "idle" else f"({info.status}) "
        if info.forked_from:
            mark += f"(fork of {short[info.forked_from.session_id]}) "
        row = f"{short[info.id]}  {_local(info.created)}  {messages}  {mark}{info.title}"
        rows.append(row.rstrip().replace("\n", "␊"))  # a row cannot be forged
    if rows:
        _print("\n".join(rows))
    if not found:
        _say("no sessions" if where is None else f"no sessions of {where}: --all lists all")


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
    store = _store()
    where = None if everywhere else _here(cwd)
    most = limit or (None if as_json else MOST_SHOWN)
    found = store.search(" ".join(text), cwd=where, limit=most, progress=_progress())
    _say_all(store.notices)
    _say_all([f"cannot be searched: {problem}" for problem in found.unreadable])
    if as_json:
        _print_json(found.hits)
        return
    short = store.short_ids([hit.session_id for hit in found.hits])
    for hit in found.hits:
        facts = f"{short[hit.session_id]}  {hit.seq:>4}  {_local(hit.timestamp)}  {hit.role}"
        _print(f"{facts}  {hit.snippet}")
    if found.more:
        _say(f"these are the newest {most}: --limit N shows more")
    if not found.hits:
        _say("nothing found" if where is None else f"nothing found in {where}: --all searches all")


@sessions.command()
@click.argument("session_id", metavar="ID")
@click.argument("title", metavar="TITLE", nargs=-1, required=True)
def rename(session_id: str, title: tuple[str, ...]) -> None:
    """Give a session a title. Its place in lists stays the same.

    \b
    Examples:
      awl sessions rename 019dc5ba Fix the parser
    """
    store = _store()
    store.rename(_resolved(store, session_id), " ".join(title))


@sessions.command()
def reindex() -> None:
    """Build the index anew from the logs. It may be deleted at any time, too.

    \b
    Examples:
      awl sessions reindex
    """
    store = _store()
    listing = store.reindex(_progress())
    _say_all(store.notices)
    _say_all([f"cannot be read: {problem}" for problem in listing.unreadable])
    messages = sum(info.message_count for info in listing.sessions)
    _print(f"{len(listing.sessions)} sessions, {messages} messages")


@sessions.command()
@click.argument("session_id", metavar="ID")
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

    store = _store()
    found = store.find(session_id)
    _say_all(store.notices)
    if not isinstance(found, Path):
        _show_logless(found, events or as_json)
        return
    path = found
    asked = shown.Range(lo or 0, hi)
    if as_json:
        _print_json(shown.as_json(path, asked, store.number_of(path)))
    elif events:
        for line in shown.events(path, asked):
            _print(line)
    else:
        lines = _config(None).session.resume.expand_default_lines
        shown.print_session(path, asked, lines=lines)


def _show_logless(found: Logless, needs_log: bool) -> None:
    from awl.errors import NoLog

    if needs_log:
        raise NoLog(found.session_id)
    for said in found.said:
        _print(f"{said.role}: {said.text}\n")


@sessions.command()
@click.argument("session_id", metavar="ID")
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
    from awl.app import Wanted

    if not print_only:
        click.get_current_context().exit(_talk(Wanted(), session_id, None, "text", yes=False))
    path = _resolved(_store(), session_id)
    to_terminal = sys.stdout.isatty()
    for line in shown.raw_lines(path):
        if to_terminal:
            _print(line.decode("utf-8", "replace").removesuffix("\n"))
        else:
            sys.stdout.buffer.write(line)


# -- config ----------------------------------------------------------------------------------------


@cli.group(cls=_InOrder)
def config() -> None:
    """Where the settings are, and what they are.

    \b
    Examples:
      awl config init                 write a file with every setting
      awl config show                 what holds now
    """


@config.command("path")
def config_path() -> None:
    """Print where the configuration file is, or would be.

    \b
    Examples:
      $EDITOR "$(awl config path)"
    """
    from awl.config import config_path as find

    _print(str(find(os.environ)))


@config.command("show")
def config_show() -> None:
    """Print the settings in force. Keys are never printed, only the names of their variables.

    \b
    Examples:
      awl config show
    """
    from awl.config import render

    _print(render(_config(None)).rstrip("\n"))


@config.command("init")
@click.option("--force", is_flag=True, help="Replace a file that is there; it is kept as .bak.")
def config_init(force: bool) -> None:
    """Write a configuration file with every setting and its default.

    \b
    Examples:
      awl config init
      awl config init --force         start anew; the old file is kept as .bak
    """
    from awl.config import config_path as find
    from awl.config import default_toml
    from awl.log.file import create_private, make_directories, write_all

    path = find(os.environ)
    if path.exists():
        if not force:
            raise AwlError(f"{path} is there already: --force replaces it and keeps it as .bak")
        names = ("", *(f"-{n}" for n in range(2, 1000)))
        kept = (path.with_name(f"{path.name}.bak{name}") for name in names)
        path.rename(next(name for name in kept if not name.exists()))
    make_directories(path.parent)
    out = create_private(path)
    try:
        write_all(out, default_toml().encode())
    finally:
        os.close(out)
    _print(str(path))


# -- helpers ---------------------------------------------------------------------------------------


def _config(cwd: str | None) -> Config:
    from awl.config import load

    if cwd is None:
        with contextlib.suppress(FileNotFoundError):  # gone: then it has no settings either
            cwd = os.getcwd()  # noqa: PTH109
    return load(os.environ, Path(cwd) if cwd else None)


def _store() -> Store:
    from awl.config import sessions_dir
    from awl.store.files import Store

    loaded = _config(None)
    for warning in loaded.warnings:
        _say(warning)
    return Store(sessions_dir(loaded, os.environ))


def _resolved(store: Store, query: str) -> Path:
    """The log that is meant; what there is to say of the index is said."""
    try:
        return store.resolve(query)
    finally:
        _say_all(store.notices)


def _progress() -> Progress | None:
    """Shows on a terminal how far the index is, if that takes longer than a moment."""
    if not sys.stderr.isatty():
        return None
    import time

    begun = time.monotonic()

    def show(done: int, total: int) -> None:
        if time.monotonic() - begun > 0.5:
            share = 100 * done // max(total, 1)
            end = "\r\x1b[K" if done >= total else ""
            click.echo(f"\rawl: indexing {share:3} % {end}", nl=False, err=True)

    return show


def _directory(given: str) -> str:
    path = Path(given).expanduser()
    if not path.is_dir():
        raise AwlError(f"there is no directory {given}")
    return str(path.absolute())


def _here(cwd: str | None) -> str:
    """The directory that is meant; it need not exist any more."""
    try:
        return str(Path(cwd).expanduser().absolute()) if cwd else os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        raise AwlError("the current directory was deleted: name one with --cwd DIR") from None


def _local(timestamp: str) -> str:
    from datetime import datetime

    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # not a time, or one that no clock here can show
        return timestamp[:16].replace("T", " ").ljust(16)


def _print(text: str) -> None:
    from awl.printing import safe

    click.echo(safe(text))


def _print_json(value: Any) -> None:
    """JSON that is harmless on a terminal too: nothing but ASCII is written."""
    import json

    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(value), indent=2))


def _say_all(lines: Iterable[str]) -> None:
    for line in lines:
        _say(line)


def _say(text: str) -> None:
    from awl.printing import safe

    line = safe(text).replace("\n", "␊")
    with contextlib.suppress(OSError):  # then there is nobody to tell
        click.echo(f"awl: {line}", err=True)


def run(arguments: Sequence[str]) -> int:
    """The command line. Returns the exit code: 0, 1 for an error, 2 for wrong usage."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        code = cli.main(list(arguments), prog_name="awl", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "awl"
        _say(f"{error.format_message()} (`{where} --help` tells more)")
        return 2
    except click.ClickException as error:
        _say(error.format_message())
        return 1
    except AwlError as error:
        _say(str(error))
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        return 1
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _say(f"{error.strerror or error}{where}")
        return 1
    except (KeyboardInterrupt, click.Abort):
        return 130
    finally:
        _leave_stdout()


def _open_standard_streams() -> None:
    """Make sure that there are three. Else a log could be opened under the number of one that was
    closed, and what a library prints would land in it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode))


def _leave_stdout() -> None:
    """Write what is left; where nobody takes it, let Python not complain of that at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
