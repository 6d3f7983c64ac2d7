"""What lies beside logs: torn tails, blobs, hints of who has them open, and what is left of them.

Nothing here is opened for writing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Final

from awl.health.findings import Finding
from awl.health.lines import Named
from awl.log.blobs import Blobs, is_blob_name
from awl.log.lock import owner_path, read_owner
from awl.log.names import parse_log_name

# What a log or its blobs are called while they are not whole yet.
_UNBORN: Final = re.compile(r"\.(.+\.jsonl)\.[0-9a-f]{8}(\..+)?", re.DOTALL)


class Folder:
    """What is in a folder of logs, looked at once."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            OSError: it cannot be read.
        """
        self.path = path
        with os.scandir(path) as found:
            plain = {item.name: item.is_file(follow_symlinks=False) for item in found}
        self.names = sorted(plain)
        self._torn: dict[str, list[Path]] = {}
        self._unborn: dict[str, list[Path]] = {}
        for name in self.names:
            if unborn := _UNBORN.fullmatch(name):
                self._unborn.setdefault(unborn[1], []).append(path / name)
            elif ".jsonl.torn-" in name and plain[name]:
                log = name[: name.index(".jsonl.torn-") + len(".jsonl")]
                self._torn.setdefault(log, []).append(path / name)

    def torn(self, log: Path) -> list[Path]:
        """The torn tails of a log, oldest first."""
        return self._torn.get(log.name, [])

    def unborn(self, log: Path) -> list[Path]:
        """What is in the making under the name of a log, or was when its maker died."""
        return self._unborn.get(log.name, [])

    def orphans(self) -> Iterator[Path]:
        """What belongs to logs that are not here."""
        logs = {name for name in self.names if name.endswith(".jsonl")}
        for name in self.names:
            if name in logs:
                continue
            log = log_of(name)
            if log is not None and log not in logs and parse_log_name(log):
                yield self.path / name


def log_of(name: str) -> str | None:
    """The name of the log that a companion belongs to."""
    if unborn := _UNBORN.fullmatch(name):
        return str(unborn[1])
    if name.endswith(".blobs"):
        return name.removesuffix(".blobs") + ".jsonl"
    at = name.find(".jsonl.")
    return name[: at + len(".jsonl")] if at >= 0 else None


def lost_lines(torn: list[Path]) -> int:
    """How many whole lines are in torn tails: each may have been acknowledged."""
    count = 0
    for path in torn:
        with path.open("rb") as lines:
            count += sum(1 for line in lines if line.endswith(b"\n") and line.strip())
    return count


def is_open(log: Path) -> bool:
    """Whether a process says that it has the log open, and lives. No lock is tried."""
    owner = read_owner(log)
    if owner.pid is None:
        return False
    if owner.host != platform.node():
        return True  # nobody here can tell
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError, ValueError):
        pass  # it is another user's
    return True


def check_companions(folder: Folder, log: Path) -> Iterator[Finding]:
    """What there is to say of what lies beside a log, but for its blobs."""
    for torn in folder.torn(log):
        size = torn.stat().st_size
        text = f"{size} bytes that recovery cut from the end; they are no part of the log"
        yield Finding(severity="note", kind="tail", text=text, file=torn.name)
        yield from check_mode(torn)
    owner = owner_path(log)
    if owner.name in folder.names:
        yield from check_mode(owner)
        if not is_open(log):
            text = "left by a process that is gone; the next one to open the log replaces it"
            yield Finding(severity="note", kind="leftover", text=text, file=owner.name)
    elif not is_open(log):
        for unborn in folder.unborn(log):
            text = "left by a process that was killed while it made this"
            yield Finding(severity="note", kind="leftover", text=text, file=unborn.name)


def blobs_beside(log: Path) -> Path:
    """The folder of a log's blobs. An exported log has them under its own name."""
    usual, exported = Blobs(log).directory, log.with_name(log.name + ".blobs")
    return exported if exported.is_dir() and not usual.is_dir() else usual


def check_blobs(
    log: Path, named: Iterable[Named], mentioned: Set[str], lost: Set[str]
) -> Iterator[Finding]:
    """Whether the blobs that a log names are there, and are what was stored."""
    folder = blobs_beside(log)
    names = set(mentioned)
    for one in named:
        names.add(one.name)
        fault = blob_fault(folder, one)
        if fault:
            known = one.name in lost
            yield Finding(
                severity="note" if known else "damage",
                kind="blob",
                text=f"blob {one.name[:12]} {fault}{' (known)' if known else ''}",
                line=one.line,
                start=one.start,
                end=one.end,
            )
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        text = f"cannot be read: {error.strerror or error}"
        yield Finding(severity="damage", kind="blob", text=text, file=folder.name)
        return
    yield from check_mode(folder, 0o700)
    for blob in found:
        yield from check_mode(blob)
        if blob.name not in names:
            text = "nothing in the log names it"
            file = f"{folder.name}/{blob.name}"
            yield Finding(severity="note", kind="leftover", text=text, file=file)


def blob_fault(folder: Path, named: Named) -> str:
    """What is wrong with a blob."""
    if not is_blob_name(named.name):
        return "has no blob's name"
    try:
        with (folder / named.name).open("rb") as blob:
            found = os.fstat(blob.fileno()).st_size
            if found != named.size:
                return f"has {found} bytes, not {named.size}"
            if hashlib.file_digest(blob, "sha256").hexdigest() != named.name:
                return "is not what was stored"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return ""


def check_mode(path: Path, wanted: int = 0o600) -> Iterator[Finding]:
    """Whether others than its owner can read or change a file."""
    if os.name != "posix":
        return
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return  # it is gone, or said elsewhere
    if mode & 0o077:
        text = f"mode {mode:04o} lets others in: `chmod {wanted:o}` it"
        yield Finding(severity="note", kind="mode", text=text, file=path.name)
