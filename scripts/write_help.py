"""Write docs/command-line.md from the help texts: `uv run python scripts/write_help.py`."""

from __future__ import annotations

from pathlib import Path

import click
from click.testing import CliRunner

from awl.cli import cli

PAGE = Path(__file__).parent.parent / "docs" / "command-line.md"

HEAD = """# The command line

This page is what `--help` prints, command by command.

Exit codes: 0; 1 for an error, with one line on stderr that begins `awl: ` and says what to do;
2 for wrong usage; 128 + n after signal n. An ID is a session's id, a prefix of it that no other
session has, or the path of a log. Lists and texts are for people and may change; `--json` is for
programs.
"""


def page() -> str:
    """The page as it should be."""
    parts = [HEAD]
    runner = CliRunner(env={"COLUMNS": "100", "TERMINAL_WIDTH": "100"})
    for words in _commands(cli, []):
        result = runner.invoke(cli, [*words, "--help"], prog_name="awl", terminal_width=100)
        parts.append(f"## {' '.join(['awl', *words])}\n\n```text\n{result.output.rstrip()}\n```\n")
    return "\n".join(parts)


def _commands(command: click.Command, words: list[str]) -> list[list[str]]:
    found = [words]
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            found += _commands(command.commands[name], [*words, name])
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
