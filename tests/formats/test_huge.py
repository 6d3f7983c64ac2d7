"""Sessions of a gigabyte come over in little memory, and so does what is no session at all.

Long tests: each writes a file of 1 GB and imports it in a process of its own, whose peak is what
the system says of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from formats.counting import JSON
from running import Awl, peak_memory

from awl.formats.records import LONGEST

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SIZE = 1 << 30
MOST = 256 << 20
"""Bytes of memory for a session: what is kept of each record is where it is, not what it says."""
MOST_FOR_A_LINE = 3 * LONGEST
"""Bytes of memory for a file that is one line: it is read in pieces up to the longest that a line
may be, and joined."""

TIME = "2026-01-01T00:00:00.000Z"
OUTPUT = json.dumps('a word ✓ and a "quote"\n' * 400, ensure_ascii=False).encode()
"""What each tool gives; `HERE` stands for it in the records."""
HERE = "\N{SNOWMAN}"

Records = Iterator[JSON]


def _chained(records: Iterator[JSON], name: str, parent: str, form: str) -> Records:
    """Records that each name the one before."""
    last = None
    for number, record in enumerate(records, 1):
        this = form.format(number * 2654435761 % (1 << 32), number)
        yield {name: this, parent: last, "timestamp": TIME, **record}
        last = this


def claude_code() -> Records:
    def said(kind: str, content: object, **more: object) -> JSON:
        common = {"isSidechain": False, "cwd": "/x", "sessionId": "s"}
        return {**common, "type": kind, "message": {"role": kind, "content": content, **more}}

    def turns() -> Records:
        for n in itertools.count():
            use = {"type": "tool_use", "id": f"c{n}", "name": "Bash", "input": {"command": "ls"}}
            yield said("user", f"prompt {n}")
            yield said("assistant", [use], id=f"m{n}", model="c")
            yield said("user", [{"type": "tool_result", "tool_use_id": f"c{n}", "content": HERE}])
            yield said("assistant", [{"type": "text", "text": "Done."}], id=f"n{n}", model="c")

    return _chained(turns(), "uuid", "parentUuid", "{:08x}-0000-4000-8000-{:012x}")


def qwen_code() -> Records:
    def said(kind: str, part: JSON, **more: object) -> JSON:
        return {"sessionId": "s", "type": kind, "cwd": "/x", "message": {"parts": [part]}, **more}

    def turns() -> Records:
        for n in itertools.count():
            call = {"id": f"c{n}", "name": "run", "args": {"command": "ls"}}
            response = {"id": f"c{n}", "name": "run", "response": {"output": HERE}}
            yield said("user", {"text": f"prompt {n}"})
            yield said("assistant", {"functionCall": call}, model="q")
            yield said("tool_result", {"functionResponse": response})
            yield said("assistant", {"text": "Done."}, model="q")

    return _chained(turns(), "uuid", "parentUuid", "{:08x}-0000-4000-8000-{:012x}")


def pi() -> Records:
    def said(role: str, part: JSON, **more: object) -> JSON:
        return {"type": "message", "message": {"role": role, "content": [part], **more}}

    def turns() -> Records:
        asked = {"provider": "p", "model": "m", "api": "anthropic-messages"}
        for n in itertools.count():
            call = {"type": "toolCall", "id": f"c{n}", "name": "bash", "arguments": {}}
            told = {"toolCallId": f"c{n}", "toolName": "bash", "isError": False}
            yield said("user", {"type": "text", "text": f"prompt {n}"})
            yield said("assistant", call, stopReason="toolUse", **asked)
            yield said("toolResult", {"type": "text", "text": HERE}, **told)
            yield said("assistant", {"type": "text", "text": "Done."}, stopReason="stop", **asked)

    yield {"type": "session", "version": 3, "id": "abc", "timestamp": TIME, "cwd": "/x"}
    yield from _chained(turns(), "id", "parentId", "{:08x}")


def codex() -> Records:
    def line(kind: str, **payload: object) -> JSON:
        return {"timestamp": TIME, "type": kind, "payload": payload}

    def message(role: str, kind: str, text: str) -> JSON:
        content = [{"type": kind, "text": text}]
        return line("response_item", type="message", role=role, content=content)

    yield line("session_meta", id="0199-aa", timestamp=TIME, cwd="/x", model_provider="openai")
    yield line("turn_context", cwd="/x", model="gpt-5")
    for n in itertools.count():
        call = {"call_id": f"c{n}", "name": "shell", "arguments": '{"command":["ls"]}'}
        yield message("user", "input_text", f"prompt {n}")
        yield line("response_item", type="function_call", **call)
        yield line("response_item", type="function_call_output", call_id=f"c{n}", output=HERE)
        yield message("assistant", "output_text", "Done.")


def gemini_messages() -> Records:
    for n in itertools.count():
        response = {"id": f"c{n}", "name": "run", "response": {"output": HERE}}
        results = [{"functionResponse": response}]
        told = {"args": {"command": "ls"}, "status": "success", "result": results}
        call = {"id": f"c{n}", "name": "run", **told}
        for name, kind, content, calls in (
            ("u", "user", f"prompt {n}", []),
            ("g", "gemini", "", [call]),
            ("h", "gemini", "Done.", []),
        ):
            facts = {"id": f"0000-0000-{name}-{n:012x}", "timestamp": TIME, "type": kind}
            yield {**facts, "content": content, "toolCalls": calls, "model": "g"}


def gemini_cli() -> Records:
    yield {"sessionId": "s-1", "projectHash": "abc", "startTime": TIME}
    yield from gemini_messages()


def kimi_wire() -> Records:
    def event(kind: str, **payload: object) -> JSON:
        return {"timestamp": 1767225600.5, "message": {"type": kind, "payload": payload}}

    yield {"type": "metadata", "protocol_version": "1.10"}
    for n in itertools.count():
        function = {"name": "Shell", "arguments": '{"command":"ls"}'}
        value = {"is_error": False, "output": HERE, "message": "Done."}
        yield event("TurnBegin", user_input=f"prompt {n}")
        yield event("StepBegin", n=1)
        yield event("ToolCall", type="function", id=f"c{n}", function=function)
        yield event("ToolResult", tool_call_id=f"c{n}", return_value=value)
        yield event("StepBegin", n=2)
        yield event("ContentPart", type="text", text="Done.")
        yield event("TurnEnd")


def messages() -> Records:
    for n in itertools.count():
        function = {"name": "bash", "arguments": '{"command":"ls"}'}
        call = {"id": f"c{n}", "type": "function", "function": function}
        yield {"role": "user", "content": f"prompt {n}"}
        yield {"role": "assistant", "content": None, "tool_calls": [call]}
        yield {"role": "tool", "tool_call_id": f"c{n}", "content": HERE}
        yield {"role": "assistant", "content": "Done."}


def opencode() -> Records:
    asked = {"providerID": "p", "modelID": "m"}
    for n in itertools.count():
        state = {"status": "completed", "input": {"command": "ls"}, "output": HERE}
        call = {"type": "tool", "tool": "bash", "callID": f"c{n}", "state": state}
        done = {"type": "text", "text": "Done."}
        moment = {"created": 1767225600000 + n}
        for role, part in (
            ("user", {"type": "text", "text": f"prompt {n}"}),
            ("assistant", call),
            ("assistant", done),
        ):
            yield {"info": {"role": role, "time": moment, **asked}, "parts": [part]}


def zeph() -> Records:
    def events() -> Records:
        named = {"provider_name": "p", "model": "m"}
        yield {"type": "session_started", "session_id": "one", "cwd": "/x", **named}
        for n in itertools.count():
            use = {"kind": "tool_use", "id": f"c{n}", "name": "bash", "input": {"command": "ls"}}
            told = {"id": f"c{n}", "name": "bash", "is_error": False, "duration_ms": 1}
            yield {"type": "user_message", "text": f"prompt {n}", "image_refs": []}
            yield {"type": "assistant_message", "parts": [use]}
            yield {"type": "tool_result", "output": HERE, **told}
            yield {"type": "assistant_message", "parts": [{"kind": "text", "text": "Done."}]}

    for seq, event in enumerate(events()):
        yield {"seq": seq, "ts_ms": 1767225600000 + seq, "turn_id": 1, "kind": event}


@dataclass(frozen=True)
class Kind:
    """A kind of file: its records, and for a document what stands around them."""

    file: str
    records: Callable[[], Records]
    before: str = ""
    behind: str = ""


OPENCODE = (
    '{"info":{"id":"ses_1","title":"T","directory":"/x","projectID":"global",'
    '"time":{"created":1767225600000}},"messages":['
)
GEMINI = '{"sessionId":"s-1","projectHash":"abc","startTime":"2026-01-01","messages":['
KINDS = {
    "claude-code": Kind("s.jsonl", claude_code),
    "codex": Kind("rollout-2026-01-01T00-00-00-0199-aa.jsonl", codex),
    "gemini-cli": Kind("session-2026-01-01T00-00-s-1.jsonl", gemini_cli),
    "gemini-cli document": Kind("session-2026-01-01T00-00.json", gemini_messages, GEMINI, "]}"),
    "kimi-cli": Kind("one/wire.jsonl", kimi_wire),
    "openai": Kind("m.jsonl", messages),
    "openai document": Kind("m.json", messages, "[", "]"),
    "opencode document": Kind("export.json", opencode, OPENCODE, "]}"),
    "pi": Kind("2026-01-01T00-00-00-000Z_abc.jsonl", pi),
    "qwen-code": Kind("s.jsonl", qwen_code),
    "zeph": Kind("one/events.jsonl", zeph),
}


def write(path: Path, kind: Kind, size: int) -> int:
    """Write a file of some size; how many prompts it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    here, prompts = json.dumps(HERE, ensure_ascii=False).encode(), 0
    between = ",\n" if kind.behind else "\n"
    with path.open("wb") as file:
        file.write(kind.before.encode())
        for number, record in enumerate(kind.records()):
            text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
            if '"prompt ' in text:
                if file.tell() >= size:
                    break
                prompts += 1
            line = text.encode().replace(here, OUTPUT)
            file.write((between.encode() if number else b"") + line)
        file.write(kind.behind.encode() or b"\n")
    return prompts


