"""`edit`: replace text in a file."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Annotated, Any, Final

import msgspec

from awl.providers import ToolSpec
from awl.tools import ToolContext, ToolOutcome
from awl.tools._files import look, open_regular, replace, resolve, shown_name, target_of
from awl.tools._input import Failure, FilePath, Input, check, describe, in_thread, schema
from awl.tools.write import encoded

MAX_FILE: Final = 64 << 20
"""Bytes of a file that can be edited."""

MAX_DIFFED: Final = 2000
"""Lines that are compared, on each side; more would take long and nobody reads it."""

MAX_DIFF: Final = 4000
"""Characters of the difference that are shown."""

AROUND: Final = 3
"""Unchanged lines shown around a change."""


class EditInput(Input, frozen=True):
    path: FilePath
    old: Annotated[
        str,
        msgspec.Meta(
            min_length=1, description="The text to replace, exactly as in the file; must be unique."
        ),
    ]
    new: Annotated[str, msgspec.Meta(description="The text to put in its place.")]
    all: Annotated[bool, msgspec.Meta(description="Replace every occurrence.")] = False


class Edit:
    """Replaces a text that occurs once, or every occurrence. The file's line endings stay.

    A line end in `old` stands for the file's own, LF or CRLF; one in `new` is written as the
    file's. Only an `old` or `new` that holds a carriage return is taken literally.
    """

    mutates = True
    spec = ToolSpec(
        "edit",
        "Replace text in a file. `old` must be exactly what the file holds, white space included,"
        " and occur once: give enough lines around it, or set `all`. Returns what changed.",
        schema(EditInput),
    )

    def describe(self, input: Mapping[str, Any]) -> str:
        return describe("edit", input.get("path"), "(all occurrences)" if input.get("all") else "")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await in_thread(_edit, EditInput, input, context)


def _edit(wanted: EditInput, context: ToolContext, stop: threading.Event) -> ToolOutcome:
    encoded(wanted.old, "old")
    encoded(wanted.new, "new")
    if wanted.old == wanted.new:
        raise Failure("old and new are the same: there is nothing to change")
    path = resolve(wanted.path, context)
    name = shown_name(path, context)
    target = target_of(path)
    before = look(target)
    with open_regular(target) as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise Failure(f"{name} is larger than {MAX_FILE >> 20} MiB: change it with bash")
    # Bytes that are not UTF-8 pass through unchanged.
    text = data.decode(errors="surrogateescape")
    changed, count = _replaced(text, wanted, name)
    check(stop)
    replace(target, changed.encode(errors="surrogateescape"), stop, before)
    times = "" if count == 1 else f" ({count} times)"
    return ToolOutcome(content=f"edited {name}{times}\n{_diff(text, changed)}")


def _replaced(text: str, wanted: EditInput, name: str) -> tuple[str, int]:
    """The text with the replacement made, and how often."""
    pattern, new = re.escape(wanted.old), wanted.new
    if "\r" not in wanted.old + wanted.new:
        # re.escape writes a line end as a backslash and a line end.
        pattern = pattern.replace("\\\n", "(?:\r\n|(?<!\r)\n)")
        if text.count("\r\n") > text.count("\n") / 2:
            new = new.replace("\n", "\r\n")
    if wanted.all:
        changed, count = re.subn(pattern, lambda _: new, text)
        if not count:
            raise Failure(_not_found(text, wanted.old, name))
        return changed, count
    # Occurrences that overlap are two places too: which one was meant is not known.
    places = [found.start() for found in re.finditer(f"(?={pattern})", text)]
    if not places:
        raise Failure(_not_found(text, wanted.old, name))
    if len(places) > 1:
        lines = [text.count("\n", 0, place) + 1 for place in places[:5]]
        where = ", ".join(map(str, lines)) + (", ..." if len(places) > 5 else "")
        raise Failure(
            f"old occurs {len(places)} times in {name}, on lines {where}:"
            " give more lines around it so that it is unique, or set all"
        )
    return re.sub(pattern, lambda _: new, text, count=1), 1


def _not_found(text: str, old: str, name: str) -> str:
    """Why `old` was not found: a model often has only the white space wrong."""
    wanted = [line.split() for line in old.strip().split("\n")]
    lines = [line.split() for line in text.split("\n")]
    for number in range(len(lines) - len(wanted) + 1):
        if lines[number : number + len(wanted)] == wanted:
            return (
                f"old does not occur in {name}, but line {number + 1} and following differ from it"
                " only in white space: copy the text exactly as it is in the file"
            )
    return f"old does not occur in {name}: read the file and copy the text exactly as it is there"


def _diff(before: str, after: str) -> str:
    """What changed, as a unified diff without file names."""
    old, new = before.split("\n"), after.split("\n")
    # What is the same at both ends is taken off first: comparing whole files takes long.
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    first = max(0, start - AROUND)
    old, new = (lines[first : len(lines) - max(0, end - AROUND)] for lines in (old, new))
    if max(len(old), len(new)) > MAX_DIFFED:
        return f"(lines {first + 1} to {first + len(old)}: too many to show)"
    text = "\n".join(_hunks(old, new, first))
    text = text.encode(errors="surrogateescape").decode(errors="replace").replace("\r", "")
    if len(text) > MAX_DIFF:
        text = f"{text[:MAX_DIFF]}\n[{len(text) - MAX_DIFF} characters of the diff left out]"
    return text


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines are the same from the beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _hunks(old: Sequence[str], new: Sequence[str], first: int) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(AROUND):
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        yield (
            f"@@ -{first + old_start + 1},{old_end - old_start}"
            f" +{first + new_start + 1},{new_end - new_start} @@"
        )
        for kind, i1, i2, j1, j2 in group:
            if kind == "equal":
                yield from (f" {line}" for line in old[i1:i2])
            else:
                yield from (f"-{line}" for line in old[i1:i2])
                yield from (f"+{line}" for line in new[j1:j2])
