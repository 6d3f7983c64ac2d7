"""Another program's session is imported, beside the typed decoding of its lines.

The sources are sessions that the programs wrote, over and over: each time with other ids, behind
the time before.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from awl.formats import claude_code, codex, find, gemini_cli, pi, qwen_code
from awl.store.importing import Importer
from benchmarks.corpus import folder
from benchmarks.figures import Figure, Found, in_turns, medians

FLOOR = "msgspec typed decode, line by line"
BAR = 1 / 3
"""Of the floor's speed."""
DATA = Path(__file__).parent.parent / "tests" / "data" / "formats"
UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class ClaudeMessage(claude_code._Message, frozen=True, gc=False):
    content: str | list[claude_code._Block] | None = None  # type: ignore[assignment]


class ClaudeRecord(claude_code._Record, frozen=True, rename="camel", gc=False):
    message: ClaudeMessage | None = None


class CodexPayload(codex._Payload, frozen=True, gc=False):
    content: str | list[codex._Part] | None = None  # type: ignore[assignment]


class CodexRecord(codex._Record, frozen=True, gc=False):
    payload: CodexPayload | None = None


class Sample(NamedTuple):
    """A source: its file; how its ids look; how many lines begin the file and come once; and what
    its lines are to a decoder, with all parts of what was said."""

    file: str
    ids: bytes
    begins: int
    record: type[msgspec.Struct]


SAMPLES = {
    "claude-code": Sample(
        "316b4c2f-cb4e-4bdf-ae5b-4faa0e0683c1.jsonl",
        rb"\b(?:toolu|msg|req)_\w+|" + UUID,
        0,
        ClaudeRecord,
    ),
    "codex": Sample(
        "rollout-2026-11-29T20-22-41-01a228f9-6219-7693-8762-8c2124ea9339.jsonl",
        rb"\b(?:call|msg|fc|rs)_[\w-]+",
        1,
        CodexRecord,
    ),
    "gemini-cli": Sample(
        "project/chats/session-2026-11-29T20-15-20e84248.jsonl",
        rb"(?<=\"id\":\")" + UUID + rb"|call_\w+",
        2,
        gemini_cli._Record,
    ),
    "pi": Sample(
        "2026-11-29T20-12-54-672Z_01a228f0-6c0f-71c3-8d44-b175f6ee2d25.jsonl",
        rb"(?<=[iI]d\":\")[0-9a-f]{8}(?=\")|call_\w+",
        1,
        pi._Record,
    ),
    "qwen-code": Sample(
        "d3a6a599-64a6-4a5c-b692-7a28ac30f3fc.jsonl", rb"call_\w+|" + UUID, 0, qwen_code._Record
    ),
}


def measure(quick: bool) -> Found:
    size = (4 if quick else 16) << 20
    return Found([_figure(name, sample, size) for name, sample in SAMPLES.items()])


def _figure(name: str, sample: Sample, size: int) -> Figure:
    with folder() as root:
        source = root / Path(sample.file).name
        source.write_bytes(b"".join(_grown(DATA / name / sample.file, sample, size)))
        decode = msgspec.json.Decoder(sample.record).decode
        made = iter(range(1_000))

        def floor() -> object:
            with source.open("rb") as lines:
                return [decode(line) for line in lines]

        def ours() -> object:
            return Importer(root / str(next(made)), [], str(root)).bring(source, find(name))

        taken = medians(in_turns({"floor": floor, "awl": ours}, 5))
    value = taken["floor"] / taken["awl"]
    return Figure(
        f"import of {size >> 20} MB of {name}",
        taken["awl"],
        value,
        f"{value:.2f} of its speed",
        floor=FLOOR,
        base=taken["floor"],
        bar="≥ 0.33 of it",
        met=value >= BAR,
    )


def _grown(path: Path, sample: Sample, size: int) -> Iterator[bytes]:
    lines = path.read_bytes().splitlines(keepends=True)
    yield from lines[: sample.begins]
    named = re.compile(sample.ids)
    own = path.stem.encode()  # where it is the session's id
    parent = re.compile(rb'(?<="parentUuid":)null|(?<="parentId":)null')
    written, number, last = 0, 0, b"null"
    while written < size:
        number += 1

        def renamed(found: re.Match[bytes], number: int = number) -> bytes:
            name = found[0]
            digits = b"%08x" % zlib.crc32(name, number)
            return name if name == own else name[:-8] + digits

        for line in lines[sample.begins :]:
            line = named.sub(renamed, line)
            if b'"compact_boundary"' not in line:
                line = parent.sub(last, line)
            if found := re.search(rb'"(?:uuid|id)":("[^"]+")', line):
                last = found[1]
            written += len(line)
            yield line
