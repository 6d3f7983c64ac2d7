"""What a message, a tool call, a banner and a history look like on a terminal.

Everything here is printed as `Text` made of `safe` words: nothing that was stored is read as
markup, as emoji codes or as an escape sequence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import IO, Final

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from awl.access import OFF_PATH, BannerInfo, HistoryItem, Reply, ToolLine
from awl.channels.markdown import MarkdownStream
from awl.conversation import ToolUse
from awl.printing import one_line, safe

RESULT_LINES: Final = 5
_THINKING_LINES: Final = 3

_LONGEST_MARKDOWN: Final = 20_000
"""Characters of a message that are rendered; a longer one is printed as it is, which is quick."""

SAYS: Final = "\u203a "
"""Stands between who speaks and what is said; also the prompt."""

_DOT: Final = "● "
_INSET: Final = "  │ "


def make_console(file: IO[str] | None = None, **settings: object) -> Console:
    """A console that takes text as text. `NO_COLOR` is honoured, as are `COLUMNS` and `TERM`."""
    return Console(file=file, markup=False, emoji=False, highlight=False, **settings)  # type: ignore[arg-type]


class Pipe:
    """What is no terminal: words go there as they were written, neither wrapped nor rendered.

    `width` is for what is shortened.
    """

    def __init__(self, console: Console) -> None:
        self.width = console.width
        self._write = console.file.write

    def print(self, text: Text | None = None, *, end: str = "\n", soft_wrap: bool = True) -> None:
        self._write(f"{text.plain if text is not None else ''}{end}")


def words(text: str, style: str = "") -> Text:
    """Somebody's words, with nothing in them that a terminal acts on."""
    return Text(safe(text).expandtabs(4), style)


def tool_line(name: str, summary: str, *, width: int, is_error: bool = False) -> Text:
    """One line that says which tool was called, and for what."""
    line = Text().append(_DOT, "red" if is_error else "green").append(one_line(name, 40), "bold")
    # Many summaries begin with the name (`read src/x.py`); it is not said twice.
    summary = summary.removeprefix(f"{name} ").strip()
    return line.append("  " + one_line(summary, max(width - cell_len(line.plain) - 2, 8)))


def excerpt(
    text: str, *, width: int, lines: int, style: str, fold: bool = False, ends: bool = False
) -> Text:
    """The first lines of a text, inset, and how many there are more.

    Lines that are too long are cut; with `fold` they go on in the next row. With `ends` the last
    lines are shown too: what a command came to stands there.
    """
    room = max(width - len(_INSET) - 1, 8)
    found = safe(text).strip("\n").split("\n")
    if fold:
        found = [row for line in found for row in _fold(line, room)]
    # A last line alone takes no more room than the remark that it was left out.
    left_out = len(found) - lines if len(found) > lines + 1 else 0
    tail = lines // 2 if ends and left_out else 0
    head = lines - tail if left_out else len(found)
    rows = [Text().append(_INSET, "dim").append(_cut(line, room), style) for line in found[:head]]
    if left_out:
        rows.append(Text(f"{_INSET}… (+{left_out} lines)", "dim"))
    for line in found[len(found) - tail :]:
        rows.append(Text().append(_INSET, "dim").append(_cut(line, room), style))
    return Text("\n").join(rows)


def call_details(call: ToolUse, summary: str, *, width: int) -> list[str]:
    """What a call would do and its one line does not show, in full, on rows of this width."""
    shown = f"{tool_line(call.name, summary, width=width).plain} "
    room = max(width - len(_INSET), 8)
    rows: list[str] = []
    for name, value in _fields(call.input):
        if value.strip() and f" {value} " in shown:
            shown = shown.replace(value, "…", 1)  # another field with the same value is shown
            continue
        lines = safe(f"{name}:\n{value}" if "\n" in value else f"{name}: {value}").split("\n")
        rows += (row for line in lines for row in _fold(line, room))
    return rows


def inset(rows: Iterable[str], style: str = "") -> Text:
    """Rows below a tool's line."""
    return Text("\n").join(Text().append(_INSET, "dim").append(row, style) for row in rows)


def tool_result(content: str, *, is_error: bool, width: int, lines: int = RESULT_LINES) -> Text:
    """What a tool gave back: its first and last lines, quiet, or red if it failed."""
    style = "red" if is_error else "dim"
    said = content or "(no output)"
    return excerpt(said, width=width, lines=lines, style=style, fold=is_error, ends=True)


def thought(text: str, *, width: int) -> Text:
    """A model's reasoning: its first lines."""
    return excerpt(text, width=width, lines=_THINKING_LINES, style="dim italic")


def show_reply(reply: Reply, console: Console, *, lines: int = RESULT_LINES) -> None:
    """Print what a command had to say, and of tools' output so many lines."""
    if reply.history:
        print_history(reply.history, console, lines=lines)
    if reply.banner is not None:
        console.print(banner(reply.banner))
    for row in reply.rows:
        console.print(words(row), no_wrap=True, overflow="ellipsis")
    if reply.rows and reply.text:
        console.print()
    if reply.text and reply.markdown and not reply.is_error:
        answer = MarkdownStream(console)
        answer.feed(reply.text)
        answer.finish()
    elif reply.text:
        above = reply.history or reply.rows
        style = "red" if reply.is_error else "dim" * bool(above)
        # A path that is cut into two lines cannot be copied.
        whole = any(cell_len(word) > console.width for word in reply.text.split())
        console.print(words(reply.text, style), soft_wrap=whole)


