"""Sessions to which anything can happen, for property tests of state and view.

A history is a list of steps that hypothesis draws; a `Story` plays them on a real session with a
real file. `facts` is what two equal states have in common.

`AWL_EXAMPLES=20` in the environment multiplies how many examples each property tries.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from refusals import item_id, reasoning_item, seal, sign

from awl.conversation import (
    ContentBlock,
    Message,
    ModelRef,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.cuts import cuts
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    CwdChangeEntry,
    Entry,
    ImportedText,
    ImportEntry,
    LoggedMessage,
    MessageEntry,
    NoteEntry,
    PartialBlock,
    PartialEntry,
    Summary,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.errors import NotASession
from awl.log.file import lost_lines
from awl.log.scan import CHUNK, scan
from awl.pruning import prunable
from awl.replay import path_reader, replay
from awl.session import Session
from awl.state import Call, State
from awl.store.files import Store
from awl.tokens import size

ANTHROPIC = ModelRef("anthropic", "claude-sonnet-4")
OPENAI = ModelRef("openai", "gpt-5")
LOCAL = ModelRef("local", "smollm2")
ELSEWHERE = ModelRef("anthropic", "claude-sonnet-4", "https://example.test/v1")
TARGETS = (ANTHROPIC, OPENAI, LOCAL, ELSEWHERE)

CWD = str(Path(tempfile.gettempdir()).resolve())

Step = tuple[str, int, str]

TEXTS = st.sampled_from(
    (
        "Hello",
        "",
        "  \n",
        "line\u2028sep\x85arators",
        "\x00\x1b[31mred",
        "\ud800 lone",
        "\U0001f600",
    )
)
TALK = ("prompt", "answer", "tools", "tools", "partial", "switch", "system", "late")
NAMING = ("title", "label", "cwd", "import", "note", "end")
JUMPS = ("rewind", "condense", "compact")
ACCIDENTS = ("kill", "damage", "reopen")
FORKS = ("fork", "fork")


def histories(*kinds: str, least: int = 0, most: int = 14) -> st.SearchStrategy[list[Step]]:
    """Lists of steps of these kinds."""
    step = st.tuples(st.sampled_from(kinds), st.integers(0, 9999), TEXTS)
    return st.lists(step, min_size=least, max_size=most)


def examples(count: int) -> settings:
    """Settings of a property that tries this many examples by default."""
    return settings(
        max_examples=count * int(os.environ.get("AWL_EXAMPLES", "1")),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@contextmanager
def story() -> Iterator[Story]:
    """A story in a folder of its own. What it shows does not depend on syncs, which are slow."""
    with (
        tempfile.TemporaryDirectory() as root,
        patch("awl.log.file.sync"),
        patch("os.fsync"),
    ):
        told = Story(Path(root))
        try:
            yield told
        finally:
            told.session.close()


class Story:
    """A session that steps are played on.

    `kept` has the bytes of the log as they were before the last accident: nothing else may change
    a byte that was there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.session = Session.create(root, CWD, ANTHROPIC)
        self._calls = 0

    def play(self, steps: Sequence[Step]) -> None:
        for kind, n, text in steps:
            before = self.bytes()
            getattr(self, f"_{kind}")(n, text)
            if kind not in (*ACCIDENTS, *FORKS):
                assert self.bytes().startswith(before), f"{kind} changed what was in the log"

    def bytes(self) -> bytes:
        return self.session.path.read_bytes() if self.session.path.exists() else b""

    def append(self, *entries: Entry) -> None:
        self.session.append_many(entries)

    @property
    def asked(self) -> ModelRef:
        """Whom an answer would come from: the model that the last user message went to."""
        return self.session.state.submitted

    # -- what people and models do ---------------------------------------------------------------

    def _prompt(self, n: int, text: str) -> None:
        if n % 9 == 0:
            self.session.append_message(Message("user", (Opaque(kind="sound", raw="{}"),)))
        else:
            self.session.append_message(text_message("user", text))

    def _answer(self, n: int, text: str) -> None:
        stop = ("stop", "stop", "length", "aborted", "error")[n // 20 % 5]
        self._said(_answers(text, self.asked)[n % 9], stop)

    def _tools(self, n: int, text: str) -> None:
        """A batch of calls of which any part of what follows is logged."""
        count, n = 1 + n % 3, n // 3
        style, n = n % 5, n // 5
        uses = [self._use(style + at, text) for at in range(count)]
        stop = ("toolUse", "toolUse", "toolUse", "aborted")[n // 2 % 4]
        asked = self.asked
        self._said((*_thoughts(asked), *_bound(uses, asked)) if n % 2 else uses, stop)
        calls: list[Entry] = [ToolCallEntry(tool_use_id=use.id, name=use.name) for use in uses]
        results: list[Entry] = [_result_entry(use, text) for use in uses]
        answers = tuple(ToolResult(tool_use_id=use.id, content=text) for use in uses)
        if n // 8 % 2:
            events = [*calls, *results[:-1]]
        else:
            events = [event for pair in zip(calls, results, strict=True) for event in pair][:-1]
        if n // 16 % 2:
            answers = answers[::-1]
        if n // 32 % 4 == 0:
            answers = answers[1:]
        words = (Text(text="and more"),) if n // 128 % 4 == 0 else ()
        events.append(self.session.message_entry(Message("user", (*words, *answers))))
        if n // 512 % 2 == 0:
            events = events[: n % (len(events) + 1)]
        for event in events:
            self.append(event)

    def _use(self, style: int, text: str) -> ToolUse:
        self._calls += 1
        name = (f"call_{self._calls}", "again", "no good: \u00e9", "x" * 50, f"call-{self._calls}")
        given = ('{"a":1}', "", "not json " + text, '{"a":NaN}', "[1]")
        return ToolUse(
            id=name[style % 5], name=("bash", "read me")[style // 4 % 2], input=given[style % 5]
        )

    def _said(self, content: Sequence[ContentBlock], stop: str) -> None:
        active = self.session.active_model
        self.session.append_message(
            Message("assistant", tuple(content)),
            provider=active.provider,
            model=active.model + "-2026",
            stop_reason=stop,
            usage=Usage(input=10, output=3),
        )

    def _partial(self, n: int, text: str) -> None:
        kind = ("text", "thinking")[n % 2]
        self.append(
            PartialEntry(content=(PartialBlock(type=kind, index=n // 2 % 3, **{kind: text}),))
        )

    def _late(self, n: int, text: str) -> None:
        """A result that comes late, again, or for nothing."""
        uses = [
            block
            for position in self.session.state.path
            if isinstance(entry := self.session.state.body(position), MessageEntry)
            for block in entry.message.content
            if isinstance(block, ToolUse)
        ]
        use = uses[n % len(uses)] if uses else ToolUse(id="never", name="bash", input="{}")
        if n // 16 % 2:
            self.append(_result_entry(use, text))
        else:
            self.session.append_message(
                Message("user", (ToolResult(tool_use_id=use.id, content=text, is_error=True),))
            )

    def _switch(self, n: int, text: str) -> None:
        self.session.switch_model(TARGETS[n % 4], thinking_level=("high", None)[n // 4 % 2])

    def _system(self, n: int, text: str) -> None:
        self.session.append_message(text_message("system", text))

    def _title(self, n: int, text: str) -> None:
        self.append(TitleEntry(title=text))

    def _label(self, n: int, text: str) -> None:
        state = self.session.state
        if state.entries:
            self.session.label(state.entries[n % len(state.entries)].id, text)

    def _cwd(self, n: int, text: str) -> None:
        self.append(CwdChangeEntry(cwd=f"/home/dev/{n % 3}"))

    def _note(self, n: int, text: str) -> None:
        self.append(NoteEntry(kind="other:note", text=text, record={"n": n}))

    def _import(self, n: int, text: str) -> None:
        messages = (ImportedText("user", text),)
        self.append(
            ImportEntry(source=("legacy", "other")[n % 2], message_count=1, messages=messages)
        )

    def _end(self, n: int, text: str) -> None:
        if self.session.born:
            self.session.close("user_quit")
            self._open()

    def _rewind(self, n: int, text: str) -> None:
        state = self.session.state
        at = n % (len(state.entries) + 1) - 1
        self.session.rewind(None if at < 0 else state.entries[at].id)

    def _condense(self, n: int, text: str) -> None:
        """Where awl would do it, or anywhere, as another program may."""
        state = self.session.state
        if n % 2:
            found = cuts(state, size(state, self.session.active_model))
            if found:
                cut = found[n // 2 % len(found)]
                earlier = [state.seqs[position] for _, _, position in state.condensed]
                absorbs = tuple(earlier) if n // 50 % 2 else ()
                self.append(_condensation(cut.lo, cut.hi, text, absorbs))
            return
        last = state.next_seq
        lo = 1 + n // 2 % last
        with patch.object(Session, "_check_targets"):
            self.append(_condensation(lo, lo + n // 100 % last, text, (n // 3 % last,)))

    def _compact(self, n: int, text: str) -> None:
        """What awl would clear, or anything."""
        if n % 2:
            with patch("awl.pruning.LEAST", 1):
                found = prunable(self.session.state, self.session.active_model, n // 2 % 5)
            if found:
                self.append(found[0])
            return
        seqs = tuple(
            {1 + n % self.session.state.next_seq, 1 + n // 7 % self.session.state.next_seq}
        )
        self.append(CompactionEntry(tier="soft", cleared_count=len(seqs), cleared=seqs))

    # -- accidents -------------------------------------------------------------------------------

    def _reopen(self, n: int, text: str) -> None:
        """The process ends without a word, and again."""
        before = self.bytes()
        for _ in range(1 + n % 2):
            self._drop()
            self._open()
        assert self.bytes() == before, "a look changed the log"

    def _kill(self, n: int, text: str) -> None:
        """The process ends in the middle of a write."""
        data = self.bytes()
        self._drop()
        if data:
            os.truncate(self.session.path, n * 7 % (len(data) + 1))
        self._open()

    def _damage(self, n: int, text: str) -> None:
        """Something happens to one line."""
        self._drop()
        if self.session.path.exists():
            lines = self.bytes().split(b"\n")[:-1]
            spoil(lines, n // 8 % len(lines), n % 8)
            self.session.path.write_bytes(b"".join(line + b"\n" for line in lines))
        self._open()

    def _fork(self, n: int, text: str) -> None:
        """It goes on in a copy."""
        if self.session.born:
            seqs = self.session.state.seqs
            at = seqs[n % len(seqs)] if seqs and n % 3 else None
            self._drop()
            child = Store(self.root).fork(self.session.path, at=at)
            self.session = Session.open(child, cwd=CWD)

    def _drop(self) -> None:
        if self.session._log is not None:
            self.session._log.close()

    def _open(self) -> None:
        if not self.session.path.exists():
            return
        try:
            self.session = Session.open(self.session.path, cwd=CWD)
        except NotASession:
            self.session.path.unlink()
            self.session = Session.create(self.root, CWD, ANTHROPIC)


def spoil(lines: list[bytes], at: int, how: int) -> None:
    """Damage one of the lines in one of eight ways."""
    line = lines[at]
    kinds: tuple[Callable[[], list[bytes]], ...] = (
        lambda: [b"garbage"],
        lambda: [b"\0" * len(line)],
        list,
        lambda: [line[: len(line) // 2]],
        lambda: [line, b"garbage that explains nothing"],
        lambda: [line, line],
        lambda: [line + line],
        lambda: [b"", line.replace(b'"seq":', b'"seq":0')],
    )
    lines[at : at + 1] = kinds[how]()


def _result_entry(use: ToolUse, text: str) -> ToolResultEntry:
    return ToolResultEntry(
        tool_use_id=use.id, name=use.name, content=text, is_error=False, duration_ms=5
    )


def _condensation(lo: int, hi: int, text: str, absorbs: tuple[int, ...]) -> CondensationEntry:
    return CondensationEntry(
        replaced=(lo, hi),
        absorbs=absorbs,
        summary=Summary(session_intent=text, next_steps=("go on",)),
        tokens_before=100,
        tokens_after=10,
        usage=Usage(input=100, output=10),
    )


def _thoughts(model: ModelRef) -> tuple[ContentBlock, ...]:
    """Reasoning as this model's provider gives it, bound to it as firmly as it can be."""
    if model.provider == "openai":
        item = reasoning_item("hm")
        sealed = item.pop("encrypted_content")
        return (Thinking(thinking="hm", signature=sealed, provider_data=item),)
    if model.provider == "anthropic":
        return (Thinking(thinking="hm", signature=sign("hm")), RedactedThinking(data=seal("r")))
    return (Thinking(thinking="hm"),)


def _bound(blocks: Sequence[Text | ToolUse], model: ModelRef) -> tuple[ContentBlock, ...]:
    """The blocks that follow `_thoughts`."""
    if model.provider != "openai":
        return tuple(blocks)
    reasoning = reasoning_item("hm")["id"]
    return tuple(
        replace(
            block,
            provider_data={
                "id": item_id("msg" if isinstance(block, Text) else "fc", number, reasoning)
            },
        )
        for number, block in enumerate(blocks)
    )


def _answers(text: str, model: ModelRef) -> tuple[tuple[ContentBlock, ...], ...]:
    thoughts = _thoughts(model)
    return (
        (Text(text=text),),
        (*thoughts, *_bound([Text(text="so")], model)),
        (Thinking(thinking="unsigned"), Text(text=text)),
        (*thoughts[-1:], *_bound([Text(text="so")], model)),
        thoughts,
        (),
        (Opaque(kind="chart", raw="{}"), Text(text=text)),
        (Text(text=" "),),
        (*thoughts, *_bound([Text(text="so"), Text(text="\t")], model)),
    )


def replayed(path: Path, *, lazily: bool | None = False, chunk: int = CHUNK) -> State:
    """The state of a log, with every body decoded at once, only where the fold needs it (True), or
    as awl does it (None), and so many bytes read at a time."""
    fd = os.open(path, os.O_RDONLY)
    try:
        with patch("awl.log.scan.CHUNK", chunk):
            state, _ = replay(fd, path, lost_lines(path), lazily=lazily)
    finally:
        os.close(fd)
    state.read = path_reader(path)
    return state


def read_line_by_line(path: Path) -> State:
    """The state of a log that has a header, folded without any haste."""
    fd = os.open(path, os.O_RDONLY)
    state = State(read=path_reader(path))
    try:
        for line in scan(fd):
            state.add(line)
    finally:
        os.close(fd)
    state.settle(lost_lines(path))
    return state


def call_facts(state: State, call: Call) -> dict[str, Any]:
    return {
        "use": call.use,
        "position": call.position,
        "answer": call.answer(),
        "answered_seq": call.answered_seq,
        "live": call.live,
        "cut": call.cut,
        "until": call.until,
        "status": state.call_status(call),
    }


def facts(state: State) -> dict[str, Any]:
    """Everything that a session means, however its state came about."""
    return {
        "header": state.header,
        "bodies": [state.body(position) for position in range(len(state.entries))],
        "parents": state.parents,
        "seqs": state.seqs,
        "places": list(zip(state.lines, state.starts, state.ends, strict=True)),
        "path": state.path,
        "items": [
            (item.kind, item.message, item.position, item.seq, item.asked, item.stop_reason)
            for item in state.items
        ],
        "calls": [call_facts(state, call) for item in state.items for call in item.calls],
        "open": [call_facts(state, call) for call in state.open_calls],
        "conversation": state.conversation,
        "model": (state.active_model, state.thinking_level),
        "cleared": state.cleared,
        "tokens": state.tokens,
        "count": state.message_count,
        "turn": state.turn,
        "updated": state.updated,
        "title": (state.given_title, state.first_prompt),
        "labels": state.labels,
        "cwd": state.cwd,
        "next_seq": state.next_seq,
        "leaf": (state.leaf, state.leaf_id),
        "interrupted": state.interrupted,
        "damage": state.damage,
        "findings": state.all_findings,
        "gaps": state.gaps,
        "started": state.started,
    }


def message_entry(message: Message, **more: Any) -> MessageEntry:
    """A message entry as another program may write it: with nothing that awl would add."""
    return MessageEntry(message=LoggedMessage.of(message), **more)
