"""Getting a text out of sessions, and out of all that derives from them.

The redacted log takes the place of the one that held the text in one rename, with the same id, the
same number and the same entries: at no moment is the session not there. What else held the text
goes with it: blobs, torn tails, the index (which is built anew), rows of conversations without a
log, and the history of prompts. Each step is whole or not done, and none depends on another having
been done: what was killed in the middle is completed by being run again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from awl.entries import Header, RevisionEntry
from awl.errors import AwlError, LogChanged
from awl.health.beside import lost_lines
from awl.health.lines import Lines
from awl.health.pattern import Pattern
from awl.health.scrub import Scrubber
from awl.health.verify import Progress
from awl.index.conversations import Logless
from awl.log.birth import birth, sweep, sweep_beside
from awl.log.blobs import Blobs
from awl.log.file import LogFile, last_object, torn_files
from awl.log.line import BadLine, decode, encode
from awl.log.lock import open_locked
from awl.log.names import now, parse_log_name
from awl.log.scan import BLOCK, BOM, read_at, scan
from awl.replay import check_first_line
from awl.store.files import Store
from awl.store.trash import NAME as TRASH

_OVERLAP: Final = 1 << 16  # bytes of a block that are looked at again with the next one
_PROMPTS: Final = "prompts"


class Held(msgspec.Struct, frozen=True):
    """What one log, or what belongs to it, holds of a text."""

    log: Path
    session_id: str
    entries: int
    dropped: int
    blobs: tuple[str, ...]
    torn: tuple[Path, ...]

    def __bool__(self) -> bool:
        return bool(self.entries or self.blobs or self.torn)

    def __str__(self) -> str:
        parts = [
            f"{count} {what}{'' if count == 1 else many}"
            for count, what, many in (
                (self.entries, "line", "s"),
                (len(self.blobs), "blob", "s"),
                (len(self.torn), "torn tail", "s"),
            )
            if count
        ]
        if self.dropped:
            parts.append(
                f"{self.dropped} signed block{'' if self.dropped == 1 else 's'} to be dropped"
            )
        return ", ".join(parts) or "nothing"


def look(log: Path, pattern: Pattern, progress: Progress | None = None) -> Held:
    """What a log and what lies beside it hold of a text.

    Raises:
        OSError: something of it cannot be read.
    """
    scrubber = Scrubber(pattern)
    fd = os.open(log, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        for _ in _scrubbed(fd, os.fstat(fd).st_size, scrubber, progress):
            pass
    finally:
        os.close(fd)
    return Held(
        log=log,
        session_id=_header_of(log).id,
        entries=scrubber.entries,
        dropped=scrubber.dropped,
        blobs=tuple(blob.name for blob in _blobs(log) if pattern.in_bytes(blob.read_bytes())),
        torn=tuple(torn for torn in torn_files(log) if _in_file(torn, pattern)),
    )


def kin(session_id: str, logs: Iterable[Path]) -> tuple[list[Path], set[str]]:
    """The logs that hold entries of a session: its own, what it was forked from, its forks and
    theirs, and copies of it, wherever they lie. And the ids of all these sessions, those that have
    no log included."""
    headers = {path: _header_of(path) for path in logs}
    known = {session_id}
    while True:
        more = set(known)
        for header in headers.values():
            names = {header.id}
            if header.forked_from is not None:
                names.add(header.forked_from.session_id)
            if names & known:
                more |= names
        if more == known:
            return [path for path, header in headers.items() if header.id in known], known
        known = more


class Survey(msgspec.Struct, frozen=True):
    """Where a session, and what derives from it, holds a text.

    `own` is its log, if that holds it; `related` are those that hold the same entries and the text.
    `rows` counts messages that were kept without a log; `ids` are those of the session, which is
    first, and of the related ones.
    """

    own: Held | None
    related: tuple[Held, ...]
    ids: tuple[str, ...]
    rows: int
    prompts: bool

    def __bool__(self) -> bool:
        return bool(self.own or self.related or self.rows or self.prompts)

    def alone(self) -> Survey:
        """The same without the related ones."""
        return msgspec.structs.replace(self, related=(), ids=self.ids[:1])


def survey(
    store: Store, found: Path | Logless, pattern: Pattern, progress: Progress | None = None
) -> Survey:
    """Look where a session, and what derives from it, holds a text. Nothing is changed.

    Raises:
        AwlError, OSError: something of it cannot be read.
    """
    if isinstance(found, Path) and store.root.resolve() not in found.resolve().parents:
        raise AwlError(
            f"{found} is no session in {store.root}: a file elsewhere is yours to change"
        )
    own = look(found, pattern, progress) if isinstance(found, Path) else None
    first = found.session_id if isinstance(found, Logless) else _header_of(found).id
    every = [*store.logs(), *sorted((store.root / TRASH).glob("*/*/*.jsonl"))]
    logs, ids = kin(first, every)
    others = (log for log in logs if own is None or not _same(log, own.log))
    related = [held for log in others if (held := look(log, pattern, progress))]
    rows = store.catalog.conversations
    kept = [*rows.all(), *(one for one, _ in rows.trashed())]
    return Survey(
        own=own or None,
        related=tuple(related),
        ids=(first, *sorted(ids - {first})),
        rows=sum(
            pattern.holds(said.text) for one in kept if one.session_id in ids for said in one.said
        ),
        prompts=any(
            _history_without(data, pattern) != data
            for data in map(Path.read_bytes, _prompt_files(store.root))
        ),
    )


def redact(store: Store, found: Survey, pattern: Pattern, progress: Progress | None = None) -> None:
    """Take a text out of all that a survey found, and out of the index.

    Raises:
        SessionBusy: one of the sessions is open; nothing was done.
        NotASession, NewerFormat: a log that awl must not write to; nothing was done.
        AwlError, OSError: it could not be completed; run again, it is.
    """
    held = [*([found.own] if found.own else []), *found.related]
    with ExitStack() as locked:
        sources = [_locked(one.log, locked) for one in held]
        with ExitStack() as made:
            replaced = [
                _prepare(one, fd, pattern, made, progress)
                for one, fd in zip(held, sources, strict=True)
            ]
            with store.catalog.database.gone():
                made.close()
        for one, blobs in zip(held, replaced, strict=True):
            _clean(one, blobs, pattern)
    for path in _prompt_files(store.root):
        data = path.read_bytes()
        scrubbed = _history_without(data, pattern)
        if scrubbed != data:
            _replace(path, scrubbed)
    store.catalog.conversations.rewrite(found.ids, lambda text: pattern.scrub(text)[0])


def copy_without(log: Path, pattern: Pattern, to: Path) -> Held:
    """Write a copy of a log without a text, and its blobs, to another place. Returns what was there
    of it. The log, which may be open, stays as it is.

    Raises:
        OSError: it cannot be read, or the copy not be written.
    """
    held = look(log, pattern)
    fd = os.open(log, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        with birth(to) as child:
            blobs = {}
            for blob in _blobs(log):
                data = blob.read_bytes()
                if blob.name in held.blobs:
                    ref = child.blobs.put(pattern.scrub_bytes(data))
                    blobs[blob.name] = ref.blob, ref.size
                else:
                    child.blobs.put(data)
            scrubber = Scrubber(pattern, blobs)
            for piece in _scrubbed(fd, os.fstat(fd).st_size, scrubber, None):
                child.write(piece)
    finally:
        os.close(fd)
    return held


def leftovers(root: Path, pattern: Pattern, progress: Progress | None = None) -> Iterator[Path]:
    """The files and folders below a root that hold a text all the same, or have it in their names.

    Raises:
        OSError: one of them cannot be read.
    """
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted((*folders, *files)):
            path = Path(folder, name)
            inside = name in files and path.is_file() and not path.is_symlink()
            if pattern.holds(name) or (inside and _in_file(path, pattern)):
                yield path
            if progress and inside:
                progress(path.stat().st_size)


# -- logs ------------------------------------------------------------------------------------------


def _locked(log: Path, stack: ExitStack) -> int:
    """A descriptor that holds a log's lock, after its tail was mended."""
    check_first_line(log)
    LogFile.open(log).close()
    fd = open_locked(log)
    stack.callback(os.close, fd)
    size = os.fstat(fd).st_size
    if last_object(fd) != (size, True):
        raise LogChanged(log, last_object(fd)[0], size)
    return fd


