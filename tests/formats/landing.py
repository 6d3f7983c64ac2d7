"""Sources of other programs read into logs of awl, and what holds of each."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.counting import JSON
from test_view import assert_accepted, check

from awl.conversation import ModelRef, text_message
from awl.entries import Entry, LoggedMessage, MessageEntry
from awl.formats import Facts, Format, Report
from awl.replay import read
from awl.session import Session
from awl.show import Range, as_json
from awl.state import State
from awl.store.importing import Brought, Importer
from awl.view import view

DATA = Path(__file__).parent.parent / "data" / "formats"


@dataclass
class Landed:
    """A source that became a log."""

    log: Path
    source: Brought

    @property
    def facts(self) -> Facts:
        return self.source.source

    @property
    def report(self) -> Report:
        return self.source.report

    @property
    def state(self) -> State:
        return read(self.log)

    @property
    def shown(self) -> JSON:
        shown: JSON = json.loads(json.dumps(as_json(self.log, Range())))
        return shown

    @property
    def entries(self) -> list[Entry]:
        state = self.state
        return [state.body(position) for position in range(len(state.entries))]


def land(source: Path, known: Format, root: Path) -> Landed:
    """Import a source into a store at `root`; neither its bytes nor its times change."""
    before = [(file, file.read_bytes(), file.stat().st_mtime_ns) for file in _files(source)]
    root.mkdir(parents=True, exist_ok=True)
    brought = Importer(root, (), str(root)).bring(source, known)
    for path, data, changed in before:
        assert path.read_bytes() == data, "the source was changed"
        assert path.stat().st_mtime_ns == changed, "the source was touched"
    assert brought.path is not None, brought.outcome
    return Landed(brought.path, brought)


def _files(source: Path) -> list[Path]:
    if source.is_file():
        return [source, *(path for path in source.parent.rglob("*") if path.is_file())][:50]
    return [path for path in source.rglob("*") if path.is_file()]


def assert_sound(landed: Landed) -> None:
    """Nothing about the log is odd, and every provider accepts it with one more prompt."""
    state = landed.state
    assert not state.damage
    assert not state.all_findings
    assert not state.gaps
    ids = [entry.id for entry in state.entries]
    assert len(set(ids)) == len(ids)
    assert state.seqs == list(range(1, len(ids) + 1))
    check(state)
    assert_goes_on(landed)


def assert_goes_on(landed: Landed) -> None:
    """The session takes one more prompt, and every provider what is then sent."""
    copy = landed.log.with_name(landed.log.name.replace("_", "_copy-", 1))
    copy.write_bytes(landed.log.read_bytes())
    session = Session.open(copy, cwd=os.sep)
    session.append(MessageEntry(message=LoggedMessage.of(text_message("user", "and now?"))))
    for target in (ModelRef("claude", "c"), ModelRef("chat", "m"), session.active_model):
        for thinking in (True, False):
            if target == session.active_model and thinking:
                continue  # the stand-in did not sign what another server signed
            sent = view(session.state, target, thinking=thinking)
            assert sent.messages[-1].text.endswith("and now?")
            assert_accepted(sent, thinking=thinking)
    session.close()
    copy.unlink()


def given(value: Any) -> str:
    """A value as the text that a JSON writer without spaces makes of it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
