"""The agent's own time, in a turn and at a terminal.

In a turn a model in this process answers at once, so that all time is awl's: for a streamed token
and for a tool call, beside what the bare stream takes and what the syncs of its lines take. At a
terminal awl asks a server on loopback; each token carries the time of its sending, so the delay
until it stands on the screen can be read there. Then a command prints 10,000 lines, and another
prints without end until Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from awl.agent import Agent
from awl.conversation import ModelRef, Text, ToolUse
from awl.providers import Completed, Request, StreamEvent, TextDelta, ToolSpec
from awl.session import Session
from awl.tools import ToolContext, ToolOutcome
from benchmarks.corpus import folder
from benchmarks.figures import Figure, Found, over, plain

MODEL = ModelRef("instant", "instant")
TOKENS = 5_000
CALLS = 200


class Instant:
    """A model that answers at once: a call for each answer but the last, then `TOKENS` tokens."""

    context_window = 0
    takes_tools = True
    ref = MODEL

    def __init__(self, calls: int, tokens: int) -> None:
        self.calls, self.tokens = calls, tokens

    def warm(self) -> None: ...

    async def close(self) -> None: ...

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        if self.calls:
            self.calls -= 1
            use = ToolUse(id=f"call-{self.calls}", name="nothing", input="{}")
            yield Completed(content=(use,), stop_reason="toolUse", model=self.ref.model)
            return
        for _ in range(self.tokens):
            yield TextDelta(0, "word ")
        text = Text(text="word " * self.tokens)
        yield Completed(content=(text,), stop_reason="stop", model=self.ref.model)


class Nothing:
    """A tool that does nothing."""

    spec = ToolSpec("nothing", "Does nothing.", {"type": "object"})
    mutates = False

    def describe(self, input: Mapping[str, Any]) -> str:
        return "nothing"

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return ToolOutcome(content="done")


async def _turn(calls: int, tokens: int, root: Path) -> float:
    session = Session.create(root, str(root), MODEL)
    agent = Agent(session, Instant(calls, tokens), [Nothing()], max_turns=calls + 2)
    begun = time.perf_counter()
    async for _ in agent.prompt("go"):
        pass
    took = time.perf_counter() - begun
    await agent.close()
    session.close()
    return took


async def _bare(tokens: int) -> float:
    begun = time.perf_counter()
    request = Request(system=None, messages=())
    async for _ in Instant(0, tokens).stream(request):
        pass
    return time.perf_counter() - begun


def measure(quick: bool) -> Found:
    return Found([*_in_a_turn(3 if quick else 9), *_at_a_terminal()])


def _in_a_turn(times: int) -> list[Figure]:
    tokens, bare, calls, unsynced = [], [], [], []
    with folder() as root:
        for _ in range(times):
            base = asyncio.run(_turn(0, 1, root))
            tokens.append((asyncio.run(_turn(0, TOKENS, root)) - base) / TOKENS)
            bare.append(asyncio.run(_bare(TOKENS)) / TOKENS)
            calls.append((asyncio.run(_turn(CALLS, 1, root)) - base) / CALLS)
            with patch("awl.log.file.sync"):
                unsynced.append((asyncio.run(_turn(CALLS, 1, root)) - base) / CALLS)
    synced = median(calls) - median(unsynced)
    return [
        over("awl's time for a streamed token", median(tokens), "the stream", median(bare), None),
        over("awl's time for a tool call", median(calls), "the syncs of its 3 lines", synced, None),
    ]


# -- at a terminal ---------------------------------------------------------------------------------

PROMPT = "\u203a"
SENT = re.compile(r"<(\d+\.\d+)>")


class _Model(BaseHTTPRequestHandler):
    """Speaks OpenAI's chat protocol: tokens that carry the time at which they were sent."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def log_message(self, format: str, *args: object) -> None: ...

    def _send(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
            "choices": [choice],
        }
        self._chunk(f"data: {json.dumps(chunk)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).asked += 1
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if command := {2: "seq 1 10000", 4: "yes"}.get(type(self).asked):
            arguments = json.dumps({"command": command})
            call = {"index": 0, "id": "a", "type": "function"}
            call["function"] = {"name": "bash", "arguments": arguments}
            self._send({"role": "assistant", "tool_calls": [call]})
            self._send({}, "tool_calls")
        else:
            for _ in range(100):
                self._send({"content": f"<{time.time():.6f}> "})
                time.sleep(0.01)
            self._send({}, "stop")
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")


def _at_a_terminal() -> list[Figure]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _Model.asked = 0
    with folder() as home, _awl_at_a_terminal(home, server.server_address[1]) as terminal:
        _until(terminal, PROMPT)
        os.write(terminal, b"hello\r")
        delays = _delays(terminal, 100)
        _until(terminal, PROMPT)
        os.write(terminal, b"count\r")
        _until(terminal, "seq 1 10000")
        begun = time.perf_counter()
        _delays(terminal, 1)
        counted = time.perf_counter() - begun
        _until(terminal, PROMPT)
        os.write(terminal, b"flood\r")
        _until(terminal, "yes")
        time.sleep(1)
        begun = time.perf_counter()
        os.write(terminal, b"\x03")
        _until(terminal, PROMPT)
        stopped = time.perf_counter() - begun
    server.shutdown()
    server.server_close()
    sent = "from a token's sending to the screen"
    return [
        plain(f"{sent}, the first", delays[0], 5e-3),
        plain(f"{sent}, the median of {len(delays)}", median(delays), 5e-3),
        plain("a command that prints 10,000 lines, to the answer behind it", counted),
        plain("Ctrl-C while a command prints without end, to the prompt", stopped),
    ]


@contextlib.contextmanager
def _awl_at_a_terminal(home: Path, port: int) -> Iterator[int]:
    """awl at a terminal of its own, whose other end is given."""
    config = home / "config.toml"
    config.write_text(
        '[agent]\nprovider = "here"\n[[llm.providers]]\nname = "here"\ntype = "openai"\n'
        f'model = "m"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
    )
    env = {"AWL_CONFIG": str(config), "AWL_SESSION_DIR": str(home / "s"), "TERM": "xterm"}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "awl", "-y"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=home,
        env={**os.environ, **env},
        preexec_fn=_take_terminal,
    )
    os.close(theirs)
    try:
        yield ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _take_terminal() -> None:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _until(fd: int, words: str) -> str:
    seen = ""
    while words not in seen:
        seen += _read(fd)
    return seen


def _delays(fd: int, count: int) -> list[float]:
    """The delays of the first tokens that stand on the screen, each by when it was first read."""
    seen, found = "", {}
    while len(found) < count:
        seen += _read(fd)
        now = time.time()
        for sent in SENT.findall(seen):
            found.setdefault(sent, now - float(sent))
    return list(found.values())


def _read(fd: int) -> str:
    ready, _, _ = select.select([fd], [], [], 60)
    if not ready:
        raise TimeoutError("nothing arrived for a minute")
    with contextlib.suppress(OSError):
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(fd, 65536).decode("utf-8", "replace"))
    return ""
