"""Gemini CLI: `~/.gemini/tmp/<project>/chats/session-<time>-<id>.jsonl`, and `.json` before that.

A log of patches: the conversation is what is left when all lines were applied.

{sessionId, projectHash, …}  facts of the session; may come again.
{id, timestamp, type, …}     a message; of several with the same id the last counts, in the place
                             of the first. type is user, gemini, or info, error, warning, which are
                             for the screen. `content` is a text or parts of Google's API. One of
                             gemini has `toolCalls` {id, name, args, result, status}, `thoughts`,
                             `tokens` and `model`.
{$rewindTo: id}              that message and all behind it are gone.
{$set: {…}}                  facts, among them `summary` (a title) and `messages`: the messages
                             from here on. So a summary takes the place of what it sums up. A
                             session that was resumed has all of them again, with their calls and
                             thoughts as parts, and results once more, under the name of the message
                             that called with `_response` behind it.

The results of calls stand in `toolCalls`, and in newer versions also in the user's message behind
it; texts beside a result there are what the model read with it. A call that was still running when
the program died is not in the file. The project's directory is in `.project_root` beside `chats`;
the files themselves have its hash.

A `.json` file is {sessionId, projectHash, startTime, messages, …}, rewritten each time.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, takewhile
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from awl.conversation import Text, Thinking, ToolResult, ToolUse
from awl.entries import (
    Entry,
    LoggedMessage,
    MessageEntry,
    NoteEntry,
    TitleEntry,
    UnknownEntry,
    Usage,
)
from awl.formats import parts
from awl.formats.chain import Chain, Summaries
from awl.formats.documents import Document
from awl.formats.format import Facts, Format, Head, Imported, Keep, Place, Report, refer
from awl.formats.records import (
    LONGEST,
    Block,
    Lines,
    Parts,
    Records,
    kept,
    open_source,
    size_of,
    time_of,
    times_of,
)

NAME: Final = "gemini-cli"
PROVIDER: Final = "gemini"

_GLANCE: Final = 500
_BOOKKEEPING: Final = "records of the program's own book-keeping"


def _recognise(head: Head) -> bool:
    """The first line of a log, or the head of a document that may not be whole."""
    if any("sessionId" in found and "projectHash" in found for found in head.objects):
        return True
    return (
        head.path.suffix == ".json"
        and b'"projectHash"' in head.data
        and b'"sessionId"' in head.data
        and b'"messages"' in head.data
    )


def _of_subagent(head: Head) -> bool:
    return any(found.get("kind") == "subagent" and "projectHash" in found for found in head.objects)


def _read(path: Path, keep: Keep) -> Imported:
    report = Report()
    if path.suffix == ".json":
        return _read_document(path, keep, report)
    lines = Lines(path, report)
    facts = _facts(path, _glance(path))
    reader = _Reader(path, report, Chain(facts.source_id), keep, facts, _Plan())
    return Imported(facts, reader.log(lines), report, size_of(path), lambda: lines.end)


def _read_document(path: Path, keep: Keep, report: Report) -> Imported:
    document = Document(path, "messages")
    plan, model = _Plan(), ""
    for raw in document.elements(Report()):
        message = _decoded(raw)
        if message is not None:
            plan.answers(message, raw)
            model = model or message.model or ""
    members = document.members
    found = {name: _text(members.get(name)) for name in ("sessionId", "startTime", "summary")}
    facts = _facts(path, {**found, "model": model})
    reader = _Reader(path, report, Chain(facts.source_id), keep, facts, plan)
    entries = reader.document(document)
    return Imported(facts, entries, report, size_of(path), lambda: document.at)


def _facts(path: Path, found: dict[str, str]) -> Facts:
    return Facts(
        source=NAME,
        source_id=found.get("sessionId") or path.stem,
        source_path=path,
        cwd=_root_beside(path) or found.get("cwd", ""),
        provider=PROVIDER,
        model=found.get("model", ""),
        created=time_of(found.get("startTime")),
    )


def _root_beside(path: Path) -> str:
    """The project's directory, which a file beside the chats names."""
    try:
        return (path.parent.parent / ".project_root").read_text("utf-8").strip()
    except (OSError, ValueError):
        return ""


