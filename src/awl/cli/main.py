"""The command `awl`, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from awl import __version__
from awl.cli import health, moving
from awl.cli.common import SESSION, InOrder, directory, say
from awl.cli.config import config, migrate
from awl.cli.sessions import sessions
from awl.cli.talking import LATEST, Copy, talk
from awl.errors import AwlError, told

EPILOG = """\b
Examples:
  awl                                  talk; the session is kept from the first prompt on
  awl --resume                         go on with the latest session of this directory
  awl --resume 019dc5ba                go on with that session
  awl --fork 019dc5ba --at 12          go on in a copy of its first 12 entries
  awl -p "What does this repo do?"     one turn, the answer on stdout
  git diff | awl -p "Review this"      with something to read
  awl sessions                         list the sessions of this directory
"""


@click.group(
    cls=InOrder,
    invoke_without_command=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="awl", message="%(prog)s %(version)s")
@click.option(
    "--resume",
    metavar="[ID]",
    type=SESSION,
    is_flag=False,
    flag_value=LATEST,
    default=None,
    help="Continue the latest session of this directory, or the one with this id, prefix or path.",
)
@click.option("--fork", metavar="ID", type=SESSION, help="Continue in a copy of this session.")
@click.option(
    "--at", type=click.IntRange(min=0), metavar="SEQ", help="With --fork: copy up to this entry."
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
@click.option("--migrate-config", is_flag=True, help="The same as `awl config migrate`.")
@click.pass_context
def cli(
    ctx: click.Context,
    resume: str | None,
    fork: str | None,
    at: int | None,
    prompt: str | None,
    output: str | None,
    provider: str | None,
    model: str | None,
    system: str | None,
    yes: bool,
    cwd: str | None,
    max_turns: int | None,
    no_session: bool,
    migrate_config: bool,
) -> None:
    """awl: an AI agent whose conversations cannot be lost.

    Everything that is said is in an append-only log before it counts. Without a command, awl
    talks; kill it at any moment and `awl --resume` goes on where it stopped.
    """
    if ctx.invoked_subcommand is not None:
        if any(value not in (None, False) for value in ctx.params.values()):
            raise click.UsageError(f"these options do not go with `{ctx.invoked_subcommand}`")
        return
    if migrate_config:
        if sum(value not in (None, False) for value in ctx.params.values()) > 1:
            raise click.UsageError("--migrate-config goes alone")
        migrate()
        return
    if output is not None and prompt is None:
        raise click.UsageError("--output goes with -p TEXT")
    if at is not None and fork is None:
        raise click.UsageError("--at goes with --fork ID")
    if fork is not None and resume is not None:
        raise click.UsageError("--fork continues in a copy: it does not go with --resume")
    if no_session and (resume is not None or fork is not None):
        wrong = "--resume" if fork is None else "--fork"
        raise click.UsageError(f"--no-session keeps nothing: it does not go with {wrong}")
    from awl.beginning import Wanted

    wanted = Wanted(
        provider=provider,
        model=model,
        system=system,
        cwd=None if cwd is None else directory(cwd),
        max_turns=max_turns,
        kept=not no_session,
        how="awl --resume" if fork is None else "awl --fork",
    )
    goes_on = resume if fork is None else Copy(fork, at)
    ctx.exit(talk(wanted, goes_on, prompt, output or "text", yes))


for verb in (*moving.VERBS, *health.VERBS):
    sessions.add_command(verb)
cli.add_command(sessions)
cli.add_command(config)


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
        say(f"{error.format_message()} (`{where} --help` tells more)")
        return 2
    except click.ClickException as error:
        say(error.format_message())
        return 1
    except AwlError as error:
        say(str(error))
        return 1
    except BrokenPipeError:  # whoever read the output has seen enough
        return 1
    except OSError as error:
        say(told(error))
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
