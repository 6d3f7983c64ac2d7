"""`write`: make a file."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from awl.providers import ToolSpec
from awl.tools import ToolContext, ToolOutcome
from awl.tools._files import look, replace, resolve, shown_name, target_of
from awl.tools._input import Failure, FilePath, Input, describe, in_thread, schema


class WriteInput(Input, frozen=True):
    path: FilePath
    content: Annotated[str, msgspec.Meta(description="All that the file shall hold.")]


class Write:
    """Creates or replaces a file: entirely or not at all."""

    mutates = True
    spec = ToolSpec(
        "write",
        "Create a file, with the folders that it needs, or replace all that an existing one holds."
        " Use edit to change a part.",
        schema(WriteInput),
    )

    def describe(self, input: Mapping[str, Any]) -> str:
        content = input.get("content")
        size = f"({len(content)} characters)" if isinstance(content, str) else ""
        return describe("write", input.get("path"), size)

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await in_thread(_write, WriteInput, input, context)


def _write(wanted: WriteInput, context: ToolContext, stop: threading.Event) -> ToolOutcome:
    data = encoded(wanted.content, "content")
    path = resolve(wanted.path, context)
    target = target_of(path)
    before = look(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace(target, data, stop, before)
    name = shown_name(path, context)
    if before is None:
        return ToolOutcome(content=f"created {name}: {len(data)} bytes")
    return ToolOutcome(content=f"replaced {name}: {len(data)} bytes, before {before.st_size}")


def encoded(text: str, key: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Failure(
            f"invalid input: {key} is not valid Unicode at character {error.start}"
        ) from error
