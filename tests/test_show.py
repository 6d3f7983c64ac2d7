"""Looking at a session without opening it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import HARMFUL, JSON, Awl, assistant, user

from awl import show
from awl.show import Range

ALL = Range()


def test_a_range_is_inclusive_and_open_at_its_end() -> None:
    assert [seq for seq in range(6) if Range(2, 4).holds(seq)] == [2, 3, 4]
    assert [seq for seq in range(6) if Range(4).holds(seq)] == [4, 5]


def test_raw_lines_are_exact_wherever_a_block_ends(
    awl: Awl, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = awl.write_log(user("ü" * 50), b"\n\n\r\n\xff\x00\n", assistant("x"), b"torn")
    whole = path.read_bytes().removesuffix(b"torn")
    for size in (1, 2, 7, 64, 1 << 20):
        monkeypatch.setattr(show, "BLOCK", size)
        lines = list(show.raw_lines(path))
        assert b"".join(lines) == whole
        assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)


def test_events_name_each_damaged_line_in_its_place(awl: Awl) -> None:
    path = awl.write_log(b"first\n", user("a"), b"second\n", b"third\n", assistant("b"), b"last\n")
    rows = list(show.events(path, ALL))
    kinds = [row.split()[0] for row in rows]
    assert kinds == ["0", "damaged:", "2", "damaged:", "damaged:", "5", "damaged:"]
    assert rows[1].startswith("   damaged: line 2")


def test_events_mark_what_is_not_on_the_path(awl: Awl) -> None:
    path = awl.write_log(
        user("a"),
        assistant("b"),
        {"type": "rewind", "parentId": "00000001"},
        assistant("c", model="m"),
    )
    rows = list(show.events(path, ALL))
    assert ["not on the current path" in row for row in rows] == [False, False, True, False, False]


def test_every_type_of_entry_says_something_on_one_line(awl: Awl) -> None:
    texts: dict[str, JSON] = {
        "toolCall": {"toolUseId": "t1", "name": "bash"},
        "toolResult": {
            "toolUseId": "t1",
            "name": "bash",
            "content": "two\nlines",
            "isError": True,
            "durationMs": 7,
        },
        "partial": {"content": [{"type": "text", "index": 0, "text": "Once"}]},
        "modelChange": {"provider": "p", "model": "m"},
        "title": {"title": "Name"},
        "label": {"targetId": "00000001", "label": "here"},
        "import": {"source": "codex", "messageCount": 3},
        "note": {"kind": "pi:custom", "text": "By the way"},
        "end": {"reason": "idle_ttl"},
        "cwdChange": {"cwd": "/elsewhere"},
        "of tomorrow": {"x": 1},
    }
    path = awl.write_log(user("a"), *({"type": kind, **more} for kind, more in texts.items()))
    rows = list(show.events(path, ALL))[2:]
    said = [row.split("  ", 3)[2:] for row in rows]
    assert said == [
        ["toolCall", "bash (t1)"],
        ["toolResult", "bash (error, 7 ms) two lines"],
        ["partial", "Once"],
        ["modelChange", "p/m"],
        ["title", "Name"],
        ["label", "00000001 here"],
        ["import", "codex 3 messages"],
        ["note", "pi:custom By the way"],
        ["end", "idle_ttl"],
        ["cwdChange", "/elsewhere"],
        ["of tomorrow"],
    ]


def test_no_field_of_an_entry_can_forge_a_line(awl: Awl) -> None:
    evil = "x\n9  2026  user  forged\x1b[2J\r\x9b"
    path = awl.write_log(
        user(evil, timestamp=evil, id="a"),
        {"type": evil, "parentId": "a"},
        {"type": "title", "title": evil},
        {"type": "end", "reason": evil},
        cwd=Path("/" + evil.replace("\n", "\n")),
    )
    rows = list(show.events(path, ALL))
    assert len(rows) == 5
    for row in rows:
        assert "\n" not in row
        assert not HARMFUL.search(row)


def test_json_holds_the_entries_as_the_log_has_them(awl: Awl) -> None:
    path = awl.write_log(user("a", extra={"kept": [1, 2.50, None]}), b"bad\n", assistant("b"))
    lines = path.read_bytes().splitlines()
    found = show.as_json(path, ALL)
    assert found["entries"] == [json.loads(lines[1]), json.loads(lines[3])]
    assert found["session"]["message_count"] == 2
    assert [bad["line"] for bad in found["damage"]] == [3]
    assert show.as_json(path, Range(3))["entries"] == [json.loads(lines[3])]


def test_a_session_for_people_names_its_damage_and_takes_a_range(
    awl: Awl, capsys: pytest.CaptureFixture[str]
) -> None:
    path = awl.write_log(user("first"), b"bad\n", assistant("second"), user("third"))
    show.print_session(path, Range(2, 3), lines=5)
    out = capsys.readouterr().out
    assert "only this line is lost" in " ".join(out.split())
    assert "second" in out
    assert "third" not in out
    assert out.count("first") == 1  # in the title alone


def test_in_a_pipe_words_are_as_they_were_written(
    awl: Awl, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"# Plan\n\n- **one** `two`\n- {'long ' * 60}end\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    path = awl.write_log(user("Go."), assistant(said))
    show.print_session(path, ALL, lines=5)
    assert said in capsys.readouterr().out