def _prepare(
    held: Held, fd: int, pattern: Pattern, made: ExitStack, progress: Progress | None
) -> dict[str, tuple[str, int]]:
    """Make a redacted log that takes the place of the old one when `made` ends. Returns the new
    names and sizes of blobs, by their old names."""
    sweep(held.log.parent)
    if not held.entries and not held.blobs:
        return {}
    child = made.enter_context(birth(held.log, over=True))
    blobs = {}
    for name in held.blobs:
        ref = child.blobs.put(pattern.scrub_bytes((Blobs(held.log).directory / name).read_bytes()))
        blobs[name] = ref.blob, ref.size
    scrubber = Scrubber(pattern, blobs)
    for piece in _scrubbed(fd, os.fstat(fd).st_size, scrubber, progress):
        child.write(piece)
    if scrubber.entries:
        child.write(encode(_revision(fd, held, scrubber)))
    return blobs


def _revision(fd: int, held: Held, scrubber: Scrubber) -> RevisionEntry:
    """What the redacted log says of itself."""
    lines = Lines(lost_lines(torn_files(held.log)))
    for item in scan(fd):
        lines.take(item)
    seq = lines.next_seq
    drawn = f"{lines.leaf} {seq}"
    while True:
        drawn = hashlib.sha256(drawn.encode()).hexdigest()[:8]
        if lines.ids.latest(drawn) is None:
            break
    done = msgspec.structs.replace(held, entries=scrubber.entries, dropped=0)
    changes = [f"a text was taken out of {done}"]
    if scrubber.dropped:
        changes.append(f"{scrubber.dropped} signed blocks that held it, or came with it, are gone")
    return RevisionEntry(
        id=drawn,
        parent_id=lines.leaf,
        timestamp=now(),
        seq=seq,
        reason="redaction",
        changes=tuple(changes),
    )


