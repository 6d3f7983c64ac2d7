"""One entry, one line: the codec between `awl.entries` and the bytes of a log. Pure."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Any, Final, Literal, TypeVar, cast, get_args

import msgspec

from awl.conversation import (
    BlobRef,
    ContentBlock,
    Image,
    Opaque,
    Role,
)
from awl.entries import (
    UNSTAMPED,
    Entry,
    ForkedFrom,
    Header,
    KnownEntry,
    LoggedMessage,
    MessageEntry,
    NoteEntry,
    PartialBlock,
    PartialEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    Usage,
)
from awl.log.names import is_session_id

T = TypeVar("T")
EntryT = TypeVar("EntryT", bound=Header | Entry)


class BadLine(ValueError):
    """The bytes are not one JSON object."""


class OuterMessage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Of a message, what the fold needs although its content stays on disk."""

    role: Role
    usage: Usage | None = None


class Outer(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Of a line, what the fold needs of an entry whose body stays on disk."""

    type: str
    id: str
    parent_id: str | None = UNSTAMPED
    timestamp: str = ""
    seq: int = 0
    turn_id: int | None = None
    tool_use_id: str | None = None
    provider: str | None = None
    model: str | None = None
    message: OuterMessage | None = None


class Skimmed(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """An `Outer` of which there are many: all that has to be looked at in each of them."""

    type: Literal["message", "toolCall", "toolResult", "partial"]
    id: str
    parent_id: str | None = UNSTAMPED
    seq: int = 0
    turn_id: int | None = None
    tool_use_id: str | None = None
    provider: str | None = None
    model: str | None = None
    message: OuterMessage | None = None


BULKY: Final = frozenset({"message", "toolCall", "toolResult", "partial"})
"""The types whose body can stay on disk: what is large, and what there is most of. Of all others,
an `Outer` is never enough."""

_encoder: Final = msgspec.json.Encoder()
_known: Final = msgspec.json.Decoder(Header | KnownEntry)
_entry: Final = msgspec.json.Decoder(KnownEntry)
_outer: Final = msgspec.json.Decoder(Outer)
_skimmed: Final = msgspec.json.Decoder(Skimmed)
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KNOWN_TYPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    str(cls.__struct_config__.tag): cls for cls in (Header, *get_args(KnownEntry))
}
_BLOCK_TYPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    str(cls.__struct_config__.tag): cls for cls in get_args(ContentBlock)
}
# Line separators for JavaScript and for str.splitlines, though not for JSON.
_SEPARATORS: Final = (
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
    (b"\xc2\x85", b"\\u0085"),
)
# One escape at a time, so that backslashes and surrogates pair up as a JSON parser pairs them.
_ESCAPE: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
_MOST_DIGITS: Final = 4000  # Python refuses to turn longer ones into an int
_STAMPS: Final = frozenset({"type", "id", "parentId", "timestamp", "seq", "turnId"})


def encode(entry: Header | Entry) -> bytes:
    """The line of an entry, newline included. Lone surrogates become U+FFFD."""
    return _escaped(_written(entry)) + b"\n"


def encode_many(entries: Sequence[Entry]) -> bytes:
    """The lines of entries, newlines included, as `encode` gives them."""
    plain = [_stamped_raw(one) if type(one) is UnknownEntry else one for one in entries]
    try:
        return _escaped(_encoder.encode_lines(plain))
    except UnicodeEncodeError:
        return b"".join(map(encode, entries))


def encode_as_is(entry: Header | Entry) -> tuple[bytes, bool]:
    """The line of an entry, and whether it was encoded as it is: `held` wants to know."""
    # Of steps that `encode` has as well: an append takes the fewest.
    if type(entry) is not UnknownEntry:
        try:
            data = _encoder.encode(entry)
        except UnicodeEncodeError:
            pass
        else:
            return (data if data.isascii() else _escaped(data)) + b"\n", True
    return encode(entry), False


def held(entry: EntryT, line: bytes, as_it_is: bool) -> EntryT:
    """An entry as its line holds it, of which `encode_as_is` told this."""
    if as_it_is and type(entry) is not NoteEntry and b'"providerData":' not in line:
        return entry
    # A surrogate is gone, or a NaN, or a tuple has become a list.
    if isinstance(entry, UnknownEntry):
        return msgspec.structs.replace(entry, raw=msgspec.json.decode(line))
    return msgspec.json.decode(line, type=type(entry))


def _written(entry: Header | Entry) -> bytes:
    plain = _stamped_raw(entry) if isinstance(entry, UnknownEntry) else entry
    try:
        return _encoder.encode(plain)
    except UnicodeEncodeError:
        return _encoder.encode(loads(json.dumps(msgspec.to_builtins(plain))))


def _escaped(data: bytes) -> bytes:
    if not data.isascii():
        for raw, escaped in _SEPARATORS:
            if _holds(data, raw):
                data = data.replace(raw, escaped)
    return data


def _holds(data: bytes, raw: bytes) -> bool:
    """Whether bytes are among others. Their last one alone is found much faster."""
    at = data.find(raw[-1:])
    while at >= 0:
        if data.endswith(raw, 0, at + 1):
            return True
        at = data.find(raw[-1:], at + 1)
    return False


def with_fields(line: bytes, /, **fields: Any) -> bytes:
    """The line of an object with some fields set anew, newline included. All others stay as they
    are, byte for byte, unless no strict decoder takes them.

    Raises:
        BadLine, RecursionError: the line is not one JSON object, or is nested too deeply.
    """
    try:
        found: dict[str, Any] = _fields.decode(line)
    except Exception:
        found = _object(line)
    return _escaped(_encoder.encode({**found, **fields})) + b"\n"


def decode(line: bytes) -> Header | Entry:
    """The entry on one line.

    A type, a block or a shape that this awl does not know is kept as it is (`UnknownEntry`,
    `Opaque`); missing fields get their neutral value.

    Raises:
        BadLine: the line is not one JSON object, or has no type and no id.
    """
    try:
        entry = _known.decode(line)
        if _has_id(entry):
            return entry
    except Exception:  # noqa: S110  whatever this decoder says, the tolerant one has the last word
        pass
    try:
        return _lenient(_object(line))
    except RecursionError:
        return _on_a_fresh_stack(line)


def decode_outer(line: bytes) -> Header | Entry | Outer:
    """As `decode`, but a bulky entry's body is left undecoded.

    Raises:
        BadLine: as `decode`, and for the same lines.
    """
    try:
        outer = _whole_outer(line)
    except Exception:
        return decode(line)
    return outer if outer.type in BULKY and _whole(outer) else decode(line)


def decode_roughly(lines: Iterable[bytes], *, outer: bool) -> list[KnownEntry | Outer]:
    """What one decoder makes of many lines, up to the first that is not for it.

    Quicker than `decode` and `decode_outer`, and not the last word: what it made of a line counts
    only if it is `sound`. A header is never among it.
    """
    found: list[KnownEntry | Outer] = []
    with contextlib.suppress(Exception):  # whatever this decoder says, others have the last word
        found.extend(map(_whole_outer if outer else _entry.decode, lines))
    return found


def sound(entry: KnownEntry | Outer) -> bool:
    """Whether what `decode_roughly` made of a line is what the line holds."""
    if type(entry) is Outer:
        return entry.type in BULKY and _whole(entry)
    return bool(entry.id)


def skim(lines: list[bytes], *, plain: bool) -> Iterator[Skimmed]:
    """The outer fields of lines that have a type, an id and, of that type, what an `Outer` needs.
    `plain`: they are ASCII alone.

    Raises:
        REFUSED: at a line that has not, and before the first one if one is not UTF-8.
    """
    for line in () if plain else filterfalse(bytes.isascii, lines):
        line.decode()  # the skipped body may hold what is not UTF-8
    return map(_skimmed.decode, lines)


REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What a decoder raises at what it does not take."""


def is_object(line: bytes) -> bool:
    """Whether the bytes alone are one JSON object, of whatever type."""
    try:
        decode(line)
    except BadLine:
        try:
            _object(line)
        except (BadLine, RecursionError):
            return False
    return True


def _has_id(entry: Header | Entry | Outer) -> bool:
    """Whether an entry can be named; a session id goes into paths and messages, and is checked."""
    return bool(entry.id) and (type(entry) is not Header or is_session_id(entry.id))


def _whole_outer(line: bytes) -> Outer:
    line.decode()  # the skipped body may hold what is not UTF-8
    return _outer.decode(line)


def _whole(outer: Outer) -> bool:
    if outer.type == "message":
        return bool(outer.id) and outer.message is not None
    return bool(outer.id) and (outer.type != "toolCall" or outer.tool_use_id is not None)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = loads(line.decode())
    except ValueError as error:
        raise BadLine(_reason(line, error)) from None
    if not isinstance(found, dict):
        raise BadLine("not a JSON object")
    return found


def loads(text: str) -> Any:
    """What a JSON text says, leniently; lone surrogates become U+FFFD.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(without_lone_surrogates(text), parse_int=_integer)


def without_lone_surrogates(text: str) -> str:
    """A JSON text with U+FFFD in place of each lone surrogate that it escapes."""
    return _ESCAPE.sub(lambda escape: "\\ufffd" if escape["lone"] else escape[0], text)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _stamped_raw(entry: UnknownEntry) -> dict[str, Any]:
    """The object of an entry of another program's type: its own fields, and awl's stamps."""
    stamps = msgspec.to_builtins(msgspec.structs.replace(entry, raw={}))
    own = {key: value for key, value in entry.raw.items() if key not in _STAMPS}
    del stamps["kind"], stamps["raw"]
    return {**stamps, "type": entry.kind, **own}


def _on_a_fresh_stack(line: bytes) -> Header | Entry:
    """The entry of a line that is nested very deeply.

    How deep a decoder gets depends on how deep its caller stands. On a stack of its own every
    reading of a line ends alike, and gets at least as far as the one that left the body on disk.
    """
    found: list[Header | Entry | Exception] = []

    def read() -> None:
        try:
            try:
                found.append(_lenient(_object(line)))
            except RecursionError:
                found.append(_without_body(line))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _without_body(line: bytes) -> Entry:
    """A bulky entry whose body is nested too deeply for any decoder: as much as `Outer` tells."""
    try:
        outer = _outer.decode(line)
    except Exception:
        raise BadLine("nested too deeply") from None
    if outer.type not in BULKY or not _whole(outer):
        raise BadLine("nested too deeply")
    found = msgspec.to_builtins(outer)
    if outer.message is not None:
        found["message"]["content"] = [{"type": "nested too deeply"}]
    return cast(Entry, _lenient(found))


def _reason(line: bytes, error: Exception) -> str:
    if line.count(0) > len(line) // 2:
        return "zero bytes"
    if isinstance(error, UnicodeDecodeError):
        return "not UTF-8"
    return "not a complete JSON object"


def _lenient(found: dict[str, Any]) -> Header | Entry:
    """An entry from an object that the typed decoder refused."""
    kind = found.get("type")
    # Only null says "the first entry": what cannot be read must hide nothing before it.
    parent = None if found.get("parentId", UNSTAMPED) is None else UNSTAMPED
    base = {
        "id": _take(found, "id", str, ""),
        "parentId": _take(found, "parentId", str, parent),
        "timestamp": _take(found, "timestamp", str, ""),
        "seq": _take(found, "seq", int, 0),
        "turnId": _take(found, "turnId", int, None),
    }
    if not isinstance(kind, str) or not base["id"]:
        raise BadLine("an object without a type or an id: not an entry")
    if kind == "session":
        if not is_session_id(base["id"]):
            raise BadLine("a session header whose id is none")
        return _header(found)
    try:
        if kind == "message":
            return _message(found, base)
        if kind == "toolCall":
            return _tool_call(found, base)
        if kind == "toolResult":
            return _tool_result(found, base)
        if kind == "partial":
            return _partial(found, base)
        if kind in _KNOWN_TYPES:
            filled = {**_NEUTRAL.get(kind, {}), **_without_null(found), **base}
            return cast(Entry, msgspec.convert(filled, _KNOWN_TYPES[kind]))
    except (msgspec.ValidationError, TypeError, KeyError, AttributeError):
        pass  # a known name and an unknown shape: kept whole
    return msgspec.convert({**base, "type": "unknown", "kind": kind, "raw": found}, UnknownEntry)


_NEUTRAL: Final[Mapping[str, dict[str, Any]]] = {
    "condensation": {"tokensBefore": 0, "tokensAfter": 0},
    "compaction": {"tier": "soft", "clearedCount": 0},
    "import": {"source": "", "messageCount": 0},
    "end": {"reason": ""},
}


def _header(found: dict[str, Any]) -> Header:
    return Header(
        version=_version(found.get("version", 1)),
        id=found["id"],
        timestamp=_take(found, "timestamp", str, ""),
        cwd=_take(found, "cwd", str, ""),
        provider=_take(found, "provider", str, ""),
        model=_take(found, "model", str, ""),
        forked_from=_convert(found.get("forkedFrom"), ForkedFrom),
        endpoint=_take(found, "endpoint", str, None),
        cwd_bytes=_take(found, "cwdBytes", str, None),
    )


def _version(given: Any) -> int:
    """A format version, however it is written: a newer one must not be taken for an old one."""
    try:
        return int(float(given))
    except (TypeError, ValueError, OverflowError):
        return 1


# The bulky types are total: where `Outer` reads a line, these give an entry of its type, so
# that a body left on disk never changes what the session is.


def _message(found: dict[str, Any], base: dict[str, Any]) -> MessageEntry:
    inner = found["message"]
    content = inner.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return MessageEntry(
        **_snake(base),
        provider=_take(found, "provider", str, None),
        model=_take(found, "model", str, None),
        message=LoggedMessage(
            role=msgspec.convert(inner["role"], Role),
            content=tuple(map(_block, content)) if isinstance(content, list) else (),
            provider=_take(inner, "provider", str, None),
            model=_take(inner, "model", str, None),
            stop_reason=_take(inner, "stopReason", str, None),
            usage=_convert(inner.get("usage"), Usage),
        ),
    )


def _tool_call(found: dict[str, Any], base: dict[str, Any]) -> ToolCallEntry:
    return ToolCallEntry(
        **_snake(base),
        tool_use_id=msgspec.convert(found.get("toolUseId"), str),
        name=_take(found, "name", str, ""),
    )


def _tool_result(found: dict[str, Any], base: dict[str, Any]) -> ToolResultEntry:
    content = found.get("content", "")
    images = found.get("images")
    kept = (_convert(image, Image) for image in images) if isinstance(images, list) else ()
    return ToolResultEntry(
        **_snake(base),
        tool_use_id=_take(found, "toolUseId", str, ""),
        name=_take(found, "name", str, ""),
        content=content if isinstance(content, str) else json.dumps(content),
        images=tuple(image for image in kept if image is not None),
        output=_convert(found.get("output"), BlobRef),
        is_error=found.get("isError") is True,
        duration_ms=_take(found, "durationMs", int, 0),
    )


def _partial(found: dict[str, Any], base: dict[str, Any]) -> PartialEntry:
    content = found.get("content")
    kept = (_convert(block, PartialBlock) for block in content) if isinstance(content, list) else ()
    return PartialEntry(**_snake(base), content=tuple(block for block in kept if block is not None))


def _snake(base: dict[str, Any]) -> dict[str, Any]:
    names = {"parentId": "parent_id", "turnId": "turn_id"}
    return {names.get(key, key): value for key, value in base.items()}


def _convert(found: Any, kind: type[T]) -> T | None:
    try:
        return msgspec.convert(found, kind)
    except (msgspec.ValidationError, TypeError):
        return None


def _block(found: Any) -> ContentBlock:
    kind = found.get("type") if isinstance(found, dict) else None
    if not isinstance(kind, str):
        kind = ""
    if kind in _BLOCK_TYPES:
        known = _convert(_without_null(found), _BLOCK_TYPES[kind])
        if known is not None:
            return cast(ContentBlock, known)
    return Opaque(kind=kind, raw=json.dumps(found))


def _take(found: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = found.get(key)
    return value if isinstance(value, kind) and not isinstance(value, bool) else default


def _without_null(found: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in found.items() if value is not None}
