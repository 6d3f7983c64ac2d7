"""Slash commands, written once for all channels.

A channel gives each line that a person sends to `is_command`; a command goes to `run`, which asks
the `AgentAccess` and returns a `Reply` that the channel shows in its own way; all else is a prompt,
and goes to the agent as `as_prompt(line)`.

A new command is a function and a line in `COMMANDS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec

from awl.access import AgentAccess, Ask, Reply, SessionRow, Wish
from awl.conversation import ModelRef
from awl.errors import AwlError, told
from awl.places import Prompt
from awl.printing import local_time, one_line

HISTORY_DEFAULT: Final = 20
"""Items that `/history` shows when it is not told how many."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A slash command. `usage` is what follows the name; `run` gets what the person wrote there.

    `completes` gives what the next word can be, after the words before it: (word, what it means).
    """

    name: str
    help: str
    run: Callable[[AgentAccess, str], Awaitable[Reply]]
    usage: str = ""
    aliases: tuple[str, ...] = ()
    completes: Callable[[AgentAccess, Sequence[str]], Iterable[tuple[str, str]]] | None = None


def is_command(line: str) -> bool:
    """Whether the line is a command and no prompt."""
    return line.startswith("/") and not line.startswith("//")


def as_prompt(line: str) -> str:
    """The prompt that a person meant: `//` at its beginning stands for a slash."""
    return line[1:] if line.startswith("//") else line


def as_typed(prompt: str) -> str:
    """What a person types for a prompt: the opposite of `as_prompt`."""
    return f"/{prompt}" if prompt.startswith("/") else prompt


async def run(line: str, agent: AgentAccess) -> Reply:
    """Carry out the command in `line`. An error is a reply like any other."""
    name, *argument = line.strip().removeprefix("/").split(maxsplit=1) or [""]
    command = _BY_NAME.get(name.lower())
    if command is None:
        return _unknown(name)
    try:
        return await command.run(agent, "".join(argument))
    except (AwlError, OSError) as error:
        return Reply(text=told(error), is_error=True)


def completions(line: str, agent: AgentAccess) -> list[tuple[str, str]]:
    """What the last word of a command's line can become: (word, what it means).

    An argument matches wherever it occurs: models are known by the middle of their names, and
    sessions by their titles.
    """
    if not is_command(line):
        return []
    name, space, argument = line.removeprefix("/").partition(" ")
    if not space:
        return [(f"/{c.name}", c.help) for c in COMMANDS if c.name.startswith(name.lower())]
    command = _BY_NAME.get(name.lower())
    if command is None or command.completes is None:
        return []
    *before, word = argument.split(" ")
    found = command.completes(agent, [one for one in before if one])
    lower = word.lower()
    return [
        (one, means)
        for one, means in found
        if lower in one.lower() or any(w.startswith(lower) for w in means.lower().split())
    ]


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


async def _rewind(agent: AgentAccess, argument: str) -> Reply:
    if argument and argument != "all":
        went = await agent.rewind(" ".join(argument.split()))
        if went.prompt is None:
            return Reply(text="The next prompt goes on from there. /tree shows all branches.")
        return Reply(
            text="Gone back to before this prompt. What came after it stays, in /tree.",
            draft=as_typed(went.prompt),
        )
    limit = None if argument else HISTORY_DEFAULT
    found = await agent.prompts(limit)
    if not found:
        return Reply(text="There is no prompt on this path to go back to.")
    width = len(str(len(found)))
    rows = tuple(_prompt_row(prompt, width) for prompt in reversed(found))
    text = "/rewind N goes back to before a prompt; an entry's id or a label does too."
    if len(found) == limit:
        text = f"The last {limit}; /rewind all lists every prompt.\n{text}"
    question = "Go back to before which? A number, or Enter to stay:"
    return Reply(rows=rows, text=text, ask=Ask(question, "/rewind"))


def _prompt_row(prompt: Prompt, width: int) -> str:
    label = f"  [{one_line(prompt.label, 40)}]" if prompt.label else ""
    words = one_line(prompt.text, 70) or "(no words)"
    return f"{prompt.number:>{width}}  {local_time(prompt.timestamp)}  {words}{label}"


async def _label(agent: AgentAccess, argument: str) -> Reply:
    given = await agent.label(argument)
    text = f"/rewind {one_line(given.label, 40)} comes back here."
    if given.before:
        text += f" It takes the place of the label {one_line(given.before, 40)}."
    return Reply(text=text)


async def _title(agent: AgentAccess, argument: str) -> Reply:
    title = await agent.title(argument or None)
    return Reply(text=title or "It has no title yet: /title TITLE gives it one.")


async def _tree(agent: AgentAccess, argument: str) -> Reply:
    rows = tuple(await agent.tree())
    return Reply(rows=rows, text="/rewind ID goes back to an entry of any branch.")


async def _export(agent: AgentAccess, argument: str) -> Reply:
    words = _words(argument)
    force = "--force" in words
    named: list[str] = []
    format_name = None
    rest = iter(word for word in words if word != "--force")
    for word in rest:
        option, _, value = word.partition("=")
        if option == "--format":
            format_name = value or next(rest, "")
        else:
            named.append(word)
    if len(named) != 1 or named[0].startswith("--") or format_name == "":
        return Reply(text="usage: /export PATH [--format NAME] [--force]", is_error=True)
    return Reply(text="\n".join(await agent.export(named[0], format_name, force=force)))


_CONV_USAGE: Final = (
    "usage: /conv list [N|all]\n"
    "       /conv show [ID]\n"
    "       /conv resume [ID] [--provider NAME] [--model NAME] [--cwd DIR]\n"
    "       /conv fork [ID] [--at SEQ] [--provider NAME] [--model NAME] [--cwd DIR]\n"
    "An ID is an id, the beginning of one, a number as #7, or the path of a log."
)


async def _conv(agent: AgentAccess, argument: str) -> Reply:
    verb, *words = _words(argument) or ["list"]
    match verb:
        case "list" | "ls" if len(words) <= 1:
            return await _conv_list(agent, *words)
        case "show" if len(words) <= 1:
            return _conv_shown(await agent.session_row(words[0] if words else None))
        case "resume" | "fork":
            query, wish = _wish(words)
            if verb == "fork":
                return Reply(banner=await agent.fork(query, wish))
            if wish.at is not None:
                raise AwlError("--at goes with /conv fork")
            if query is not None:
                return Reply(banner=await agent.resume(query, wish))
            listed = await _conv_list(agent)
            ask = Ask("Go on with which? An id or a number, or Enter for none:", "/conv resume")
            return msgspec.structs.replace(listed, ask=ask)
    return Reply(text=_CONV_USAGE, is_error=True)


def _words(argument: str) -> list[str]:
    """The words of an argument; what is in quotes is one."""
    import shlex

    lexer = shlex.shlex(argument, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""  # `#7` is no comment
    try:
        return list(lexer)
    except ValueError as error:
        raise AwlError(f"{error}: close the quotes") from None


def _wish(words: list[str]) -> tuple[str | None, Wish]:
    """The id among the words, and what the options say."""
    query: str | None = None
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        option = name.removeprefix("--")
        if name.startswith("--") and option in Wish.__struct_fields__:
            given = value if equals else next(rest, "")
            if not given:
                raise AwlError(f"{name} needs a value")
            found[option] = given
        elif word.startswith("-") or query is not None:
            raise AwlError(f"{one_line(word, 40)} is one too many\n{_CONV_USAGE}")
        else:
            query = word
    at = found.pop("at", None)
    if at is not None and not (at.isascii() and at.isdigit() and len(at) < 19):
        raise AwlError("--at needs the seq of an entry: /tree and `awl sessions show --events`")
    return query, Wish(**found, at=None if at is None else int(at))


async def _conv_list(agent: AgentAccess, count: str = "") -> Reply:
    if count and count != "all" and not (count.isascii() and count.isdigit() and int(count)):
        return Reply(text=_CONV_USAGE, is_error=True)
    limit = None if count == "all" else int(count or HISTORY_DEFAULT)
    found = await agent.sessions(limit)
    if not found.rows:
        return Reply(text="\n".join(["There are no sessions yet.", *found.notices]))
    cells = [
        (
            "*" if row.here else " ",
            row.name,
            "" if row.info.conversation_id is None else f"#{row.info.conversation_id}",
            local_time(row.info.updated),
            f"{row.info.event_count} event{'' if row.info.event_count == 1 else 's'}",
            row.info.status,
            one_line(row.info.title, 60),
        )
        for row in found.rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = tuple(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    lines = [*found.notices, "/conv resume ID goes on with one, here and now."]
    if found.more:
        lines.append(f"These are the newest {limit}; /conv list all lists every session.")
    return Reply(rows=rows, text="\n".join(lines))


def _conv_shown(row: SessionRow) -> Reply:
    info = row.info
    facts = {
        "id": info.id,
        "number": "" if info.conversation_id is None else f"#{info.conversation_id}",
        "title": one_line(info.title, 200),
        "status": f"{info.status}, here" if row.here else info.status,
        "directory": info.cwd,
        "model": f"{info.provider}/{info.model}",
        "created": local_time(info.created),
        "last entry": local_time(info.updated),
        "messages": f"{info.message_count}, in {info.event_count} events",
        "fork of": row.parent,
        "forks": ", ".join(row.forks),
        "log": info.path or "none: only its words are kept",
    }
    width = max(map(len, facts))
    return Reply(text="\n".join(f"{name:{width}}  {fact}" for name, fact in facts.items() if fact))


async def _compact(agent: AgentAccess, argument: str) -> Reply:
    return Reply(text=await agent.compact())


async def _quit(agent: AgentAccess, argument: str) -> Reply:
    return Reply(quit=True)


def _model_names(agent: AgentAccess) -> list[str]:
    return [str(model) for model in agent.models()]


def _first(
    choices: Callable[[AgentAccess], Iterable[str]],
) -> Callable[[AgentAccess, Sequence[str]], Iterable[tuple[str, str]]]:
    """Completes the first word, and no other."""

    def completes(agent: AgentAccess, before: Sequence[str]) -> Iterable[tuple[str, str]]:
        return () if before else ((choice, "") for choice in choices(agent))

    return completes


def _conv_completions(agent: AgentAccess, before: Sequence[str]) -> Iterable[tuple[str, str]]:
    if not before:
        return [
            ("list", "the sessions of all directories"),
            ("show", "what is known of one"),
            ("resume", "go on with another one"),
            ("fork", "go on with a copy"),
        ]
    if before[-1] in ("--model", "--provider"):
        return [(str(model), "") for model in agent.models()]
    if len(before) == 1 and before[0] in ("show", "resume", "fork"):
        return agent.session_names()
    return ()


COMMANDS: Final[tuple[Command, ...]] = (
    Command(name="help", help="list the commands", run=_help),
    Command(
        name="history",
        usage="[N|all]",
        help=f"show what was said: the last {HISTORY_DEFAULT}, N, or everything",
        run=_history,
        completes=_first(lambda agent: ["all"]),
    ),
    Command(
        name="model",
        usage="[NAME | PROVIDER/MODEL]",
        help="list the models, or switch to one",
        run=_model,
        completes=_first(_model_names),
    ),
    Command(
        name="compact",
        help="let a summary stand for the older history; all of it stays in the log",
        run=_compact,
    ),
    Command(
        name="rewind",
        usage="[N | ENTRY | LABEL]",
        help="go back to before an earlier prompt, or to another branch",
        run=_rewind,
        completes=_first(lambda agent: ["all"]),
    ),
    Command(name="label", usage="NAME [ENTRY]", help="name a place, for /rewind", run=_label),
    Command(name="tree", help="show the branches of this session", run=_tree),
    Command(
        name="conv",
        usage="list | show | resume | fork",
        help="list the sessions, go on with another one, or with a copy",
        run=_conv,
        completes=_conv_completions,
    ),
    Command(name="title", usage="[TITLE]", help="show or change its title", run=_title),
    Command(
        name="export",
        usage="PATH [--format NAME]",
        help="write this session to a file: as it is, or as .html or .md",
        run=_export,
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
