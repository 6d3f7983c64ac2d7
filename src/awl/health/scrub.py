"""Taking a text out of the lines of a log, and leaving the log what it is.

Ids, types, seqs, times and the directory hold a log together and stay. What a provider has signed
or bound to itself is never edited: a message in which that holds the text loses all that is bound.
What streamed is looked at as one text, for a text that is to go can come in pieces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from awl.conversation import ContentBlock
from awl.entries import Header, KnownEntry
from awl.health.pattern import Pattern
from awl.log.line import BadLine, decode, loads, with_fields

JSON = dict[str, Any]

_MOST_PARTIALS: Final = 1 << 26  # bytes of one answer that are looked at as one text

_STAMPS: Final = frozenset({"type", "id", "parentId", "timestamp", "seq", "turnId"})
# The fields of awl's own entries whose values mean something to awl.
_FIXED: Final = _STAMPS | {
    *("version", "cwd", "cwdBytes", "forkedFrom"),
    *("role", "usage", "stopReason", "toolUseId", "isError", "durationMs", "mimeType", "index"),
    *("replaced", "tokensBefore", "tokensAfter", "tier", "clearedCount", "cleared"),
    *("newSessionId", "at", "targetId", "sourceId", "through", "messageCount", "reason"),
    *("lines", "size", "odd", "lostBlobs"),
}
_KNOWN: Final = frozenset(str(cls.__struct_config__.tag) for cls in (Header, *get_args(KnownEntry)))
_BLOCKS: Final = frozenset(str(cls.__struct_config__.tag) for cls in get_args(ContentBlock))


class Scrubber:
    """Takes a text out of lines, one after the other.

    Attributes:
        entries: how many lines have changed.
        dropped: how many blocks that a provider had signed are gone.
    """

    def __init__(
        self, pattern: Pattern, blobs: Mapping[str, tuple[str, int]] | None = None
    ) -> None:
        """`blobs` are those that have new names and sizes, by their old names."""
        self.entries = 0
        self.dropped = 0
        self._pattern = pattern
        self._blobs = blobs or {}
        self._old = [name.encode() for name in self._blobs]
        self._run: list[tuple[bytes, JSON]] = []  # partial entries, and their lines
        self._run_size = 0

    def concerns(self, data: bytes) -> bool:
        """Whether any line of these must be taken in; others may be passed by."""
        return bool(
            self._run
            or b'"partial"' in data
            or any(name in data for name in self._old)
            or self._pattern.holds(data.decode("utf-8", "surrogateescape"))
        )

    def take(self, line: bytes) -> Iterator[bytes]:
        """Take in the next line, without its newline. Gives those that are done."""
        entry = self._partial(line)
        if entry is not None:
            self._run.append((line, entry))
            self._run_size += len(line)
            if self._run_size < _MOST_PARTIALS:
                return
            yield from self.finish()
            return
        yield from self.finish()
        yield self._scrubbed(line)

    def finish(self) -> Iterator[bytes]:
        """The lines that are still to come."""
        run, self._run, self._run_size = self._run, [], 0
        if run:
            yield from self._scrub_run(run)

    # -- lines -------------------------------------------------------------------------------------

    def _scrubbed(self, line: bytes) -> bytes:
        if not self.concerns(line):
            return line
        found = _object(line)
        new = self._in_raw(line) if found is None else self._in_entry(line, found)
        self.entries += new != line
        return new

    def _in_raw(self, line: bytes) -> bytes:
        """A line that is no entry: only its bytes can be looked at."""
        text, _ = self._pattern.scrub(line.decode("utf-8", "surrogateescape"))
        return text.encode("utf-8", "surrogateescape")

    def _in_entry(self, line: bytes, found: JSON) -> bytes:
        new = self._entry(found)
        changed = {key: value for key, value in new.items() if value is not found.get(key)}
        made = line
        if changed:
            same_fields = changed.keys() <= found.keys() and len(new) == len(found)
            made = with_fields(line if same_fields else b"{}", **(changed if same_fields else new))
            made = made[:-1]
        if self._hides(made):
            whole = with_fields(b"{}", **new)[:-1]  # a field that is there twice is gone then
            made = made if self._hides(whole) else whole
        return made

    def _hides(self, line: bytes) -> bool:
        return self._pattern.holds(line.decode("utf-8", "surrogateescape"))

    def _entry(self, found: JSON) -> JSON:
        if found["type"] not in _KNOWN:
            return self._free(found)
        new: JSON = {}
        for key, value in found.items():
            if key == "message" and isinstance(value, dict):
                new[key] = self._message(value)
            elif key == "record":  # another program's
                new[key] = self._any(value)
            else:
                new[key] = value if key in _FIXED else self._own(value)
        return new

    def _free(self, found: JSON) -> JSON:
        """An object that this awl does not know, but for what it knows of any entry or block."""
        return {
            key if key in _STAMPS else self._text(key): value
            if key in _STAMPS
            else self._any(value)
            for key, value in found.items()
        }

    # -- messages ----------------------------------------------------------------------------------

    def _message(self, message: JSON) -> JSON:
        new = {}
        for key, value in message.items():
            if key == "content" and isinstance(value, list):
                blocks = self._content(value)
                new[key] = blocks if blocks != value else value
            else:
                new[key] = value if key in _FIXED else self._own(value)
        return message if all(new[key] is message[key] for key in new) else new

    def _content(self, blocks: list[Any]) -> list[Any]:
        new: list[Any] = []
        broken = False
        for block in blocks:
            if not isinstance(block, dict):
                new.append(self._any(block))
            elif not _is_signed(block):
                scrubbed = self._block(block)
                bound = block.get("providerData")
                broken |= bound is not None and (scrubbed != block or self._holds(bound))
                new.append(scrubbed)
            elif self._holds(block):
                broken = True
                self.dropped += 1
            else:
                new.append(block)
        return self._unbound(new) if broken else new

    def _unbound(self, blocks: list[Any]) -> list[Any]:
        """Content without all that its provider has signed or bound: one part of it is no more what
        it was, and the others were given with that."""
        kept = []
        for block in blocks:
            if isinstance(block, dict) and _is_signed(block):
                self.dropped += 1
            elif isinstance(block, dict):
                kept.append({key: block[key] for key in block if key != "providerData"})
            else:
                kept.append(block)
        return kept

    def _block(self, block: JSON) -> JSON:
        """A block that nobody has signed."""
        if block.get("type") not in _BLOCKS:
            return self._free(block)
        new = {}
        for key, value in block.items():
            if key in _FIXED or key == "providerData":
                new[key] = value
            elif key == "input" and isinstance(value, str):
                new[key] = self._input(value)
            else:
                new[key] = self._own(value)
        return new

    def _input(self, text: str) -> str:
        """A tool's input, which is JSON in a string, and stays so if it can."""
        if not self._pattern.holds(text):
            return text
        try:
            made = json.dumps(self._any(json.loads(text)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return self._text(text)
        return self._text(made) if self._pattern.holds(made) else made

    # -- what streamed -----------------------------------------------------------------------------

    def _partial(self, line: bytes) -> JSON | None:
        if b'"partial"' not in line:
            return None
        found = _object(line)
        if (
            found is None
            or found["type"] != "partial"
            or not isinstance(found.get("content"), list)
        ):
            return None
        return found

    def _scrub_run(self, run: list[tuple[bytes, JSON]]) -> Iterator[bytes]:
        pieces: dict[tuple[str, str], list[tuple[JSON, str]]] = {}
        for _, entry in run:
            for block in entry["content"]:
                for key in ("text", "thinking"):
                    if isinstance(block, dict) and isinstance(block.get(key), str):
                        place = str(block.get("index")), key
                        pieces.setdefault(place, []).append((block, key))
        touched = False
        for together in pieces.values():
            touched |= self._scrub_pieces(together)
        for line, entry in run:
            # The texts of the entry are new already; all else of it is looked at as of others.
            new = with_fields(line, content=entry["content"])[:-1] if touched else line
            if touched and _object(new) == _object(line):
                new = line
            done = self._scrubbed(new)
            self.entries += new != line and done == new
            yield done

    def _scrub_pieces(self, pieces: list[tuple[JSON, str]]) -> bool:
        """Take the text out of what the pieces are together. What comes in its place stands in the
        piece in which it began."""
        whole = "".join(block[key] for block, key in pieces)
        found = self._pattern.find(whole)
        if not found:
            return False
        at = 0
        for block, key in pieces:
            end = at + len(block[key])
            kept, place = [], at
            for start, stop in found:
                if stop <= at or start >= end:
                    continue
                if start >= at:
                    kept += [whole[place:start], self._pattern.replacement]
                place = min(stop, end)
            kept.append(whole[place:end])
            block[key] = "".join(kept)
            at = end
        return True

    # -- values ------------------------------------------------------------------------------------

    def _own(self, value: Any) -> Any:
        """A value of an entry that awl knows."""
        return self._value(value, free=False)

    def _any(self, value: Any) -> Any:
        """A value that can be anything, whose keys and numbers are somebody's words, too."""
        return self._value(value, free=True)

    def _value(self, value: Any, *, free: bool) -> Any:
        """A value without the text; the very same one if it does not hold it."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            if isinstance(name := value.get("blob"), str) and "size" in value:
                return self._blob(value, name)
            made = {
                self._text(key) if free else key: item
                if key in _FIXED and not free
                else self._value(item, free=free)
                for key, item in value.items()
            }
            same = made.keys() == value.keys() and all(made[key] is value[key] for key in value)
            return value if same else made
        if isinstance(value, list):
            new = [self._value(item, free=free) for item in value]
            return (
                value if all(one is other for one, other in zip(new, value, strict=True)) else new
            )
        if free and isinstance(value, int | float) and not isinstance(value, bool):
            return self._pattern.replacement if self._holds(value) else value
        return value

    def _blob(self, ref: JSON, name: str) -> JSON:
        if name not in self._blobs:
            return ref
        blob, size = self._blobs[name]
        return {**ref, "blob": blob, "size": size}

    def _text(self, text: str) -> str:
        new, count = self._pattern.scrub(text)
        return new if count else text

    def _holds(self, value: Any) -> bool:
        return self._pattern.holds(json.dumps(value, ensure_ascii=False))


def _is_signed(block: JSON) -> bool:
    kind = block.get("type")
    return kind == "redactedThinking" or (
        kind == "thinking" and bool(block.get("signature") or block.get("providerData"))
    )


def _object(line: bytes) -> JSON | None:
    """The object on a line that is an entry."""
    try:
        decode(line)
        found = loads(line.decode())
    except (BadLine, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
