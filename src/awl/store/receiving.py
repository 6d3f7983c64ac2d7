"""awl's own files come in: each becomes the session that it is, byte for byte.

A file whose bytes a log with its id begins with makes nothing. Of one that goes on where that log
ends, the rest is appended. Where that log went another way, the file comes in under a new id, as a
fork of it at the last entry that both have: so what was used up to there is not counted twice, and
the same file is known again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from awl.entries import VERSION, ForkedFrom, Header
from awl.errors import LogChanged, NotASession, SessionExists
from awl.index.conversations import Conversations, Logless
from awl.index.patience import Patience
from awl.log.birth import Sweeper, birth
from awl.log.blobs import BlobDamaged, Blobs
from awl.log.file import LogFile, torn_files
from awl.log.line import loads
from awl.log.names import encode_cwd, log_path, new_session_id, now, parse_log_name
from awl.log.scan import BOM, Damage, read_at, scan
from awl.replay import check_first_line, fd_reader, recovery_notices
from awl.state import State
from awl.store.copying import (
    Head,
    blobs_named,
    complete,
    copy_blobs,
    copy_bytes,
    header_line,
    open_log,
    read_head,
    same_until,
)

Outcome = Literal["new", "grown", "same", "apart"]
"""What a file became: a session with its id; more of one that is here; nothing, as that has it
already; a session with a new id, as the one that has its own went another way."""

_CHUNK: Final = 1 << 20
_LONGEST_FIRST: Final = 16 << 20
_FARTHEST_FIRST: Final = 64 << 20
"""Of a file that may be anything, only lines of so many bytes are looked at, and so many bytes."""
_MOST_SHOWN: Final = 20


class Received(msgspec.Struct, frozen=True):
    """What became of a file: the session that has it now, its log, and what a person should know,
    a line each."""

    outcome: Outcome
    session_id: str
    path: Path
    notices: tuple[str, ...]


class _File(NamedTuple):
    """An open file that comes in: where its lines end, and whether the last one has its newline."""

    fd: int
    path: Path
    head: Head
    end: int
    newline: bool


class _There(NamedTuple):
    """A log that may hold a file already. In the file's bytes: `start` is where the two are
    compared from, `same` up to where they are the same, and `end` where the log ends. The log's own
    are `shift` later."""

    path: Path
    session_id: str
    start: int
    shift: int
    same: int
    end: int


def is_own(path: Path) -> bool:
    """Whether a file is one of awl's own, by its first lines: by a header, or else by entries with
    seqs in a file with a log's name.

    Raises:
        OSError: it cannot be read.
    """
    with open_log(path) as fd, open(fd, "rb", closefd=False) as file:
        for number, line in enumerate(iter(partial(file.readline, _LONGEST_FIRST), b"")):
            if len(line) == _LONGEST_FIRST or file.tell() > _FARTHEST_FIRST:
                return False
            try:
                found = loads(line.removeprefix(BOM).decode())
            except (ValueError, RecursionError):
                continue
            if not isinstance(found, dict):
                continue
            if found.get("type") == "session":
                return "version" in found and "model" in found
            if parse_log_name(path.name) is None:
                return False
            if number > 0:  # the first line may be a header that lost what it said
                return "seq" in found and "parentId" in found
    return False


def own_files(folder: Path) -> Iterator[Path]:
    """awl's own files below a folder, in order of name. What is hidden is passed over."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(place, name)
            with contextlib.suppress(OSError):
                if not name.startswith(".") and name.endswith(".jsonl") and is_own(path):
                    yield path


def conversations_in(folder: Path) -> list[Logless]:
    """The conversations without a log that a backup holds.

    Raises:
        AwlError: they cannot be read.
    """
    with tempfile.TemporaryDirectory() as place:  # looking may change a database
        for file in (folder / ".awl").glob("conversations.db*"):
            shutil.copyfile(file, Path(place, file.name))
        rows = Conversations(Path(place), Patience())
        try:
            return rows.all()
        finally:
            rows.close()


