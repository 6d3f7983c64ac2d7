from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from awl.conversation import Opaque, Role, Text, Thinking, ToolResult
from awl.entries import (
    UNSTAMPED,
    CondensationEntry,
    Entry,
    Header,
    LoggedMessage,
    MessageEntry,
    ModelChangeEntry,
    NoteEntry,
    PartialEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    UnknownEntry,
    Usage,
)
from awl.log.line import (
    BULKY,
    REFUSED,
    BadLine,
    Outer,
    decode,
    decode_outer,
    decode_roughly,
    encode,
    encode_as_is,
    is_object,
    skim,
    sound,
)
from awl.log.line import held as as_held

from .making import ENTRIES, HEADER, any_entry, any_text, message, stamped

MESSAGE = (
    b'{"type":"message","id":"a","parentId":"b","seq":4,"message":{"role":"user","content":%s}}'
)


def read_message(line: bytes) -> MessageEntry:
    entry = decode(line)
    assert isinstance(entry, MessageEntry)
    return entry


def in_the_log(entry: Header | Entry) -> tuple[bytes, Header | Entry]:
    """The line of an entry, and the entry as it holds it."""
    line, as_it_is = encode_as_is(entry)
    return line, as_held(entry, line, as_it_is)


def content_of(content: bytes) -> tuple[Any, ...]:
    return read_message(MESSAGE % content).message.content


# -- writing ---------------------------------------------------------------------------------------


@given(any_entry)
@example(NoteEntry(**stamped(1), kind="x", text="", record=math.inf))
@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_entry_comes_back_as_it_was_held(entry: Header | Entry) -> None:
    line, held = in_the_log(entry)
    assert decode(line) == held
    if not (isinstance(held, NoteEntry) and held.record is None):  # what was no number is written
        assert encode(held) == line
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    text = line.decode("utf-8")
    assert len(text.splitlines()) == 1
    assert len(re.split("\r\n|[\r\n\u2028\u2029\u0085]", text)) == 2  # as JavaScript splits lines
    quick = not isinstance(held, Header | UnknownEntry)
    assert decode_roughly([line], outer=False) == [held] * quick
    assert is_object(line)


