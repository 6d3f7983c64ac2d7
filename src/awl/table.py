"""What is known of every entry of a log, by position: the order in the file, counted from 0.

A log can hold millions of entries, most of which nobody looks at again. So what all of them have
is kept in a few bytes each, and a body is in memory only where it was needed. Pure, but for bodies
that are read from the file when they are asked for.
"""

from __future__ import annotations

import io
import secrets
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, cast, get_args, overload

import msgspec

from awl.entries import Entry, MessageEntry
from awl.log.line import Outer, decode, decode_outer
from awl.log.scan import CHUNK

ROOT: Final = -1
"""The position before the first entry."""

TAGS: Final = {kind: str(kind.__struct_config__.tag) for kind in get_args(Entry)}
"""What each type of entry is called in the log."""

WHOLE: Final = 0
"""The code of an entry that is in memory as a whole."""

ASSISTANT: Final = 1
SYSTEM: Final = 2
TOOL_CALL: Final = 3
TOOL_RESULT: Final = 4
PARTIAL: Final = 5

_MOST_SHAPES: Final = 256
_MOST_TOGETHER: Final = 512
_SCANS: Final = 16  # of all ids, before it pays to keep where each one is
_AT_ONCE: Final = 64  # ids


class Ramp(Sequence[int]):
    """Whole numbers, most of which are one more than the one before: only the others are kept."""

    __slots__ = ("_firsts", "_next", "_size", "_values")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # where each ramp begins
        self._values: list[int] = []  # with which number
        self._size = 0
        self._next: int | None = None

    @property
    def last(self) -> int:
        """The last number of one that is not empty."""
        assert self._next is not None
        return self._next - 1

    def append(self, value: int) -> None:
        self.extend(value, 1)

    def extend(self, value: int, count: int) -> None:
        """Add `count` numbers, from `value` on."""
        if value != self._next:
            self._firsts.append(self._size)
            self._values.append(value)
        self._size += count
        self._next = value + count

    def ramps(self, first: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """The stretches [first, stop) of these positions in which the numbers grow by one, each
        with its first number."""
        at = bisect_right(self._firsts, first) - 1
        while first < stop:
            ends = self._firsts[at + 1] if at + 1 < len(self._firsts) else self._size
            ends = min(ends, stop)
            yield first, ends, self._values[at] + first - self._firsts[at]
            first, at = ends, at + 1

    def ramp(self, index: int) -> tuple[int, int]:
        """Where the ramp begins that a position is on, and with which number."""
        at = bisect_right(self._firsts, index) - 1
        return self._firsts[at], self._values[at]

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(self._size))]
        index = _within(index, self._size)
        first, value = self.ramp(index)
        return value + index - first

    def __iter__(self) -> Iterator[int]:
        for first, stop, value in self.ramps(0, self._size):
            yield from range(value, value + stop - first)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ramp | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))


