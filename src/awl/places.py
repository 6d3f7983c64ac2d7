"""Places in a session that a person can name and go back to: prompts, entries, labels. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from awl.entries import LabelEntry, MessageEntry
from awl.errors import AwlError, InvalidTarget
from awl.log.line import Outer
from awl.printing import one_line
from awl.state import ROOT, State, is_prompt

_SHOWN: Final = 40
_ENTRY_ID: Final = re.compile("[0-9a-f]{8}")


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt on the current path. `number` 1 is the last one."""

    number: int
    entry_id: str
    timestamp: str
    text: str
    label: str = ""


class GoingBack(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rewind leads: behind `entry_id` (None: to before everything). `prompt` is what was
    said there, if it leads to before a prompt."""

    entry_id: str | None
    prompt: str | None = None


def prompts(state: State) -> Iterator[Prompt]:
    """The prompts on the current path, the last one first."""
    labelled = labels_at(state)
    for number, (position, text) in enumerate(_prompts(state), 1):
        entry = state.entries[position]
        yield Prompt(
            number=number,
            entry_id=entry.id,
            timestamp=entry.timestamp,
            text=text,
            label=labelled.get(position, ""),
        )


def going_back(state: State, name: str) -> GoingBack:
    """To before the prompt of a number, or that has this id or label; behind any other entry.

    Raises:
        InvalidTarget: nothing is named so, or it is where the session is already.
    """
    position = _numbered(state, name)
    if position is None:
        position = named(state, name)
    text = _prompt(state, position)
    if text is not None:
        return GoingBack(entry_id=_id_of(state, state.parents[position]), prompt=text)
    if position == state.leaf:
        raise InvalidTarget(f"{one_line(name, _SHOWN)} is where the session is")
    return GoingBack(entry_id=_id_of(state, position))


def named(state: State, name: str) -> int:
    """The position of the entry with this id or label.

    Raises:
        InvalidTarget: there is none.
    """
    position = state.find(name)
    if position is not None:
        return position
    labelled = labels(state).get(name)
    if labelled is None:
        raise InvalidTarget(
            f"there is no prompt, entry or label {one_line(name, _SHOWN)!r}:"
            " /rewind lists the prompts, /tree shows everything"
        )
    return labelled


def labels(state: State) -> dict[str, int]:
    """The positions of the entries that have a label, by label."""
    found = {}
    for entry_id, label in state.labels.items():
        position = state.find(entry_id)
        if label and position is not None:
            found[label] = position
    return found


def labels_at(state: State) -> dict[int, str]:
    """The labels of the entries that have one, by position."""
    found = {state.find(entry_id): label for entry_id, label in state.labels.items() if label}
    return {position: label for position, label in found.items() if position is not None}


class Labelling(NamedTuple):
    """What gives a label to an entry: the label, the one that the entry had before (empty: none),
    and the entries of the log that say so."""

    label: str
    before: str
    entries: list[LabelEntry]


def labelling(state: State, words: str) -> Labelling:
    """What `NAME [ENTRY]` says. The entry is the last message on the path by default. A label names
    one entry: another that has it loses it.

    Raises:
        AwlError: the label is no name, or there is nothing to give it to.
        InvalidTarget: there is no such entry.
    """
    *names, last = words.split() or [""]
    is_entry = bool(names) and (state.find(last) is not None or _ENTRY_ID.fullmatch(last))
    label = " ".join(names if is_entry else [*names, last])
    if label in ("", "all") or label.isdecimal() or state.find(label) is not None:
        raise AwlError("a label needs a letter, and must not be an entry's id, or `all`")
    if not is_entry:
        position = next((at for at in reversed(state.path) if _is_message(state, at)), ROOT)
        if position == ROOT:
            raise AwlError("nothing was said yet that could be labelled")
        entry_id = _id_of(state, position)
    elif state.find(last) is None:
        raise InvalidTarget(f"there is no entry {one_line(last, _SHOWN)}")
    else:
        entry_id = last
    assert entry_id is not None
    taken = labels(state).get(label)
    if taken is not None and state.entries[taken].id != entry_id:
        moved = [LabelEntry(target_id=state.entries[taken].id, label="")]
    else:
        moved = []
    before = state.labels.get(entry_id, "")
    given = LabelEntry(target_id=entry_id, label=label)
    return Labelling(label, "" if before == label else before, [*moved, given])


def _numbered(state: State, name: str) -> int | None:
    """The position of the prompt with a number; None when it is no number of a prompt."""
    if not (name.isascii() and name.isdigit() and 0 < int(name[:20]) <= len(state.path)):
        return None
    return next((at for at, _ in islice(_prompts(state), int(name[:20]) - 1, None)), None)


def _prompts(state: State) -> Iterator[tuple[int, str]]:
    for position in reversed(state.path):
        text = _prompt(state, position)
        if text is not None:
            yield position, text


def _prompt(state: State, position: int) -> str | None:
    """The words of the prompt at a position; None when there is none."""
    if not _is_message(state, position, "user"):
        return None
    entry = state.body(position)
    if not isinstance(entry, MessageEntry):
        return None
    message = entry.message.said()
    return message.text if is_prompt(message) else None


def _is_message(state: State, position: int, role: str = "") -> bool:
    entry = state.entries[position]
    if not isinstance(entry, MessageEntry | Outer) or entry.message is None:
        return False
    return not role or entry.message.role == role


def _id_of(state: State, position: int) -> str | None:
    """What a rewind or a label calls an entry.

    Raises:
        InvalidTarget: its id names a later one.
    """
    if position == ROOT:
        return None
    entry_id = state.entries[position].id
    if state.find(entry_id) != position:
        raise InvalidTarget(f"the log has entry {entry_id} twice: only the later can be named")
    return entry_id