@given(any_text, any_text)
@settings(deadline=None)
def test_text_is_kept_to_the_character_but_for_lone_surrogates(text: str, other: str) -> None:
    said = f"{text}\u2028\u2029\u0085\x0b\x1c\x00\r\n\ufeff{other}"
    _, held = in_the_log(message(1, said))
    assert isinstance(held, MessageEntry)
    (block,) = held.message.content
    assert isinstance(block, Text)
    assert block.text == said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert "\ud800" not in block.text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udfff", "\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\\ud800 \ud800", "\\ud800 \ufffd"),
        ("\\\ud800", "\\\ufffd"),
        ("\ufeff\ud800", "\ufeff\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced_before_writing(text: str, kept: str) -> None:
    line, held = in_the_log(message(1, text))
    assert held == message(1, kept) == decode(line)


def test_separators_are_written_escaped_and_read_back() -> None:
    line = encode(message(1, "a\u2028b\u2029c\u0085d"))
    assert b"a\\u2028b\\u2029c\\u0085d" in line
    assert read_message(line).message.said().text == "a\u2028b\u2029c\u0085d"


@pytest.mark.parametrize(
    ("given_data", "kept"),
    [
        ({"x": math.nan}, {"x": None}),
        ({"x": (1, 2)}, {"x": [1, 2]}),
        ({"x": -math.inf, "\ud800": "\ud800"}, {"x": None, "\ufffd": "\ufffd"}),
    ],
)
def test_what_json_cannot_say_is_held_as_it_is_written(
    given_data: dict[str, Any], kept: dict[str, Any]
) -> None:
    block = Text(text="x", provider_data=given_data)
    entry = MessageEntry(**stamped(1), message=LoggedMessage(role="user", content=(block,)))
    line, held = in_the_log(entry)
    assert held == decode(line)
    assert isinstance(held, MessageEntry)
    assert held.message.content == (Text(text="x", provider_data=kept),)


def test_an_unknown_entry_with_surrogates_is_written_and_held_without() -> None:
    entry = UnknownEntry(**stamped(1), kind="x", raw={"type": "x", "say": ["\ud800"]})
    line, held = in_the_log(entry)
    assert json.loads(line)["say"] == ["\ufffd"]
    assert decode(line) == held


# -- lenient reading -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b"null",
        b"7",
        b'"text"',
        b"[1]",
        b"{}",
        b'{"type":"title"}',
        b'{"type":"title","title":"x","id":""}',
        b'{"type":"title","title":"x","id":null}',
        b'{"id":"a"}',
        b'{"type":7,"id":"a"}',
        b'{"type":"session"}',
        b'{"type":"session","version":1,"id":"","timestamp":"","cwd":"","provider":"","model":""}',
        b'{"type":"title","id":"a","title":"x"',
        b'{"type":"title","id":"a","title":"x"}{"type":"title","id":"b","title":"y"}',
        b'{"type":"title","id":"a","title":"x"} {"type":"title","id":"b","title":"y"}',
        b'{"type":"title","id":"a","title":"x"},',
        b'x{"type":"title","id":"a","title":"x"}',
        b'\x00\x00{"type":"title","id":"a","title":"x"}',
        b'{"type":"title","id":"a","title":"x"}\x00\x00\x00',
        b'{"type":"title","id":"a","title":"x\x00"}',
        b'{"type":"title","id":"a","title":"\xff"}',
        b'{"type":"title","id":"a","title":"\xed\xa0\x80"}',
        b'\xef\xbb\xbf{"type":"title","id":"a","title":"x"}',
        b'{"type":"title","id":"a","title":"x"}'.decode().encode("utf-16"),
        b'{"type":"title","id":"a","title":"x"}'.decode().encode("utf-32-le"),
        b"\x00" * 4096,
        b"{" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 100_000,
    ],
    ids=lambda line: repr(line[:40]),
)
def test_a_line_that_is_no_entry_is_bad_and_no_more(line: bytes) -> None:
    for read in (decode, decode_outer):
        with pytest.raises(BadLine):
            read(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\x00" * 50, "zero bytes"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b'{"a":1', "not a complete JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", "nested too deeply"),
        (b'{"a":1}', "an object without a type or an id: not an entry"),
    ],
)
def test_a_bad_line_says_why(line: bytes, reason: str) -> None:
    with pytest.raises(BadLine, match=re.escape(reason)):
        decode(line)


def test_an_object_is_no_torn_line_whatever_it_holds() -> None:
    assert is_object(b'{"a":1}')
    assert is_object(b'{"type":"tomorrow","id":"x","n":%s}' % (b"9" * 9000))
    for line in (b"[1]", b"1", b'{"a":1', b'{"a":1}{"b":2}', b"{}x", b"{" * 9999):
        assert not is_object(line)


def test_an_unknown_type_is_kept_whole_with_its_place_in_the_chain() -> None:
    line = (
        b'{"type":"vote","id":"a","parentId":"b","timestamp":"t","seq":9,"turnId":2,"up":[1e999]}'
    )
    entry = decode(line)
    assert isinstance(entry, UnknownEntry)
    assert (entry.kind, entry.id, entry.parent_id, entry.seq, entry.turn_id) == (
        "vote",
        "a",
        "b",
        9,
        2,
    )
    assert entry.raw["up"] == [math.inf]