def _text(raw: bytes | None) -> str:
    try:
        found = msgspec.json.decode(raw or b'""')
    except msgspec.MsgspecError:
        return ""
    return found if isinstance(found, str) else ""


# -- records ---------------------------------------------------------------------------------------


class _Thought(msgspec.Struct, frozen=True, gc=False):
    subject: str = ""
    description: str = ""


_Content = str | list[parts.KnownPart] | parts.KnownPart | None


class _LooseToolCall(msgspec.Struct, frozen=True, gc=False):
    id: str = ""
    name: str = ""
    args: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    status: str = ""


class _ToolCall(_LooseToolCall, frozen=True, gc=False):
    """A call whose result has parts of known kinds alone."""

    result: _Content = None  # type: ignore[assignment]


class _Tokens(msgspec.Struct, frozen=True, gc=False):
    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int | None = None

    def entry(self) -> Usage:
        """Cached tokens are counted apart in awl, and reasoning with the rest."""
        fresh = self.input - self.cached
        return Usage(
            input=fresh if fresh > 0 else 0,
            output=self.output + (self.thoughts or 0),
            cache_read=self.cached or None,
        )


class _LooseMessage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A message, and the facts of a session, which stand on lines of their own."""

    id: str = ""
    timestamp: str = ""
    type: str = ""
    content: msgspec.Raw = msgspec.Raw()
    tool_calls: list[_LooseToolCall] | None = None
    thoughts: list[_Thought] | None = None
    tokens: _Tokens | None = None
    model: str | None = None


class _Message(_LooseMessage, frozen=True, rename="camel", gc=False):
    """A message in parts of known kinds alone."""

    content: _Content = None  # type: ignore[assignment]
    tool_calls: list[_ToolCall] | None = None  # type: ignore[assignment]


class _Facts(msgspec.Struct, frozen=True, rename="camel", gc=False):
    session_id: str | None = None
    start_time: str | None = None
    summary: str | None = None
    directories: list[str] | None = None
    messages: list[msgspec.Raw] | None = None


class _LooseRecord(_LooseMessage, frozen=True, rename="camel", gc=False):
    set: _Facts | None = msgspec.field(default=None, name="$set")
    rewind_to: str | None = msgspec.field(default=None, name="$rewindTo")
    session_id: str | None = None
    start_time: str | None = None
    directories: list[str] | None = None


class _Record(_LooseRecord, frozen=True, rename="camel", gc=False):
    """A line whose message has parts of known kinds alone."""

    content: _Content = None  # type: ignore[assignment]
    tool_calls: list[_ToolCall] | None = None  # type: ignore[assignment]


class _Listed(msgspec.Struct, frozen=True, gc=False):
    summary: str | None = None
    messages: list[msgspec.Raw] | None = None


class _Answered(msgspec.Struct, frozen=True, gc=False):
    id: str | None = None
    name: str = ""


class _Answer(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Of a part, which call it answers."""

    function_call: msgspec.Raw = msgspec.Raw()
    function_response: _Answered | None = None


class _LoosePatch(msgspec.Struct, frozen=True, gc=False):
    """Of a line, what has to be known of all of them beforehand."""

    id: str = ""
    type: str = ""
    content: msgspec.Raw = msgspec.Raw()
    set: _Listed | None = msgspec.field(default=None, name="$set")
    rewind_to: str | None = msgspec.field(default=None, name="$rewindTo")


class _Patch(_LoosePatch, frozen=True, gc=False):
    """A line whose message is a text or a list of parts."""

    content: str | list[_Answer] | None = None  # type: ignore[assignment]


_message: Final = msgspec.json.Decoder(_Message).decode
_LOOSE_MESSAGES: Final = Parts(_LooseMessage)


