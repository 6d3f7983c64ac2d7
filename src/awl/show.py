"""Looking at a session without opening it: for people, as entries, and as raw lines."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from awl.conversation import Image, Opaque, Text, Thinking, ToolResult, ToolUse
from awl.entries import (
    CompactionEntry,
    CondensationEntry,
    CwdChangeEntry,
    EndEntry,
    Entry,
    ForkPointEntry,
    GapEntry,
    ImportEntry,
    LabelEntry,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    RevisionEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
)
from awl.errors import NewerFormat
from awl.log.line import loads
from awl.log.scan import BLOCK, read_at
from awl.printing import one_line
from awl.replay import check_first_line, damage_notices, read
from awl.state import entry_type, gap_text
from awl.store.files import SessionInfo, Store, describe
from awl.tree import Node, children_of, tree

_WIDTH = 100


class Range(NamedTuple):
    """The seqs that are asked for, inclusive; the header's is 0. `hi` None: to the end."""

    lo: int = 0
    hi: int | None = None

    def holds(self, seq: int) -> bool:
        return self.lo <= seq and (self.hi is None or seq <= self.hi)


def as_json(path: Path, asked: Range, conversation_id: int | None = None) -> dict[str, Any]:
    """A session for programs: its facts, its damage, and the entries as the log has them."""
    state = read(path)
    return {
        "session": msgspec.to_builtins(describe(path, state, conversation_id)),
        "damage": [
            {"line": bad.line, "start": bad.start, "end": bad.end, "reason": bad.reason}
            for bad in state.damage
        ],
        "entries": [
            _as_is(state.read(start, end))
            for seq, start, end in zip(state.seqs, state.starts, state.ends, strict=True)
            if asked.holds(seq)
        ],
    }


def events(path: Path, asked: Range) -> Iterator[str]:
    """Every entry of a session as one line: seq, time, type, and what it says."""
    state = read(path)
    header = state.header
    assert header is not None
    if asked.holds(0):
        yield _row(0, header.timestamp, "session", f"{header.id} in {header.cwd}")
    damage = iter(state.damage)
    bad = next(damage, None)
    for position, seq in enumerate(state.seqs):
        while bad is not None and bad.line < state.lines[position]:
            yield f"   damaged: {bad}"
            bad = next(damage, None)
        if asked.holds(seq):
            entry = state.body(position)
            mark = "" if state.on_path(position) else "  (not on the current path)"
            yield _row(seq, entry.timestamp, _kind(entry), _said(entry)) + mark
    while bad is not None:
        yield f"   damaged: {bad}"
        bad = next(damage, None)


def print_session(
    path: Path,
    asked: Range,
    *,
    lines: int,
    forks: Callable[[str], Sequence[str]] = lambda session_id: (),
) -> None:
    """Print a session for people, and of tools' output so many lines; `forks` gives the forks of a
    session."""
    from awl.channels.display import Pipe, make_console, print_history, words
    from awl.history import history

    state = read(path)
    info = describe(path, state)
    terminal = make_console()
    console = terminal if terminal.is_terminal else Pipe(terminal)
    console.print(words(f"{info.id}  {info.title}".rstrip(), "bold"))
    facts = [
        info.cwd,
        f"{info.provider}/{info.model}",
        f"{info.message_count} messages",
        info.status,
    ]
    console.print(words("  ".join(facts), "dim"))
    if parent := info.forked_from:
        console.print(words(f"fork of {parent.session_id} at {parent.seq}", "dim"))
    if children := forks(info.id):
        console.print(words(f"forked as {', '.join(children)}", "dim"))
    for notice in damage_notices(path, state):
        console.print(words(notice, "yellow"))
    items = (item for item in history(state) if asked.holds(item.seq))
    print_history(items, console, lines=lines)


class TreeView(msgspec.Struct, frozen=True):
    """A session, its last entry, its branches, and what is damaged in it, a line each."""

    session: SessionInfo
    damage: tuple[str, ...]
    leaf: str | None
    nodes: tuple[Node, ...]


def tree_of(path: Path, store: Store) -> TreeView:
    """The branches of a session, with the sessions that were forked from it."""
    state = read(path)
    info = describe(path, state, store.number_of(path))
    forks = children_of(info.id, store.list().sessions)
    damage = tuple(damage_notices(path, state))
    return TreeView(info, damage, state.leaf_id, tuple(tree(state, forks)))


def raw_lines(path: Path) -> Iterator[bytes]:
    """The complete lines of a log as they are, newline included.

    Raises:
        NotASession: it is none.
    """
    with contextlib.suppress(NewerFormat):  # to be read it need not be understood
        check_first_line(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        offset, rest = 0, b""
        while block := read_at(fd, BLOCK, offset):
            offset += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line + b"\n"
    finally:
        os.close(fd)


def _row(seq: int, timestamp: str, kind: str, said: str) -> str:
    """One entry on one line, whatever its fields hold."""
    facts = f"{seq}  {one_line(timestamp, 40)}  {one_line(kind, 40)}"
    return f"{facts}  {one_line(said, _WIDTH)}".rstrip()


def _as_is(line: bytes) -> Any:
    """The entry on a line; as text where its JSON is such that no other program would take it."""
    text = line.decode()
    try:
        found = loads(text)
        json.dumps(found, allow_nan=False)
    except (ValueError, RecursionError):
        return {"line": text}
    return found


def _kind(entry: Entry) -> str:
    if isinstance(entry, UnknownEntry):
        return entry.kind
    if isinstance(entry, MessageEntry):
        return entry.message.role
    return entry_type(entry)


def _said(entry: Entry) -> str:
    match entry:
        case MessageEntry():
            return " ".join(map(_block, entry.message.content))
        case ToolCallEntry():
            return f"{entry.name} ({entry.tool_use_id})"
        case ToolResultEntry():
            error = "error, " if entry.is_error else ""
            return f"{entry.name} ({error}{entry.duration_ms} ms) {entry.content}"
        case PartialEntry():
            return "".join(block.text or block.thinking for block in entry.content)
        case CondensationEntry():
            lo, hi = entry.replaced
            tokens = f"{entry.tokens_before:,} -> {entry.tokens_after:,} tokens"
            return f"{lo}-{hi} ({tokens}) {entry.summary.session_intent}"
        case ModelChangeEntry():
            return f"{entry.provider}/{entry.model}"
        case TitleEntry():
            return entry.title
        case LabelEntry():
            return f"{entry.target_id} {entry.label}"
        case ImportEntry():
            return f"{entry.source} {entry.message_count} messages"
        case NoteEntry():
            return f"{entry.kind} {entry.text}"
        case CwdChangeEntry():
            return entry.cwd
        case EndEntry():
            return entry.reason
        case ForkPointEntry():
            return f"{entry.new_session_id} at {entry.at}"
        case CompactionEntry():
            return f"{entry.tier}, {entry.cleared_count} outputs"
        case GapEntry():
            return gap_text(entry)
        case RevisionEntry():
            return f"{entry.reason}: {'; '.join(entry.changes)}"
    return ""


def _block(block: object) -> str:
    match block:
        case Text():
            return block.text
        case Thinking():
            return f"(thinking: {block.thinking})"
        case ToolUse():
            return f"[{block.name} {block.input}]"
        case ToolResult():
            return f"[result of {block.tool_use_id}: {block.content}]"
        case Image():
            return f"[{block.mime_type}]"
        case Opaque():
            return f"[{block.kind}]"
    return "[encrypted reasoning]"
