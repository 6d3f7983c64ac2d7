"""What a disk may hold after a power loss, given the operations that came before it.

The model is as unkind as a file system may be. What a file holds is durable when that file was
synced; which names a folder holds, when that folder was. Of everything else, any part may be there
and any other part missing, in any order: a name without its bytes, bytes that begin or end
anywhere, a size that grew over NULs, the second of two writes without the first. A single change
of names (a birth, a link, a removal, a rename, also to another folder) is whole or not there, and
those of one name come in order: every file system with a journal sees to that. What was synced
stays.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

SECTOR = 512
"""Bytes that reach a disk together, if any of them do."""

T = TypeVar("T")
Tree = dict[str, bytes | None]
"""A state of a disk: what each file holds, by its path; None for a folder."""


@dataclass(eq=False)
class File:
    """A file, whatever its names: what it holds now."""

    data: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class Folder:
    """A folder, whatever its name: the names in it now."""

    names: dict[str, Node] = field(default_factory=dict)


Node = File | Folder


@dataclass(frozen=True)
class Write:
    """Bytes were written at a place of a file."""

    file: File
    at: int
    data: bytes


@dataclass(frozen=True)
class Cut:
    """A file's size was set."""

    file: File
    size: int


@dataclass(frozen=True)
class Name:
    """In a folder, a name came to mean something, or nothing."""

    folder: Folder
    name: str
    node: Node | None


@dataclass(frozen=True)
class Named:
    """Names changed, all at once. A rename is two."""

    names: tuple[Name, ...]


@dataclass(frozen=True)
class Synced:
    """A file's bytes, or a folder's names, were made durable."""

    node: Node


@dataclass(frozen=True)
class Unsynced:
    """A sync failed. What was written before never reaches the disk by itself any more: the system
    may take it for written, and no later sync tells."""

    node: Node


Operation = Write | Cut | Named | Synced | Unsynced


def apply(data: bytes, changes: Sequence[Write | Cut]) -> bytes:
    """What a file holds after these changes, in this order."""
    now = bytearray(data)
    for change in changes:
        if isinstance(change, Cut):
            put(now, change.size, b"")
            del now[change.size :]
        else:
            put(now, change.at, change.data)
    return bytes(now)


def put(data: bytearray, at: int, new: bytes) -> None:
    """Write into a file; what lies between its end and there becomes NULs."""
    data.extend(b"\0" * (at - len(data)))
    data[at : at + len(new)] = new


