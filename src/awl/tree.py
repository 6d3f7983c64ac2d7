"""A session as the tree it is: every branch that was ever taken, where it was left, and what for.

An entry hangs from the one before it, but for a rewind, which hangs from the entry gone back to. So
a branch ends where somebody went back, and the last one is the current path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from awl.entries import (
    CondensationEntry,
    Entry,
    ImportEntry,
    MessageEntry,
    NoteEntry,
    RewindEntry,
    TitleEntry,
    UnknownEntry,
)
from awl.index.info import SessionInfo
from awl.printing import local_time, one_line
from awl.state import ROOT, State, entry_type, is_prompt

MOST_ROWS: Final = 1000
"""Rows that people are shown; programs get all."""

_RUN: Final = 12
"""Prompts in a row that are shown; of more, the first and the last of them."""

_DEEPEST: Final = 12
"""Branches of branches that are drawn one further in than the other."""

_WORDS: Final = 60
_LONGEST_TEXT: Final = 200


class Label(msgspec.Struct, frozen=True):
    """A name that a person gave an entry."""

    label: str
    entry_id: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of entries that follow each other: a prompt and all up to the next one, or what
    follows a rewind or a condensation; or a session that was forked from here.

    `depth` is 0 on the current path; a branch that was left is one deeper than where it hangs.
    `parent_id` is the entry that it follows; null at the beginning. `entries` counts those of the
    stretch, and `last_id` is the last of them: going back to that goes on behind it. `starts` and
    `ends`: it is the first or the last of its branch. `leaf`: the next prompt goes here.
    `session_id` is that of a fork.
    """

    kind: Literal["prompt", "rewind", "condensation", "entries", "fork"]
    depth: int
    seq: int
    entry_id: str = ""
    parent_id: str | None = None
    timestamp: str
    text: str
    entries: int = 0
    last_id: str = ""
    starts: bool = False
    ends: bool = False
    leaf: bool = False
    labels: tuple[Label, ...] = ()
    session_id: str | None = None


def tree(state: State, forks: Iterable[SessionInfo] = ()) -> list[Node]:
    """The nodes in the order in which they are drawn: a branch that was left before what was said
    instead, so that the current path ends last.

    `forks` are the sessions that were forked from this one.
    """
    return _Tree(state, forks).nodes()


