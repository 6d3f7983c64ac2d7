"""What must hold of a disk's state, whatever happened: each promise as an assertion.

`check` opens every session as a person would who comes back after the accident, goes on with it,
and closes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from histories import facts, replayed
from test_view import assert_valid

from awl.conversation import BlobRef, ModelRef, text_message
from awl.log.file import torn_files
from awl.log.line import is_object
from awl.replay import read
from awl.session import Session
from awl.store.files import Store
from awl.view import view
from crash.disk import Tree

Where = Literal["home", "trash", "moving", "purged", "being purged"]
MODEL = ModelRef("anthropic", "claude-sonnet-4-20250514")
_BLOB = re.compile(rb'"blob":"([0-9a-f]{64})","size":(\d+)')


@dataclass(frozen=True)
class Kept:
    """What a person was told to be safe, by path.

    `logs`: the acknowledged beginning of each log; `torn`: tails that a recovery must have kept;
    `files`: what a file holds, which may be one or the other while it is replaced; `where`: where a
    log is that was deleted, or is being deleted or restored; `indexed`: what the index has taken in
    of a log, which no power loss may take away.
    """

    logs: Mapping[str, bytes] = field(default_factory=dict)
    torn: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    files: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    where: Mapping[str, Where] = field(default_factory=dict)
    indexed: Mapping[str, bytes] = field(default_factory=dict)

    def with_log(self, path: str, data: bytes) -> Kept:
        return replace(self, logs={**self.logs, path: data})

    def with_file(self, path: str, *data: bytes) -> Kept:
        return replace(self, files={**self.files, path: data})

    def with_place(self, path: str, where: Where) -> Kept:
        """What lies beside a log goes with it."""
        stem = path.removesuffix(".jsonl")
        files = {name: data for name, data in self.files.items() if not name.startswith(stem)}
        return replace(self, files=files, where={**self.where, path: where})

    def with_tails(self, tree: Tree) -> Kept:
        """A recovery of this state must keep its torn tails, wherever it is interrupted."""
        kept = self
        for name, data in tree.items():
            if is_log(name) and (tail := torn_tail(data or b"")):
                kept = kept.with_torn(name, tail)
        return kept

    def with_torn(self, path: str, tail: bytes) -> Kept:
        return replace(self, torn={**self.torn, path: (*self.torn.get(path, ()), tail)})


def is_log(path: str) -> bool:
    """Whether a path is that of a log, as lists see it."""
    return path.endswith(".jsonl") and path.count("/") == 2 and "/." not in f"/{path}"


def check(
    root: Path, kept: Kept, written: Mapping[str, set[bytes]], known: set[int] | None = None
) -> None:
    """All promises, of all logs below a folder.

    Args:
        root: the state.
        kept: what must be there.
        written: for each log, the lines that were ever written to it: nothing else may come up.
        known: what was checked already, and is not again: a log with all that lies beside it.
    """
    for name, data in kept.files.items():
        assert (root / name).read_bytes() in data, f"{name} is not what was stored"
    for name, indexed in kept.indexed.items():
        if (root / name).exists():
            begins = (root / name).read_bytes().startswith(indexed)
            assert begins, "the index knows more than the log"
    for name, where in kept.where.items():
        check_place(root, name, where, acknowledged=name in kept.logs)
    found = {str(path.relative_to(root)) for path in root.glob("sessions/*/*.jsonl")}
    purged = {name for name, where in kept.where.items() if "purged" in where}
    assert found >= kept.logs.keys() - purged, "a log that was acknowledged is gone"
    if not found:
        session = Session.create(root / "sessions", "/", MODEL)
        session.append_message(text_message("user", "Hello?"))
        session.close()
    known = set() if known is None else known
    for name in sorted(found):
        told = kept.logs.get(name, b""), kept.torn.get(name, ())
        key = hash((*told, *_surroundings(root / name)))
        if key not in known:
            check_log(root / name, *told, written.get(name, set()))
            known.add(key)


def check_place(root: Path, name: str, where: Where, *, acknowledged: bool) -> None:
    """A log is at home, or whole in the trash, from where it comes back."""
    home = root / name
    trashed = list(root.glob(f"sessions/.trash/*/*/{home.name}"))
    places = home.exists() + len(trashed)
    match where:
        case "home":
            assert home.exists() and not trashed, "it is not where it was restored to"
        case "trash":
            assert trashed and places == 1, "it is not in the trash"
        case "moving":
            assert acknowledged <= places <= 1, "it is in no place, or in two"
        case "purged":
            assert places == 0, "it was to be gone for good"
        case "being purged":
            assert places <= 1, "it is in two places"
    if trashed:
        with closing(Store(root / "sessions")) as store:
            store.trash.restore(str(trashed[0]))


def _surroundings(log: Path) -> Iterator[tuple[str, bytes]]:
    """A log, and all files that belong to it."""
    stem = log.name.removesuffix(".jsonl")
    for path in sorted(log.parent.rglob("*")):
        name = str(path.relative_to(log.parent))
        if stem in name and path.is_file():
            yield name, path.read_bytes()


def check_log(
    path: Path, acknowledged: bytes, kept_torn: tuple[bytes, ...], written: set[bytes]
) -> None:
    """One log: look at it, open it, go on, and open it again."""
    before = path.read_bytes()
    torn_before = contents(path)
    assert before.startswith(acknowledged), "acknowledged lines are missing or changed"

    seen = read(path)
    assert path.read_bytes() == before and contents(path) == torn_before, "a reader wrote"

    session = Session.open(path)
    try:
        after = path.read_bytes()
        torn = contents(path)
        assert after.startswith(acknowledged), "recovery took acknowledged lines"
        stays = after if before.startswith(after) else after.removesuffix(b"\n")
        assert before.startswith(stays), "recovery changed what stays"
        rest = before[len(stays) :]
        assert torn_before.items() <= torn.items(), "a torn file was touched"
        new = [data for name, data in torn.items() if name not in torn_before]
        assert new == ([rest] if rest else []), "the torn tail was not kept whole"
        for data in kept_torn:
            assert data in torn.values(), "a torn tail that was there before is lost"

        lines = after.split(b"\n")[:-1]
        sound = [line for line in lines if is_object(line)]
        assert written.issuperset(sound), "a line came up that was never written"
        assert lines[-1] == sound[-1], "the log does not end in a sound line"
        entries = [json.loads(line) for line in sound[1:]]
        state = session.state
        assert [entry.id for entry in state.entries] == [entry["id"] for entry in entries]
        check_chain(entries, state.path, len(sound) < len(lines))
        assert len(state.damage) == len(lines) - len(sound)
        assert session.conversation == seen.conversation, "recovery changed what was said"
        for name, size in _BLOB.findall(b"\n".join(sound)):
            session.blobs.get(BlobRef(name.decode(), int(size)))

        told = [line for line in acknowledged.split(b"\n") if is_object(line)]
        used = [json.loads(line).get("seq", 0) for line in told]
        session.append_message(text_message("user", "Are you there?"))
        assert path.read_bytes().startswith(after), "an append changed what was there"
        added = json.loads(path.read_bytes()[len(after) :])
        assert added["seq"] > max([0, *used]), "a seq was used twice"
        assert added["parentId"] == (entries[-1]["id"] if entries else None)
        model = session.active_model
        assert_valid(view(state, model), state, model)
        assert facts(replayed(path)) == facts(state), "what was replayed is not what was live"
    finally:
        session.close()
    again = Session.open(path)
    try:
        assert contents(path) == torn and again.conversation == session.conversation
        assert not any("incomplete" in notice for notice in again.notices)
    finally:
        again.close("error")


def check_chain(entries: list[dict[str, Any]], path: list[int], gaps: bool) -> None:
    """Ids are drawn once, seqs grow, and each entry follows the one before it but for rewinds."""
    ids = [entry["id"] for entry in entries]
    seqs = [entry["seq"] for entry in entries]
    assert len(set(ids)) == len(ids) and seqs == sorted(set(seqs))
    for before, entry in zip([None, *entries], entries, strict=False):
        if entry["type"] != "rewind" and not gaps:
            assert entry["parentId"] == (before["id"] if before else None), "the chain is broken"
    if not any(entry["type"] == "rewind" for entry in entries):
        assert path == [*range(len(entries))], "something readable is not on the path"


def contents(log: Path) -> dict[str, bytes]:
    """The torn tails that lie beside a log."""
    return {torn.name: torn.read_bytes() for torn in torn_files(log)}


def torn_tail(data: bytes) -> bytes:
    """What of a log is torn: all behind the last line that is an object, which may lack its
    newline."""
    *lines, rest = data.split(b"\n")
    if is_object(rest):
        return b""
    while lines and not is_object(lines[-1]):
        rest = lines.pop() + b"\n" + rest
    return rest if lines else b""
