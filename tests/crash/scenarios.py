"""What awl does with a disk, played under a recorder."""

from __future__ import annotations

import os
import random
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from awl.conversation import Message, Text, Thinking, ToolResult, ToolUse, text_message
from awl.entries import (
    Entry,
    PartialBlock,
    PartialEntry,
    RewindEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.formats import find
from awl.session import Session
from awl.store.exporting import export
from awl.store.files import Store
from awl.store.importing import Importer
from crash.promises import MODEL, Kept, Where, torn_tail
from crash.recorder import Recorder

PI = find("pi")
PI_SESSION = next((Path(__file__).parents[1] / "data/formats/pi").glob("*_real-model-2.jsonl"))
USAGE = Usage(input=1500, output=85)


class Play:
    """A scenario that runs: what it was told to be safe is noted as it is told."""

    def __init__(self, root: Path, recorder: Recorder, kept: Kept | None = None) -> None:
        self.root = root
        self.sessions = root / "sessions"
        self.recorder = recorder
        self.kept = kept or Kept()

    def acknowledge(self, log: Path, end: int | None = None) -> None:
        """All that a log holds now, up to a byte, was acknowledged."""
        self.kept = self.kept.with_log(self.name(log), log.read_bytes()[:end])
        self.recorder.note(self.kept)

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    # -- what a session can do ---------------------------------------------------------------------

    def create(self) -> Session:
        return Session.create(self.sessions, "/", MODEL)

    def open(self, log: Path) -> Session:
        session = Session.open(log)
        self.acknowledge(log)
        return session

    def close(self, session: Session) -> None:
        session.close()
        if session.born:
            self.acknowledge(session.path)

    def append(self, session: Session, *entries: Entry) -> None:
        if len(entries) == 1:
            session.append(*entries)
        else:
            session.append_many(entries)
        self.acknowledge(session.path)

    def blob(self, session: Session, data: bytes) -> None:
        """Store a large output, and an entry that names it."""
        ref = session.blobs.put(data)
        self.keep_file(session.blobs.directory / ref.blob, data)
        result = ToolResultEntry(
            tool_use_id="t1",
            name="bash",
            content="head … tail",
            output=ref,
            is_error=False,
            duration_ms=3,
        )
        self.append(session, result)

    def fork(self, source: Session | Path, at: int | None = None) -> Path:
        """Fork a session. The child is acknowledged, and what its parent is told."""
        with closing(Store(self.sessions)) as store:
            child = store.fork(source, at=at)
        self.acknowledge(child)
        self.acknowledge(source if isinstance(source, Path) else source.path)
        return child

    def look(self) -> None:
        """List and search the sessions, for which the index takes in what is new."""
        with closing(Store(self.sessions)) as store:
            store.list()
            store.search("one")
        index = self.sessions / ".awl" / "index.db"
        if not index.exists():  # a kill came before there was anything to list
            return
        with closing(sqlite3.connect(index)) as db:
            try:
                rows = db.execute("SELECT path, max(done, texts_done) FROM sessions").fetchall()
            except sqlite3.OperationalError:  # a disk that fails has no index
                return
        logs = {f"sessions/{os.fsdecode(path)}": end for path, end in rows}
        indexed = {
            name: (self.root / name).read_bytes()[: self.promised(self.root / name, end)]
            for name, end in logs.items()
        }
        self.kept = replace(self.kept, indexed=indexed)
        self.recorder.note(self.kept)

    def promised(self, log: Path, end: int) -> int:
        """How much of what the index took in of a log must stay there."""
        return end

    def bring(self, source: Path) -> None:
        """Import another program's session, or what is new in it."""
        with closing(Store(self.sessions)) as store:
            brought = Importer(self.sessions, store.logs(), "/").bring(source, PI)
        assert brought.path is not None
        if brought.outcome != "same":  # else nothing was promised that was not before
            self.acknowledge(brought.path)

    def tear(self, log: Path, size: int) -> None:
        """Replace the end of a log by something that is no line, which is what the disk holds."""
        data = log.read_bytes()[:-size]
        data = data[: data.rfind(b"\n") + 1]
        tail = b"{\n" + b"\0" * (size // 2) + b"\n{" + b"x" * (size // 2)
        self.kept = self.kept.with_log(self.name(log), data)
        self.recorder.note(self.kept)
        with self.recorder.undisturbed():
            fd = os.open(log, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(fd, len(data))
            os.write(fd, tail)
            os.fsync(fd)
            os.close(fd)
        self.kept = self.kept.with_torn(self.name(log), tail)
        self.recorder.note(self.kept)

    def delete(self, log: Path, *, purge: bool = False) -> None:
        """Move a session to the trash, or remove it for good."""
        self.place(log, "being purged" if purge else "moving")
        with closing(Store(self.sessions)) as store:
            store.delete(log, purge=purge)
        self.place(log, "purged" if purge else "trash")

    def restore(self, home: Path) -> None:
        """Bring a session back from the trash."""
        (there,) = self.sessions.glob(f".trash/*/*/{home.name}")
        self.place(home, "moving")
        with closing(Store(self.sessions)) as store:
            store.trash.restore(str(there))
        self.place(home, "home")

    def place(self, log: Path, where: Where) -> None:
        self.kept = self.kept.with_place(self.name(log), where)
        self.recorder.note(self.kept)

    def export(self, log: Path, target: Path) -> None:
        """Export a session over what may be there."""
        before = self.kept.files.get(self.name(target), ())
        data = log.read_bytes()
        if before:
            self.keep_file(target, *before, data)
        export(log, target, None, root=log.parent.parent, force=True)
        self.keep_file(target, data)

    def keep_file(self, path: Path, *data: bytes) -> None:
        self.kept = self.kept.with_file(self.name(path), *data)
        self.recorder.note(self.kept)

    # -- in short ----------------------------------------------------------------------------------

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


Scenario = Callable[[Play], None]


def birth(play: Play) -> None:
    """A session is born with its first prompt, and closed."""
    session = play.create()
    play.append(
        session,
        session.message_entry(text_message("system", "Be kind.")),
        session.message_entry(text_message("user", "What is here? \u2028 \U0001f600 \0")),
    )
    play.close(session)


def two_births(play: Play) -> None:
    """Two sessions of one folder, the second of which finds it there."""
    first, second = play.create(), play.create()
    play.say(first, "One.")
    play.say(second, "Two.")
    play.say(first, "And one more.")
    play.close(first)
    play.close(second)


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
    play.blob(session, b"whole output\n" * 30)
    results = ToolResult(tool_use_id="t1", content="x"), ToolResult(tool_use_id="t2", content="a")
    play.append(session, session.message_entry(Message("user", results)))
    play.answer(session, Text(text="Two files."))
    play.close(session)


def batch(play: Play) -> None:
    """Several entries in one write, longer than a sector: each line may be there or not."""
    session = play.create()
    play.say(session, "Hello")
    play.append(session, *(TitleEntry(title=f"{n} " + "x" * 90 * n) for n in range(6)))
    play.append(session, RewindEntry(parent_id=session.leaf_id))
    play.say(session, "Again")
    play.close(session)


def long_lines(play: Play) -> None:
    """Lines that need many sectors."""
    session = play.create()
    play.say(session, "word " * 2000)
    play.answer(session, Text(text="a long answer, " * 1500))
    play.close(session)


def blobs(play: Play) -> None:
    """Large payloads beside a log, one of them twice."""
    session = play.create()
    play.say(session, "Make a picture.")
    play.blob(session, b"\x89PNG" + os.urandom(3000))
    play.blob(session, b"the same")
    play.blob(session, b"the same")
    play.close(session)


def going_on(play: Play) -> None:
    """A closed session is opened again, and again."""
    session = play.create()
    play.say(session, "One")
    play.close(session)
    for text in ("Two", "Three"):
        session = play.open(session.path)
        play.say(session, text)
        play.close(session)


def forking(play: Play) -> None:
    """An open session with a blob is forked, whole and in part, and so is a closed one."""
    session = play.create()
    play.say(session, "One")
    play.blob(session, b"whole output\n" * 30)
    play.answer(session, Text(text="Two"))
    play.fork(session)
    play.say(session, "Three")
    play.close(session)
    child = play.fork(session.path, at=3)
    grandchild = play.open(play.fork(child))
    play.say(grandchild, "Four")
    play.close(grandchild)


def importing(play: Play) -> None:
    """Another program's session comes, grows, and comes again."""
    lines = PI_SESSION.read_bytes().splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as elsewhere:
        source = Path(elsewhere) / PI_SESSION.name
        source.write_bytes(b"".join(lines[:-2]))
        play.bring(source)
        source.write_bytes(b"".join(lines))
        play.bring(source)


def tearing(play: Play) -> None:
    """The tail of a log is torn, a little and more, and recovered."""
    session = play.create()
    play.say(session, "One")
    play.append(session, *(TitleEntry(title=f"{n}") for n in range(3)))
    play.close(session)
    for size in (9, 300):
        play.tear(session.path, size)
        session = play.open(session.path)
        play.say(session, "And on.")
        play.close(session)


def deleting(play: Play) -> None:
    """A session with a blob and a torn tail is deleted, restored, and purged."""
    session = play.create()
    play.say(session, "One")
    play.blob(session, b"whole output\n" * 30)
    play.close(session)
    play.tear(session.path, 9)
    play.close(play.open(session.path))
    play.delete(session.path)
    play.restore(session.path)
    session = play.open(session.path)
    play.say(session, "Two")
    play.close(session)
    play.delete(session.path)
    play.restore(session.path)
    play.delete(session.path, purge=True)


def exporting(play: Play) -> None:
    """A session is exported, grows, and is exported over the older file."""
    session = play.create()
    play.say(session, "One")
    play.blob(session, b"whole output\n" * 30)
    play.export(session.path, play.root / "out.jsonl")
    play.say(session, "Two")
    play.close(session)
    play.export(session.path, play.root / "out.jsonl")


def looking(play: Play) -> None:
    """Sessions are listed and searched while they grow."""
    session = play.create()
    play.say(session, "One")
    play.look()
    play.answer(session, Text(text="Two"))
    other = play.create()
    play.say(other, "Three")
    play.look()
    play.close(session)
    play.close(other)


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
                    play.blob(session, text.encode())
                case "back":
                    target = chance.choice([None, *(e.id for e in session.state.entries)])
                    play.append(session, RewindEntry(parent_id=target))
                case "reopen":
                    play.close(session)
                    session = play.open(session.path)
        play.close(session)

    return wander


_ALL = (
    *(birth, two_births, turn, batch, long_lines, blobs, going_on, tearing),
    *(forking, importing, deleting, exporting, looking),
)
SCENARIOS: dict[str, Scenario] = {scenario.__name__: scenario for scenario in _ALL}


# -- what another process finds --------------------------------------------------------------------


def resume(play: Play) -> None:
    """Every log that there is is opened and gone on with, as after a kill.

    What a person is shown then must not vanish again, and a torn tail was promised to be kept.
    """
    for path in sorted(play.sessions.glob("*/*.jsonl")):
        tail = torn_tail(path.read_bytes())
        session = play.open(path)
        if tail:
            play.kept = play.kept.with_torn(play.name(path), tail)
        play.say(session, "Go on.")
        play.close(session)


def resume_twice(play: Play) -> None:
    """What the second process does must not depend on what the first did."""
    resume(play)
    resume(play)


def fork_all(play: Play) -> None:
    """Every log that there is is forked, which sweeps up what was left in its folder."""
    for path in sorted(play.sessions.glob("*/*.jsonl")):
        play.fork(path)


def delete_and_restore_all(play: Play) -> None:
    """What a kill interrupted is ended by the next one."""
    for path in sorted(play.sessions.glob(".trash/*/*/*.jsonl")):
        play.restore(play.sessions / path.parent.name / path.name)
    for path in sorted(play.sessions.glob("*/*.jsonl")):
        play.delete(path)


def look(play: Play) -> None:
    """The index takes in what it finds."""
    play.look()


def import_again(play: Play) -> None:
    """What was broken off goes on where it stopped."""
    play.bring(PI_SESSION)
