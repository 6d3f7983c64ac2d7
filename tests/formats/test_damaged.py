"""Files of every program that were cut, garbled, written twice, or that are something else: what is
whole in them comes, damage costs itself and is counted, nothing comes that was never there, and the
file stays as it is.

The short form cuts at some bytes; `pytest --long tests/formats` at each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import le
from pathlib import Path
from typing import Any

import msgspec
import pytest
from formats.counting import Counts, count_awl
from formats.landing import Landed, assert_sound
from formats.samples import SAMPLES, Sample
from running import Awl

from awl.formats import NAMES, find
from awl.formats.listing import NotRecognised, recognise
from awl.replay import read
from awl.store.importing import Brought, Importer, Tally

LINES = [sample for sample in SAMPLES if sample.by_line]
DOCUMENTS = [sample for sample in SAMPLES if not sample.by_line]
READ = [name for name in NAMES if find(name).read is not None]
LONG_LINE = 6000
"""Of longer lines, not each byte is tried: their middle is one string."""


def told(counts: Counts) -> tuple[int, ...]:
    """A count as an import tells it."""
    errors = sum(bad for _, _, bad in counts.outputs)
    return (counts.prompts, len(counts.inputs), len(counts.outputs), errors, counts.images)


def tallied(tally: Tally) -> tuple[int, ...]:
    return (tally.prompts, tally.calls, tally.results, tally.errors, tally.images)


@dataclass
class Bench:
    """A sample in a folder, whose file is replaced by variants of it."""

    sample: Sample
    folder: Path
    file: Path
    data: bytes

    @classmethod
    def of(cls, sample: Sample, folder: Path) -> Bench:
        file = sample.make(folder / "there")
        file.chmod(0o600)
        return cls(sample, folder, file, file.read_bytes())

    @property
    def lines(self) -> list[bytes]:
        return self.data.splitlines(keepends=True)

    def count(self, data: bytes) -> Counts:
        """What whole lines, or a whole document, hold."""
        self.file.write_bytes(data)
        return self.sample.count(self.file)

    def tried(self, data: bytes) -> Brought:
        """What would come of these bytes."""
        self.file.write_bytes(data)
        root = self.folder / "awl"
        brought = Importer(root, (), "/x", dry_run=True).bring(self.file, self.sample.format)
        assert self.file.read_bytes() == data
        try:
            assert recognise(self.file) == self.sample.format
        except NotRecognised as error:
            assert str(error)
        return brought

    def landed(self, data: bytes) -> Landed | None:
        """The session that these bytes become; None where they hold no message."""
        self.file.write_bytes(data)
        changed = self.file.stat().st_mtime_ns
        root = self.folder / "awl"
        brought = Importer(root, (), str(self.folder)).bring(self.file, self.sample.format)
        assert (self.file.read_bytes(), self.file.stat().st_mtime_ns) == (data, changed)
        return None if brought.path is None else Landed(brought.path, brought)


def bare(counts: Counts) -> Counts:
    """A count without the line breaks at the end of outputs, which Kimi's contexts may lack."""
    outputs = [(name, text.rstrip("\n"), bad) for name, text, bad in counts.outputs]
    return replace(counts, outputs=outputs)


def sampled(sample: Sample) -> str:
    return str(sample)


# -- cut -------------------------------------------------------------------------------------------