class Ids:
    """The ids of entries. Those of 8 hex digits take 4 bytes each."""

    def __init__(self) -> None:
        self._packed = bytearray()
        self._odd: dict[int, str] = {}  # by position, ids of another shape
        self._latest_odd: dict[str, int] = {}
        self._latest: dict[str, int] | None = None
        self._looked_through = 0

    def append(self, entry_id: str) -> None:
        packed = _packed(entry_id)
        if packed is None:
            position = len(self)
            self._odd[position] = entry_id
            self._latest_odd[entry_id] = position
            self._packed += bytes(4)
        else:
            self._packed += packed
        if self._latest is not None:
            self._latest[entry_id] = len(self) - 1

    def extend(self, ids: list[str]) -> None:
        joined = " ".join(ids)
        try:
            packed = bytes.fromhex(joined)
        except ValueError:
            packed = b""
        plain = len(packed) == 4 * len(ids) and packed.hex(" ", 4) == joined
        if not plain or self._latest is not None:
            for entry_id in ids:
                self.append(entry_id)
        else:
            self._packed += packed

    def find(self, entry_id: str) -> int | None:
        """The last position with this id.

        Where it is, is looked for: in a log that goes on as it should, nobody asks. Where somebody
        asks often, it is kept.
        """
        packed = _packed(entry_id)
        if packed is None:
            return self._latest_odd.get(entry_id)
        if self._latest is None and self._looked_through > _SCANS * (len(self._packed) + CHUNK):
            self._latest = {one: position for position, one in enumerate(self)}
        if self._latest is not None:
            return self._latest.get(entry_id)
        end = len(self._packed)
        while (at := self._packed.rfind(packed, 0, end)) >= 0:
            if at % 4 == 0 and at // 4 not in self._odd:
                break
            end = at + 3
        self._looked_through += len(self._packed) - max(at, 0)
        return at // 4 if at >= 0 else None

    def new(self) -> NewIds:
        """Ids that none of these is."""
        lead = secrets.token_bytes(1)
        taken, at = set(), -1
        firsts = self._packed[::4]
        while (at := firsts.find(lead, at + 1)) >= 0:
            taken.add(bytes(self._packed[4 * at : 4 * at + 4]))
        return NewIds(lead, taken)

    def __len__(self) -> int:
        return len(self._packed) // 4

    def __getitem__(self, position: int) -> str:
        position = _within(position, len(self))
        odd = self._odd.get(position) if self._odd else None
        return self._packed[4 * position : 4 * position + 4].hex() if odd is None else odd

    def __iter__(self) -> Iterator[str]:
        return (self[position] for position in range(len(self)))


class NewIds:
    """Random ids for new entries, none of which is drawn twice.

    All begin with the same two digits: only the ids that do so have to be known.
    """

    def __init__(self, lead: bytes, taken: set[bytes]) -> None:
        self._lead, self._taken = lead, taken

    def draw(self) -> list[str]:
        """Some at once: to ask for randomness takes time."""
        while True:
            drawn = {self._lead + secrets.token_bytes(3) for _ in range(_AT_ONCE)} - self._taken
            if drawn:
                self._taken |= drawn
                return [packed.hex() for packed in drawn]


class Place(NamedTuple):
    """The line of an entry: its number, and its bytes [start, end)."""

    line: int
    start: int
    end: int


class Places:
    """Where the lines of entries are.

    Of lines that came in bulk it is known where all of them together are. How long each is, is
    found out where somebody asks for one of them.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._stretches: list[_Stretch] = []
        self._firsts: list[int] = []  # the position at which each begins
        self._size = 0

    def append(self, line: int, start: int, end: int) -> None:
        last = self._stretches[-1] if self._stretches else None
        if last is None or not last.takes(line, start):
            last = _Stretch(line, start, start, array("I"))
            self._stretches.append(last)
            self._firsts.append(self._size)
        assert last.sizes is not None
        last.sizes.append(end + 1 - start)
        last.end = end + 1
        self._size += 1

    def extend(self, line: int, count: int, start: int, end: int) -> None:
        """Add lines that follow one another and are the bytes [start, end), newlines included."""
        self._stretches.append(_Stretch(line, start, end, None))
        self._firsts.append(self._size)
        self._size += count

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, position: int) -> Place:
        position = _within(position, self._size)
        at = bisect_right(self._firsts, position) - 1
        within = position - self._firsts[at]
        stretch = self._stretches[at]
        sizes = self._sizes(stretch)
        start = stretch.start + sum(sizes[:within])
        return Place(stretch.line + within, start, start + sizes[within] - 1)

    def of(self, first: int, stop: int) -> Iterator[Place]:
        """The places of the positions [first, stop)."""
        at = bisect_right(self._firsts, first) - 1
        while first < stop:
            stretch, begins = self._stretches[at], self._firsts[at]
            sizes = self._sizes(stretch)
            start = stretch.start + sum(sizes[: first - begins])
            for within in range(first - begins, min(stop - begins, len(sizes))):
                yield Place(stretch.line + within, start, start + sizes[within] - 1)
                start += sizes[within]
            first, at = begins + len(sizes), at + 1

    def line(self, position: int) -> int:
        """The number of a line."""
        at = bisect_right(self._firsts, position) - 1
        return self._stretches[at].line + position - self._firsts[at]

    def _sizes(self, stretch: _Stretch) -> array[int]:
        if stretch.sizes is None:
            lines = io.BytesIO(self._table.read(stretch.start, stretch.end))
            stretch.sizes = array("I", map(len, lines))
        return stretch.sizes


class _Stretch(msgspec.Struct):
    """Lines that follow one another: the number of the first, the bytes [start, end) of them all,
    and the size of each, newline included, if it is known."""

    line: int
    start: int
    end: int
    sizes: array[int] | None

    def takes(self, line: int, start: int) -> bool:
        """Whether a line follows these, and is to be looked for among them."""
        return (
            self.sizes is not None
            and len(self.sizes) < _MOST_TOGETHER
            and (line, start) == (self.line + len(self.sizes), self.end)
        )


class Column(Sequence[int]):
    """One number of the places of all entries."""

    def __init__(self, places: Places, field: int) -> None:
        self._places, self._field = places, field

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        return self._places[index][self._field]

    def __iter__(self) -> Iterator[int]:
        return (place[self._field] for place in self._places.of(0, len(self)))


class Shape(NamedTuple):
    """What is kept of an entry that was left on disk: its type; of a message, whose it is; and of a
    user's, whom it was submitted to."""

    type: str
    role: str = ""
    provider: str | None = None
    model: str | None = None


