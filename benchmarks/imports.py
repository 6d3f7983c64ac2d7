"""Another program's session is imported, beside the typed decoding of its records.

The sources are sessions that the programs wrote, over and over: each time with other ids, behind
the time before. Of zeph and of OpenAI's API there is none here: what awl writes of one of its own
is read.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from awl.formats import (
    claude_code,
    codex,
    find,
    gemini_cli,
    kimi_cli,
    openai,
    opencode,
    pi,
    qwen_code,
    zeph,
)
from awl.store.exporting import Outgoing
from awl.store.importing import Importer
from benchmarks.corpus import folder, write_log
from benchmarks.figures import Figure, Found, beside, in_turns, medians

FLOOR = "msgspec typed decode, record by record, GC on"
BAR = 1 / 3
"""Of the floor's speed."""
DATA = Path(__file__).parent.parent / "tests" / "data" / "formats"
UUID = rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
CALL = rb"\bcall_\w{8,}"


# What the records are to a decoder, with all parts of what was said.


class ClaudeMessage(claude_code._Message, frozen=True, gc=False):
    content: str | list[claude_code._Block] | None = None  # type: ignore[assignment]


class ClaudeRecord(claude_code._Record, frozen=True, rename="camel", gc=False):
    message: ClaudeMessage | None = None


class CodexPayload(codex._Payload, frozen=True, gc=False):
    content: str | list[codex._Part] | None = None  # type: ignore[assignment]


class CodexRecord(codex._Record, frozen=True, gc=False):
    payload: CodexPayload | None = None


class KimiReturned(kimi_cli._Returned, frozen=True, gc=False):
    output: str | list[openai.Part] | None = None  # type: ignore[assignment]


class KimiPayload(kimi_cli._Payload, frozen=True, gc=False):
    user_input: str | list[openai.Part] | None = None  # type: ignore[assignment]
    return_value: KimiReturned | None = None


class KimiEvent(kimi_cli._Event, frozen=True, gc=False):
    payload: KimiPayload | None = None


class KimiRecord(kimi_cli._Record, frozen=True, gc=False):
    message: KimiEvent | None = None


class ChatMessage(openai.ChatMessage, frozen=True, gc=False):
    content: str | list[openai.Part] | None = None  # type: ignore[assignment]


class ZephKind(zeph._Kind, frozen=True, gc=False):
    parts: list[zeph._Part] | None = None  # type: ignore[assignment]


class ZephEvent(zeph._Event, frozen=True, gc=False):
    kind: ZephKind


Floor = Callable[[bool], object]
"""Decodes all records of a source: into structs as they are by default, or into such as the garbage
collector passes over, as awl's own are."""

Maker = Callable[[Path, int], tuple[Path, Floor]]
"""Makes a source of so many bytes in a folder."""


def _by_line(path: Path, record: type[msgspec.Struct]) -> Floor:
    decoders = _decoders(record)

    def floor(ordinary: bool) -> object:
        decode = decoders[ordinary]
        with path.open("rb") as lines:
            return [decode(line) for line in lines]

    return floor


def _by_element(path: Path, record: type[msgspec.Struct], document: Any) -> Floor:
    """Of a document, whose elements are found by decoding it."""
    decoders, elements = _decoders(record), msgspec.json.Decoder(document).decode

    def floor(ordinary: bool) -> object:
        decode = decoders[ordinary]
        found = elements(path.read_bytes())
        return [decode(raw) for raw in (found if isinstance(found, list) else found.messages)]

    return floor


def _decoders(record: type[msgspec.Struct]) -> tuple[Callable[[bytes], object], ...]:
    return tuple(msgspec.json.Decoder(kind).decode for kind in (record, _ordinary(record)))


def _ordinary(kind: Any) -> Any:
    """The same type, its structs as they are by default."""
    if get_origin(kind) is UnionType or get_origin(kind) is Union:
        return Union[tuple(map(_ordinary, get_args(kind)))]  # noqa: UP007 - of any number
    if (outer := get_origin(kind)) is not None:
        return outer[tuple(map(_ordinary, get_args(kind)))]
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return kind
    config = kind.__struct_config__
    fields = []
    for one in msgspec.structs.fields(kind):
        given: dict[str, Any] = {"name": one.encode_name}
        if one.default_factory is not msgspec.NODEFAULT:
            given["default_factory"] = one.default_factory
        elif one.default is not msgspec.NODEFAULT:
            given["default"] = one.default
        fields.append((one.name, _ordinary(one.type), msgspec.field(**given)))
    return msgspec.defstruct(
        kind.__name__, fields, kw_only=True, tag=config.tag, tag_field=config.tag_field
    )


class Messages(msgspec.Struct):
    """A document's array."""

    messages: list[msgspec.Raw]


class Grown(msgspec.Struct, frozen=True):
    """A file of lines that is repeated: how its ids look; how many lines begin it and come once;
    and what its lines are to a decoder."""

    file: str
    ids: bytes
    begins: int
    record: type[msgspec.Struct]

    def __call__(self, folder: Path, size: int) -> tuple[Path, Floor]:
        source = folder / Path(self.file).name
        source.write_bytes(b"".join(self.lines(size)))
        return source, _by_line(source, self.record)

    def lines(self, size: int) -> Iterator[bytes]:
        """Lines of that size."""
        path = DATA / self.file
        lines = path.read_bytes().splitlines(keepends=True)
        yield from lines[: self.begins]
        own = path.stem.encode()  # where it is the session's id
        written, number, last = 0, 0, b"null"
        while written < size:
            number += 1
            for line in lines[self.begins :]:
                line = re.sub(self.ids, partial(_renamed, own=own, number=number), line)
                if b'"compact_boundary"' not in line:
                    line = PARENT.sub(last, line)
                if found := re.search(rb'"(?:uuid|id)":("[^"]+")', line):
                    last = found[1]
                written += len(line)
                yield line


