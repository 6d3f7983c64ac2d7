"""Lines lose a text and nothing else; what is signed is dropped; what streamed is one text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from log.making import ENTRIES, any_entry
from rawlog import RawLog, result, text, use

from awl.entries import Entry, Header, UnknownEntry
from awl.health.pattern import Pattern
from awl.health.scrub import Scrubber
from awl.log.line import decode, encode

SECRET = "hunter-2222"
PATTERN = Pattern(SECRET)
JSON = dict[str, Any]


def scrubbed(*lines: bytes, pattern: Pattern = PATTERN, **options: Any) -> list[bytes]:
    scrubber = Scrubber(pattern, **options)
    done = [made for line in lines for made in scrubber.take(line)]
    return [*done, *scrubber.finish()]


def one(kind: str, **fields: Any) -> JSON:
    """What becomes of an entry of this type."""
    log = RawLog()
    log.add(kind, **fields)
    (line,) = scrubbed(log.lines[-1])
    assert SECRET.encode() not in line
    found: JSON = json.loads(line)
    before = json.loads(log.lines[-1])
    assert list(found) == list(before)
    for stamp in ("type", "id", "parentId", "timestamp", "seq"):
        assert found[stamp] == before[stamp]
    return found


def blocks(*content: JSON, **inner: Any) -> list[JSON]:
    """What becomes of an answer's content."""
    found = one("message", message={"role": "assistant", "content": list(content), **inner})
    made: list[JSON] = found["message"]["content"]
    return made


# -- what stays ------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_a_line_that_does_not_hold_it_stays_as_it_is(entry: Header | Entry) -> None:
    line = encode(entry)[:-1]
    assert scrubbed(line) == [line]


def test_what_is_around_it_stays_to_the_byte() -> None:
    log = RawLog()
    log.prompt("x")
    log.lines[-1] = log.lines[-1].replace(b'"seq":1', b'"odd": 1.50, "seq":1')
    line = log.lines[-1].replace(b'"model":"claude-1"', b'"model":"' + SECRET.encode() + b'"')
    assert scrubbed(line) == [
        log.lines[-1].replace(b'"odd": 1.50, ', b'"odd":1.50,').replace(b"claude-1", b"[redacted]")
    ]


@given(any_entry)
def test_every_text_of_any_entry_can_go_and_it_stays_an_entry(entry: Header | Entry) -> None:
    if isinstance(entry, UnknownEntry):
        return
    pattern = Pattern(r"[a-z0-9]", regex=True, replacement="Z")
    line = encode(entry)[:-1]
    (made,) = scrubbed(line, pattern=pattern)
    found, before = decode(made), decode(line)
    assert type(found) is type(before)
    assert found.id == before.id
    if not isinstance(found, Header) and not isinstance(before, Header):
        assert (found.seq, found.parent_id) == (before.seq, before.parent_id)
    assert scrubbed(made, pattern=pattern) == [made]


def test_what_holds_a_log_together_stays() -> None:
    log = RawLog(cwd=f"/{SECRET}", id=SECRET, forkedFrom={"sessionId": SECRET, "seq": 1})
    log.add("label", SECRET, targetId=SECRET, label=SECRET)
    log.answer(use(SECRET, SECRET), name=f"{SECRET}1")
    header, label, answer = (json.loads(line) for line in scrubbed(*log.lines))
    assert (header["cwd"], header["id"]) == (f"/{SECRET}", SECRET)
    assert (label["targetId"], label["label"]) == (SECRET, "[redacted]")
    assert answer["message"]["content"][0]["id"] == SECRET
    assert answer["message"]["content"][0]["input"] == "[redacted]"


# -- where it is found -----------------------------------------------------------------------------


def test_it_goes_from_every_kind_of_text() -> None:
    assert one("title", title=f"a {SECRET}")["title"] == "a [redacted]"
    summary = {"sessionIntent": SECRET, "filesModified": [SECRET], "decisionsMade": []}
    found = one("condensation", replaced=[1, 2], summary=summary, tokensBefore=1, tokensAfter=1)
    assert found["summary"]["filesModified"] == ["[redacted]"]
    messages = [{"role": "user", "text": SECRET}]
    found = one("import", source=SECRET, messageCount=1, messages=messages)
    assert found["messages"] == [{"role": "user", "text": "[redacted]"}]
    assert one("modelChange", provider="p", model="m", endpoint=f"http://x?k={SECRET}")["endpoint"]
    assert blocks(text(SECRET), {"type": "thinking", "thinking": SECRET}) == [
        text("[redacted]"),
        {"type": "thinking", "thinking": "[redacted]"},
    ]
    assert one("toolResult", toolUseId="t", content=f"{SECRET}!")["content"] == "[redacted]!"


def test_it_goes_from_what_nobody_knows_keys_and_numbers_included() -> None:
    pattern = Pattern("123456")
    entry = {"type": "odd", "id": "x", "parentId": None, "pin123456": {"123456": [123456, 7.5]}}
    (line,) = scrubbed(json.dumps(entry).encode(), pattern=pattern)
    assert json.loads(line) == {
        "type": "odd",
        "id": "x",
        "parentId": None,
        "pin[redacted]": {"[redacted]": ["[redacted]", 7.5]},
    }


