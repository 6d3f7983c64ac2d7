"""Sessions to measure with: talk with thinking, tool calls and results, as agents leave it."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from msgspec.structs import replace

from awl.conversation import ModelRef, Text, Thinking, ToolResult, ToolUse, text_message
from awl.entries import (
    CondensationEntry,
    Entry,
    Header,
    LoggedMessage,
    MessageEntry,
    Summary,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.log.line import encode
from awl.log.names import log_path
from awl.session import Session

TIME = "2026-04-25T17:40:15.990Z"
KEPT = 20
"""Entries that a condensation near the end of a log leaves as they are."""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that is removed behind it, in `AWL_BENCH_DIR` if that is set: it must be on a disk,
    for a sync in memory costs nothing."""
    where = os.environ.get("AWL_BENCH_DIR") or None
    with tempfile.TemporaryDirectory(prefix="awl-bench-", dir=where) as name:
        yield Path(name)


def made_up_words(chance: random.Random, count: int, longest: int) -> list[str]:
    """Made-up words of two to `longest` letters."""
    letters = "etaoinshrdlucmfwypvbgk"
    return ["".join(chance.choices(letters, k=chance.randint(2, longest))) for _ in range(count)]


def fill_shortly(root: Path, sessions: int) -> None:
    """Sessions of a prompt and its answer."""
    fill(root, sessions, lambda number: [f"Fix the parser, part {number}", "It is done."])


def fill(root: Path, sessions: int, texts: Callable[[int], list[str]]) -> None:
    """Sessions in twenty directories. What is measured does not depend on syncs."""
    with patch("awl.log.file.sync"), patch("os.fsync"):
        for number in range(sessions):
            session = Session.create(
                root, f"/home/dev/{number % 20}", ModelRef("anthropic", "claude-1")
            )
            made: list[Entry] = []
            for n, text in enumerate(texts(number)):
                made.append(session.message_entry(text_message(("user", "assistant")[n % 2], text)))
            session.append_many(made)
            session.close()


def write_log(root: Path, entries: int, *, condensed: bool = False, seed: int = 1) -> Path:
    """A log of so many entries of 660 bytes on average; with `condensed`, the one 100 before the
    last replaces all but the `KEPT` before it."""
    chance = random.Random(seed)  # noqa: S311
    session_id = f"019dc5ba-53f6-71a5-ab8f-{seed:012x}"
    header = Header(
        version=1,
        id=session_id,
        timestamp=TIME,
        cwd="/home/dev/awl",
        provider="anthropic",
        model="claude-1",
    )
    path = log_path(root, header.cwd, TIME, session_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    parent = None
    with path.open("wb") as log:
        log.write(encode(header))
        talk = _talk(chance)
        for seq in range(1, entries + 1):
            turn: int | None = None
            entry: Entry = _condensation(seq - 1 - KEPT)
            if not condensed or seq != entries - 100:
                turn, entry = next(talk)
            entry_id = f"{chance.getrandbits(32):08x}"
            entry = replace(
                entry, id=entry_id, parent_id=parent, timestamp=TIME, seq=seq, turn_id=turn
            )
            log.write(encode(entry))
            parent = entry_id
    return path


def _talk(chance: random.Random) -> Iterator[tuple[int, Entry]]:
    words = made_up_words(chance, 3000, 9)

    def text(size: int) -> str:
        sign = " ✓" if chance.random() < 0.05 else ""
        return " ".join(chance.choices(words, k=size // 6)) + sign

    def answer(*uses: ToolUse) -> MessageEntry:
        thought = Thinking(thinking=text(140), signature=f"{chance.getrandbits(640):0160x}")
        return MessageEntry(
            message=LoggedMessage(
                role="assistant",
                content=(thought, Text(text=text(60 if uses else 300)), *uses),
                provider="anthropic",
                model="claude-1-20260101",
                stop_reason="toolUse" if uses else "stop",
                usage=Usage(input=1000, output=200, cache_read=5000),
            )
        )

    turn = calls = 0
    while True:
        turn += 1
        prompt = LoggedMessage(role="user", content=(Text(text=text(120)),))
        yield turn, MessageEntry(provider="anthropic", model="claude-1", message=prompt)
        for _ in range(chance.randint(1, 4)):
            uses = []
            for _ in range(chance.choice((1, 1, 2))):
                calls += 1
                given = '{"command":"' + text(80) + '"}'
                uses.append(ToolUse(id=f"toolu_{calls:022d}", name="bash", input=given))
            yield turn, answer(*uses)
            results = []
            for use in uses:
                output = text(chance.choice((150, 400, 850)))
                yield turn, ToolCallEntry(tool_use_id=use.id, name=use.name)
                results.append(ToolResult(tool_use_id=use.id, content=output, duration_ms=12))
                if use is not uses[-1]:
                    yield (
                        turn,
                        ToolResultEntry(
                            tool_use_id=use.id,
                            name=use.name,
                            content=output,
                            is_error=False,
                            duration_ms=12,
                        ),
                    )
            said = LoggedMessage(role="user", content=tuple(results))
            yield turn, MessageEntry(provider="anthropic", model="claude-1", message=said)
        yield turn, answer()


def _condensation(hi: int) -> CondensationEntry:
    return CondensationEntry(
        replaced=(1, hi),
        summary=Summary(session_intent="Fix the parser", next_steps=("go on",)),
        tokens_before=100_000,
        tokens_after=1000,
        provider="anthropic",
        model="claude-1",
        usage=Usage(input=100_000, output=1000),
    )