class Reception:
    """Takes files into the sessions below a root. What it knows of those is from its beginning and
    what it did itself.

    Args:
        root: the folder of all sessions.
        logs: the logs there are, by id.
        forks: the logs of the forks there are, by the id of their parents.
        keep_id: rather fail than give a new id.
        dry_run: write nothing, and only tell what would become of a file.
    """

    def __init__(
        self,
        root: Path,
        logs: dict[str, list[Path]],
        forks: dict[str, list[Path]],
        *,
        keep_id: bool = False,
        dry_run: bool = False,
    ) -> None:
        self._dry_run = dry_run
        self._root = root
        self._logs = logs
        self._forks = forks
        self._keep_id = keep_id
        self._sweep = Sweeper()

    def take(self, path: Path) -> Received:
        """Take in a file, which is only read; its blobs are those in `<path>.blobs/`, or beside it
        as beside a log.

        Raises:
            NotASession: it holds nothing that was ever acknowledged.
            SessionExists: its id is another session's, and it was to be kept.
            SessionBusy: it goes on with a session that is open.
            AwlError, OSError: it cannot be read, or the session not be written.
        """
        with open_log(path) as fd:
            file = _File(fd, path, _head(fd, path), *complete(fd, path))
            found = list(self._there(file))
            for one in found:
                if one.same == file.end:
                    if not self._dry_run:
                        self._sweep(one.path.parent)
                        _bring_torn(file, one.path)
                    return Received("same", one.session_id, one.path, ())
            for one in found:
                if one.same == one.end:
                    if self._dry_run:
                        return Received("grown", one.session_id, one.path, ())
                    return self._append(file, one)
            taken = self._logs.get(file.head.header.id)
            if not taken and self._dry_run:
                return Received("new", file.head.header.id, path, ())
            if not taken:
                return self._new(file)
            if self._keep_id:
                advice = "leave out --keep-id, and it comes in under a new id"
                raise SessionExists(taken[0], advice)
            if self._dry_run:
                return Received("apart", "", path, ())
            return self._apart(file, max((one.same for one in found), default=0))

    # -- inside ------------------------------------------------------------------------------------

    def _there(self, file: _File) -> Iterator[_There]:
        """The logs that may hold a file: with its id, or as it came in under a new one."""
        session_id = file.head.header.id
        for path in (*self._logs.get(session_id, ()), *self._forks.get(session_id, ())):
            with contextlib.suppress(NotASession, OSError), open_log(path) as fd:
                head = read_head(fd, path)
                end, _ = complete(fd, path)
                start = shift = 0
                beginning = read_at(file.fd, file.head.end, 0)  # empty where a header is missing
                if not beginning or read_at(fd, file.head.end, 0) != beginning:
                    if not _is_alike(file.head.header, head.header):
                        continue
                    start, shift = file.head.end, head.end - file.head.end
                size = min(file.end, end - shift) - start
                same = start + same_until(file.fd, fd, size, start, start + shift)
                yield _There(path, head.header.id, start, shift, same, end - shift)

    def _append(self, file: _File, there: _There) -> Received:
        """Bring what a file has behind the end of its log."""
        check_first_line(there.path)
        log = LogFile.open(there.path)
        try:
            at = log.end - there.shift
            size, start = at - there.start, there.start
            if same_until(file.fd, log.fd, size, start, start + there.shift) != size:
                raise LogChanged(there.path, there.end + there.shift, log.end)  # meanwhile
            missing = _bring_blobs(file, Blobs(there.path), at)
            for lines in _chunks(file, at):
                log.append(lines)
            notices = (*recovery_notices(log), *missing, *_damage(file, at))
            _bring_torn(file, there.path)
        finally:
            log.close()
        return Received("grown", there.session_id, there.path, notices)

    def _new(self, file: _File) -> Received:
        """Make the session that a file is."""
        header = file.head.header
        named = parse_log_name(file.path.name)
        keeps_name = named is not None and named.session_id == header.id
        path = self._free_place(file, header, file.path.name if keeps_name else None)
        # Else there is nothing in the file that tells the id.
        as_it_is = file.head.line is not None or keeps_name
        received = self._made(file, header, path, "new", as_it_is=as_it_is)
        self._logs.setdefault(header.id, []).append(path)
        return received

    def _apart(self, file: _File, same: int) -> Received:
        """Make a session of a file whose id another one has, which shares so many bytes."""
        known = file.head.header.id
        seq = _last_seq(file.fd, same)
        header = msgspec.structs.replace(
            file.head.header, id=new_session_id(), forked_from=ForkedFrom(known, seq)
        )
        path = self._free_place(file, header, None)
        received = self._made(file, header, path, "apart", as_it_is=False)
        self._forks.setdefault(known, []).append(path)
        notice = (
            f"{file.path}: session {known} is here and went another way; this is {header.id}, a"
            f" fork of it at {seq}"
        )
        return msgspec.structs.replace(received, notices=(notice, *received.notices))

    def _made(
        self, file: _File, header: Header, path: Path, outcome: Outcome, *, as_it_is: bool
    ) -> Received:
        self._sweep(path.parent)
        with birth(path) as log:
            if not as_it_is:
                log.write(header_line(file.head, header))
            copy_bytes(file.fd, log.fd, 0 if as_it_is else file.head.end, file.end)
            if not file.newline:
                log.write(b"\n")
            missing = _bring_blobs(file, log.blobs, 0)
        _bring_torn(file, path)
        start = 0 if as_it_is else file.head.end
        new = not as_it_is and file.head.line is None
        made = [f"{file.path}: it has no header that can be read, and gets one"] if new else []
        return Received(outcome, header.id, path, (*missing, *made, *_damage(file, start)))

    def _free_place(self, file: _File, header: Header, name: str | None) -> Path:
        """Where a log goes; a name that is taken, or cannot be one, gets another time."""
        cwd = State(header).cwd
        # Where the header does not tell, the folder that the file lay in may.
        folder = encode_cwd(cwd) if cwd else file.path.parent.name.lstrip(".") or "_"
        stamped = [
            log_path(self._root, "", when, header.id).name for when in (header.timestamp, now())
        ]
        path = self._root / folder / stamped[-1]
        for known in (name, *stamped):
            if known and parse_log_name(known) and not os.path.lexists(path.with_name(known)):
                return path.with_name(known)
        return path


