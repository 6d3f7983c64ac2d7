"""The seed's manual integration test, as a script: a person at a terminal, step by step."""

from __future__ import annotations

import itertools
import json
import signal

from running import Awl, call, kind, say, texts, until
from terminals import CTRL_C, Terminal


def test_the_seeds_manual_integration_test(awl: Awl) -> None:
    (awl.work / "a.txt").write_text("alpha\n")
    tools = [say("Let me look."), call("read", path="a.txt"), call("bash", command="echo beta")]
    awl.plays(
        {"when": "What is here?", "steps": tools},
        {"when": "alpha", "steps": [say("It is alpha and beta.")]},
        {"when": "And again", "steps": [say("Still alpha.")]},
        {"when": "Where were we?", "steps": [say("At alpha.")]},
        {"when": "Who are you?", "steps": [say("The other one.")]},
        {"when": "Tell a story", "steps": [say("Once upon ", chunk=10), {"delay": 120}]},
        {"when": "Go on", "steps": [say("a time.")]},
    )

    # Start `awl`, hold a multi-turn conversation with tool calls, quit.
    with Terminal(awl, "-y") as terminal:
        terminal.say("What is here?")
        terminal.see("It is alpha and beta.")
        terminal.say("And again?")
        terminal.see("Still alpha.")
        assert terminal.leave() == 0

    # Inspect the JSONL file: entries are present and well-formed.
    lines = awl.log.read_bytes().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [kind(entry) for entry in entries] == [
        *("session", "system", "user", "assistant", "toolCall", "toolResult", "toolCall"),
        *("user", "assistant", "user", "assistant", "end"),
    ]
    assert entries[0]["cwd"] == str(awl.work)
    for before, entry in itertools.pairwise(entries[1:]):
        assert entry["parentId"] == before["id"]
    calls = [b for b in entries[3]["message"]["content"] if b["type"] == "toolUse"]
    results = entries[7]["message"]["content"]
    assert [c["id"] for c in calls] == [r["toolUseId"] for r in results]

    # `awl --resume`: the conversation goes on where it was left.
    with Terminal(awl, "--resume", "-y") as terminal:
        terminal.see("2 turns")
        terminal.say("/history")
        terminal.see("It is alpha and beta.")
        terminal.say("Where were we?")
        terminal.see("At alpha.")

        # Change the model, send a prompt: the entry carries the new provider and model.
        terminal.say("/model other")
        terminal.see("other/model-2")
        terminal.say("Who are you?")
        terminal.see("The other one.")
        until(lambda: kind(awl.entries()[-1]) == "assistant")
        asked = [(e["provider"], e["model"]) for e in awl.entries() if kind(e) == "user"]
        assert asked == [("play", "scripted")] * 4 + [("other", "model-2")]

        # Kill `awl` in the middle of a turn: first by Ctrl-C while it streams ...
        terminal.say("Tell a story")
        until(lambda: "partial" in awl.types())
        terminal.type("", end=CTRL_C)
        until(lambda: kind(awl.entries()[-1]) == "assistant")
        assert awl.entries()[-1]["message"]["stopReason"] == "aborted"
        assert texts(awl.entries()[-1]) == "Once upon "

        # ... and then for good.
        partials = awl.types().count("partial")
        terminal.say("Tell a story, please")
        until(lambda: awl.types().count("partial") > partials)
        terminal.signal(signal.SIGKILL)
        terminal.process.wait()
    before = awl.log.read_bytes()

    # `awl --resume`: the session loads from its last valid entry.
    with Terminal(awl, "--resume", "-y") as terminal:
        terminal.see("It was interrupted in the middle of a turn.")
        terminal.say("Go on")
        terminal.see("a time.")
        assert terminal.leave() == 0
    assert awl.log.read_bytes().startswith(before)
    assert awl.entries()[-2]["message"]["model"] == "model-2"

    # `awl sessions`: listed with correct metadata.
    (line,) = awl("sessions").lines
    session_id, day, minute, count, noun, *title = line.split()
    created = awl.entries()[0]["timestamp"]
    assert awl.id.startswith(session_id)
    assert f"{day}T{minute}" == created[:16]
    assert (int(count), noun) == (sum(e["type"] == "message" for e in awl.entries()), "messages")
    assert " ".join(title) == "What is here?"
