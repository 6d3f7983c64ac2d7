"""What awl does with a disk, played under a recorder."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from awl.conversation import Message, Text, Thinking, ToolResult, ToolUse, text_message
from awl.entries import (
    Entry,
    PartialBlock,
    PartialEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.session import Session
from crash.promises import MODEL, Kept, torn_tail
from crash.recorder import Recorder

USAGE = Usage(input=1500, output=85)


class Play:
    """A scenario that runs: what it was told to be safe is noted as it is told."""

    def __init__(self, root: Path, recorder: Recorder, kept: Kept | None = None) -> None:
        self.root = root
        self.recorder = recorder
        self.kept = kept or Kept()

    def acknowledge(self, session: Session) -> None:
        """All that was appended so far was acknowledged."""
        name = str(session.path.relative_to(self.root))
        self.kept = self.kept.with_log(name, session.path.read_bytes())
        self.recorder.note(self.kept)

    def create(self) -> Session:
        return Session.create(self.root / "sessions", "/", MODEL)

    def append(self, session: Session, *entries: Entry) -> None:
        session.append_many(entries)
        self.acknowledge(session)

    def say(self, session: Session, text: str) -> None:
        self.append(session, session.message_entry(text_message("user", text)))

    def answer(self, session: Session, *content: Text | Thinking | ToolUse) -> None:
        calls = any(isinstance(block, ToolUse) for block in content)
        entry = session.message_entry(
            Message("assistant", content),
            provider="anthropic",
            model="claude",
            stop_reason="toolUse" if calls else "stop",
            usage=USAGE,
        )
        self.append(session, entry)

    def blob(self, session: Session, data: bytes) -> ToolResultEntry:
        """Store a large output, and the entry that names it."""
        ref = session.blobs.put(data)
        path = (session.blobs.directory / ref.blob).relative_to(self.root)
        self.kept = self.kept.with_file(str(path), data)
        self.recorder.note(self.kept)
        return ToolResultEntry(
            tool_use_id="t1",
            name="bash",
            content="head … tail",
            output=ref,
            is_error=False,
            duration_ms=3,
        )


Scenario = Callable[[Play], None]


def birth(play: Play) -> None:
    """A session is born with its first prompt, and closed."""
    session = play.create()
    play.append(
        session,
        session.message_entry(text_message("system", "Be kind.")),
        session.message_entry(text_message("user", "What is here? \u2028 \U0001f600 \0")),
    )
    session.close()
    play.acknowledge(session)


def two_births(play: Play) -> None:
    """Two sessions of one folder, the second of which finds it there."""
    first, second = play.create(), play.create()
    play.say(first, "One.")
    play.say(second, "Two.")
    play.say(first, "And one more.")
    first.close()
    second.close()


def turn(play: Play) -> None:
    """A turn with a batch of tool calls, part by part."""
    session = play.create()
    play.say(session, "What is here?")
    play.append(
        session, PartialEntry(content=(PartialBlock(type="text", index=0, text="I'll look"),))
    )
    play.answer(
        session,
        Thinking(thinking="Two calls.", signature="c2ln"),
        Text(text="I'll look."),
        ToolUse(id="t1", name="bash", input='{"command":"ls"}'),
        ToolUse(id="t2", name="read", input='{"path":"a"}'),
    )
    play.append(session, ToolCallEntry(tool_use_id="t1", name="bash"))
    play.append(session, ToolCallEntry(tool_use_id="t2", name="read"))
    play.append(session, play.blob(session, b"whole output\n" * 30))
    results = ToolResult(tool_use_id="t1", content="x"), ToolResult(tool_use_id="t2", content="a")
    play.append(session, session.message_entry(Message("user", results)))
    play.answer(session, Text(text="Two files."))
    session.close()
    play.acknowledge(session)


def batch(play: Play) -> None:
    """Several entries in one write, longer than a sector: each line may be there or not."""
    session = play.create()
    play.say(session, "Hello")
    play.append(session, *(TitleEntry(title=f"{n} " + "x" * 90 * n) for n in range(6)))
    session.rewind(session.state.entries[0].id)
    play.acknowledge(session)
    play.say(session, "Again")
    session.close()


def long_lines(play: Play) -> None:
    """Lines that need many sectors."""
    session = play.create()
    play.say(session, "word " * 2000)
    play.answer(session, Text(text="a long answer, " * 1500))
    session.close()


def blobs(play: Play) -> None:
    """Large payloads beside a log, one of them twice."""
    session = play.create()
    play.say(session, "Make a picture.")
    play.append(session, play.blob(session, b"\x89PNG" + os.urandom(3000)))
    play.append(session, play.blob(session, b"the same"))
    play.append(session, play.blob(session, b"the same"))
    session.close()


def going_on(play: Play) -> None:
    """A closed session is opened again, and again."""
    session = play.create()
    play.say(session, "One")
    session.close()
    for text in ("Two", "Three"):
        session = Session.open(session.path)
        play.say(session, text)
        session.close("error")
        play.acknowledge(session)


def wandering(seed: int) -> Scenario:
    """A session in which anything may follow anything."""

    def wander(play: Play) -> None:
        chance = random.Random(seed)
        session = play.create()
        play.say(session, "Begin.")
        for n in range(chance.randint(3, 9)):
            text = f"{n} " + "words " * chance.choice((0, 1, 5, 40, 200))
            match chance.choice(("say", "answer", "batch", "blob", "back", "reopen", "reopen")):
                case "say":
                    play.say(session, text)
                case "answer":
                    play.answer(session, Text(text=text), ToolUse(id=f"t{n}", name="x", input="{}"))
                case "batch":
                    titles = (TitleEntry(title=text) for _ in range(chance.randint(2, 5)))
                    play.append(session, *titles)
                case "blob":
                    play.append(session, play.blob(session, text.encode()))
                case "back":
                    session.rewind(chance.choice([None, *(e.id for e in session.state.entries)]))
                    play.acknowledge(session)
                case "reopen":
                    session.close()
                    session = Session.open(session.path)
                    play.acknowledge(session)
        session.close()
        play.acknowledge(session)

    return wander


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (birth, two_births, turn, batch, long_lines, blobs, going_on)
}


# -- what another process finds --------------------------------------------------------------------


def resume(play: Play) -> None:
    """Every log that there is is opened and gone on with, as after a kill.

    What a person is shown then must not vanish again, and a torn tail was promised to be kept.
    """
    for path in sorted(play.root.glob("sessions/*/*.jsonl")):
        tail = torn_tail(path.read_bytes())
        session = Session.open(path)
        if tail:
            play.kept = play.kept.with_torn(str(path.relative_to(play.root)), tail)
        play.acknowledge(session)
        play.say(session, "Go on.")
        session.close()


def resume_twice(play: Play) -> None:
    """What the second process does must not depend on what the first did."""
    resume(play)
    resume(play)