def _decoded(raw: bytes | msgspec.Raw) -> _LooseMessage | None:
    with contextlib.suppress(Exception):
        return _message(raw)
    return _LOOSE_MESSAGES.one(raw)


_Said = tuple[_LooseMessage, bytes, str]
"""A message, what it was read from, and its time."""


def _said(line: bytes) -> _Said | None:
    message = _decoded(line)
    return None if message is None else (message, line, time_of(message.timestamp))


def _glance(path: Path) -> dict[str, str]:
    """What the first lines tell of the session."""
    found: dict[str, str] = {}
    for number, (_, record) in enumerate(Records(Lines(path, Report()), _Record, _LooseRecord)):
        if record is not None:
            given = {
                "sessionId": record.session_id,
                "startTime": record.start_time,
                "cwd": next(iter(record.directories or ()), None),
                "model": record.model,
            }
            found = {**{name: value for name, value in given.items() if value}, **found}
        if "model" in found or number == _GLANCE:
            break
    return found


# -- reading ---------------------------------------------------------------------------------------


_Where = int | tuple[int, int]
"""Where a message stands: the byte at which its line starts, and its place if that sets a list."""


_NOWHERE: Final = (0, 0)


class _Left:
    """The messages that are left while patches are applied.

    `spans` has them in order: the numbers of the entries before and up to what came of each. `gone`
    counts how often each was taken away. `shown` are those for the screen, which lists do not have.
    """

    def __init__(self) -> None:
        self.spans: dict[str, tuple[int, int]] = {}
        self.gone: Counter[str] = Counter()
        self.shown: set[str] = set()

    def comes_again(self, other: _Left, name: str) -> bool:
        """Whether a message that is not left comes once more in what the other one has seen, of
        which this one has seen the first part: one that was gone can come again."""
        if name not in other.gone:
            return False
        return self.gone[name] + 1 < other.gone[name] + (name in other.spans)

    def rewound(self, name: str) -> int | None:
        """Take away a message and all behind it; all of them, if it is not known. Returns the
        number of the entry before; None if there was no message."""
        order = list(self.spans)
        gone = order[order.index(name) :] if name in self.spans else order
        before = self.spans[gone[0]][0] if gone else None
        self.without(gone)
        return before

    def ends_with(self, names: list[str]) -> bool:
        return list(self.spans)[-len(names) :] == names

    def gone_from(self, messages: Sequence[_LooseMessage]) -> tuple[list[str], list[str], slice]:
        """What a list of the messages from here on no longer has; what of that came first, and
        which messages of the list stand there instead: the new ones in its place."""
        names = {message.id for message in messages}
        gone = [name for name in self.spans if name not in names]
        order = list(self.spans) if gone else []
        pairs = zip(order, messages, strict=False)
        at = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1].id, pairs))
        first = list(takewhile(lambda name: name not in names, order[at:]))
        if self.shown.issuperset(first):
            return gone, [], slice(0)
        new = takewhile(lambda message: message.id not in self.spans, messages[at:])
        return gone, first, slice(at, at + sum(1 for _ in new))

    def without(self, gone: Sequence[str]) -> None:
        """Take away messages that are left."""
        self.gone.update(gone)
        for name in gone:
            del self.spans[name]


