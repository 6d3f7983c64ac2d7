"""Logs written line by line, as awl or another program may have left them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from histories import facts, replayed
from hypothesis import strategies as st

from awl.log.names import log_path
from awl.state import State

SESSION_ID = "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"
TIME = "2026-04-25T17:40:15.990Z"
CWD = "/home/dev/awl"

JSON = dict[str, Any]


def header(**more: Any) -> JSON:
    return {
        "type": "session",
        "version": 1,
        "id": SESSION_ID,
        "timestamp": TIME,
        "cwd": CWD,
        "provider": "anthropic",
        "model": "claude-1",
        **more,
    }


def text(words: str) -> JSON:
    return {"type": "text", "text": words}


def use(call: str, given: str = "{}", **more: Any) -> JSON:
    return {"type": "toolUse", "id": call, "name": "bash", "input": given, **more}


def result(name: str, content: str = "done", **more: Any) -> JSON:
    return {"type": "toolResult", "toolUseId": name, "content": content, **more}


class RawLog:
    """Lines of a log. Each entry follows the one before and has the next seq, unless told else."""

    def __init__(self, *, stamped: bool = True, **more: Any) -> None:
        self.lines = [_line(header(**more))]
        self._stamped = stamped
        self._seq = 0
        self._turn = 0
        self._parent: str | None = None

    def add(self, kind: str, name: str | None = None, **fields: Any) -> str:
        """Add an entry of this type; returns its id."""
        self._seq += 1
        name = name or f"e{self._seq}"
        entry: JSON = {"type": kind, "id": name, "parentId": self._parent, "timestamp": TIME}
        if self._stamped:
            entry["seq"] = self._seq
            if kind in ("toolCall", "toolResult", "partial") or fields.get("message"):
                entry["turnId"] = self._turn
        entry.update(fields)
        self.lines.append(_line({key: value for key, value in entry.items() if value != "drop"}))
        self._seq = entry.get("seq", self._seq)
        self._parent = entry["id"]
        return str(entry["id"])

    def bad(self, data: bytes = b"garbage", *, instead: bool = False) -> None:
        """Add a line that cannot be read; `instead` of an entry, which has an id and a seq."""
        if instead:
            self._seq += 1
            self._parent = f"e{self._seq}"
        self.lines.append(data)

    def said(self, role: str, *content: JSON, **fields: Any) -> str:
        inner = fields.pop("inner", {})
        return self.add(
            "message", message={"role": role, "content": list(content), **inner}, **fields
        )

    def system(self, words: str, **fields: Any) -> str:
        return self.said("system", text(words), **fields)

    def prompt(self, words: str, **fields: Any) -> str:
        self._turn += 1
        fields = {"provider": "anthropic", "model": "claude-1", **fields}
        return self.said("user", text(words), **fields)

    def answer(self, *content: str | JSON, stop: str = "stop", **fields: Any) -> str:
        blocks = [text(block) if isinstance(block, str) else block for block in content]
        inner = {"stopReason": stop, **fields.pop("inner", {})}
        return self.said("assistant", *blocks, inner=inner, **fields)

    def calls(self, *names: str, **fields: Any) -> str:
        return self.answer(*(use(name) for name in names), stop="toolUse", **fields)

    def started(self, name: str, **fields: Any) -> str:
        return self.add("toolCall", toolUseId=name, **{"name": "bash", **fields})

    def ended(self, name: str, content: str = "logged alone", **fields: Any) -> str:
        fields = {"isError": False, "durationMs": 5, **fields}
        return self.add("toolResult", toolUseId=name, content=content, **{"name": "bash", **fields})

    def results(self, *blocks: JSON, **fields: Any) -> str:
        fields = {"provider": "anthropic", "model": "claude-1", **fields}
        return self.said("user", *blocks, **fields)

    def partial(self, words: str, index: int = 0, kind: str = "text", **fields: Any) -> str:
        return self.add("partial", content=[{"type": kind, "index": index, kind: words}], **fields)

    def condensed(self, lo: int, hi: int, intent: str = "the past", **fields: Any) -> str:
        summary = {
            "sessionIntent": intent,
            "filesModified": [],
            "decisionsMade": [],
            "openQuestions": [],
            "nextSteps": [],
        }
        fields = {"tokensBefore": 9, "tokensAfter": 1, **fields}
        return self.add("condensation", replaced=[lo, hi], summary=summary, **fields)

    @property
    def data(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)

    def write(self, root: Path, cwd: str = CWD, *, session_id: str = SESSION_ID) -> Path:
        """The log as a file where awl would look for it."""
        path = log_path(root, cwd, TIME, session_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path

    def state(self) -> State:
        """The state of these lines. That bodies are left on disk must change nothing."""
        return state_of(self.data)


def everything() -> RawLog:
    """A log with an entry of every type."""
    log = RawLog(forkedFrom={"sessionId": "parent", "seq": 2}, endpoint="https://e.test")
    log.add("import", source="legacy", messageCount=1, messages=[{"role": "user", "text": "hi"}])
    log.system("be brief")
    first = log.prompt("x")
    log.partial("hm", 0, "thinking")
    log.answer("y", inner={"usage": {"input": 5, "output": 2}, "provider": "p", "model": "m"})
    log.prompt("z")
    log.calls("a", "b")
    log.started("a")
    log.ended("a")
    log.results(result("a"), result("b"))
    log.add("compaction", tier="soft", clearedCount=1, cleared=[10])
    log.condensed(3, 5)
    log.add("modelChange", provider="openai", model="gpt", endpoint="https://o.test")
    log.add("title", title="t")
    log.add("label", targetId=first, label="l")
    log.add("cwdChange", cwd="/other")
    log.add("forkPoint", newSessionId="child", at=3)
    log.add("hologram", depth=3)
    log.prompt("w", provider="openai", model="gpt")
    log.add("end", reason="shutdown")
    log.add("rewind", parentId="e13")
    log.prompt("v")
    return log


CHANGES = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 3), st.binary(min_size=1, max_size=6)),
    max_size=5,
)
"""Changes of bytes: where, how (overwrite, insert, remove, or put a bit of JSON), and with what."""

_JSON_BITS = (b'"', b"{", b"}", b"\n", b"null", b"\\ud800", b"-1", b"[", b",", b"1e999", b'"id"')


def changed(data: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    for at, how, some in changes:
        at %= len(data)
        bit = _JSON_BITS[some[0] % len(_JSON_BITS)]
        new, cut = ((some, len(some)), (some, 0), (b"", len(some)), (bit, len(bit)))[how]
        data = data[:at] + new + data[at + cut :]
    return data


def state_of(data: bytes) -> State:
    with tempfile.TemporaryDirectory() as root:
        path = log_path(Path(root), CWD, TIME, SESSION_ID)
        path.parent.mkdir()
        path.write_bytes(data)
        eager, lazy = replayed(path), replayed(path, lazily=True)
        assert facts(lazy) == facts(eager)
        return eager


def said(state: State) -> list[str]:
    """What the conversation says, a word a message: its text, or what it is made of."""
    return [
        message.text or "+".join(type(block).__name__ for block in message.content)
        for message in state.conversation.messages
    ]


def _line(entry: JSON) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()