PARENT = re.compile(rb'(?<="parentUuid":)null|(?<="parentId":)null')


def _renamed(found: re.Match[bytes], own: bytes, number: int) -> bytes:
    name = found[0]
    digits = b"%08x" % zlib.crc32(name, number)
    return name if name == own else name[:-8] + digits


def _kimi(folder: Path, size: int) -> tuple[Path, Floor]:
    """A wire, and beside it a context with the results as the model was shown them."""
    source, wire = KIMI_WIRE(folder, size // 2)
    beside = folder / "context.jsonl"
    beside.write_bytes(b"".join(KIMI_CONTEXT.lines(size // 2)))
    shown = _by_line(beside, ChatMessage)
    return source, lambda ordinary: (wire(ordinary), shown(ordinary))


def _opencode(folder: Path, size: int) -> tuple[Path, Floor]:
    path = DATA / "opencode" / "export-ses_dd7064d44ffe0SJsot2p6zdGkx.json"
    head, array, rest = path.read_bytes().partition(b'"messages": [')
    end = rest.rindex(b"]")
    numbers = range(1, size // end + 2)
    ids = rb"(?:msg|prt|call)_\w+"
    again = (re.sub(ids, partial(_renamed, own=b"", number=one), rest[:end]) for one in numbers)
    source = folder / path.name
    source.write_bytes(head + array + b",".join(again) + rest[end:])
    return source, _by_element(source, opencode._Message, Messages)


def _zeph(folder: Path, size: int) -> tuple[Path, Floor]:
    source = _written("zeph", folder / "events.jsonl", size)
    return source, _by_line(source, ZephEvent)


def _openai(folder: Path, size: int) -> tuple[Path, Floor]:
    source = _written("openai", folder / "messages.json", size)
    return source, _by_element(source, ChatMessage, list[msgspec.Raw])


def _written(name: str, path: Path, size: int) -> Path:
    """What awl writes of a session of its own, in another format."""
    log = write_log(path.parent / "log", size // 400)
    path.write_bytes(b"".join(Outgoing(log, find(name)).pieces()))
    return path


KIMI = "kimi-cli/sessions/b879103c3f017efe6d8a1f56aff4e919/5f1a8497-6677-4e15-b8fb-d7e6c91a3b8e"
KIMI_WIRE = Grown(f"{KIMI}/wire.jsonl", CALL, 1, KimiRecord)
KIMI_CONTEXT = Grown(f"{KIMI}/context_1.jsonl", CALL, 1, ChatMessage)
PI = Grown(
    "pi/2026-11-29T20-12-54-672Z_01a228f0-6c0f-71c3-8d44-b175f6ee2d25.jsonl",
    rb"(?<=[iI]d\":\")[0-9a-f]{8}(?=\")|" + CALL,
    1,
    pi._Record,
)
SAMPLES: dict[str, Maker] = {
    "claude-code": Grown(
        "claude-code/316b4c2f-cb4e-4bdf-ae5b-4faa0e0683c1.jsonl",
        rb"\b(?:toolu|msg|req)_\w+|" + UUID,
        0,
        ClaudeRecord,
    ),
    "codex": Grown(
        "codex/rollout-2026-11-29T20-22-41-01a228f9-6219-7693-8762-8c2124ea9339.jsonl",
        rb"\b(?:call|msg|fc|rs)_[\w-]{8,}",
        1,
        CodexRecord,
    ),
    "gemini-cli": Grown(
        "gemini-cli/project/chats/session-2026-11-29T20-15-20e84248.jsonl",
        rb"(?<=\"id\":\")" + UUID + b"|" + CALL,
        2,
        gemini_cli._Record,
    ),
    "kimi-cli": _kimi,
    "openai": _openai,
    "opencode": _opencode,
    "pi": PI,
    "qwen-code": Grown(
        "qwen-code/d3a6a599-64a6-4a5c-b692-7a28ac30f3fc.jsonl",
        CALL + b"|" + UUID,
        0,
        qwen_code._Record,
    ),
    "zeph": _zeph,
}


def measure(quick: bool) -> Found:
    size = (4 if quick else 16) << 20
    return Found([_figure(name, make, size) for name, make in SAMPLES.items()])


def _figure(name: str, make: Maker, size: int) -> Figure:
    with folder() as root:
        source, floor = make(root, size)
        made = iter(range(1_000))

        def ours() -> object:
            return Importer(root / str(next(made)), [], str(root)).bring(source, find(name))

        floors = {"floor": partial(floor, True), "sparing": partial(floor, False)}
        taken = medians(in_turns({**floors, "awl": ours}, 5))
    value, sparing = (taken[name] / taken["awl"] for name in floors)
    return Figure(
        f"import of {size >> 20} MB of {name}",
        taken["awl"],
        value,
        f"{beside(value, BAR)} of its speed ({sparing:.2f})",
        floor=FLOOR,
        base=taken["floor"],
        bar="≥ 0.33 of it",
        met=value >= BAR,
    )