class _Plan:
    """What has to be known of a whole source before its first entry.

    Attributes:
        last: where each message that comes more than once stands for the last time.
        left: which are left in the end.
        answered: the calls that the user's messages answer.
        wanted: for each line, as far as this goes, whether anything comes of it.
        aside: how many of the others there are.
    """

    def __init__(self) -> None:
        self.last: dict[str, _Where] = {}
        self.left = _Left()
        self.answered: set[str] = set()
        self.wanted = bytearray()
        self.aside = 0

    def read(self, path: Path) -> None:
        lines = Lines(path, Report())
        for block in Records(lines, _Patch, _LoosePatch).blocks():
            # Lines that were passed over since are for the next reading.
            self.wanted.extend(b"\1" * (lines.number - len(self.wanted)))
            self._block(block, len(self.wanted) - len(block.lines))

    def _block(self, block: Block[_LoosePatch], first: int) -> None:
        """Take what is on the lines from that one on."""
        left = self.left
        spans, gone, last = left.spans, left.gone, self.last
        numbers = range(first, first + len(block.lines))
        for at, start, line, record in zip(numbers, *block, strict=True):
            if record is None:
                continue
            if record.rewind_to is not None:
                left.rewound(record.rewind_to)
            elif name := record.id:
                if name in spans or name in last or name in gone:
                    last[name] = start
                spans[name] = _NOWHERE
                if record.type == "user":
                    self._asked(record.content, line)
                elif record.type != "gemini":
                    left.shown.add(name)
            elif record.set is not None and record.set.messages is not None:
                self._listed(record.set.messages, start)
            elif record.set is not None and not record.set.summary:
                self.wanted[at] = 0
                self.aside += 1

    def _listed(self, raws: list[msgspec.Raw], start: int) -> None:
        messages = []
        for index, raw, message in _listed(raws):
            messages.append(message)
            if message.id:
                self.last[message.id] = start, index
                self.answers(message, bytes(raw))
        gone, _, instead = self.left.gone_from(messages)
        self.left.without(gone)
        del messages[instead]
        self.left.spans.update((message.id, _NOWHERE) for message in messages)

    def _asked(self, content: str | list[_Answer] | msgspec.Raw | None, line: bytes) -> None:
        """Note the calls that a user's message on a line answers."""
        if type(content) is str:
            return
        if type(content) is list:
            for part in content:
                if part.function_call:
                    break  # what this part is has to be looked at closely
                if (answered := part.function_response) is not None:
                    self.answered.add(answered.id or answered.name)
            else:
                return
        message = _decoded(line)
        if message is not None:
            self.answers(message, line)

    def answers(self, message: _LooseMessage, line: bytes) -> None:
        """Note the calls that a message answers."""
        if message.type == "user" and b'"functionResponse"' in line:
            content = parts.blocks_of(message.content, NAME, refer)
            self.answered.update(
                [block.tool_use_id for block in content if isinstance(block, ToolResult)]
            )


def _is_context(message: _LooseMessage) -> bool:
    """Whether a message tells the model where it is. It is another one each time that the session
    is resumed; the first belongs to what stands behind it."""
    if message.type != "user":
        return False
    content = message.content
    first = content[0].text if isinstance(content, list) and content else content
    return isinstance(first, str) and first.startswith("<session_context>")


def _listed(raws: list[msgspec.Raw]) -> Iterator[tuple[int, msgspec.Raw, _LooseMessage]]:
    """The messages of a list, with their places in it. Results that are there once more are none:
    they are in the calls."""
    for index, raw in enumerate(raws):
        message = _decoded(raw)
        if message is not None and not (
            message.type == "user" and message.id.endswith("_response")
        ):
            yield index, raw, message


class _Near:
    """Lines of a file that were read, each with where it starts, and the messages of the others."""

    def __init__(self, file: BinaryIO, block: Block[_LooseRecord]) -> None:
        self._file = file
        self._block = block
        stamps = [None if record is None else record.timestamp for record in block.records]
        self.times = times_of(stamps)

    def fetch(self, where: _Where) -> _Said | None:
        """A message from where it stands for the last time."""
        if isinstance(where, tuple):
            return self._listed(*where)
        starts, lines, records = self._block
        at = bisect_left(starts, where)
        if at < len(starts) and starts[at] == where:
            record = records[at]
            return None if record is None else (record, lines[at], self.times[at])
        return _said(self._line(where))

    def _listed(self, start: int, index: int) -> _Said | None:
        try:
            facts = msgspec.json.decode(self._line(start), type=_LooseRecord).set
        except msgspec.MsgspecError:
            return None
        raws = facts.messages if facts is not None else None
        return _said(bytes(raws[index])) if raws and index < len(raws) else None

    def _line(self, start: int) -> bytes:
        self._file.seek(start)
        return self._file.readline(LONGEST)


