"""`read`: look at a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from io import BufferedReader
from typing import Annotated, Any, Final

import msgspec

from awl.providers import ToolSpec
from awl.tools import MAX_SHOWN, ToolContext, ToolOutcome
from awl.tools._files import BINARY_PROBE, open_regular, resolve, shown_name
from awl.tools._input import Failure, FilePath, Input, check, describe, in_thread, schema

MAX_IMAGE: Final = 5 * (1 << 20) * 3 // 4
"""Bytes of an image: in base64 it is then 5 MiB, which is what providers take."""

COUNTED: Final = 64 << 20
"""Bytes that are read on to tell how many lines a file has."""

CHUNK: Final = 1 << 16

_IMAGES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ReadInput(Input, frozen=True):
    path: FilePath
    offset: Annotated[
        int, msgspec.Meta(ge=1, description="The line to begin with; the first is 1.")
    ] = 1
    limit: Annotated[
        int, msgspec.Meta(ge=0, description="Lines to read; 0 reads as many as are shown.")
    ] = 0


class Read:
    """Shows a text file as it is, without line numbers, so that `edit` can be given what it says.

    Images are returned as images. Only regular files are read.
    """

    mutates = False
    spec = ToolSpec(
        "read",
        f"Read a text file, or an image. At most {MAX_SHOWN} characters are returned at once;"
        " use offset and limit to go on. The text is returned exactly as it is in the file.",
        schema(ReadInput),
    )

    def describe(self, input: Mapping[str, Any]) -> str:
        offset, limit = input.get("offset"), input.get("limit")
        lines = f"from line {offset}" if offset else ""
        return describe("read", input.get("path"), lines, f"({limit} lines)" if limit else "")

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await in_thread(_read, ReadInput, input, context)


def _read(wanted: ReadInput, context: ToolContext, stop: threading.Event) -> ToolOutcome:
    path = resolve(wanted.path, context)
    name = shown_name(path, context)
    with open_regular(path) as file:
        probe = file.read(BINARY_PROBE)
        if kind := _image_type(probe):
            image = probe + file.read(MAX_IMAGE + 1 - len(probe))
            if len(image) > MAX_IMAGE:
                raise Failure(f"{name} is an image of more than {MAX_IMAGE} bytes: scale it down")
            return ToolOutcome(
                content=f"{name}: {kind}, {len(image)} bytes", images=((kind, image),)
            )
        if b"\0" in probe:
            raise Failure(f"{name} is binary: look at it with bash (`file`, `xxd`)")
        file.seek(0)
        return ToolOutcome(content=_lines(file, name, wanted, stop))


def _image_type(start: bytes) -> str | None:
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if start.startswith(magic)), None)


def _lines(file: BufferedReader, name: str, wanted: ReadInput, stop: threading.Event) -> str:
    """The wanted lines, as many as may be shown, and a note if there are more."""
    if not _go_to_line(file, wanted.offset, stop):
        lines = _count_lines(file, stop)
        raise Failure(f"{name} has {lines} lines: offset {wanted.offset} is past its end")
    data = file.read(4 * MAX_SHOWN + 4)  # a character has 4 bytes at most: more than is shown
    text = data.decode(errors="replace")
    if not text:
        return "(empty file)"
    shown = _first_lines(text, wanted.limit) if wanted.limit else text
    notes = []
    if long_line := "\n" not in shown[:MAX_SHOWN] and len(shown) > MAX_SHOWN:
        shown = shown[:MAX_SHOWN]
        notes.append(f"line {wanted.offset} is cut after {MAX_SHOWN} characters")
    elif len(shown) > MAX_SHOWN:
        shown = shown[: shown.rfind("\n", 0, MAX_SHOWN) + 1]
    last = wanted.offset + shown.count("\n") - shown.endswith("\n")
    if not long_line and (len(shown) < len(text) or file.read(1)):
        small = os.fstat(file.fileno()).st_size <= COUNTED
        total = f" of {_count_lines(file, stop)}" if small else ""
        notes.append(f"lines {wanted.offset}-{last}{total}: go on with offset={last + 1}")
    if "\ufffd" in shown and "\ufffd".encode() not in data:
        notes.append("not valid UTF-8: each \ufffd stands for bytes that are not text")
    for note in notes:
        shown += f"[{note}]" if shown.endswith("\n") else f"\n[{note}]"
    return shown


def _first_lines(text: str, count: int) -> str:
    end = -1
    for _ in range(count):
        end = text.find("\n", end + 1)
        if end < 0:
            return text
    return text[: end + 1]


def _go_to_line(file: BufferedReader, line: int, stop: threading.Event) -> bool:
    """Go to the beginning of a line. False if the file ends before it; line 1 is always there."""
    missing = line - 1
    while missing:
        check(stop)
        start, chunk = file.tell(), file.read(CHUNK)
        if not chunk:
            return False
        end = -1
        while missing and (end := chunk.find(b"\n", end + 1)) >= 0:
            missing -= 1
        if not missing:
            file.seek(start + end + 1)
    return line == 1 or bool(file.peek(1))


def _count_lines(file: BufferedReader, stop: threading.Event) -> int:
    file.seek(0)
    count, last = 0, b"\n"
    while chunk := file.read(CHUNK):
        check(stop)
        count += chunk.count(b"\n")
        last = chunk[-1:]
    return count + (last != b"\n")
