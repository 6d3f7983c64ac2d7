"""Whether all that is kept in one folder is sound: each session, and what belongs to none."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from urllib.parse import quote

import msgspec

from awl.entries import Header
from awl.health.beside import Folder, check_mode, log_of
from awl.health.findings import Checked, Finding
from awl.health.verify import Progress, verify
from awl.log.line import BadLine, decode
from awl.log.names import parse_log_name
from awl.log.scan import BOM
from awl.store.trash import NAME as TRASH

_LONGEST_HEADER = 1 << 16


def verify_all(
    logs: Iterable[Path],
    progress: Progress | None = None,
    claimed: dict[str, list[Path]] | None = None,
) -> Iterator[Checked]:
    """Check sessions, each in its turn. `claimed`: the files that say they have an id, by id."""
    folders: dict[Path, Folder] = {}
    for path in logs:
        try:
            if path.parent not in folders:
                folders = {path.parent: Folder(path.parent)}  # they come folder by folder
            checked = verify(path, folders[path.parent], progress)
        except OSError as error:
            yield _unreadable(path, error)
            continue
        others = [other for other in (claimed or {}).get(checked.session_id, ()) if other != path]
        if others:
            text = f"{', '.join(map(str, others))} says that it is this session, too"
            twice = Finding(severity="damage", kind="id", text=text)
            checked = msgspec.structs.replace(
                checked, ok=False, findings=(*checked.findings, twice)
            )
        yield checked


def claims(logs: Iterable[Path]) -> dict[str, list[Path]]:
    """The ids that more than one file claims."""
    found: dict[str, list[Path]] = {}
    for path in logs:
        if session_id := _id_of(path):
            found.setdefault(session_id, []).append(path)
    return {session_id: paths for session_id, paths in found.items() if len(paths) > 1}


def _id_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            header = decode(file.readline(_LONGEST_HEADER).removeprefix(BOM))
        if isinstance(header, Header):
            return header.id
    except (BadLine, OSError):
        pass
    named = parse_log_name(path.name)
    return named.session_id if named else ""


def verify_rest(root: Path) -> Iterator[Checked]:
    """Check what is kept in the folder of all sessions besides them: the databases, who can read
    it, and what belongs to no session. Only what there is something to say of is named."""
    trash = root / TRASH
    deleted = sorted(place for place in trash.glob("*/*") if place.is_dir())
    places = [root, root / ".awl", trash, *_folders(root), *deleted]
    thrown = {log.name for place in deleted for log in place.glob("*.jsonl")}
    for place in places:
        if place.is_dir():
            yield from _said(place, [*check_mode(place, 0o700), *_orphans(place, thrown)])
    kept = root / ".awl"
    for path in sorted(kept.iterdir()) if kept.is_dir() else ():
        yield from _said(path, [*check_mode(path), *_check_database(path)])


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as found:
            return sorted(
                Path(item.path) for item in found if item.is_dir() and item.name[0] != "."
            )
    except FileNotFoundError:
        return []


def _orphans(place: Path, thrown: Set[str]) -> Iterator[Finding]:
    """What belongs to logs that are not in a folder; `thrown` are those in the trash."""
    if place.name.startswith("."):
        return
    try:
        orphans = list(Folder(place).orphans())
    except OSError:
        return  # said where its sessions are checked
    for path in orphans:
        text = "its log is not here"
        if (log := log_of(path.name)) in thrown:
            text = (
                f"its log, {log}, is in the trash: the next `delete` or `restore` moves this, too"
            )
        yield Finding(severity="note", kind="leftover", text=text, file=path.name)


def _check_database(path: Path) -> Iterator[Finding]:
    if path.suffix != ".db":
        return
    fault = _fault_of(path)
    if not fault:
        return
    if path.name == "index.db":
        text = f"{fault}: `awl sessions reindex` builds it anew; nothing is lost with it"
        yield Finding(severity="note", kind="database", text=text, file=path.name)
    else:
        text = f"{fault}: restore it from a backup"
        yield Finding(severity="damage", kind="database", text=text, file=path.name)


def _fault_of(path: Path) -> str:
    """What is wrong with a database. Nothing is written, not even beside it."""
    log = path.with_name(path.name + "-wal")
    mode = "mode=ro" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(f"file:{quote(str(path))}?{mode}", uri=True, timeout=1)
        try:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
        finally:
            db.close()
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        return f"cannot be read ({error})"
    return "" if found == "ok" else f"damaged ({found})"


def _said(path: Path, findings: list[Finding]) -> Iterator[Checked]:
    if findings:
        ok = not any(finding.severity == "damage" for finding in findings)
        yield Checked(session_id="", path=str(path), ok=ok, findings=tuple(findings))


def _unreadable(path: Path, error: OSError) -> Checked:
    named = parse_log_name(path.name)
    text = f"it cannot be read: {error.strerror or error}"
    return Checked(
        session_id=named.session_id if named else "",
        path=str(path),
        ok=False,
        findings=(Finding(severity="damage", kind="file", text=text),),
    )