class _Reader:
    """The entries of a log or a document."""

    def __init__(
        self,
        path: Path,
        report: Report,
        chain: Chain,
        keep: Keep,
        facts: Facts,
        plan: _Plan,
    ) -> None:
        self._path = path
        self._plan = plan
        self._report = report
        self._chain = chain
        self._keep = keep
        self._time = facts.created
        self._title = ""
        self._left = _Left()
        self._summaries = Summaries(chain)
        self._made: list[Entry] = []  # and not given yet

    def document(self, document: Document) -> Iterator[Entry]:
        for raw in document.elements(self._report):
            said = _said(raw)
            if said is None:
                self._report.left_out["messages that cannot be read"] += 1
                continue
            self._take(said)
            yield from self._taken()
        self._named(_text(document.members.get("summary")))
        yield from self._taken()

    def log(self, lines: Lines) -> Iterator[Entry]:
        return chain.from_iterable(self._blocks(lines))

    def _blocks(self, lines: Lines) -> Iterator[list[Entry]]:
        plan = self._plan
        plan.read(self._path)
        self._report.left_out[_BOOKKEEPING] += plan.aside
        with open_source(self._path) as file:
            for block in Records(lines, _Record, _LooseRecord, plan.wanted).blocks():
                self._block(block, _Near(file, block))
                yield self._taken()

    def _taken(self) -> list[Entry]:
        """The entries that were made since."""
        made, self._made = self._made, []
        return made

    def _block(self, block: Block[_LooseRecord], near: _Near) -> None:
        spans = self._left.spans
        for start, line, record, time in zip(*block, near.times, strict=True):
            if record is None:
                self._opaque("unknown", line)
            elif record.rewind_to is not None:
                self._rewound(record.rewind_to)
            elif record.id:
                if record.id not in spans:
                    self._place((record, line, time), start, near)
            elif record.set is not None:
                self._set(record.set, start, near)
            elif record.session_id is None:
                self._opaque("unknown", line)

    # -- patches -----------------------------------------------------------------------------------

    def _place(self, said: _Said, where: _Where, near: _Near) -> None:
        """A message where it stands for the first time, as it is in the end. Of one that goes and
        comes again, only the last time counts."""
        name, before = said[0].id, self._chain.count
        gone = self._plan.left.gone
        if not (gone and self._left.comes_again(self._plan.left, name)):
            last = self._plan.last.get(name, where)
            if last != where and not _is_context(said[0]):
                said = near.fetch(last) or said
            self._take(said)
        self._left.spans[name] = before, self._chain.count
        if said[0].type not in ("user", "gemini"):
            self._left.shown.add(name)

    def _rewound(self, name: str) -> None:
        """That message and all behind it are gone; all of them, if it is not known."""
        before = self._left.rewound(name)
        if before is not None:
            rewind = self._chain.back_to(before, self._time)
            if rewind is not None:
                self._made.append(rewind)

    def _set(self, facts: _Facts, start: int, near: _Near) -> None:
        if facts.messages is not None:
            messages: list[tuple[_LooseMessage, msgspec.Raw, _Where]] = [
                (message, raw, (start, index)) for index, raw, message in _listed(facts.messages)
            ]
            self._listed(messages, near)
        else:
            self._report.left_out[_BOOKKEEPING] += 1
        self._named(facts.summary or "")

    def _listed(
        self, messages: list[tuple[_LooseMessage, msgspec.Raw, _Where]], near: _Near
    ) -> None:
        """The messages from here on: some may be gone, and a summary stand for them."""
        gone, first, instead = self._left.gone_from([one[0] for one in messages])
        if messages[instead]:
            self._condense(first, [one[0] for one in messages[instead]])
        elif gone and self._left.ends_with(gone):
            self._rewound(gone[0])
            gone = []
        self._left.without(gone)
        del messages[instead]
        for message, raw, where in messages:
            if message.id not in self._left.spans:
                said = message, bytes(raw), time_of(message.timestamp)
                self._place(said, where, near)

    def _condense(self, gone: list[str], instead: list[_LooseMessage]) -> None:
        texts = [
            block.text
            for message in instead
            if message.type == "user"
            for block in parts.blocks_of(message.content, NAME, self._keep)
            if isinstance(block, Text)
        ]
        hi, at = self._left.spans[gone[-1]][1], instead[0].timestamp or self._time
        condensation = self._summaries.condensation(hi, "\n".join(texts), at)
        if condensation is not None:
            self._made.append(condensation)

    def _named(self, title: str) -> None:
        if title and title != self._title:
            self._title = title
            self._made.append(TitleEntry(id=self._chain.draw(), timestamp=self._time, title=title))

    # -- messages ----------------------------------------------------------------------------------

    def _take(self, said: _Said) -> None:
        message, line, time = said
        self._time = time or self._time
        if message.type == "user":
            content = parts.blocks_of(message.content, NAME, self._keep)
            self._say(LoggedMessage(role="user", content=content))
        elif message.type == "gemini":
            self._say(self._answer(message))
            for call in message.tool_calls or ():
                if call.id not in self._plan.answered:
                    self._result(call)
        else:
            self._opaque(message.type or "unknown", line)

    def _say(self, message: LoggedMessage) -> None:
        self._made.append(
            MessageEntry(id=self._chain.draw(), timestamp=self._time, message=message)
        )

    def _answer(self, message: _LooseMessage) -> LoggedMessage:
        content = parts.blocks_of(message.content, NAME, self._keep)
        if message.thoughts:
            said = [block for block in content if type(block) is not Thinking]
            content = (*map(_thinking, message.thoughts), *said)
        if message.tool_calls:
            known = {block.id for block in content if type(block) is ToolUse}
            calls = [call for call in message.tool_calls if call.id not in known]
            content = (*content, *[parts.use(call.id, call.name, call.args) for call in calls])
        tokens = message.tokens
        return LoggedMessage(
            role="assistant",
            content=content,
            provider=PROVIDER,
            model=message.model,
            stop_reason="toolUse" if ToolUse in map(type, content) else "stop",
            usage=tokens.entry() if tokens else None,
        )

    def _result(self, call: _LooseToolCall) -> None:
        """The result of a call that no message of the user's has."""
        content = parts.blocks_of(call.result, NAME, self._keep)
        results = [block for block in content if isinstance(block, ToolResult)]
        texts = [block.text for block in content if isinstance(block, Text)]
        failed = call.status in ("error", "cancelled")
        if results:  # of a batch, each call may have the results of all
            found = next((one for one in results if one.tool_use_id == call.id), results[0])
            result = msgspec.structs.replace(
                found, tool_use_id=call.id, is_error=failed or found.is_error
            )
        elif texts or call.status in ("success", "error", "cancelled"):
            result = ToolResult(tool_use_id=call.id, content="\n".join(texts), is_error=failed)
        else:
            return
        self._say(LoggedMessage(role="user", content=(result,)))
        if results and texts:
            self._made.append(
                NoteEntry(
                    id=self._chain.draw(),
                    timestamp=self._time,
                    kind=f"{NAME}:result",
                    text="\n".join(texts),
                )
            )

    def _opaque(self, kind: str, line: bytes) -> None:
        self._made.append(
            UnknownEntry(
                id=self._chain.draw(),
                timestamp=self._time,
                kind=f"{NAME}:{kind}",
                raw={"record": kept(line)},
            )
        )


def _thinking(thought: _Thought) -> Thinking:
    return Thinking(thinking="\n".join(filter(None, (thought.subject, thought.description))))


FORMAT: Final = Format(
    name=NAME,
    title="Gemini CLI",
    recognise=_recognise,
    read=_read,
    of_subagent=_of_subagent,
    places=(Place(variable="GEMINI_CLI_HOME", default="", below=".gemini/tmp"),),
)