def test_unknown_blocks_and_misshapen_ones_are_opaque() -> None:
    assert content_of(b'[{"type":"video","url":"x"},7,{"text":"no type"},{"type":"text"}]') == (
        Opaque(kind="video", raw='{"type": "video", "url": "x"}'),
        Opaque(kind="", raw="7"),
        Opaque(kind="", raw='{"text": "no type"}'),
        Opaque(kind="text", raw='{"type": "text"}'),
    )


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        (b'"words"', (Text(text="words"),)),
        (b"null", ()),
        (b"7", ()),
        (b'[{"type":"text","text":"x","color":"red"}]', (Text(text="x"),)),
        (b'[{"type":"text","text":"x","providerData":null}]', (Text(text="x"),)),
        (b'[{"type":"thinking","thinking":"x","signature":null}]', (Thinking(thinking="x"),)),
        (
            b'[{"type":"toolResult","toolUseId":"t","content":"x","isError":null,"images":null}]',
            (ToolResult(tool_use_id="t", content="x"),),
        ),
        (b'[{"type":"text","text":"\\ud800"}]', (Text(text="\ufffd"),)),
        (b'[{"type":"text","text":"\\ud83d\\ude00"}]', (Text(text="\U0001f600"),)),
        (b'[{"type":"text","text":"\\\\ud800 \\ud800"}]', (Text(text="\\ud800 \ufffd"),)),
        (b'[{"type":"text","text":"x","n":NaN}]', (Text(text="x"),)),
        (b'[{"type":"text","text":"x","n":1e999}]', (Text(text="x"),)),
        (b'[{"type":"text","text":"x","n":%s}]' % (b"9" * 5000), (Text(text="x"),)),
        (b'[{"type":"text","text":"x","text":"y"}]', (Text(text="y"),)),
    ],
)
def test_content_is_read_leniently(content: bytes, blocks: tuple[Any, ...]) -> None:
    assert content_of(content) == blocks


@pytest.mark.parametrize(
    ("field", "value", "read"),
    [
        ("seq", "null", 0),
        ("seq", '"7"', 0),
        ("seq", "true", 0),
        ("seq", "-3", -3),
        ("seq", "9" * 30, int("9" * 30)),
        ("seq", "9" * 5000, 0),
        ("parent_id", "null", None),
        ("parent_id", "7", UNSTAMPED),
        ("parent_id", "false", UNSTAMPED),
        ("timestamp", "12345", ""),
        ("turn_id", '"1"', None),
        ("turn_id", "null", None),
        ("provider", "7", None),
        ("model", "null", None),
    ],
)
def test_a_field_of_the_wrong_type_reads_as_if_it_were_absent(
    field: str, value: str, read: Any
) -> None:
    name = {"parent_id": "parentId", "turn_id": "turnId"}.get(field, field)
    for content in ("[]", '"words"'):  # the typed and the tolerant decoder
        line = (
            f'{{"type":"message","id":"a","{name}":{value},'
            f'"message":{{"role":"user","content":{content}}}}}'
        ).encode()
        assert getattr(read_message(line), field) == read
        assert getattr(decode_outer(line), field) == read


def test_missing_fields_get_their_neutral_value() -> None:
    message_entry = read_message(b'{"type":"message","id":"a","message":{"role":"user"}}')
    assert (message_entry.seq, message_entry.parent_id, message_entry.timestamp) == (0, "", "")
    assert message_entry.message.content == ()
    assert decode(b'{"type":"toolResult","id":"a"}') == ToolResultEntry(
        id="a", tool_use_id="", name="", content="", is_error=False, duration_ms=0
    )
    assert decode(b'{"type":"partial","id":"a"}') == PartialEntry(id="a", content=())
    assert decode(b'{"type":"toolCall","id":"a","toolUseId":"t"}') == ToolCallEntry(
        id="a", tool_use_id="t", name=""
    )
    condensation = decode(b'{"type":"condensation","id":"a","replaced":[1,2],"summary":{}}')
    assert isinstance(condensation, CondensationEntry)
    assert (condensation.tokens_before, condensation.tokens_after) == (0, 0)


def test_a_known_type_of_an_unknown_shape_is_kept_whole() -> None:
    for line in (
        b'{"type":"title","id":"a","title":{"en":"x"}}',
        b'{"type":"message","id":"a","message":{"role":"tool","content":[]}}',
        b'{"type":"message","id":"a","message":[]}',
        b'{"type":"message","id":"a"}',
        b'{"type":"modelChange","id":"a"}',
    ):
        for read in (decode, decode_outer):
            entry = read(line)
            assert isinstance(entry, UnknownEntry)
            assert entry.raw == json.loads(line)


