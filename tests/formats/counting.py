"""What a session holds, counted two ways that share no code: in another program's own file, and in
what `awl sessions show --json` says of the session that it became."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JSON = dict[str, Any]


@dataclass
class Counts:
    """How much of everything there is, and the arguments and outputs of tools, in order.

    `inputs` are (id of the call, what was given), `outputs` (id of the call, its result,
    whether it is an error).
    """

    prompts: int = 0
    answers: int = 0
    images: int = 0
    inputs: list[tuple[str, Any]] = field(default_factory=list)
    outputs: list[tuple[str, str, bool]] = field(default_factory=list)
    thoughts: int = 0


def count_awl(shown: JSON) -> Counts:
    """What awl shows of a session. Arguments are as their text says them."""
    counts = Counts()
    for entry in shown["entries"]:
        if entry["type"] != "message":
            continue
        message = entry["message"]
        kinds = [block["type"] for block in message["content"]]
        if message["role"] == "user" and (not kinds or set(kinds) != {"toolResult"}):
            counts.prompts += 1
        for block in message["content"]:
            _block(counts, message["role"], block)
    return counts


def _block(counts: Counts, role: str, block: JSON) -> None:
    match block["type"]:
        case "text":
            counts.answers += role == "assistant"
        case "image":
            counts.images += 1
        case "thinking" | "redactedThinking":
            counts.thoughts += 1
        case "toolUse":
            counts.inputs.append((block["id"], block["input"]))
        case "toolResult":
            counts.images += len(block.get("images", ()))
            error = block.get("isError", False)
            counts.outputs.append((block["toolUseId"], block["content"], error))


def lines_of(path: Path) -> Iterator[JSON]:
    """The objects on the lines of a file."""
    for line in path.read_bytes().split(b"\n"):
        if line.strip():
            yield json.loads(line)
