"""Sessions against a plain model of them: whatever is done in whatever order, and whatever happens
in between, a session holds what the model holds.

The model keeps lists of words. Accidents (a kill in the middle of a write, a damaged line, a lost
index) change in it just what they may change.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from test_view import assert_valid

from awl.conversation import text_message
from awl.entries import CondensationEntry, Summary, TitleEntry
from awl.errors import InvalidRange
from awl.log.file import torn_files
from awl.replay import read
from awl.session import Session
from awl.store.files import Store
from awl.view import view

from .explore import SHARED
from .promises import MODEL

WORDS = st.sampled_from(("Hello", "a\nb", "\u2028\x00\x1b[31m", "\U0001f600", "long " * 300))
NUMBERS = st.integers(0, 9999)


@dataclass
class Line:
    """An entry as the model knows it: what it says, and what it follows on the path."""

    kind: str
    text: str
    parent: int | None
    seq: int
    lost: bool = False
    doubtful: bool = False  # it went back to a line that is lost


Said = list[str]


@dataclass
class Twin:
    """What a session must hold."""

    path: Path
    lines: list[Line] = field(default_factory=list)
    session: Session | None = None

    def add(self, kind: str, text: str, parent: int | None = -1) -> None:
        """Another line, behind the last one unless it goes back."""
        if parent == -1:
            parent = self.leaf
        self.lines.append(Line(kind, text, parent, len(self.lines) + 1))

    @property
    def leaf(self) -> int | None:
        """The last line that is there, unless nothing is."""
        return next((n for n in range(len(self.lines) - 1, -1, -1) if not self.lines[n].lost), None)

    def whole(self) -> list[Line]:
        return [line for line in self.lines if not line.lost]

    def on_path(self) -> list[Said]:
        """What was said on the path. Where a line is lost, the one before it takes its place; where
        it cannot be known which lost line a rewind went back to, each of these may be it."""
        return list(self._before(self.leaf))

    def _before(self, at: int | None) -> Iterator[Said]:
        if at is None:
            yield []
            return
        line = self.lines[at]
        parents = {line.parent}
        if line.doubtful:
            parents |= {self.bridged(n) for n in range(at) if self._nobody_names(n)}
        for parent in parents:
            for said in self._before(parent):
                yield [*said, line.text] if line.kind == "message" and not line.lost else said

    def _nobody_names(self, n: int) -> bool:
        """Whether a line is lost, and none that is there names it as the one before."""
        following = self.lines[n + 1]
        return self.lines[n].lost and (following.lost or following.kind == "rewind")

    def bridged(self, at: int) -> int | None:
        """A line, or the last before it that is there."""
        while at >= 0 and self.lines[at].lost:
            at -= 1
        return at if at >= 0 else None

    @property
    def title(self) -> str | None:
        return next((line.text for line in reversed(self.whole()) if line.kind == "title"), None)


class Sessions(RuleBasedStateMachine):
    """Some sessions of one store, and their twins."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = contextlib.ExitStack()
        shared = SHARED if SHARED.is_dir() else None
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(dir=shared))
        for slow in ("os.fsync", "os.fdatasync", "awl.index.level.sync"):
            self.stack.enter_context(patch(slow))
        self.root = Path(folder).resolve() / "sessions"
        self.store = Store(self.root)
        self.twins: list[Twin] = []

    def teardown(self) -> None:
        for twin in self.twins:
            if twin.session is not None:
                twin.session.close()
        self.store.close()
        self.stack.close()

    # -- making and finding ------------------------------------------------------------------------

    @initialize(text=WORDS)
    def begin(self, text: str) -> None:
        self.create(text)

    @precondition(lambda self: len(self.twins) < 4)
    @rule(text=WORDS)
    def create(self, text: str) -> None:
        session = self.store.create("/", MODEL)
        session.append_message(text_message("user", text))
        twin = Twin(session.path, session=session)
        twin.add("message", text)
        self.twins.append(twin)

    def pick(self, n: int) -> tuple[Twin, Session]:
        """A session, opened if it is not open."""
        twin = self.twins[n % len(self.twins)]
        if twin.session is None:
            twin.session = Session.open(twin.path)
        return twin, twin.session

    # -- what people and models do -----------------------------------------------------------------

    @rule(n=NUMBERS, text=WORDS)
    def say(self, n: int, text: str) -> None:
        twin, session = self.pick(n)
        session.append_message(text_message(("user", "assistant")[n // 7 % 2], text))
        twin.add("message", text)

    @rule(n=NUMBERS, texts=st.lists(WORDS, min_size=1, max_size=4))
    def say_at_once(self, n: int, texts: list[str]) -> None:
        twin, session = self.pick(n)
        session.append_many([session.message_entry(text_message("user", text)) for text in texts])
        for text in texts:
            twin.add("message", text)

    @rule(n=NUMBERS, m=NUMBERS)
    def rewind(self, n: int, m: int) -> None:
        twin, session = self.pick(n)
        there = [None, *(at for at, line in enumerate(twin.lines) if not line.lost)]
        target = there[m % len(there)]
        ids = dict(zip(session.state.seqs, (e.id for e in session.state.entries), strict=True))
        session.rewind(None if target is None else ids[twin.lines[target].seq])
        twin.add("rewind", "", target)

    @rule(n=NUMBERS, title=st.text(st.characters(codec="utf-8"), min_size=1, max_size=9))
    def rename(self, n: int, title: str) -> None:
        twin, session = self.pick(n)
        session.append(TitleEntry(title=title))
        twin.add("title", title)

    @rule(n=NUMBERS, m=NUMBERS)
    def fork(self, n: int, m: int) -> None:
        if len(self.twins) >= 5:
            return
        twin, session = self.pick(n)
        whole = twin.whole()
        if not whole:
            return
        at = whole[m % len(whole)].seq if m % 3 else None
        before = twin.path.read_bytes()
        child = Twin(self.store.fork(session, at=at))
        child.lines = [Line(**vars(line)) for line in twin.lines if at is None or line.seq <= at]
        self.twins.append(child)
        twin.add("forkPoint", "")
        assert twin.path.read_bytes().startswith(before)

    @rule(n=NUMBERS, m=NUMBERS)
    def condense(self, n: int, m: int) -> None:
        """A summary changes what a model is sent, and nothing that is there; one that covers what
        it must not is refused."""
        twin, session = self.pick(n)
        before = twin.path.read_bytes()
        lo = 1 + m % len(twin.lines)
        summary = CondensationEntry(
            replaced=(lo, lo + m // 100 % 3),
            summary=Summary(session_intent="so far"),
            tokens_before=9,
            tokens_after=1,
        )
        try:
            session.append(summary)
        except InvalidRange:
            assert twin.path.read_bytes() == before
            return
        twin.add("condensation", "")
        assert twin.path.read_bytes().startswith(before)

    # -- ends and accidents ------------------------------------------------------------------------

    def drop(self, twin: Twin) -> None:
        """The process dies without a word."""
        if twin.session is not None and twin.session._log is not None:
            twin.session._log._let_go()
        twin.session = None

    @rule(n=NUMBERS)
    def close(self, n: int) -> None:
        twin = self.twins[n % len(self.twins)]
        if twin.session is not None:
            appended = twin.session._appended
            twin.session.close()
            twin.session = None
            if appended:
                twin.add("end", "")

    @rule(n=NUMBERS)
    def die(self, n: int) -> None:
        self.drop(self.twins[n % len(self.twins)])

    @rule(n=NUMBERS, size=st.integers(1, 300))
    def die_in_a_write(self, n: int, size: int) -> None:
        """Some bytes of a line that nobody acknowledged are there. They are kept aside."""
        twin = self.twins[n % len(self.twins)]
        self.drop(twin)
        part = (b'{"type":"message","id":"0000000' + b"x" * size)[: size + 1]
        with twin.path.open("ab") as log:
            log.write(part)
        before = len(torn_files(twin.path))
        twin.session = Session.open(twin.path)
        *_, torn = torn_files(twin.path)
        assert len(torn_files(twin.path)) == before + 1
        assert torn.read_bytes() == part

    @rule(n=NUMBERS, m=NUMBERS)
    def damage(self, n: int, m: int) -> None:
        """A line in the middle is overwritten. It is lost, and nothing else."""
        twin = self.twins[n % len(self.twins)]
        there = [line for line in twin.lines[:-1] if not line.lost]
        if not there or twin.lines[-1].lost:
            return
        hit = there[m % len(there)]
        if hit.kind == "rewind":  # what it hid may show again; the person is told
            return
        self.drop(twin)
        lines = twin.path.read_bytes().split(b"\n")
        found = [
            at
            for at, line in enumerate(lines)
            if at and line.startswith(b"{") and json.loads(line).get("seq") == hit.seq
        ]
        lines[found[0]] = (b"garbage", b"\0" * len(lines[found[0]]))[m // 50 % 2]
        twin.path.write_bytes(b"\n".join(lines))
        hit.lost = True
        for line in twin.lines:  # what went back to it goes back to what was before it
            if line.kind == "rewind" and line.parent is not None:
                line.doubtful |= twin.lines[line.parent].lost
                line.parent = twin.bridged(line.parent)

    @rule(n=NUMBERS)
    def lose_index(self, n: int) -> None:
        if n % 2:
            self.store.close()
            self.store = Store(self.root)
        for path in self.root.glob(".awl/index.db*"):
            path.unlink()

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def each_session_holds_what_its_twin_holds(self) -> None:
        for twin in self.twins:
            state = twin.session.state if twin.session else read(twin.path)
            whole = twin.whole()
            assert state.seqs == [line.seq for line in whole]
            kinds = [json.loads(line)["type"] for line in sound(twin.path)[1:]]
            assert kinds == [line.kind for line in whole]
            assert state.given_title == twin.title
            on_path = [
                message_text(state.body(at))
                for at in state.path
                if state.body(at).__class__.__name__ == "MessageEntry"
            ]
            assert on_path in twin.on_path()
            assert_valid(view(state, MODEL), state, MODEL)

    @invariant()
    def lists_tell_what_is_there(self) -> None:
        listed = {info.path: info for info in self.store.list().sessions}
        assert listed.keys() == {str(twin.path) for twin in self.twins}
        for twin in self.twins:
            info = listed[str(twin.path)]
            messages = sum(line.kind == "message" for line in twin.whole())
            assert (info.message_count, info.event_count) == (messages, len(twin.whole()))
            assert (info.status == "open") == (twin.session is not None)


def sound(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line.startswith(b"{")]


def message_text(entry: Any) -> str:
    return "".join(block.text for block in entry.message.content)


def run(examples: int, steps: int) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Sessions,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sessions_hold_what_a_plain_model_holds() -> None:
    run(40, 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_sessions_hold_what_a_plain_model_holds_for_long() -> None:
    run(1500, 50)