@dataclass
class Explorer:
    """The states that one recording may leave, crash by crash.

    `every`: writes of up to so many bytes are torn at each byte, longer ones at the edges of
    sectors and lines and at some random places; with 0, none is torn. `most`: combinations of what
    is there and what is not that are tried at one moment, of names and of the bytes of files each.
    """

    root: Folder
    every: int = 1024
    most: int = 64
    chance: random.Random = field(default_factory=lambda: random.Random(20260425))

    def __post_init__(self) -> None:
        self._names: dict[Folder, dict[str, Node]] = {}
        self._bytes: dict[File, bytes] = {}
        self._pending_names: list[tuple[Name, ...]] = []
        self._pending: dict[File, list[Write | Cut]] = {}
        self._live: dict[File, bytes] = {}
        self._take(self.root)

    def _take(self, folder: Folder) -> None:
        """What there is before the first operation is durable."""
        self._names[folder] = dict(folder.names)
        for node in folder.names.values():
            if isinstance(node, Folder):
                self._take(node)
            else:
                self._bytes[node] = self._live[node] = bytes(node.data)

    def copy(self) -> Explorer:
        """Another one that stands where this one does."""
        other = copy.copy(self)
        other._names = self._with([])
        other._bytes, other._live = dict(self._bytes), dict(self._live)
        other._pending_names = list(self._pending_names)
        other._pending = {file: list(changes) for file, changes in self._pending.items()}
        return other

    def after(self, operation: Operation) -> None:
        """Go on in time by one operation."""
        match operation:
            case Synced(File() as file):
                self._bytes[file] = apply(self._bytes.get(file, b""), self._pending.pop(file, []))
            case Synced(Folder() as folder):
                pending = self._pending_names
                durable = _in_order(pending, [_touches(names, folder) for names in pending])
                for names, there in zip(pending, durable, strict=True):
                    for name in names if there else ():
                        _rename(self._names, name)
                self._pending_names = [
                    names for names, there in zip(pending, durable, strict=True) if not there
                ]
            case Unsynced(File() as file):
                changes = self._pending.get(file, [])
                self._pending[file] = [change for change in changes if isinstance(change, Cut)]
            case Named(names):
                self._pending_names.append(names)
            case Write(file=file) | Cut(file=file):
                self._pending.setdefault(file, []).append(operation)
                self._live[file] = apply(self._live.get(file, b""), [operation])

    def now(self) -> Tree:
        """What every reader sees while the power is on."""
        return self._tree(self._with(self._pending_names), self._live)

    def states(self, last: Operation | None = None) -> Iterator[tuple[Tree, str]]:
        """What a power loss now may leave, with words that say which; some of them twice.

        With `last`, the operation that came before, only the file that it wrote to is torn
        everywhere: the others were, at the moments after their own writes.
        """
        for names, chosen in self._names_left():
            files = [file for file in self._reachable(names) if file in self._pending]
            coarse = {file: self._coarse(file) for file in files}
            for each in self._products(list(coarse.values())):
                yield self._tree(names, dict(zip(files, each, strict=True))), f"names {chosen}"
            for file in files:
                if not self.every or (last and getattr(last, "file", None) is not file):
                    continue
                others = [other for other in files if other is not file]
                for how in (0, -1):
                    rest = {other: coarse[other][how] for other in others}
                    for data, words in self._torn(file):
                        yield self._tree(names, {**rest, file: data}), f"names {chosen}; {words}"

    def _products(self, ways: list[list[bytes]]) -> list[tuple[bytes, ...]]:
        return _some(list(itertools.islice(itertools.product(*ways), 729)), self.most, self.chance)

    # -- names -------------------------------------------------------------------------------------

    def _names_left(self) -> Iterator[tuple[dict[Folder, dict[str, Node]], str]]:
        pending = self._pending_names
        count = len(pending)
        if 2**count <= self.most:
            subsets = list(map(list, itertools.product((False, True), repeat=count)))
        else:
            subsets = [[n < kept for n in range(count)] for kept in range(count + 1)]
            subsets += [[n != missing for n in range(count)] for missing in range(count)]
            subsets += [[n == alone for n in range(count)] for alone in range(count)]
            subsets += [[self.chance.random() < 0.5 for _ in pending] for _ in range(self.most)]
            subsets = _some(subsets, self.most, self.chance)
        for subset in (_in_order(pending, subset) for subset in subsets):
            kept = [names for names, there in zip(pending, subset, strict=True) if there]
            yield self._with(kept), "".join("10"[not there] for there in subset)

    def _with(self, changes: Sequence[tuple[Name, ...]]) -> dict[Folder, dict[str, Node]]:
        names = {folder: dict(inside) for folder, inside in self._names.items()}
        for change in changes:
            for name in change:
                _rename(names, name)
        return names

    def _reachable(self, names: dict[Folder, dict[str, Node]]) -> list[File]:
        found: dict[File, None] = {}
        folders = [self.root]
        while folders:
            for node in names.get(folders.pop(), {}).values():
                if isinstance(node, File):
                    found[node] = None
                else:
                    folders.append(node)
        return list(found)

    def _tree(self, names: dict[Folder, dict[str, Node]], data: dict[File, bytes]) -> Tree:
        tree: Tree = {}

        def add(folder: Folder, path: str) -> None:
            for name, node in names.get(folder, {}).items():
                if isinstance(node, Folder):
                    tree[path + name] = None
                    add(node, f"{path}{name}/")
                else:
                    tree[path + name] = data.get(node, self._bytes.get(node, b""))

        add(self.root, "")
        return tree

    # -- bytes -------------------------------------------------------------------------------------

    def _of(self, file: File) -> tuple[bytes, list[Write | Cut]]:
        return self._bytes.get(file, b""), self._pending[file]

    def _coarse(self, file: File) -> list[bytes]:
        """The plainest of what may be left of a file: nothing new, the size alone, all of it."""
        base, pending = self._of(file)
        whole = apply(base, pending)
        sized = base[: len(whole)] + b"\0" * (len(whole) - len(base))
        return list(dict.fromkeys((base, sized, whole)))

    def _torn(self, file: File) -> Iterator[tuple[bytes, str]]:
        base, pending = self._of(file)
        for n, change in enumerate(pending):
            before = apply(base, pending[:n])
            words = f"change {n + 1} of {len(pending)}"
            yield apply(before, pending[n + 1 :]), f"{words} is missing"
            if isinstance(change, Cut):
                continue
            size = len(change.data)
            nothing = b"\0" * size
            for cut in self._cuts(change.data):
                head, tail = change.data[:cut], change.data[cut:]
                for data, how in (
                    (head, "ends at"),
                    (head + nothing[cut:], "is NULs from"),
                    (nothing[:cut] + tail, "is NULs up to"),
                    (nothing[:cut], "is NULs and ends at"),
                ):
                    yield _written(before, change.at, data), f"{words} {how} byte {cut}"
            for start in range(-(change.at % SECTOR), size, SECTOR):
                lo, hi = max(start, 0), min(start + SECTOR, size)
                middle = change.data[lo:hi]
                for data, how in (
                    (change.data[:lo] + nothing[lo:hi] + change.data[hi:], "lacks bytes"),
                    (nothing[:lo] + middle + nothing[hi:], "has only bytes"),
                ):
                    yield _written(before, change.at, data), f"{words} {how} {lo}-{hi}"

    def _cuts(self, data: bytes) -> list[int]:
        size = len(data)
        if size <= self.every:
            return list(range(1, size + 1))
        lines = [n + 1 for n, byte in enumerate(data) if byte == 10]
        edges = [edge + by for edge in range(0, size, SECTOR) for by in (-1, 0, 1)]
        some = [self.chance.randrange(size) for _ in range(8)]
        near = [line + by for line in lines for by in (-1, 0, 1)]
        cuts = {cut for cut in (1, size - 1, size, *edges, *near, *some) if 0 < cut <= size}
        most = max(32, self.every // 4)
        if len(cuts) > most:
            cuts = set(self.chance.sample(sorted(cuts), most))
        return sorted(cuts)


def _rename(names: dict[Folder, dict[str, Node]], change: Name) -> None:
    inside = names.setdefault(change.folder, {})
    if change.node is None:
        inside.pop(change.name, None)
    else:
        inside[change.name] = change.node


def _touches(names: tuple[Name, ...], folder: Folder) -> bool:
    return any(name.folder is folder for name in names)


def _in_order(pending: Sequence[tuple[Name, ...]], chosen: Sequence[bool]) -> list[bool]:
    """Which changes are there if these are: those of one name come about in order, so that a later
    one is not there without the earlier."""
    there = list(chosen)
    keys = [{(name.folder, name.name) for name in names} for names in pending]
    for later in range(len(pending) - 1, -1, -1):
        if there[later]:
            for earlier in range(later):
                there[earlier] |= not keys[earlier].isdisjoint(keys[later])
    return there


def _written(data: bytes, at: int, new: bytes) -> bytes:
    grown = bytearray(data)
    put(grown, at, new)
    return bytes(grown)


def _some(found: list[T], most: int, chance: random.Random) -> list[T]:
    """Some of a list: the first, the last, and whatever else."""
    return found if len(found) <= most else [found[0], found[-1], *chance.sample(found, most - 2)]


# -- states as files -------------------------------------------------------------------------------


def build(tree: Tree, folder: Path) -> None:
    """Make a state in an empty folder."""
    for name, data in sorted(tree.items()):
        path = folder / name
        if data is None:
            path.mkdir(0o700)
        else:
            path.write_bytes(data)
            path.chmod(0o600)


_TORN = re.compile(r"\.torn-[0-9TZ-]+")
_DRAWN = re.compile(r"(^|/)(\.[^/]*)\.[0-9a-f]{8}$")


def digest(tree: Tree) -> bytes:
    """What tells one state from another. Names that hold a time or are drawn count as one."""
    items = sorted(
        (_DRAWN.sub(r"\1\2", _TORN.sub(".torn", name)), data) for name, data in tree.items()
    )
    return hashlib.blake2b(repr(items).encode(), digest_size=12).digest()
