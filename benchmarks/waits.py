"""What a person at a terminal waits for, with a server on loopback as the model.

Each token carries the time of its sending, so the delay until it stands on the screen can be read
there. Then a command prints 10,000 lines, and another prints without end until Ctrl-C.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from awl.channels.screen import TICK
from benchmarks.corpus import folder
from benchmarks.figures import Figure, over, plain
from benchmarks.terminals import Terminal, at_a_terminal

PROMPT = "\u203a"
SENT = re.compile(r"<(\d+\.\d+)>")
TOKENS = 100
COMMANDS = {"count": "seq 1 10000", "flood": "yes"}
"""What is run for which prompt; to any other, and to a result, the answer is tokens."""

NOTICED = 0.1
"""Seconds of standing still that a person notices."""


class _Model(BaseHTTPRequestHandler):
    """Speaks OpenAI's chat protocol: tokens that carry the time at which they were sent."""

    protocol_version = "HTTP/1.1"

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
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        last = asked["messages"][-1]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if last["role"] == "user" and last["content"] in COMMANDS:
            arguments = json.dumps({"command": COMMANDS[last["content"]]})
            call = {"index": 0, "id": "a", "type": "function"}
            call["function"] = {"name": "bash", "arguments": arguments}
            self._send({"role": "assistant", "tool_calls": [call]})
            self._send({}, "tool_calls")
        else:
            for _ in range(TOKENS):
                self._send({"content": f"<{time.time():.6f}> "})
                time.sleep(0.01)
            self._send({}, "stop")
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")


class _Round(msgspec.Struct, frozen=True):
    """The seconds of one round: of each token, to the answer behind 10,000 lines and the longest
    time that the screen stood still until then, the longest rest of the status line while a command
    printed without end, and from Ctrl-C to the prompt."""

    tokens: list[float]
    counted: float
    still: float
    rest: float
    stopped: float


def figures(rounds: int) -> list[Figure]:
    """What so many rounds in one conversation took."""
    with _server() as port, folder() as home, _awl(home, port) as terminal:
        terminal.see(PROMPT)
        found = [_round(terminal) for _ in range(rounds)]
    tokens = list(itertools.chain.from_iterable(one.tokens for one in found))
    sent = "from a token's sending to the screen"
    lines, endless = "a command that prints 10,000 lines", "a command prints without end"
    return [
        plain(f"{sent}, the first of an answer", median(one.tokens[0] for one in found), 5e-3),
        plain(f"{sent}, the median of {len(tokens):,}", median(tokens), 5e-3),
        plain(f"{lines}, to the answer behind it", median(one.counted for one in found)),
        plain(
            f"{lines}, the longest time that the screen stands still",
            median(one.still for one in found),
            NOTICED,
        ),
        over(
            f"the status line's longest rest while {endless}",
            median(one.rest for one in found),
            "the time between two of its changes",
            TICK,
            NOTICED,
        ),
        plain(f"Ctrl-C while {endless}, to the prompt", median(one.stopped for one in found), 1.0),
    ]


def _round(terminal: Terminal) -> _Round:
    """A round, from one prompt to another."""
    terminal.type("hello\r")
    tokens = _delays(terminal)
    terminal.see(PROMPT)
    terminal.type("count\r")
    terminal.see(COMMANDS["count"])
    moments = [time.perf_counter(), *terminal.see("<")]
    terminal.see(PROMPT)
    terminal.type("flood\r")
    terminal.see(COMMANDS["flood"])
    terminal.see("running")
    changes = terminal.watch(1.0)
    begun = time.perf_counter()
    terminal.type("\x03")
    terminal.see(PROMPT)
    return _Round(
        tokens=tokens,
        counted=moments[-1] - moments[0],
        still=_longest(moments),
        rest=_longest(changes),
        stopped=time.perf_counter() - begun,
    )


def _delays(terminal: Terminal) -> list[float]:
    """The delays of an answer's tokens, each by when it was first read on the screen."""
    found: dict[str, float] = {}
    while len(found) < TOKENS:
        terminal.read()
        now = time.time()
        for sent in SENT.findall(terminal.unseen):
            found.setdefault(sent, now - float(sent))
    terminal.see(f"<{[*found][-1]}>")
    return list(found.values())


def _longest(moments: list[float]) -> float:
    return max(later - one for one, later in itertools.pairwise(moments))


@contextlib.contextmanager
def _server() -> Iterator[int]:
    """The model; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _awl(home: Path, port: int) -> Iterator[Terminal]:
    config = home / "config.toml"
    config.write_text(
        '[agent]\nprovider = "here"\n[[llm.providers]]\nname = "here"\ntype = "openai"\n'
        f'model = "m"\nbase_url = "http://127.0.0.1:{port}/v1"\n'
    )
    env = {"AWL_CONFIG": str(config), "AWL_SESSION_DIR": str(home / "s")}
    command = [sys.executable, "-m", "awl", "-y"]
    with at_a_terminal(command, env=env, cwd=home) as terminal:
        yield terminal
