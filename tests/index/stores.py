"""Stores to which anything can happen, for property tests of the index."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from histories import spoil
from msgspec.structs import replace

from awl.conversation import Message, ModelRef, Text, ToolResult, ToolUse, text_message
from awl.entries import Entry, PartialBlock, PartialEntry, TitleEntry, ToolResultEntry
from awl.errors import AwlError
from awl.index.fulltext import Hit
from awl.session import Session
from awl.store.files import SessionInfo, Store

MODEL = ModelRef("anthropic", "claude-1")
WORDS = ("parser", "Straße", "下午", "youer", "snake_case", "x", 'q"uote', "İstanbul", "a%b")
QUERIES = ("parser", "PARSE", "strasse", "下午", "午三", "you", "case", "x", "a%b", "nowhere")

STEPS = (
    *("create", "create", "append", "append", "append", "partial", "tools", "title", "rewind"),
    *("delete", "move", "copy", "touch", "damage", "truncate"),
    *("lose_index", "lose_wal", "spoil_index", "zero_index", "old_index"),
    *("look", "look", "search"),
)

Step = tuple[str, int, str]


@contextmanager
def place() -> Iterator[Place]:
    """A store in a folder of its own, without the slow syncs that no test here depends on."""
    with (
        tempfile.TemporaryDirectory() as root,
        patch("awl.log.file.sync"),
        patch("awl.index.level.sync"),
        patch("os.sync"),
        patch("awl.index.segments._LOOKED_AT", 2),
        patch("awl.index.segments._MOST_SMALL", 3),
        patch("os.fsync"),
    ):
        made = Place(Path(root))
        try:
            yield made
        finally:
            made.store.close()


class Place:
    """A store that steps are played on. `numbers` are all that were ever given."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.root = home / "sessions"
        self.store = Store(self.root)
        self.numbers: dict[str, int] = {}
        for name in ("one", "two"):
            (home / name).mkdir()

    def play(self, steps: Sequence[Step]) -> None:
        for kind, n, text in steps:
            getattr(self, f"_{kind}")(n, text)

    # -- comparing ---------------------------------------------------------------------------------

    def listed(self) -> list[SessionInfo]:
        """The list. Numbers are checked against all that were given before."""
        found = self.store.list().sessions
        for info in found:
            assert info.conversation_id is not None
            assert self.numbers.setdefault(info.id, info.conversation_id) == info.conversation_id
        assert len({*self.numbers.values()}) == len(self.numbers)
        return list(found)

    def searched(self) -> dict[str, list[Hit]]:
        return {query: list(self.store.search(query).hits) for query in QUERIES}

    def fresh(self) -> Place:
        """The same store with no index at all."""
        self.store.close()
        for path in self.index.parent.glob("index.db*"):
            path.unlink()
        self.store = Store(self.root)
        return self

    # -- what people and programs do ---------------------------------------------------------------

    def _create(self, n: int, text: str) -> None:
        session = self.store.create(str(self.home / ("one", "two")[n % 2]), MODEL)
        session.append_message(text_message("user", text))
        session.close()

    def _append(self, n: int, text: str) -> None:
        with self._open(n) as session:
            session.append_message(text_message(("user", "assistant")[n // 7 % 2], text))

    def _partial(self, n: int, text: str) -> None:
        with self._open(n) as session:
            for piece in (text[: n % 3], text[n % 3 :]):
                block = PartialBlock(type="text", index=0, text=piece)
                session.append(PartialEntry(content=(block,)))
            if n // 7 % 2:
                session.append_message(text_message("assistant", text))

    def _tools(self, n: int, text: str) -> None:
        with self._open(n) as session:
            uses = [ToolUse(id=name, name="bash", input=f'{{"a":"{name}"}}') for name in "uvw"]
            session.append_message(Message("assistant", (Text(text=text), *uses)))
            made: list[Entry] = [
                ToolResultEntry(
                    tool_use_id=use.id, name="bash", content=text, is_error=False, duration_ms=1
                )
                for use in uses[: n // 7 % 3]
            ]
            for entry in made:
                session.append(entry)
            if n // 21 % 2:
                results = tuple(ToolResult(tool_use_id=use.id, content=text) for use in uses)
                session.append_message(Message("user", results))

    def _title(self, n: int, text: str) -> None:
        with self._open(n) as session:
            session.append(TitleEntry(title=text))

    def _rewind(self, n: int, text: str) -> None:
        with self._open(n) as session:
            if session.state.entries:
                entries = session.state.entries
                session.rewind(entries[n % len(entries)].id)

    def _look(self, n: int, text: str) -> None:
        self.listed()

    def _search(self, n: int, text: str) -> None:
        self.store.search(WORDS[n % len(WORDS)])

    # -- what happens to logs ----------------------------------------------------------------------

    def _delete(self, n: int, text: str) -> None:
        if log := self._log(n):
            log.unlink()

    def _move(self, n: int, text: str) -> None:
        if log := self._log(n):
            folder = self.root / f"label {n % 2}"
            folder.mkdir(exist_ok=True)
            log.rename(folder / log.name)

    def _copy(self, n: int, text: str) -> None:
        """Two files with one id."""
        if log := self._log(n):
            folder = self.root / "copies"
            folder.mkdir(exist_ok=True)
            (folder / log.name).write_bytes(log.read_bytes())

    def _touch(self, n: int, text: str) -> None:
        if log := self._log(n):
            os.utime(log, ns=(n, n * 1_000_000_007))

    def _damage(self, n: int, text: str) -> None:
        if log := self._log(n):
            lines = log.read_bytes().split(b"\n")[:-1]
            if lines:
                spoil(lines, n // 8 % len(lines), n % 8)
                log.write_bytes(b"".join(line + b"\n" for line in lines))

    def _truncate(self, n: int, text: str) -> None:
        if log := self._log(n):
            os.truncate(log, n * 7 % (log.stat().st_size + 1))

    # -- what happens to the index -----------------------------------------------------------------

    @property
    def index(self) -> Path:
        return self.root / ".awl" / "index.db"

    def _lose_index(self, n: int, text: str) -> None:
        """It is deleted: while it is in use, or not."""
        if n % 2:
            self._reopen()
        for path in self.index.parent.glob("index.db*"):
            if n // 2 % 2 or path == self.index:
                path.unlink()

    def _lose_wal(self, n: int, text: str) -> None:
        self._reopen()
        self.index.with_name("index.db-wal").unlink(missing_ok=True)

    def _spoil_index(self, n: int, text: str) -> None:
        """A page of it is overwritten, or all of it, or its end is lost."""
        self._reopen()
        if not self.index.exists():
            return
        data = bytearray(self.index.read_bytes())
        at = n % (len(data) // 4096 + 1) * 4096
        ways: tuple[Callable[[], bytes], ...] = (
            lambda: bytes(data[:at]),
            lambda: bytes(data[:at]) + b"\xff" * 4096 + bytes(data[at + 4096 :]),
            lambda: b"garbage " * 1000,
            lambda: b"\0" * len(data),
        )
        self.index.write_bytes(ways[n % 4]())

    def _zero_index(self, n: int, text: str) -> None:
        self._reopen()
        if self.index.exists():
            self.index.write_bytes(b"")

    def _old_index(self, n: int, text: str) -> None:
        """It is an older awl's."""
        self._reopen()
        if self.index.exists():
            self.index.unlink()
        self.index.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(self.index)
        db.executescript("CREATE TABLE sessions (name); PRAGMA user_version = 0")
        db.close()

    # -- inside ------------------------------------------------------------------------------------

    def _reopen(self) -> None:
        """Another process goes on, and this one's write-ahead log is in the file."""
        self.store.close()
        self.store = Store(self.root)

    def _log(self, n: int) -> Path | None:
        logs = list(self.store.logs())
        return logs[n % len(logs)] if logs else None

    @contextmanager
    def _open(self, n: int) -> Iterator[Session]:
        log = self._log(n)
        if log is None:
            self._create(n, "first")
            log = self._log(n)
            assert log is not None
        try:
            session = Session.open(log, cwd=str(self.home))
        except AwlError:
            session = self.store.create(str(self.home), MODEL)
        try:
            yield session
        finally:
            session.close()


def anonymous(infos: Sequence[SessionInfo]) -> list[SessionInfo]:
    """The same without numbers."""
    return [replace(info, conversation_id=None) for info in infos]
