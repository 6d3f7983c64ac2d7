"""Sessions with blobs, and what lies in folders, for tests of what is copied and moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from awl.conversation import BlobRef, ModelRef, text_message
from awl.entries import ToolResultEntry
from awl.log.blobs import Blobs
from awl.session import Session
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")


def make(store: Store, cwd: Path, *words: str, close: bool = True) -> Session:
    """A session with prompts, each with a blob."""
    session = store.create(str(cwd), MODEL)
    for one in words or ("hello",):
        say(session, one)
    if close:
        session.close()
    return session


def say(session: Session, words: str) -> None:
    """A prompt, and the output of a tool, of which the whole is a blob."""
    session.append_message(text_message("user", words))
    output = session.blobs.put(words.encode())
    session.append(
        ToolResultEntry(
            tool_use_id="t",
            name="bash",
            content="x",
            output=output,
            is_error=False,
            duration_ms=1,
        )
    )


def go_on(store: Store, path: Path, *words: str) -> None:
    """More of a session."""
    session = store.open(path)
    for one in words:
        say(session, one)
    session.close()


def outputs(log: Path, folder: Path | None = None) -> dict[str, bytes]:
    """The blobs that a log names, as far as they are in a folder."""
    blobs = Blobs(log)
    blobs.directory = folder or blobs.directory
    names = [
        output["blob"]
        for line in log.read_bytes().splitlines()
        if (output := json.loads(line).get("output"))
    ]
    return {name: blobs.get(BlobRef(blob=name, size=0)) for name in names}


def head(log: Path) -> dict[str, Any]:
    """The header of a log."""
    return dict(json.loads(log.read_bytes().split(b"\n", 1)[0]))


def body(log: Path) -> bytes:
    """All behind the header."""
    return log.read_bytes().split(b"\n", 1)[1]


def tree(root: Path) -> dict[str, bytes]:
    """All files below a folder but the databases."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".awl" not in path.parts
    }


def ids(store: Store) -> list[str]:
    """The ids of all sessions, in order."""
    return sorted(info.id for info in store.list().sessions)