def test_a_tool_s_input_stays_json() -> None:
    given = json.dumps({"command": f'echo "{SECRET}" \\ é', "pin": 5})
    (block,) = blocks({"type": "toolUse", "id": "t", "name": "bash", "input": given})
    assert json.loads(block["input"]) == {"command": 'echo "[redacted]" \\ é', "pin": 5}
    pin = Pattern("98765")
    log = RawLog()
    log.answer(use("t", '{"pin":98765}'), use("u", "not json 98765"))
    (line,) = scrubbed(log.lines[-1], pattern=pin)
    first, second = json.loads(line)["message"]["content"]
    assert json.loads(first["input"]) == {"pin": "[redacted]"}
    assert second["input"] == "not json [redacted]"


def test_it_goes_from_bad_lines_and_from_fields_that_are_there_twice() -> None:
    line = f'{{"type":"message","te {SECRET} \\u0068unter-2222'.encode() + b"\xff"
    assert scrubbed(line) == [b'{"type":"message","te [redacted] [redacted]\xff']
    twice = f'{{"type":"title","id":"x","title":"{SECRET}","title":"b"}}'.encode()
    assert scrubbed(twice) == [b'{"type":"title","id":"x","title":"b"}']


# -- what is signed --------------------------------------------------------------------------------

SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
SEALED = {"type": "redactedThinking", "data": "abc"}


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "thinking", "thinking": f"so {SECRET}", "signature": "c2ln"},
        {"type": "redactedThinking", "data": SECRET},
        {"type": "thinking", "thinking": "", "providerData": {"item": [SECRET]}},
    ],
)
def test_a_signed_block_that_holds_it_goes_with_all_that_is_bound_to_it(bad: JSON) -> None:
    bound = {"type": "text", "text": "so", "providerData": {"id": "msg_1"}}
    unsigned = {"type": "thinking", "thinking": "unsigned"}
    assert blocks(SIGNED, bad, unsigned, SEALED, bound, use("t")) == [
        unsigned,
        text("so"),
        use("t"),
    ]


def test_a_text_that_is_bound_is_bound_no_more_once_it_is_another() -> None:
    bound = {"type": "text", "text": SECRET, "providerData": {"id": "msg_1"}}
    assert blocks(SIGNED, bound) == [text("[redacted]")]
    bound = {"type": "text", "text": "x", "providerData": {"id": SECRET}}
    assert blocks(SIGNED, bound) == [text("x")]


def test_signed_blocks_beside_a_text_that_holds_it_stay() -> None:
    assert blocks(SIGNED, SEALED, text(SECRET)) == [SIGNED, SEALED, text("[redacted]")]


# -- what streamed ---------------------------------------------------------------------------------


def test_a_text_that_streamed_in_pieces_is_found() -> None:
    log = RawLog()
    log.prompt("x")
    for piece in ("it is hun", "ter", "-22", "22, yes"):
        log.partial(piece, 1)
        log.partial("hm", 0, "thinking")
    log.partial(f"{SECRET} {SECRET[:4]}", 0, "thinking")
    log.partial(SECRET[4:], 0, "thinking")
    log.answer("y")
    done = scrubbed(*log.lines)
    assert [json.loads(line)["id"] for line in done] == [
        json.loads(line)["id"] for line in log.lines
    ]
    partials = [block for line in done[2:-1] for block in json.loads(line)["content"]]
    shown = [block["text"] for block in partials if block["type"] == "text"]
    assert shown == ["it is [redacted]", "", "", ", yes"]
    thought = [block["thinking"] for block in partials if block["type"] == "thinking"]
    assert thought == ["hm", "hm", "hm", "hm", "[redacted] [redacted]", ""]
    assert done[0] == log.lines[0] and done[3] == log.lines[3] and done[-1] == log.lines[-1]


def test_what_streamed_in_different_answers_is_not_one_text() -> None:
    log = RawLog()
    log.partial(SECRET[:5])
    log.answer("x")
    log.partial(SECRET[5:])
    assert scrubbed(*log.lines) == log.lines


# -- blobs -----------------------------------------------------------------------------------------


def test_blobs_with_a_new_name_are_named_so() -> None:
    old, new = "a" * 64, "b" * 64
    log = RawLog()
    image = {"type": "image", "mimeType": "image/png", "blob": {"blob": old, "size": 3}}
    log.said("user", image)
    log.ended("t", images=[image], output={"blob": old, "size": 3})
    log.results(result("t", output={"blob": old, "size": 3}))
    log.add("odd", where={"blob": old, "size": 3})
    done = scrubbed(*log.lines, blobs={old: (new, 9)})
    for before, after in zip(log.lines[1:], done[1:], strict=True):
        assert after == before.replace(b"a" * 64, b"b" * 64).replace(b'"size":3', b'"size":9')