def test_null_optionals_are_as_good_as_absent() -> None:
    assert decode(
        b'{"type":"modelChange","id":"a","provider":"p","model":"m","endpoint":null,"turnId":null}'
    ) == ModelChangeEntry(id="a", provider="p", model="m")
    assert read_message(
        b'{"type":"message","id":"a","provider":null,"message":{"role":"assistant","content":[],'
        b'"usage":null,"stopReason":null}}'
    ) == MessageEntry(id="a", message=LoggedMessage(role="assistant", content=()))


def test_usage_of_an_unknown_shape_is_left_out_alone() -> None:
    entry = read_message(
        b'{"type":"message","id":"a","message":{"role":"assistant","content":"x","usage":{"in":1}}}'
    )
    assert entry.message.usage is None
    assert entry.message.said().text == "x"


@pytest.mark.parametrize(
    "fields",
    [
        '"version":"1","cwd":"/x"',
        '"cwd":"/x","timestamp":5,"provider":null',
        '"version":1,"cwd":"/x","forkedFrom":{"seq":1},"endpoint":7,"cwdBytes":[]',
    ],
)
def test_a_header_tells_what_it_can(fields: str) -> None:
    entry = decode(f'{{"type":"session","id":"s",{fields}}}'.encode())
    assert entry == Header(
        version=1, id="s", timestamp="", cwd="/x", provider="", model="", forked_from=None
    )


def test_a_header_of_a_newer_version_is_read_as_far_as_understood() -> None:
    entry = decode(b'{"type":"session","id":"s","version":2,"cwd":"/x","shard":3}')
    assert isinstance(entry, Header)
    assert (entry.version, entry.cwd) == (2, "/x")


def test_of_a_key_that_comes_twice_the_last_counts_in_every_decoder() -> None:
    twice = (
        b'{"type":"title","title":"x","id":"a","id":"b","type":"message","message":{"role":"user"}}'
    )
    assert isinstance(decode(twice), MessageEntry)
    outer = decode_outer(twice)
    assert (outer.id, isinstance(outer, Outer) and outer.type) == ("b", "message")