def _scrubbed(fd: int, end: int, scrubber: Scrubber, progress: Progress | None) -> Iterator[bytes]:
    """The first `end` bytes of an open log without the text, in pieces."""
    rest: list[bytes] = []
    at = 0
    while at < end and (block := read_at(fd, min(BLOCK, end - at), at)):
        at += len(block)
        if progress:
            progress(len(block))
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest.append(block)
            continue
        whole = b"".join((*rest, block[:cut]))
        rest = [block[cut:]] if cut < len(block) else []
        if not scrubber.concerns(whole):
            yield whole
            continue
        for line in whole[:-1].split(b"\n"):
            yield from (done + b"\n" for done in scrubber.take(line))
    yield from (done + b"\n" for done in scrubber.finish())
    if tail := b"".join(rest):
        yield from scrubber.take(tail)
        yield from scrubber.finish()


def _clean(held: Held, replaced: dict[str, tuple[str, int]], pattern: Pattern) -> None:
    """Remove what the old log alone needed, and what recovery has cut from it."""
    folder = Blobs(held.log).directory
    for name in replaced:
        if replaced[name][0] != name:
            (folder / name).unlink(missing_ok=True)
    for torn in torn_files(held.log):
        if _in_file(torn, pattern):
            # Line by line: how many there are is how many seqs were used.
            lines = torn.read_bytes().split(b"\n")
            _replace(torn, b"\n".join(map(pattern.scrub_bytes, lines)))


def _blobs(log: Path) -> list[Path]:
    """What lies in the folder of a log's blobs."""
    try:
        return sorted(path for path in Blobs(log).directory.iterdir() if path.is_file())
    except FileNotFoundError:
        return []


def _header_of(log: Path) -> Header:
    """What a log says that it is, as far as its first line and its name tell."""
    named = parse_log_name(log.name)
    try:
        with log.open("rb") as file:
            entry = decode(file.readline().removeprefix(BOM))
        if isinstance(entry, Header):
            return entry
    except (OSError, BadLine):
        pass
    session_id = named.session_id if named else ""
    return Header(version=1, id=session_id, timestamp="", cwd="", provider="", model="")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other


# -- files -----------------------------------------------------------------------------------------


def _in_file(path: Path, pattern: Pattern) -> bool:
    kept = b""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            if pattern.in_bytes(kept + block):
                return True
            kept = block[-_OVERLAP:]
    return False


def _replace(path: Path, data: bytes) -> None:
    """Give a file another content, whole or not at all."""
    sweep_beside(path)
    with birth(path, over=True) as new:
        new.write(data)


def _prompt_files(root: Path) -> list[Path]:
    """The history of prompts, and what a process that was killed has left of it."""
    folder = root / ".awl"
    if not folder.is_dir():
        return []
    return sorted(
        path for path in folder.iterdir() if path.name.split(".")[0] == _PROMPTS and path.is_file()
    )


def _history_without(data: bytes, pattern: Pattern) -> bytes:
    """A history of prompts without a text. Each line of a prompt has a plus before it."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    done: list[str] = []
    for is_prompt, group in groupby(lines, lambda line: line.startswith("+")):
        text = "\n".join(line.removeprefix("+") for line in group)
        mark = "+" if is_prompt else ""
        done += [mark + line for line in pattern.scrub(text)[0].split("\n")]
    return "\n".join(done).encode("utf-8", "surrogateescape")