def banner(info: BannerInfo, *, now: datetime | None = None) -> Text:
    """What a person is told when a session is resumed."""
    text = Text().append("Resumed ", "bold").append(safe(info.session_id), "bold cyan")
    if info.title:
        text.append("  " + one_line(info.title, 200), "bold")
    if info.brief:
        return _notices(text, info)
    if info.forked_from:
        text.append(f"\n  a fork of {safe(info.forked_from)}", "dim")
    text.append(f"\n  last active {_when(info.last_active, now)}", "dim")
    counts = _count(info.messages, "message")
    if info.turns:  # a conversation that another program had has none
        counts += f", {_count(info.turns, 'turn')}"
    model = f" · {safe(str(info.model))}" if info.model is not None else ""
    text.append(f"\n  {counts}{model}", "dim")
    if info.cwd:
        text.append(f"\n  in {one_line(info.cwd, 200)}", "dim")
    if info.interrupted:
        text.append("\n  It was interrupted in the middle of a turn.", "yellow")
        for call in info.open_calls:
            text.append("\n    ").append(tool_line(call.name, call.summary, width=100))
            text.append(f"  ({one_line(call.known, 100)})", "yellow")
        if info.open_calls:
            text.append("\n  Nothing was run again: say how to go on.", "dim")
    return _notices(text, info).append("\n  /history shows what was said.", "dim")


def _notices(text: Text, info: BannerInfo) -> Text:
    for notice in info.notices:
        text.append(f"\n  {safe(notice)}", "yellow")
    return text


def print_history(
    items: Iterable[HistoryItem], console: Console | Pipe, *, lines: int = RESULT_LINES
) -> None:
    """Print messages for people: who said what and when, with the tools between.

    `lines` of a tool's output are shown.
    """
    day = None
    for item in items:
        moment = _moment(item.timestamp)
        if moment is not None and moment.date() != day:
            day = moment.date()
            _divide(f"{day:%A} {day.day} {day:%B %Y}", console)
        if item.kind == "divider":
            _divide(item.text, console, style="yellow")
            if item.detail:
                console.print(words(item.detail, "dim"))
        else:
            _print_message(item, moment, console, lines)
        console.print()


def _print_message(
    item: HistoryItem, moment: datetime | None, console: Console | Pipe, lines: int
) -> None:
    style = "dim" if OFF_PATH in item.marks else ""
    head = _head(item, moment, style)
    if item.thinking:
        console.print(head)
        console.print(thought(item.thinking, width=console.width))
        head = Text()
    console.print(head, end="")
    rendered = item.kind == "assistant" and len(item.text) <= _LONGEST_MARKDOWN
    if rendered and isinstance(console, Console):
        answer = MarkdownStream(console, style=style, column=cell_len(head.plain))
        answer.feed(item.text)
        answer.finish()
    else:
        console.print(words(item.text, style), soft_wrap=True)
    for tool in item.tools:
        _print_tool(tool, console, lines)


def _head(item: HistoryItem, moment: datetime | None, style: str) -> Text:
    """When and who, and what there is to remark."""
    who = {"user": "you", "system": "system"}.get(item.kind) or item.name or "model"
    colour = "green" if item.kind == "user" else "cyan"
    head = Text().append(f"{moment:%H:%M} " if moment is not None else "", "dim")
    head.append(one_line(who, 60), f"{style} bold {colour}".strip())
    for mark in item.marks:
        head.append(f" ({one_line(mark, 100)})", "yellow")
    if item.text or not (item.tools or item.thinking):
        head.append(f" {SAYS}", "dim")
    return head


def _print_tool(tool: ToolLine, console: Console | Pipe, lines: int) -> None:
    width = console.width
    console.print(tool_line(tool.name, tool.summary, width=width, is_error=tool.is_error))
    if tool.output:
        console.print(tool_result(tool.output, is_error=tool.is_error, width=width, lines=lines))


def _divide(title: str, console: Console | Pipe, *, style: str = "dim") -> None:
    line = f"── {one_line(title, max(console.width - 7, 8))} ──"
    console.print(Text(line, style), soft_wrap=True)


def _fold(line: str, room: int) -> list[str]:
    return chop_cells(line.expandtabs(4), room) or [""]


def _cut(line: str, room: int) -> str:
    """A line of output, its indentation kept."""
    body = line.expandtabs(4).rstrip()
    inner = body.lstrip()
    indent = body[: min(len(body) - len(inner), room // 2)]
    return indent + one_line(inner, room - len(indent))


def _fields(input: str) -> list[tuple[str, str]]:
    """A call's arguments by name; all of it, as the model wrote it, if it is no JSON object."""
    try:
        fields = json.loads(input)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        return [("input", input)]
    return [
        (name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in fields.items()
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _moment(timestamp: str) -> datetime | None:
    """The local time of a logged one; None if it is no time, or outside what can be shown."""
    try:
        return datetime.fromisoformat(timestamp).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def _when(timestamp: str, now: datetime | None) -> str:
    moment = _moment(timestamp)
    if moment is None:
        return one_line(timestamp, 40) or "at an unknown time"
    ago = (now or datetime.now().astimezone()) - moment
    return f"{_ago(ago)} ({moment:%Y-%m-%d %H:%M})"


def _ago(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds < -60:
        return "in the future"
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            return f"{_count(seconds // size, unit)} ago"
    return "just now"
