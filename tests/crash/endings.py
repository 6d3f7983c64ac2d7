"""What must hold of a session whose process was ended at any moment."""

from __future__ import annotations

import json
from pathlib import Path

from running import Awl, kind


def complete(data: bytes) -> bytes:
    """The complete lines of what a log holds: they are there for sure."""
    return data[: data.rfind(b"\n") + 1]


def check_told(awl: Awl, told: bytes) -> None:
    """What awl said to be in the log is there."""
    text = "".join(log.read_text(errors="replace") for log in awl.logs)
    for event in map(json.loads, complete(told).splitlines()):
        match event["type"]:
            case "turn_started":
                assert f'"turnId":{event["turn_id"]},' in text
            case "answer_completed":
                assert f'"id":"{event["entry_id"]}"' in text
            case "tool_started" | "tool_finished":
                wanted = "toolCall" if event["type"] == "tool_started" else "toolResult"
                assert any(
                    f'"toolUseId":"{event["tool_use_id"]}"' in line and f'"{wanted}"' in line
                    for line in text.splitlines()
                ), event


def check_went_on(log: Path, killed: bytes) -> bool:
    """After the next prompt, nothing is missing of what a log held when its process was ended, and
    the chain is whole. Returns whether a torn tail was cut off."""
    lines, after = complete(killed), log.read_bytes()
    assert after.startswith(lines)
    rest = killed[len(lines) :]
    torn = bool(rest) and not after.startswith(killed)
    if torn:
        *_, last = sorted(log.parent.glob("*.torn-*"))
        assert last.read_bytes() == rest, "torn bytes were lost"
    entries = [json.loads(line) for line in after[:-1].split(b"\n")]
    assert [entry["seq"] for entry in entries[1:]] == [*range(1, len(entries))]
    assert [kind(entry) for entry in entries[-3:]] == ["user", "assistant", "end"]
    ids = [entry["id"] for entry in entries]
    assert len({*ids}) == len(ids)
    assert [entry["parentId"] for entry in entries[1:]] == [None, *ids[1:-1]]
    return torn