def _head(fd: int, path: Path) -> Head:
    """The beginning of a file. Where nothing tells its id, it gets one that is the same each
    time."""
    try:
        return read_head(fd, path)
    except NotASession:
        found = list(scan(fd))
        lines = [line for line in found if not isinstance(line, Damage)]
        if not lines:
            raise
    # The first line that is damaged was the header; others stay.
    start = found[0].end + 1 if isinstance(found[0], Damage) else found[0].start
    state = State(read=fd_reader(fd))
    for line in lines:
        state.add(line)
    first = read_at(fd, lines[0].end - lines[0].start, lines[0].start)
    made = uuid.UUID(bytes=hashlib.sha256(first).digest()[:16], version=5)
    state.header = Header(
        version=VERSION,
        id=str(made),
        timestamp=state.entries[0].timestamp or now(),
        cwd="",
        provider="",
        model="",
    )
    state.settle()
    model = state.active_model
    header = msgspec.structs.replace(
        state.header,
        cwd=state.cwd,
        provider=model.provider,
        model=model.model,
        endpoint=model.endpoint,
    )
    return Head(header, None, start)


def _is_alike(header: Header, other: Header) -> bool:
    """Whether a header is that of a file which came in under a new id. A fork has another time."""
    as_first = msgspec.structs.replace(other, id=header.id, forked_from=header.forked_from)
    return as_first == header


def _last_seq(fd: int, end: int) -> int:
    """The seq of the last entry whose line is whole in the first `end` bytes."""
    state = State(read=fd_reader(fd))
    for line in scan(fd, outer=True):
        if line.end >= end:
            break
        state.add(line)
    return max(state.seqs, default=0)


def _chunks(file: _File, start: int) -> Iterator[bytes]:
    """The lines of a file from the start of one on, many at a time."""
    lines: list[bytes] = []
    size = 0
    with open(file.fd, "rb", closefd=False) as found:
        found.seek(start)
        while start < file.end and (line := found.readline()):
            start += len(line)
            size += len(line)
            lines.append(line if line.endswith(b"\n") else line + b"\n")
            if size >= _CHUNK or start >= file.end:
                yield b"".join(lines)
                lines, size = [], 0


def _bring_blobs(file: _File, to: Blobs, start: int) -> list[str]:
    """Copy the blobs that a file names from a byte on. Returns which are not there, a line each."""
    names: Iterable[str] = blobs_named(file.fd, file.end, start)
    missing: dict[str, BlobDamaged] = {}
    for place in (f"{file.path.name}.blobs", Blobs(file.path).directory.name):
        source = Blobs(file.path)
        source.directory = file.path.with_name(place)
        missing = copy_blobs(source, names, to)
        names = missing
    return _first([f"{file.path}: {damaged}" for damaged in missing.values()], "blobs")


def _bring_torn(file: _File, to: Path) -> None:
    """Copy the torn tails that lie beside a file: they are the last of what was lost, and a writer
    counts their lines. If this is killed, the same import brings them."""
    for torn in torn_files(file.path):
        target = to.with_name(to.name + torn.name.removeprefix(file.path.name))
        if not os.path.lexists(target):
            with birth(target) as out:
                out.write(torn.read_bytes())


def _damage(file: _File, start: int) -> list[str]:
    """What is wrong with the lines of a file from a byte on, a line each."""
    found = [
        f"{file.path}: {item}; it is kept as it is"
        for item in scan(file.fd, outer=True)
        if isinstance(item, Damage) and start <= item.start < file.end
    ]
    notices = _first(found, "damaged lines")
    if torn := os.fstat(file.fd).st_size - file.end:
        notices.append(f"{file.path}: {torn} bytes of an incomplete last line are left out")
    return notices


def _first(lines: list[str], what: str) -> list[str]:
    more = len(lines) - _MOST_SHOWN
    return lines if more <= 0 else [*lines[:_MOST_SHOWN], f"and {more} more {what}"]