_SHAPES: Final = (
    Shape(""),  # of what is in memory, which is asked itself
    Shape("message", "assistant"),
    Shape("message", "system"),
    Shape("toolCall"),
    Shape("toolResult"),
    Shape("partial"),
)

NO_USERS: Final = bytes(range(len(_SHAPES)))
"""The codes of all that is no user's message: those are of shapes that come in as they are met."""


class Table(Sequence[Entry | Outer]):
    """The entries of a log, as far as they are in memory.

    `read` gives bytes [start, end) of the log. `codes` has a byte for each entry: `WHOLE`, or of
    which of the `shapes` it is.
    """

    def __init__(self, read: Callable[[int, int], bytes]) -> None:
        self.read = read
        self._ids = Ids()  # of those that came in bulk and are in memory, once they are asked for
        self.seqs = Ramp()
        self.parents = Ramp()
        self.places = Places(self)
        self.codes = bytearray()
        self.shapes = list(_SHAPES)
        self._codes = {shape: code for code, shape in enumerate(_SHAPES)}
        self._bodies: list[Entry | Outer | None] = []

    def append(
        self, entry: Entry | Outer, seq: int, parent: int, line: int, start: int, end: int
    ) -> None:
        code: int | None = WHOLE
        if isinstance(entry, Outer):
            code = self.code(shape_of(entry))
            if code is None:
                entry, code = cast(Entry, decode(self.read(start, end))), WHOLE
        self.seqs.append(seq)
        self.parents.append(parent)
        self.places.append(line, start, end)
        self.codes.append(code or WHOLE)
        self._bodies.append(entry)

    def extend(self, entries: Sequence[Entry], seq: int, line: int, start: int, end: int) -> None:
        """Add entries each of which follows the one before, in the tree and in the bytes
        [start, end) of the file."""
        self._extend(len(entries), seq, line, start, end)
        self.codes += bytes(len(entries))
        self._bodies += entries

    def extend_on_disk(
        self, codes: list[int], ids: list[str], seq: int, line: int, start: int, end: int
    ) -> None:
        """The same for entries whose bodies stay on disk: their codes and ids."""
        self.ids.extend(ids)
        self._extend(len(ids), seq, line, start, end)
        self.codes += bytes(codes)
        self._bodies += [None] * len(ids)

    def _extend(self, count: int, seq: int, line: int, start: int, end: int) -> None:
        self.seqs.extend(seq, count)
        self.parents.extend(len(self._bodies) - 1, count)
        self.places.extend(line, count, start, end)

    @property
    def ids(self) -> Ids:
        known = len(self._ids)
        if known < len(self._bodies):
            self._ids.extend([cast(Entry, body).id for body in self._bodies[known:]])
        return self._ids

    def code(self, shape: Shape) -> int | None:
        """The code of a shape; None where there are too many of them."""
        code = self._codes.get(shape)
        if code is None and len(self.shapes) < _MOST_SHAPES:
            code = self._codes[shape] = len(self.shapes)
            self.shapes.append(shape)
        return code

    def shape(self, position: int) -> Shape:
        """The shape of an entry, wherever its body is."""
        code = self.codes[position]
        if code != WHOLE:
            return self.shapes[code]
        return shape_of(cast(Entry, self._bodies[position]))

    def body(self, position: int) -> Entry:
        """The whole entry at a position, read from the file if it was left there."""
        position = _within(position, len(self))
        if self.codes[position] == WHOLE:
            return cast(Entry, self._bodies[position])
        _, start, end = self.places[position]
        return cast(Entry, decode(self.read(start, end)))

    def whole(self, first: int, stop: int) -> list[Entry]:
        """The whole entries of these positions. They stay in memory."""
        if self.codes.count(WHOLE, first, stop) != stop - first:
            self._load(first, stop)
        return cast(list[Entry], self._bodies[first:stop])

    def _load(self, first: int, stop: int) -> None:
        near: list[tuple[int, int, int]] = []
        for position, (_, start, end) in enumerate(self.places.of(first, stop), first):
            if self.codes[position] == WHOLE:
                continue
            if near and end - near[0][1] > CHUNK:
                self._keep(near)
                near = []
            near.append((position, start, end))
        self._keep(near)

    def _keep(self, near: list[tuple[int, int, int]]) -> None:
        """Read entries that lie near each other: their positions and bytes [start, end)."""
        begin = near[0][1]
        data = self.read(begin, near[-1][2])
        for position, start, end in near:
            self._bodies[position] = cast(Entry, decode(data[start - begin : end - begin]))
            self.codes[position] = WHOLE

    def runs_to(self, position: int) -> list[tuple[int, int]]:
        """The stretches [first, stop) of positions that lead from the root to one entry."""
        runs: list[tuple[int, int]] = []
        while position != ROOT:
            first, parent = self.parents.ramp(position)
            if parent != first - 1:  # this one leads back
                first, parent = position, parent + position - first
            if runs and runs[-1][0] == position + 1:
                runs[-1] = first, runs[-1][1]
            else:
                runs.append((first, position + 1))
            position = parent
        return runs[::-1]

    def __len__(self) -> int:
        return len(self._bodies)

    @overload
    def __getitem__(self, index: int) -> Entry | Outer: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry | Outer]: ...
    def __getitem__(self, index: int | slice) -> Entry | Outer | list[Entry | Outer]:
        """What is in memory of an entry; if nothing is, its outer fields are read."""
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        body = self._bodies[index]
        if body is None:
            _, start, end = self.places[index]
            body = cast(Entry | Outer, decode_outer(self.read(start, end)))
        return body


def shape_of(entry: Entry | Outer) -> Shape:
    """What would be kept of an entry if its body were left on disk."""
    kind = entry.type if isinstance(entry, Outer) else TAGS[type(entry)]
    if kind != "message":
        return Shape(kind)
    entry = cast(MessageEntry | Outer, entry)
    assert entry.message is not None
    role = entry.message.role
    return Shape(kind, role, entry.provider, entry.model) if role == "user" else Shape(kind, role)


def _packed(entry_id: str) -> bytes | None:
    """An id of 8 hex digits as 4 bytes; None for any other."""
    if len(entry_id) != 8:
        return None
    try:
        packed = bytes.fromhex(entry_id)
    except ValueError:
        return None
    return packed if packed.hex() == entry_id else None


def _within(index: int, size: int) -> int:
    """An index as counted from the start.

    Raises:
        IndexError: there is none such.
    """
    if index < 0:
        index += size
    if not 0 <= index < size:
        raise IndexError(index)
    return index
