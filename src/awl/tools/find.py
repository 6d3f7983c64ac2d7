"""`find`: look for files by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from awl.providers import ToolSpec
from awl.tools import MAX_SHOWN, ToolContext, ToolOutcome
from awl.tools._files import SKIPPED, Walk, resolve, shown_name
from awl.tools._glob import fixed_part, matcher
from awl.tools._input import Failure, FilePath, Input, describe, in_thread, schema

MAX_FOUND: Final = 100_000
"""Matches after which the search ends."""

TIME_LIMIT: Final = 30.0
"""Seconds after which the search ends."""

GLOB_HELP: Final = "`*.py` looks in all folders, `src/*.py` in one, `src/**/*.{js,ts}` below one."


class FindInput(Input, frozen=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, description=f"A glob: {GLOB_HELP} `**` is all files.")
    ]
    path: FilePath = "."
    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000, description="Names to return.")] = 500


class Find:
    """Lists files whose names fit a glob. A pattern that ends in `/` looks for directories."""

    mutates = False
    spec = ToolSpec(
        "find",
        f"List files by a glob pattern, sorted. {GLOB_HELP} A pattern that ends in / lists folders."
        f" Not entered unless named: {', '.join(sorted(SKIPPED))}. Links are not followed.",
        schema(FindInput),
    )

    def describe(self, input: Mapping[str, Any]) -> str:
        path = input.get("path")
        return describe("find", input.get("pattern"), f"in {path}" if path else "")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await in_thread(_find, FindInput, input, context)


def _find(wanted: FindInput, context: ToolContext, stop: threading.Event) -> ToolOutcome:
    search = Search(wanted.pattern, resolve(wanted.path, context), stop)
    names = sorted(shown_name(path, context) for path in search)
    shown: list[str] = []
    room = MAX_SHOWN
    for name in names[: wanted.limit]:
        room -= len(name) + 1
        if room < 0:
            break
        shown.append(name)
    notes = search.notes
    if len(shown) < len(names):
        notes.insert(0, f"{len(shown)} of {len(names)} shown: narrow the pattern or the path")
    if not names:
        shown.append(f"no file matches {wanted.pattern}")
    return ToolOutcome(
        content="\n".join((*shown, *(f"[{note}]" for note in notes))),
        output="\n".join(names).encode() if len(shown) < len(names) else None,
    )


class Search:
    """The files below a directory that fit a glob. `notes` then say why some may be missing.

    Without `links`, symbolic links are left out.
    """

    def __init__(
        self, pattern: str, folder: Path, stop: threading.Event, *, links: bool = True
    ) -> None:
        # The fixed part becomes the place to search, so that it may name a folder that is skipped.
        fixed, rest = fixed_part(pattern)
        if not folder.exists():
            raise Failure(f"{folder} does not exist")
        if not folder.is_dir():
            raise Failure(f"{folder} is not a directory: give one, or read the file")
        root = folder / fixed
        self._root = root.resolve() if ".." in root.parts else root
        self._folders = rest.endswith("/")
        self._fits: Callable[[str], bool] = matcher(
            rest, anchored=bool(fixed) or "/" in rest.rstrip("/")
        )
        self._stop, self._links = stop, links
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[Path]:
        walk = Walk(self._root, self._stop)
        deadline = time.monotonic() + TIME_LIMIT
        found = 0
        for name, is_folder, is_link in walk:
            wanted = is_folder == self._folders and (self._links or not is_link)
            if wanted and self._fits(name):
                found += 1
                yield self._root / name
            if found >= MAX_FOUND or time.monotonic() > deadline:
                self.notes.append("the search was ended early: there may be more")
                break
        if walk.unreadable and self._root.is_dir():
            self.notes.append(f"{walk.unreadable} directories could not be read")
