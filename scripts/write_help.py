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

## For programs

`awl -p TEXT` prints the last answer on stdout, and what a person should know on stderr; on a
terminal all text is shown as it comes. `--output json` prints one object: `session_id` (null when
nothing is kept), `text`, `usage` (as in the log, or null), `stop_reason` (stop, length, aborted,
error, max_turns, unsaved) and, if there is one, `error`. `--output stream-json` prints one event a
line, each with a `type`: turn_started, text, thinking, tool_composing, answer_completed,
tool_started, tool_output, tool_finished, notice, retrying, unsaved, saved, and last turn_ended with
`text`, `usage`, `stop_reason`, `error` and `prompt_refused`; what is not set is left out.

`awl sessions --json` is an array of {id, title, status, cwd, provider, model, created, updated,
message_count, event_count, path, forked_from}; `status` is open, interrupted or idle. `awl sessions
show ID --json` is {session, damage: [{line, start, end, reason}], entries}: the same facts, the
lines that cannot be read, and the log's entries as they are. `awl sessions tree ID --json` is
{session, damage, leaf, nodes}; `leaf` is the last entry's id, and a node is {kind, depth, seq,
entry_id, parent_id, timestamp, text, entries, last_id, starts, ends, leaf, labels: [{label,
entry_id}], session_id}, in the order in which they are drawn; `kind` is prompt, rewind,
condensation, entries or fork.

`awl sessions verify ID --json` is {session_id, path, ok, findings: [{severity, kind, text, line,
start, end, lines, file}]}; without an ID, an array of these. `severity` is damage or note, [start,
end) are the bytes of `lines` lines from `line` on; all of them 0 where no line is meant. `file` is
the name of another file than the log, if it is one. What belongs to no session has an empty
`session_id`.
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