def imported(awl: Awl, path: Path, form: str = "auto") -> tuple[int, str]:
    """Import a file: the peak of the process's memory in bytes, and what it said."""
    command = awl.command("sessions", "import", "--format", form, str(path))
    peak, said = peak_memory(command, check=False, cwd=awl.work, env=awl.env)
    assert "Traceback" not in said
    return peak, said


@pytest.mark.parametrize("name", KINDS)
def test_a_gigabyte_of_a_session_comes_over_in_little_memory(awl: Awl, name: str) -> None:
    kind = KINDS[name]
    path = awl.work / kind.file
    try:
        prompts = write(path, kind, SIZE)
        if name == "kimi-cli":
            write(path.with_name("context.jsonl"), Kind("", messages), SIZE)
        assert path.stat().st_size >= SIZE
        peak, said = imported(awl, path)
        print(f"\n{name}: {path.stat().st_size >> 20} MB, peak {peak >> 20} MB")
        assert f"{prompts} prompts, {2 * prompts} answers, {prompts} tool calls" in said
        assert peak < MOST
        assert awl.log.stat().st_size > SIZE * 0.9
    finally:
        path.unlink()
        for log in awl.logs:
            log.unlink()


NOTHING = {
    "zeros": (b"", b"\0" * (1 << 20)),
    "a line without an end": (b'{"type":"user","message":"', b"word " * (1 << 18)),
    "an array without an end": (b'[{"role":"user","content":"', b"word " * (1 << 18)),
    "nested": (b"", b"[" * (1 << 20)),
    "garbled lines": (b"", (b"\xff" + b" garbage" * 500 + b"\n") * 256),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_gigabyte_of_nothing_is_refused_in_bounded_memory(awl: Awl, name: str) -> None:
    start, piece = NOTHING[name]
    path = awl.work / "x.jsonl"
    try:
        with path.open("wb") as file:
            file.write(start)
            while file.tell() < SIZE:
                file.write(piece)
        for form in ("auto", "codex", "openai"):
            peak, said = imported(awl, path, form)
            print(f"\n{name}, {form}: peak {peak >> 20} MB")
            assert said.startswith("awl: ")
            assert len(said.splitlines()) < 30
            assert peak < MOST_FOR_A_LINE
        assert not awl.logs
    finally:
        path.unlink()