def children_of(session_id: str, sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    """The sessions that were forked from one, by their own headers."""
    return [
        one
        for one in sessions
        if one.forked_from is not None and one.forked_from.session_id == session_id
    ]


class _Stretch:
    """A node being put together."""

    def __init__(self, position: int, depth: int, starts: bool) -> None:
        self.first = self.last = position
        self.depth, self.starts = depth, starts
        self.count = 0
        self.labels: list[Label] = []
        self.forks: list[SessionInfo] = []


class _Tree:
    def __init__(self, state: State, forks: Iterable[SessionInfo]) -> None:
        self._state = state
        self._nodes: list[Node] = []
        self._jumps: dict[int, list[int]] = {}
        self._latest = list(range(len(state.entries)))
        for position in range(len(state.entries) - 1, ROOT, -1):
            parent = state.parents[position]
            if parent != position - 1:
                self._jumps.setdefault(parent, []).append(position)
            if parent != ROOT:
                self._latest[parent] = max(self._latest[parent], self._latest[position])
        self._labels = {
            state.find(entry_id): Label(label, entry_id)
            for entry_id, label in state.labels.items()
            if label
        }
        self._forks: dict[int, list[SessionInfo]] = {}
        at = {seq: position for position, seq in enumerate(state.seqs)}
        for one in sorted(forks, key=lambda one: one.created):
            assert one.forked_from is not None
            self._forks.setdefault(at.get(one.forked_from.seq, ROOT), []).append(one)

    def nodes(self) -> list[Node]:
        for one in self._forks.get(ROOT, ()):
            self._nodes.append(_fork(one, 1))
        todo = self._branches(ROOT, 0, starts=True)
        while todo:
            todo += self._walk(*todo.pop())
        return self._nodes

    def _branches(self, position: int, depth: int, *, starts: bool) -> list[tuple[int, int, bool]]:
        """What hangs from an entry: where each branch begins, in reverse order. The one that was
        taken last goes on at the same depth."""
        found = sorted(self._jumps.get(position, ()), reverse=True)
        if position + 1 < len(self._latest) and self._state.parents[position + 1] == position:
            found.append(position + 1)
        if not found:
            return []
        last = max(found, key=self._latest.__getitem__)
        left = [(branch, depth + 1, True) for branch in found if branch != last]
        return [(last, depth, starts), *left]

    def _walk(self, position: int, depth: int, starts: bool) -> list[tuple[int, int, bool]]:
        """Follow a branch up to where it ends or others hang from it; what comes after that."""
        stretch = _Stretch(position, depth, starts)
        while True:
            if stretch.count and self._begins(position):
                self._add(stretch)
                stretch = _Stretch(position, depth, starts=False)
            stretch.last = position
            stretch.count += 1
            if position in self._labels:
                stretch.labels.append(self._labels[position])
            stretch.forks += self._forks.get(position, ())
            after = self._branches(position, depth, starts=False)
            if len(after) != 1:
                self._add(stretch, ends=not after)
                return after
            position = after[0][0]

    def _begins(self, position: int) -> bool:
        """Whether a node of its own begins with an entry."""
        shape = self._state.entries.shape(position)
        if shape.type in ("rewind", "condensation"):
            return True
        if shape.role != "user":
            return False
        body = self._state.body(position)
        return isinstance(body, MessageEntry) and is_prompt(body.message.said())

    def _add(self, stretch: _Stretch, *, ends: bool = False) -> None:
        state = self._state
        entry = state.body(stretch.first)
        kind, text = _said(entry)
        if kind == "rewind" and state.parents[stretch.first] == ROOT:
            text = "went back to the beginning"
        elif kind == "rewind":
            text = f"went back to {state.seqs[state.parents[stretch.first]]}"
        parent = state.parents[stretch.first]
        self._nodes.append(
            Node(
                kind=kind,
                depth=stretch.depth,
                seq=state.seqs[stretch.first],
                entry_id=entry.id,
                parent_id=None if parent == ROOT else state.entries.ids[parent],
                timestamp=entry.timestamp,
                text=text,
                entries=stretch.count,
                last_id=state.entries.ids[stretch.last],
                starts=stretch.starts,
                ends=ends,
                leaf=stretch.last == state.leaf,
                labels=tuple(stretch.labels),
            )
        )
        self._nodes += [_fork(one, stretch.depth + 1) for one in stretch.forks]


def _said(
    entry: Entry,
) -> tuple[Literal["prompt", "rewind", "condensation", "entries"], str]:
    match entry:
        case RewindEntry():
            return "rewind", "went back"
        case CondensationEntry():
            lo, hi = entry.replaced
            return "condensation", f"condensed {lo}-{hi}: {entry.summary.session_intent}"
        case MessageEntry():
            message = entry.message.said()
            text = message.text[:_LONGEST_TEXT]
            if is_prompt(message):
                return "prompt", text
            return "entries", f"{message.role}: {text}" if text else message.role
        case ImportEntry():
            return "entries", f"imported from {entry.source or 'elsewhere'}"
        case TitleEntry():
            return "entries", f"named: {entry.title}"
        case UnknownEntry() | NoteEntry():
            return "entries", entry.kind
    return "entries", entry_type(entry)


def _fork(one: SessionInfo, depth: int) -> Node:
    assert one.forked_from is not None
    return Node(
        kind="fork",
        depth=depth,
        seq=one.forked_from.seq,
        timestamp=one.created,
        text=one.title,
        starts=True,
        ends=True,
        session_id=one.id,
    )


# -- for people ------------------------------------------------------------------------------------


def drawn(nodes: Sequence[Node], names: Mapping[str, str] | None = None) -> Iterator[str]:
    """The tree as lines of text, harmless to print. Long stretches of prompts are cut short, and of
    very many rows the last are shown. `names` are the ids of forks as people are shown them."""
    rows = list(_rows(nodes))
    if len(rows) > MOST_ROWS:
        yield f"… {len(rows) - MOST_ROWS:,} rows before these; --json has all"
    width = max((len(str(node.seq)) for node in nodes), default=1)
    for row in rows[-MOST_ROWS:]:
        yield row if isinstance(row, str) else _row(row, width, names or {})


def _rows(nodes: Sequence[Node]) -> Iterator[Node | str]:
    run: list[Node] = []
    for node in nodes:
        plain = node.kind == "prompt" and not (node.labels or node.starts or node.ends or node.leaf)
        if run and (not plain or node.depth != run[-1].depth):
            yield from _cut(run)
            run = []
        if plain:
            run.append(node)
        else:
            yield node
    yield from _cut(run)


def _cut(run: list[Node]) -> Iterator[Node | str]:
    """Prompts that follow each other, without most of the middle."""
    if len(run) <= _RUN:
        yield from run
        return
    half = _RUN // 2
    middle = run[half:-half]
    entries = sum(node.entries for node in middle)
    yield from run[:half]
    yield f"{_bars(run[0].depth)}… {len(middle):,} more prompts, {entries:,} entries"
    yield from run[-half:]


def _bars(depth: int) -> str:
    return "│ " * min(depth, _DEEPEST)


def _row(node: Node, width: int, names: Mapping[str, str]) -> str:
    bars = _bars(node.depth)
    if node.starts and node.depth:
        bars = f"{_bars(node.depth - 1)}├─" if node.depth <= _DEEPEST else bars
    dot = "●" if node.kind == "prompt" else "○"
    parts = [f"{bars}{dot} {node.seq:>{width}}", local_time(node.timestamp)]
    text = one_line(node.text, _WORDS)
    if node.kind == "fork":
        parts.append(f"fork {names.get(node.session_id or '', node.session_id)}  {text}".rstrip())
    else:
        parts.append(text or "(no words)")
        if node.entries > 1:
            parts.append(f"({node.entries:,} entries)")
    for label in node.labels:
        parts.append(f"[{one_line(label.label, 40)}: {one_line(label.entry_id, 40)}]")
    if node.leaf:
        parts.append("← here")
    elif node.ends and node.kind != "fork":
        parts.append(f"ends in {one_line(node.last_id, 40)}")
    return "  ".join(parts)
