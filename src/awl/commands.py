"""Slash commands, written once for all channels.

A channel gives each line that a person sends to `is_command`; a command goes to `run`, which asks
the `AgentAccess` and returns a `Reply` that the channel shows in its own way; all else is a prompt,
and goes to the agent as `as_prompt(line)`.

A new command is a function and a line in `COMMANDS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from awl.conversation import ModelRef
from awl.errors import AwlError
from awl.printing import one_line

HISTORY_DEFAULT: Final = 20
"""Items that `/history` shows when it is not told how many."""

OFF_PATH: Final = "not on the current path"
INTERRUPTED: Final = "interrupted"


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call in the history. `output` is its result, or what is known if there is none."""

    name: str
    summary: str
    output: str = ""
    is_error: bool = False


class HistoryItem(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a session's history, or a divider between messages, for people.

    `name` is the model's (assistant only). `text` of a divider is its title: a gap in the log, a
    summary, a rewind; `detail` is what may be read below it. `timestamp` is the entry's, as logged.
    `marks` are short remarks such as `OFF_PATH` and `INTERRUPTED`.
    """

    kind: Literal["user", "assistant", "system", "divider"]
    seq: int = 0
    text: str = ""
    name: str = ""
    detail: str = ""
    thinking: str = ""
    tools: tuple[ToolLine, ...] = ()
    timestamp: str = ""
    marks: tuple[str, ...] = ()


class OpenCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that an interruption left open. `known`: `never started`, `started, outcome
    unknown` or `finished`."""

    name: str
    summary: str
    known: str


class BannerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a person is told when a session is resumed.

    `session_id` is as short as is unique. `last_active` is a time as logged. `notices` are lines
    about damage, repairs and the like.
    """

    session_id: str
    last_active: str
    messages: int
    turns: int
    model: ModelRef | None = None
    title: str = ""
    interrupted: bool = False
    open_calls: tuple[OpenCall, ...] = ()
    notices: tuple[str, ...] = ()


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a command has to say. `history`, if any, is shown above `text`."""

    text: str = ""
    history: tuple[HistoryItem, ...] = ()
    markdown: bool = False
    is_error: bool = False
    quit: bool = False


class AgentAccess(Protocol):
    """What commands need of a running conversation. Any `AwlError` becomes an error `Reply`."""

    @property
    def model(self) -> ModelRef:
        """The active model: the next prompt goes to it."""

    def models(self) -> Sequence[ModelRef]:
        """The models that can be switched to, the active one among them."""

    async def switch_model(self, name: str) -> ModelRef:
        """Make the model of this name, or PROVIDER/MODEL, the active one.

        Raises `AwlError`, naming the choices, if there is none.
        """

    async def history(self, limit: int | None) -> Iterable[HistoryItem]:
        """The last `limit` items (None: all), oldest first. The whole history, not the view."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command. `usage` is what follows the name; `run` gets what the person wrote there.

    `choices` completes its argument.
    """

    name: str
    help: str
    run: Callable[[AgentAccess, str], Awaitable[Reply]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    choices: Callable[[AgentAccess], Iterable[str]] | None = None


def is_command(line: str) -> bool:
    """Whether the line is a command and no prompt."""
    return line.startswith("/") and not line.startswith("//")


def as_prompt(line: str) -> str:
    """The prompt that a person meant: `//` at its beginning stands for a slash."""
    return line[1:] if line.startswith("//") else line


async def run(line: str, agent: AgentAccess) -> Reply:
    """Carry out the command in `line`. An error is a reply like any other."""
    name, *argument = line.strip().removeprefix("/").split(maxsplit=1) or [""]
    command = _BY_NAME.get(name.lower())
    if command is None:
        return _unknown(name)
    try:
        return await command.run(agent, "".join(argument))
    except AwlError as error:
        return Reply(text=str(error), is_error=True)


def completions(line: str, agent: AgentAccess) -> list[tuple[str, str]]:
    """What the last word of a command's line can become: (word, what it means).

    An argument matches wherever it occurs: models are known by the middle of their names.
    """
    if not is_command(line):
        return []
    name, space, argument = line.removeprefix("/").partition(" ")
    if not space:
        return [(f"/{c.name}", c.help) for c in COMMANDS if c.name.startswith(name.lower())]
    command = _BY_NAME.get(name.lower())
    if command is None or command.choices is None:
        return []
    return [(choice, "") for choice in command.choices(agent) if argument in choice]


_KEYS: Final = (
    "Enter sends; Alt-Enter, or a backslash at the end of a line, adds a line;",
    "Up brings back what was sent. Ctrl-C ends a turn or clears the line;",
    "Ctrl-D on an empty line quits.",
    "A prompt that begins with / is written with //.",
)


async def _help(agent: AgentAccess, argument: str) -> Reply:
    rows = [(" ".join(filter(None, (f"/{c.name}", c.usage))), c.help) for c in COMMANDS]
    width = max(len(usage) for usage, _ in rows)
    lines = [f"{usage:{width}}  {help}" for usage, help in rows]
    return Reply(text="\n".join([*lines, "", *_KEYS]))


async def _model(agent: AgentAccess, argument: str) -> Reply:
    if argument:
        return Reply(text=f"The next prompt goes to {await agent.switch_model(argument)}.")
    active = agent.model
    models = [*agent.models()]
    if active not in models:
        models.insert(0, active)
    lines = [f"{'*' if model == active else ' '} {model}{_at(model)}" for model in models]
    return Reply(text="\n".join([*lines, "", "/model NAME switches."]))


def _at(model: ModelRef) -> str:
    return f"  ({model.endpoint})" if model.endpoint else ""


async def _history(agent: AgentAccess, argument: str) -> Reply:
    if argument == "all":
        limit = None
    elif argument.isascii() and argument.isdigit() and int(argument) > 0:
        limit = int(argument)
    elif not argument:
        limit = HISTORY_DEFAULT
    else:
        return Reply(text="usage: /history [N|all]", is_error=True)
    items = tuple(deque(await agent.history(limit), maxlen=limit))
    if not items:
        return Reply(text="Nothing was said yet.")
    more = len(items) == limit
    return Reply(
        history=items,
        text=f"The last {limit}; /history all shows everything." if more else "",
    )


async def _quit(agent: AgentAccess, argument: str) -> Reply:
    return Reply(quit=True)


def _model_names(agent: AgentAccess) -> list[str]:
    return [str(model) for model in agent.models()]


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="help", help="list the commands", run=_help),
    Command(
        name="history",
        usage="[N|all]",
        help=f"show what was said: the last {HISTORY_DEFAULT}, N, or everything",
        run=_history,
        choices=lambda agent: ["all"],
    ),
    Command(
        name="model",
        usage="[NAME | PROVIDER/MODEL]",
        help="list the models, or switch to one",
        run=_model,
        choices=_model_names,
    ),
    Command(name="quit", help="leave; the session can be resumed", run=_quit, aliases=("exit",)),
)
_BY_NAME: Final = {
    name: command for command in COMMANDS for name in (command.name, *command.aliases)
}


def _unknown(name: str) -> Reply:
    from difflib import get_close_matches

    near = [known for known in _BY_NAME if name and known.startswith(name.lower())]
    near = near or get_close_matches(name.lower(), _BY_NAME, n=1)
    advice = f"did you mean /{near[0]}?" if near else "/help lists what there is."
    return Reply(
        text=f"There is no command /{one_line(name, 40)}: {advice}"
        " To send a prompt that begins with /, write //.",
        is_error=True,
    )
