"""What a channel may ask of a running conversation, and what it gets to show.

`AgentAccess` is what commands need; the structs are for people to read, and each channel shows them
in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol

import msgspec

from awl.conversation import ModelRef
from awl.index.info import SessionInfo
from awl.places import GoingBack, Labelling, Prompt

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

    `session_id` is as short as is unique; `forked_from` is its parent's, if it is a fork. `cwd` is
    where tools run.
    `last_active` is a time as logged. `notices` are lines about damage, repairs and the like.
    `brief`: the person wants to see no more than these and the id.
    """

    session_id: str
    last_active: str
    messages: int
    turns: int
    model: ModelRef | None = None
    title: str = ""
    cwd: str = ""
    forked_from: str = ""
    interrupted: bool = False
    open_calls: tuple[OpenCall, ...] = ()
    notices: tuple[str, ...] = ()
    brief: bool = False


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session as `/conv` shows it. `name` is its id, as short as is unique; `parent` that of the
    session it was forked from, `forks` those of sessions that were forked from it. `here`: it is
    the running conversation."""

    name: str
    info: SessionInfo
    here: bool = False
    parent: str = ""
    forks: tuple[str, ...] = ()


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of all directories, the newest last; `more`: there are older ones. `notices` are
    lines about what cannot be read."""

    rows: tuple[SessionRow, ...]
    more: bool = False
    notices: tuple[str, ...] = ()


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants of a conversation that they go on with: another provider, model or
    directory than it had; of a copy, up to which seq."""

    provider: str | None = None
    model: str | None = None
    cwd: str | None = None
    at: int | None = None


class Ask(msgspec.Struct, frozen=True):
    """A question that goes with a reply: what is answered, `command` is run with. A channel in
    which one cannot ask leaves it out."""

    question: str
    command: str


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What a command has to say. `history`, `banner` and `rows`, if any, are shown above `text`.

    Rows are lines of a list: where one is too long it is cut, not wrapped. `draft` is a text for
    the person to go on writing, as it would be typed. `ask` is shown below.
    """

    text: str = ""
    rows: tuple[str, ...] = ()
    history: tuple[HistoryItem, ...] = ()
    banner: BannerInfo | None = None
    draft: str = ""
    ask: Ask | None = None
    markdown: bool = False
    is_error: bool = False
    quit: bool = False


class AgentAccess(Protocol):
    """What commands need of a running conversation. Any `AwlError` or `OSError` becomes an error
    `Reply`."""

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

    async def prompts(self, limit: int | None) -> Sequence[Prompt]:
        """The last `limit` prompts on the path (None: all), the last one first."""

    async def rewind(self, name: str) -> GoingBack:
        """Go back to a place of the session. The log says so before anything else happens."""

    async def label(self, words: str) -> Labelling:
        """Give a label to an entry, as `NAME [ENTRY]` says."""

    async def title(self, title: str | None) -> str:
        """The session's title; with an argument, after it was given this one."""

    async def tree(self) -> Sequence[str]:
        """The branches of the session, drawn."""

    async def export(self, path: str, format_name: str | None, *, force: bool) -> Sequence[str]:
        """Write the session to a file, in a format or in the one that the file's name tells: where
        it went, and what is not in it, a line each."""

    async def sessions(self, limit: int | None) -> Sessions:
        """The sessions of all directories, the newest `limit` of them (None: all)."""

    async def session_row(self, query: str | None) -> SessionRow:
        """One session, by id, prefix, number or path; by default the running one."""

    async def resume(self, query: str, wish: Wish) -> BannerInfo:
        """Let the running conversation be another one. If that fails, it stays what it is."""

    async def fork(self, query: str | None, wish: Wish) -> BannerInfo:
        """Let it be a copy of another one, by default of itself."""

    def session_names(self) -> Iterable[tuple[str, str]]:
        """The ids of the newest sessions, as short as is unique, and their titles."""

    async def compact(self) -> str:
        """Condense what was said so far; what that came to, in one line.

        Raises `AwlError`, which says why, if nothing was changed.
        """