def ends_of(bench: Bench) -> list[int]:
    """Where each record ends: a line without its newline, or an element of the document."""
    if bench.sample.by_line:
        ends, at = [], 0
        for line in bench.lines:
            at += len(line)
            ends.append(at - 1)
        return ends
    document = msgspec.json.decode(bench.data)
    elements = msgspec.json.decode(bench.data, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
    if isinstance(elements, dict):
        elements = msgspec.json.decode(elements["messages"], type=list[msgspec.Raw])
    assert len(elements) == len(document if isinstance(document, list) else document["messages"])
    ends, at = [], 0
    for element in elements:
        at = bench.data.index(bytes(element), at) + len(bytes(element))
        ends.append(at)
    return ends


def beginning(bench: Bench, records: int) -> bytes:
    """The file as it was when it had so many records, whole."""
    if bench.sample.by_line:
        return b"".join(bench.lines[:records])
    document = json.loads(bench.data)
    if isinstance(document, list):
        return json.dumps(document[:records]).encode()
    return json.dumps({**document, "messages": document["messages"][:records]}).encode()


def places(bench: Bench, *, each: bool) -> Iterator[int]:
    """Where to cut: at each byte, or at some and around the ends of records."""
    ends = ends_of(bench)
    start = 0
    for end in [*ends, len(bench.data)]:
        size = end + 1 - start
        step = (1 if size < LONG_LINE else 61) if each else max(size // 2, 500)
        tried = {*range(start, end + 1, step), end - 1, end, min(end + 1, len(bench.data))}
        yield from sorted(at for at in tried if at >= start)
        start = end + 2


def cut(bench: Bench, *, each: bool) -> int:
    ends = ends_of(bench)
    counts: dict[int, tuple[int, ...]] = {}
    seen = 0
    for at in places(bench, each=each):
        whole = sum(end <= at for end in ends)
        if whole not in counts:
            counts[whole] = told(bench.count(beginning(bench, whole)))
        brought = bench.tried(bench.data[:at])
        assert tallied(brought.tally) == counts[whole], f"cut at byte {at}"
        assert brought.report.damaged <= 1, f"cut at byte {at}"
        assert brought.outcome == ("new" if brought.tally.messages else "empty")
        seen += 1
    assert counts[len(ends)] == told(bench.count(bench.data))
    return seen


@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_cut_at_some_bytes_what_is_whole_comes(tmp_path: Path, sample: Sample) -> None:
    assert cut(Bench.of(sample, tmp_path), each=False) > 10


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_cut_at_every_byte_what_is_whole_comes(tmp_path: Path, sample: Sample) -> None:
    assert cut(Bench.of(sample, tmp_path), each=True) > 500


# -- lines that are none, and lines that are there twice -------------------------------------------

GARBLED = {
    "words": b"what is this?\n",
    "zeros": bytes(700) + b"\n",
    "half": b'{"type": "user", "message": {"role": "user", "content": [{"te\n',
    "no UTF-8": b'{"type": "\xff\xfe\x80", "id": 1}}\n',
    "deep": b"[" * 20_000 + b"\n",
    "a number": b"17\n",
    "a list": b'["user", "hello"]\n',
}


@pytest.mark.parametrize("sample", LINES, ids=sampled)
def test_a_garbled_line_costs_itself_alone(tmp_path: Path, sample: Sample) -> None:
    bench = Bench.of(sample, tmp_path)
    lines = bench.lines
    for at in range(1, len(lines)):
        whole = told(bench.count(b"".join((*lines[:at], *lines[at + 1 :]))))
        bad = tuple(GARBLED.values())[at % len(GARBLED)]
        brought = bench.tried(b"".join((*lines[:at], bad, *lines[at + 1 :])))
        found = tallied(brought.tally)
        if sample.form == "zeph":  # events tell of the calls of an answer that is lost
            most = told(bench.count(bench.data))
            assert all(map(le, whole, found)) and all(map(le, found, most)), f"line {at + 1}"
        else:
            assert found == whole, f"line {at + 1}"
        assert [damaged.line for damaged in brought.report.damage] == [at + 1]


@pytest.mark.parametrize("what", GARBLED)
@pytest.mark.parametrize("sample", LINES, ids=sampled)
def test_garbled_lines_between_all_others_cost_nothing_else(
    tmp_path: Path, sample: Sample, what: str
) -> None:
    bench = Bench.of(sample, tmp_path)
    counts = bench.count(bench.data)
    landed = bench.landed(GARBLED[what].join(bench.lines) + GARBLED[what])
    assert landed is not None
    assert bare(count_awl(landed.shown)) == bare(counts)
    assert landed.report.damaged == len(bench.lines)
    assert_sound(landed)


HARMLESS: dict[str, Callable[[list[bytes]], bytes]] = {
    "without its last newline": lambda lines: b"".join(lines).rstrip(b"\n"),
    "with the line ends of Windows": lambda lines: b"".join(lines).replace(b"\n", b"\r\n"),
    "with a byte order mark": lambda lines: b"\xef\xbb\xbf" + b"".join(lines),
    "with blank lines": lambda lines: b"\n \n".join(lines) + b"\n\t\r\n\n",
}


@pytest.mark.parametrize("how", HARMLESS)
@pytest.mark.parametrize("sample", LINES, ids=sampled)
def test_what_is_no_damage_costs_nothing(tmp_path: Path, sample: Sample, how: str) -> None:
    bench = Bench.of(sample, tmp_path)
    counts = bench.count(bench.data)
    landed = bench.landed(HARMLESS[how](bench.lines))
    assert landed is not None
    assert bare(count_awl(landed.shown)) == bare(counts)
    assert not landed.report.damage
    assert_sound(landed)


@pytest.mark.parametrize("tail", [bytes(1), bytes(5000), b'{"a":' * 5000, b"\xff" * 10])
@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_what_a_crash_leaves_behind_the_end_is_one_damage(
    tmp_path: Path, sample: Sample, tail: bytes
) -> None:
    bench = Bench.of(sample, tmp_path)
    counts = told(bench.count(bench.data))
    brought = bench.tried(bench.data + tail)
    assert tallied(brought.tally) == counts
    assert brought.report.damaged == 1


TWICE: dict[str, Callable[[list[bytes]], bytes]] = {
    "the whole file": lambda lines: b"".join(lines) * 2,
    "each line": lambda lines: b"".join(line * 2 for line in lines),
    "its second half": lambda lines: b"".join((*lines, *lines[len(lines) // 2 :])),
}


@pytest.mark.parametrize("what", TWICE)
@pytest.mark.parametrize("sample", [one for one in LINES if one.has_ids], ids=sampled)
def test_records_that_were_written_twice_come_once(
    tmp_path: Path, sample: Sample, what: str
) -> None:
    bench = Bench.of(sample, tmp_path)
    counts = bench.count(bench.data)
    once = bench.landed(bench.data)
    twice = bench.landed(TWICE[what](bench.lines))
    assert once is not None and twice is not None
    assert count_awl(twice.shown) == counts
    assert_sound(twice)
    said = [[item.message for item in landed.state.items] for landed in (once, twice)]
    assert said[0] == said[1]


# -- fields that are of another type, and records that nobody knows --------------------------------

ODD: tuple[Any, ...] = (None, 7, -1.5, True, "odd", "", [], {}, [[{}]], {"a": [None]}, 10**30)


def places_in(value: Any, at: tuple[Any, ...] = (), deepest: int = 5) -> Iterator[tuple[Any, ...]]:
    """Where the values inside a value stand."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, one in inside:
        yield (*at, key)
        if isinstance(one, dict | list) and deepest:
            yield from places_in(one, (*at, key), deepest - 1)


def with_odd(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    """A value in which another one stands at a place."""
    key, *rest = place
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = with_odd(value[key], tuple(rest), odd) if rest else odd
    return copy


def odd_fields(bench: Bench, every: int) -> int:
    tried = 0
    most = told(bench.count(bench.data))
    lines = bench.lines if bench.sample.by_line else [bench.data]
    for number, line in enumerate(lines):
        record = json.loads(line)
        for place in places_in(record):
            tried += 1
            if tried % every:
                continue
            odd = with_odd(record, place, ODD[tried // every % len(ODD)])
            changed = json.dumps(odd, ensure_ascii=False).encode() + b"\n"
            data = b"".join((*lines[:number], changed, *lines[number + 1 :]))
            bench.file.write_bytes(data)
            note = f"line {number + 1}: {place} is {odd!r:.300}"
            try:
                with suppress(NotRecognised):
                    recognise(bench.file)
                brought = Importer(bench.folder / "awl", (), "/x").bring(
                    bench.file, bench.sample.format
                )
            except Exception as error:
                error.add_note(note)
                raise
            found = tallied(brought.tally)
            if brought.path is not None:
                state = read(brought.path)
                assert not state.damage and not state.all_findings, note
                brought.path.unlink()
            # A result that is none any more is what somebody said, and where a record tells again
            # of a call or a result with another id, it tells of another one.
            assert found[1] <= most[1] + 1, note
            assert found[0] + found[2] <= most[0] + most[2] + 1, note
            assert bench.file.read_bytes() == data
    return tried // every


@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_an_odd_field_costs_no_more_than_its_record(tmp_path: Path, sample: Sample) -> None:
    assert odd_fields(Bench.of(sample, tmp_path), 23) > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_any_odd_field_costs_no_more_than_its_record(tmp_path: Path, sample: Sample) -> None:
    for every in (1, 2, 3, 5):  # each time other fields are given other values
        assert odd_fields(Bench.of(sample, tmp_path / str(every)), every) > 5


@pytest.mark.parametrize("sample", LINES, ids=sampled)
def test_records_that_nobody_knows_are_kept_as_they_are(tmp_path: Path, sample: Sample) -> None:
    bench = Bench.of(sample, tmp_path)
    counts = bench.count(bench.data)
    moment = '"timestamp":"2026-01-01T00:00:00.000Z"'
    lines = bench.lines
    for number in range(1, len(lines) + 1):
        new = f'{{"type":"weather-{number}","sky":["\\u0062lue", 1.50],{moment}}}\n'
        lines[number - 1] += new.encode()
    landed = bench.landed(b"".join(lines))
    assert landed is not None
    assert bare(count_awl(landed.shown)) == bare(counts)
    log = landed.log.read_text()
    for number in range(1, len(lines) + 1):
        assert f'"type":"weather-{number}","sky":["\\u0062lue", 1.50]' in log
    assert_sound(landed)


# -- what is something else ------------------------------------------------------------------------

NOTHING = {
    "empty": b"",
    "blank": b" \n\n\t\n",
    "zeros": bytes(5000),
    "words": b"# A title\n\nSome words.\n" * 50,
    "noise": bytes(range(256)) * 40,
    "numbers": b"1\n2\n3\n",
    "null": b"null",
    "objects": b"{}\n" * 30,
    "an empty list": b"[]",
    "lists": b"[[]]\n[[]]\n",
    "deep": b"[" * 100_000,
    "deeper": b'{"messages":' * 30_000,
    "a table": b"id,role\n1,user\n2,assistant\n",
    "HTML": b"<!doctype html><html><body>user: hello</body></html>\n",
}


@pytest.mark.parametrize("name", READ)
def test_what_is_no_session_makes_none(tmp_path: Path, name: str) -> None:
    importer = Importer(tmp_path / "awl", (), "/x")
    for what, data in NOTHING.items():
        for suffix in (".jsonl", ".json"):
            path = tmp_path / f"{what}{suffix}"
            path.write_bytes(data)
            brought = importer.bring(path, find(name))
            assert (brought.outcome, brought.tally.messages) == ("empty", 0), what
            assert path.read_bytes() == data
            with pytest.raises(NotRecognised):
                recognise(path)
    assert not list((tmp_path / "awl").rglob("*.jsonl"))


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_files_of_other_programs_make_sound_sessions_or_none(
    tmp_path: Path, sample: Sample, name: str
) -> None:
    bench = Bench.of(sample, tmp_path)
    brought = Importer(tmp_path / "awl", (), str(tmp_path)).bring(bench.file, find(name))
    if brought.path is not None:
        assert_sound(Landed(brought.path, brought))
    assert bench.file.read_bytes() == bench.data


@pytest.mark.parametrize("other", [2, 4, 7])
@pytest.mark.parametrize("sample", LINES, ids=sampled)
def test_lines_of_other_programs_in_between_take_nothing_away(
    tmp_path: Path, sample: Sample, other: int
) -> None:
    bench = Bench.of(sample, tmp_path)
    found = bench.count(bench.data)
    at = LINES.index(sample)
    stranger = LINES[(at + other) % len(LINES)]
    theirs = stranger.make(tmp_path / "theirs").read_bytes().splitlines(keepends=True)
    mixed = [line for n, line in enumerate(bench.lines) for line in (line, *theirs[n : n + 1])]
    landed = bench.landed(b"".join(mixed))
    assert landed is not None
    shown, found = bare(count_awl(landed.shown)), bare(found)
    assert [one for one in shown.inputs if one in found.inputs] == found.inputs
    assert [one for one in shown.outputs if one in found.outputs] == found.outputs
    assert not landed.state.damage


OTHERS: dict[str, Any] = {
    "Gemini's checkpoints": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"args": {"content": "x"}}}]},
    ],
    "an export of ChatGPT": [
        {"title": "T", "mapping": {"a": {"message": {"author": {"role": "user"}, "content": {}}}}}
    ],
    "people": [{"role": "user", "name": "bob"}, {"role": "admin", "name": "al"}],
    "to-dos": [{"content": "do it", "status": "pending"}],
    "Claude's prompts": {"display": "do it", "timestamp": 1, "project": "/x", "sessionId": "s"},
    "Codex's prompts": {"session_id": "0199", "ts": 1759, "text": "do it"},
    "Gemini's prompts": [{"sessionId": "s", "messageId": 0, "type": "user", "message": "do it"}],
    "opencode's own files": {"id": "m", "role": "user", "sessionID": "s", "time": {"created": 1}},
    "odd types": {"type": [], "role": ["user"], "content": {}, "payload": {}, "message": {}},
    "a package": {"name": "x", "messages": {"role": "user", "content": "x"}},
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_files_that_lie_beside_sessions_are_none(tmp_path: Path, what: str) -> None:
    for name, indent in (("x.json", None), ("x.json", 2), ("x.jsonl", None)):
        path = tmp_path / name
        path.write_text(json.dumps(OTHERS[what], indent=indent) + "\n")
        with pytest.raises(NotRecognised):
            recognise(path)


@pytest.mark.parametrize("form", ["claude-code", "codex", "openai", "qwen-code"])
def test_a_first_record_with_large_pictures_hides_no_session(tmp_path: Path, form: str) -> None:
    picture = "iVBORw0KGgo" * 2_000_000
    url = f"data:image/png;base64,{picture}"
    source = {"type": "base64", "media_type": "image/png", "data": picture}
    inline = {"inlineData": {"mimeType": "image/png", "data": picture}}
    named = {"uuid": "u", "parentUuid": None, "sessionId": "s", "cwd": "/x", "type": "user"}
    item = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_image", "image_url": url}],
    }
    records: dict[str, Any] = {
        "claude-code": {**named, "message": {"content": [{"type": "image", "source": source}]}},
        "codex": {"timestamp": "", "type": "response_item", "payload": item},
        "openai": {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]},
        "qwen-code": {**named, "message": {"role": "user", "parts": [inline]}},
    }
    line = json.dumps(records[form]) + "\n"
    path = tmp_path / "s.jsonl"
    path.write_text(line + line.replace('"u"', '"v"'))
    assert path.stat().st_size > 40 << 20
    assert recognise(path) == find(form)
    brought = Importer(tmp_path / "awl", (), "/x", dry_run=True).bring(path, find(form))
    assert (brought.tally.prompts, brought.tally.images) == (2, 2)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("sample", SAMPLES, ids=sampled)
def test_of_a_file_in_another_encoding_that_is_said(
    tmp_path: Path, sample: Sample, encoding: str
) -> None:
    bench = Bench.of(sample, tmp_path)
    bench.file.write_bytes(bench.data.decode().encode(encoding))
    with pytest.raises(NotRecognised, match=f"UTF-{encoding[4:6]}.*`iconv "):
        recognise(bench.file)
    brought = Importer(tmp_path / "awl", (), "/x").bring(bench.file, sample.format)
    assert brought.outcome == "empty"


def test_on_the_command_line_each_damage_is_a_line_and_no_traceback(awl: Awl) -> None:
    """All of the above in one folder. The exit code is that of files with the names of logs."""
    variants: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda data: data[: len(data) * 2 // 3],
        "zeros": lambda data: data[: len(data) // 2] + bytes(300) + data[len(data) // 2 :],
        "twice": lambda data: data * 2,
        "utf16": lambda data: data.decode().encode("utf-16"),
        "empty": lambda data: b"",
    }
    for sample in SAMPLES:
        for name, change in variants.items():
            path = sample.make(awl.work / "all" / str(sample) / name)
            path.chmod(0o600)
            path.write_bytes(change(path.read_bytes()))
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in (awl.work / "all").rglob("*")
        if path.is_file()
    }
    done = awl("sessions", "import", "all", code=1)
    said = done.err.splitlines()
    assert all(line.startswith("awl: ") for line in said)
    assert len([line for line in said if "UTF-16" in line]) == min(len(SAMPLES), 20)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    for session_id in done.lines:
        assert awl("sessions", "verify", session_id).err == ""
    again = awl("sessions", "import", "all", code=1)
    assert set(again.lines) <= set(done.lines)
    assert len(awl.logs) == len(set(done.lines))
