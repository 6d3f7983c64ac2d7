"""One HTML file that shows a session to people, with nothing else and no network.

The page holds the log's lines as they are and draws them itself: prompts with counts, turns that
unfold, tool calls by kind, the tree of branches, search, and the log to download. Whatever a
session holds is data to it: the lines stand in a block that no browser runs, the page makes text of
them and never markup, and its policy allows no script but its own and no request to anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

import msgspec

from awl.conversation import BlobRef, Image, ToolResult
from awl.entries import MessageEntry, NoteEntry, ToolResultEntry
from awl.formats.format import Format, Source
from awl.log.blobs import BlobDamaged
from awl.printing import one_line

MOST_PICTURES: Final = 64 << 20
"""Bytes of pictures that one page holds; those after them are named only."""

_SHOWN: Final = re.compile(r"image/(png|jpeg|gif|webp)")


def write(source: Source) -> Iterator[bytes]:
    """The page, in pieces."""
    page = files("awl.formats") / "page"
    script = (page / "page.js").read_text(encoding="utf-8")
    style = (page / "page.css").read_text(encoding="utf-8")
    header = source.state.header
    assert header is not None
    known = {
        "policy": "; ".join(
            (
                "default-src 'none'",
                f"script-src '{_digest(script)}'",
                "style-src 'unsafe-inline'",
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
            )
        ),
        "title": html.escape(one_line(source.state.given_title or header.id, 200)),
        "css": style,
        "js": script,
    }
    template = (page / "page.html").read_text(encoding="utf-8")
    for place, part in enumerate(re.split(r"\{\{(\w+)\}\}", template)):
        if place % 2 == 0:
            yield part.encode()
        elif part == "data":
            yield from _data(source)
        else:
            yield known[part].encode()


def _digest(script: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def _data(source: Source) -> Iterator[bytes]:
    """The session as one JSON object."""
    state = source.state
    header = state.header
    assert header is not None
    model = state.active_model
    facts = {
        "id": header.id,
        "title": state.given_title or "",
        "cwd": state.cwd,
        "provider": model.provider,
        "model": model.model,
        "created": header.timestamp,
        "message_count": state.message_count,
        "forked_from": None
        if header.forked_from is None
        else {"session_id": header.forked_from.session_id, "seq": header.forked_from.seq},
    }
    positions = range(len(state.entries))
    damage = []
    for bad in state.damage:
        before = next((at for at in positions if state.lines[at] > bad.line), len(positions))
        damage.append({"line": bad.line, "reason": bad.reason, "before": before})
    notices = [
        f"line {bad['line']} of the log is damaged: {bad['reason']}; only this line is lost"
        for bad in damage
    ]
    yield b'{"session":' + _json(facts)
    yield b',"damage":' + _json(damage)
    yield b',"notices":' + _json(notices)
    yield b',"entries":['
    for at in positions:
        row = [state.lines[at] - 1, state.seqs[at], state.parents[at]]
        yield (b"," if at else b"") + _json(row)
    yield b'],"blobs":{'
    yield from _pictures(source)
    yield b'},"lines":['
    end = max(state.ends[-1] if positions else 0, state.damage[-1].end if state.damage else 0)
    data = state.read(0, end + 1)
    lines = data.split(b"\n")
    ended = lines[-1] == b""
    for number, line in enumerate(lines[:-1] if ended else lines):
        yield (b"," if number else b"") + _line(line)
    yield b'],"ended":' + _json(ended) + b"}"


def _line(line: bytes) -> bytes:
    try:
        return _json(line.decode())
    except UnicodeDecodeError:
        return _json({"base64": base64.b64encode(line).decode()})


def _pictures(source: Source) -> Iterator[bytes]:
    """The blobs of the session's pictures that a browser can show, each once."""
    seen: set[str] = set()
    room = MOST_PICTURES
    for image in _images(source):
        name = image.blob.blob
        if name in seen or not _SHOWN.fullmatch(image.mime_type):
            continue
        if image.blob.size > room:
            source.left_out["pictures beyond 64 MiB"] += 1
            continue
        try:
            data = source.blob(BlobRef(blob=name, size=image.blob.size))
        except BlobDamaged:
            source.left_out["pictures that are missing"] += 1
            continue
        room -= len(data)
        yield (b"," if seen else b"") + _json(name) + b":" + _json(base64.b64encode(data).decode())
        seen.add(name)


def _images(source: Source) -> Iterator[Image]:
    for position in range(len(source.state.entries)):
        entry = source.state.body(position)
        if isinstance(entry, ToolResultEntry | NoteEntry):
            yield from entry.images
        elif isinstance(entry, MessageEntry):
            for block in entry.message.content:
                if isinstance(block, Image):
                    yield block
                elif isinstance(block, ToolResult):
                    yield from block.images


def _json(value: Any) -> bytes:
    """JSON that ends no script block, whatever it holds."""
    return msgspec.json.encode(value).replace(b"<", b"\\u003c")


FORMAT: Final = Format(
    name="html",
    title="a web page",
    write=write,
    cannot_carry=("pictures beyond 64 MiB", "uncut tool output, which stays in the blobs"),
)