@pytest.mark.parametrize("depth", [10, 200, 330, 500, 900, 960, 1000, 2000, 100_000])
def test_however_deep_a_line_is_nested_only_that_line_suffers(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    lines = [
        MESSAGE % nested,
        MESSAGE % b'[{"type":"text","text":"x","providerData":{"a":%s}}]' % nested,
        MESSAGE % b'[{"type":"new","a":%s}]' % nested,
        b'{"type":"new","id":"a","a":%s}' % nested,
        b'{"type":"title","id":"a","title":%s}' % nested,
        b'{"type":"toolResult","id":"a","content":%s}' % nested,
        b'{"type":"partial","id":"a","content":%s}' % nested,
        b'{"type":"message","id":"a","message":{"role":"user","content":[],"usage":%s}}' % nested,
        b'{"type":"session","id":"a","forkedFrom":%s}' % nested,
        b'{"a":%s}' % nested,
    ]
    for line in lines:
        is_object(line)
        decode_roughly([line], outer=True)
        try:
            outer = decode_outer(line)
        except BadLine:
            with pytest.raises(BadLine):
                decode(line)
            continue
        # Whatever is left on disk can be fetched later.
        assert decode(line).id == outer.id


def deeper(levels: int, line: bytes) -> Header | Entry:
    return deeper(levels - 1, line) if levels else decode(line)


def test_a_body_that_was_left_on_disk_can_be_read_from_anywhere() -> None:
    opaque = 0
    for depth in range(700, 1000, 3):  # decoders give up at different depths
        line = MESSAGE % (b"[" * depth + b"]" * depth)
        if isinstance(or_bad(decode_outer, line), Outer):
            entry = read_message(line)
            opaque += isinstance(entry.message.content[0], Opaque)
            assert deeper(500, line) == entry
    assert opaque


def test_running_out_of_memory_does_not_make_a_good_line_bad(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr("awl.log.line.json.loads", fail)
    with pytest.raises(MemoryError):
        is_object(b'{"type":"tomorrow","id":"a"}')


# -- the fast paths --------------------------------------------------------------------------------

good_lines = st.one_of(
    st.sampled_from([encode(entry)[:-1] for entry in ENTRIES]),
    any_entry.map(lambda entry: encode(entry)[:-1]),
)
TRICKY = (
    b'{"type":"title","id":"a","title":"x}\n{y"}',
    b'{"type":"title","id":"a","title":"x"}{"type":"title","id":"b","title":"y"}',
    b'{"type":"title","id":"a","title":"x"} {"type":"title","id":"b","title":"y"}',
    b'{"type":"message","id":"a","message":{"role":"user","content":[],"n":{}}\n{}}',
    b'{"type":"partial","id":"a"}{"type":"partial","id":"b","n":"}\n{"}',
    b'{"type":"partial","id":"","content":[]}',
    b'{"type":"message","id":"a","seq":-1,"message":{"role":"user","content":"plain"}}',
    b'{"type":"message","id":"a","seq":1.0,"message":{"role":"user","content":[{"a":NaN}]}}',
    b'{"type":"message","id":"a","message":{"role":"tool","content":[]}}',
    b'{"type":"message","id":"a","message":{"role":"user","content":"\xff"}}',
    b'{"type":"message","id":"a","message":{"role":"user","content":"\\ud800"}}',
    b'{"type":"message","id":"a","message":{"role":"user","content":"\\q"}}',
    b'{"type":"message","id":"a","message":{"role":"user","content":"\x01"}}',
    b'{"type":"message","id":"a","message":null}',
    b'{"type":"toolResult","id":"a","content":[{"type":"text"}],"isError":"no"}',
    b'{"type":"toolCall","id":"a","toolUseId":"t","name":null}',
    b'{"type":"toolCall","id":"a","toolUseId":"t","name":7}',
    b'{"type":"toolCall","id":"a","toolUseId":null,"name":"bash"}',
    b'{"type":"toolCall","id":"a","toolUseId":"t","provider":7}',
    b'{"type":"new","id":"a","x":1e999}',
    b'{"type":"session","id":"s"}',
    b"{}",
    b"",
    b" ",
    b"\r",
    b"}\n{",
    b"}",
    b"{",
    b"[{}]",
    b"\x00\x00\x00\x00",
    b"\xef\xbb\xbf{}",
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A good line with a few bytes put in, taken out or changed."""
    line = bytearray(draw(good_lines))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(line)))
        put = draw(st.sampled_from([b"", *(bytes([c]) for c in b'{}[]",:\\u0- 1eN\n\t\x00\xff')]))
        line[at : at + draw(st.integers(0, 2))] = put
    return bytes(line)


any_line = st.one_of(good_lines, good_lines, st.sampled_from(TRICKY), mutated(), st.binary())


def or_bad(read: Any, line: bytes) -> Any:
    try:
        return read(line)
    except BadLine:
        return "bad"


def agree(outer: Any, entry: Any) -> bool:
    """Whether an outer reading says what the whole entry says."""
    if not isinstance(outer, Outer):
        return bool(outer == entry) or repr(outer) == repr(entry)  # NaN differs from itself
    assert outer.type in BULKY
    if entry == "bad" or entry.__struct_config__.tag != outer.type:
        return False
    if isinstance(entry, ToolCallEntry) and outer.tool_use_id != entry.tool_use_id:
        return False
    shared = ("id", "parent_id", "timestamp", "seq", "turn_id")
    same = all(getattr(outer, name) == getattr(entry, name) for name in shared)
    if isinstance(entry, MessageEntry):
        assert outer.message is not None
        role: Role = entry.message.role
        usage: Usage | None = entry.message.usage
        same = same and (outer.provider, outer.model) == (entry.provider, entry.model)
        same = same and (outer.message.role, outer.message.usage) == (role, usage)
    return same


@pytest.mark.parametrize("line", TRICKY, ids=lambda line: repr(line)[:60])
def test_a_tricky_line_is_the_same_to_all_decoders(line: bytes) -> None:
    entry, outer = or_bad(decode, line), or_bad(decode_outer, line)
    assert agree(outer, entry)
    check_rough([line + b"\n"])
    check_rough([encode(message(1)), line + b"\n"])


@given(any_line)
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_the_outer_decoder_agrees_with_the_whole_one(line: bytes) -> None:
    assert agree(or_bad(decode_outer, line), or_bad(decode, line))


def check_rough(lines: list[bytes]) -> None:
    """What is made of many lines at once is, where it is sound, what each of them holds."""
    for outer, read in ((False, decode), (True, decode_outer)):
        for line, entry in zip(lines, decode_roughly(lines, outer=outer), strict=False):
            if sound(entry):
                assert repr(entry) == repr(or_bad(read, line))
    with contextlib.suppress(*REFUSED):
        for line, found in zip(lines, skim(lines, plain=False), strict=False):
            needed = {"message": found.message, "toolCall": found.tool_use_id}
            if found.id and needed.get(found.type, True) is not None:
                entry = or_bad(decode, line)
                fields = {"timestamp": entry.timestamp, **msgspec.structs.asdict(found)}
                assert agree(Outer(**fields), entry)


@given(st.lists(any_line, max_size=6))
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_many_lines_are_read_as_each_is_or_not_at_all(lines: list[bytes]) -> None:
    check_rough([line + b"\n" for line in lines])


def test_the_fast_path_is_taken_for_lines_as_awl_writes_them() -> None:
    known = [entry for entry in ENTRIES if not isinstance(entry, UnknownEntry | Header)]
    lines = [encode(entry) for entry in known]
    assert decode_roughly(lines, outer=False) == known
    outers = decode_roughly(lines, outer=True)
    bulky = MessageEntry | ToolCallEntry | ToolResultEntry | PartialEntry
    for entry, outer in zip(known, outers, strict=True):
        assert sound(entry) and sound(outer) == isinstance(entry, bulky)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b'{"type":"title","id":"a","title":"x"}{"type":"title","id":"b","title":"y"}\n',
        b'{"type":"title","id":"a","title":"x"} {"type":"title","id":"b","title":"y"}\n',
        b'{"type":"message","id":"a","message":{"role":"user","content":"\xff"}}\n',
        encode(HEADER),
    ],
)
def test_what_is_not_for_a_quick_decoder_ends_what_it_makes_of_lines(line: bytes) -> None:
    good = message(1)
    for outer in (False, True):
        found = decode_roughly([encode(good), line, encode(good)], outer=outer)
        assert not any(map(sound, found[1:2])) and sound(found[0])
    with pytest.raises(REFUSED):
        list(skim([line], plain=False))


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"title","id":"","title":"x"}\n',
        b'{"type":"message","id":"","message":{"role":"user","content":[]}}\n',
        b'{"type":"message","id":"a"}\n',
        b'{"type":"toolCall","id":"a","name":"bash"}\n',
    ],
)
def test_what_lacks_something_that_is_needed_is_not_sound(line: bytes) -> None:
    for outer in (False, True):
        assert not any(map(sound, decode_roughly([line], outer=outer)))


def test_a_title_is_never_left_on_disk() -> None:
    line = encode(TitleEntry(**stamped(1), title="x"))
    assert decode_outer(line) == decode(line) == TitleEntry(**stamped(1), title="x")


def test_msgspec_reads_a_stored_struct_as_awl_does() -> None:
    """The structs are the format: another reader with the same structs needs no awl code."""
    for entry in ENTRIES:
        if not isinstance(entry, UnknownEntry):
            assert msgspec.json.decode(encode(entry), type=type(entry)) == entry


@pytest.mark.parametrize(
    "session_id", ["", "..", "../x", "a/b", "-p", "a b", "\x1b]0;x\x07", "a" * 101]
)
def test_a_header_with_an_id_that_could_act_is_damaged(session_id: str) -> None:
    line = encode(msgspec.structs.replace(HEADER, id=session_id))
    with pytest.raises(BadLine):
        decode(line)
    with pytest.raises(BadLine):
        decode_outer(line)
    assert decode_roughly([line], outer=False) == []
    assert not any(map(sound, decode_roughly([line], outer=True)))
