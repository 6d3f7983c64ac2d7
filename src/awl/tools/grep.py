"""`grep`: look for text in files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from awl.providers import ToolSpec
from awl.tools import MAX_SHOWN, ToolContext, ToolOutcome
from awl.tools._files import SKIPPED, resolve
from awl.tools._input import Failure, FilePath, Input, Stopped, describe, in_thread, schema
from awl.tools.find import GLOB_HELP, Search

TIME_LIMIT: Final = 20.0
"""Seconds that the search in the files may take."""

POLL: Final = 0.05
"""Seconds until a cancelled search is noticed."""


class GrepInput(Input, frozen=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, description="A regular expression, as in Python.")
    ]
    path: FilePath = "."
    glob: Annotated[str, msgspec.Meta(description=f"Only these files: {GLOB_HELP}")] = ""
    ignore_case: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="Lines to return.")] = 100


class Grep:
    """Looks for a regular expression, line by line, in the text files below a directory.

    Python's own, so that results are the same everywhere. In a process of its own, since some
    expressions take for ever and cannot be interrupted within a process.
    """

    mutates = False
    spec = ToolSpec(
        "grep",
        "Search text files by a regular expression, line by line; returns path:line:text. Binary"
        f" files are left out. Not entered unless named: {', '.join(sorted(SKIPPED))}.",
        schema(GrepInput),
    )

    def describe(self, input: Mapping[str, Any]) -> str:
        path, glob = input.get("path"), input.get("glob")
        place = " ".join(str(part) for part in (path, glob) if part)
        return describe("grep", input.get("pattern"), f"in {place}" if place else "")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await in_thread(_grep, GrepInput, input, context)


def _grep(wanted: GrepInput, context: ToolContext, stop: threading.Event) -> ToolOutcome:
    place = resolve(wanted.path, context)
    notes: list[str] = []
    if place.is_file():
        files = [place]
    else:
        search = Search(wanted.glob or "**", place, stop, links=False)
        files = sorted(search)
        notes = search.notes
    found, in_time = _search(wanted, files, context, stop)
    if not in_time:
        notes.insert(
            0,
            f"not all was searched: it took more than {TIME_LIMIT:g} s. Narrow path or glob, or use"
            " a simpler regular expression",
        )
    lines = found.decode(errors="replace").split("\n")[:-1]
    shown: list[str] = []
    room = MAX_SHOWN
    for line in lines[: wanted.limit]:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    if len(shown) < len(lines):
        notes.insert(0, f"{len(shown)} lines shown, there are more: narrow pattern, path or glob")
    if not lines and in_time:
        shown.append(f"no line matches in {len(files)} files")
    return ToolOutcome(
        content="\n".join((*shown, *(f"[{note}]" for note in notes))), is_error=not in_time
    )


def _search(
    wanted: GrepInput, files: list[Path], context: ToolContext, stop: threading.Event
) -> tuple[bytes, bool]:
    """What the search printed, and whether it came to its end."""
    request = {
        "pattern": wanted.pattern,
        "ignoreCase": wanted.ignore_case,
        "limit": wanted.limit,
    }
    names = (
        file.relative_to(context.cwd) if file.is_relative_to(context.cwd) else file
        for file in files
    )
    text = json.dumps(request).encode() + b"\n" + b"\0".join(map(os.fsencode, names))
    program = Path(__file__).with_name("_grep.py")
    # A file and not a pipe: communicate() forgets what it had not sent yet when it times out.
    with tempfile.TemporaryFile() as requested:
        requested.write(text)
        requested.seek(0)
        # Isolated: the directory's own modules and the environment must not choose what is run.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-W", "ignore", str(program)],
            cwd=context.cwd,
            stdin=requested,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    deadline = time.monotonic() + TIME_LIMIT
    with process:
        try:
            while True:
                if stop.is_set():
                    raise Stopped
                try:
                    found, errors = process.communicate(timeout=POLL)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() > deadline:
                        process.kill()
                        return process.communicate()[0], False
        finally:
            process.kill()
    if process.returncode == 2:
        raise Failure(f"pattern is not a valid regular expression: {errors.decode()}")
    if process.returncode:
        raise Failure(f"the search failed: {errors.decode(errors='replace')[-500:]}")
    return found, True
