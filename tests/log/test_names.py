from __future__ import annotations

import os
import re
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awl.log.names import (
    LogName,
    encode_cwd,
    in_utc,
    log_path,
    new_session_id,
    now,
    parse_log_name,
    same_directory,
)

from .making import names_in


def test_a_session_id_is_a_uuid_version_7_of_now() -> None:
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_session_id())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= after
    assert str(made) == str(made).lower()


def test_session_ids_differ_and_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({new_session_id() for _ in range(2_000)}) == 2_000
    made = []
    for ms in (0, 1, 255, 1_777_138_815_990, 1_777_138_815_991, (1 << 48) - 1):
        monkeypatch.setattr("awl.log.names.time.time_ns", lambda ms=ms: ms * 1_000_000 + 999_999)
        made.append(new_session_id())
    assert made == sorted(made)
    assert made[3].startswith("019dc5")


def test_the_random_bits_are_all_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("awl.log.names.time.time_ns", lambda: 0)
    monkeypatch.setattr("awl.log.names.os.urandom", lambda count: b"\xff" * count)
    assert new_session_id() == "00000000-0000-7fff-bfff-ffffffffffff"
    monkeypatch.setattr("awl.log.names.os.urandom", bytes)
    assert new_session_id() == "00000000-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("logged", "meant"),
    [
        ("2026-04-25T17:40:15.991Z", "2026-04-25T17:40:15.991Z"),
        ("2026-04-25T19:40:15.991+02:00", "2026-04-25T17:40:15.991Z"),
        ("2026-04-25T17:40:15Z", "2026-04-25T17:40:15.000Z"),
        ("2026-04-25T17:40:15.9919Z", "2026-04-25T17:40:15.991Z"),
        ("2026-04-25T17:40:15", "2026-04-25T17:40:15.000Z"),
        ("0001-01-01T00:00:00+02:00", "0001-01-01T00:00:00+02:00"),
        ("0999-01-01T00:00:00Z", "0999-01-01T00:00:00.000Z"),
        ("yesterday", "yesterday"),
        ("", ""),
    ],
)
def test_a_time_of_any_offset_is_given_in_utc(logged: str, meant: str) -> None:
    assert in_utc(logged) == meant


def test_now_is_utc_to_the_millisecond() -> None:
    stamp = now()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    assert abs(datetime.fromisoformat(stamp).timestamp() - datetime.now(UTC).timestamp()) < 10


@pytest.mark.parametrize(
    ("cwd", "label"),
    [
        ("/home/dev/awl", "--home--dev--awl"),
        ("/", "--"),
        ("/x/a--b", "--x--a--b"),
        ("/x/a/b", "--x--a--b"),
        ("/x/with space/ü", "--x--with space--ü"),
        (".hidden", "_.hidden"),
    ],
)
def test_the_label_of_a_directory(cwd: str, label: str) -> None:
    assert encode_cwd(cwd) == label


@given(st.binary(min_size=1, max_size=600).filter(lambda raw: 0 not in raw))
def test_any_directory_has_a_label_that_a_file_system_takes(raw: bytes) -> None:
    label = encode_cwd(os.fsdecode(b"/" + raw))
    assert "/" not in label and "\x00" not in label
    assert not label.startswith(".")
    assert 1 <= len(os.fsencode(label)) <= 200


def test_long_labels_end_in_a_hash_and_stay_apart(tmp_path: Path) -> None:
    shared = "/" + "ü" * 150
    one, other = encode_cwd(shared + "/a"), encode_cwd(shared + "/b")
    assert one != other
    assert one[:80] == other[:80]
    assert re.fullmatch(r".*-[0-9a-f]{16}", one)
    one.encode("utf-8")  # never cut within a character
    (tmp_path / one).mkdir()
    assert encode_cwd("/" + "a" * 198) == "--" + "a" * 198
    assert len(encode_cwd("/" + "a" * 199)) == 200


def test_a_directory_whose_name_is_not_utf8_has_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / encode_cwd(os.fsdecode(b"/x/\xff\xfe"))
    folder.mkdir()
    assert list(map(os.fsencode, names_in(tmp_path))) == [b"--x--\xff\xfe"]


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))
def test_a_logs_name_tells_its_time_and_id(when: datetime) -> None:
    stamp = when.isoformat(timespec="milliseconds") + "Z"
    session_id = new_session_id()
    path = log_path(Path("/root"), "/a/b", stamp, session_id)
    assert path.parent == Path("/root/--a--b")
    assert parse_log_name(path.name) == LogName(stamp, session_id)


def test_the_seeds_example_of_a_name() -> None:
    name = "2026-04-25T17-40-15-990Z_019dc5ba-53f6-71a5-ab8f-b1f8709c2572.jsonl"
    path = log_path(
        Path("s"), "/x", "2026-04-25T17:40:15.990Z", "019dc5ba-53f6-71a5-ab8f-b1f8709c2572"
    )
    assert path.name == name


GOOD = "2026-04-25T17-40-15-990Z_abc"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.jsonl",
        GOOD,
        f"{GOOD}.jsonl\n",
        f"{GOOD}.jsonl.owner",
        f"{GOOD}.jsonl.torn-2026-04-25T17-40-15-990Z",
        f"{GOOD}.blobs",
        f".{GOOD}.jsonl",
        "2026-04-25T17-40-15-990Z_.jsonl",
        "2026-04-25T17-40-15-990Z_.x.jsonl",
        "2026-04-25T17-40-15-990Z_a/b.jsonl",
        "2026-04-25T17-40-15-990Z_a\x1bb.jsonl",
        "2026-04-25T17:40:15.990Z_abc.jsonl",
        "٢٠٢٦-04-25T17-40-15-990Z_abc.jsonl",
        f"2026-04-25T17-40-15-990Z_{'a' * 101}.jsonl",
    ],
)
def test_other_names_are_no_logs(name: str) -> None:
    assert parse_log_name(name) is None


def test_two_spellings_of_one_directory_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, other = tmp_path / "real dir ü", tmp_path / "other"
    real.mkdir()
    other.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    assert same_directory(str(real), str(link))
    assert same_directory(f"{link}/.", f"{other}/../link/")
    assert not same_directory(str(real), str(other))
    monkeypatch.chdir(link)
    assert same_directory(".", str(real))


def test_directories_that_are_gone_are_compared_by_path(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert same_directory(str(gone), f"{gone}/")
    assert same_directory(f"{tmp_path}/x/../gone", str(gone))
    assert not same_directory(str(gone), str(tmp_path))
    link = tmp_path / "link"
    link.symlink_to(gone)
    assert same_directory(str(link), str(gone))


def test_names_that_no_directory_can_have_are_compared_as_they_are() -> None:
    assert same_directory("a\x00b", "a\x00b")
    assert not same_directory("a\x00b", "a")
    assert not same_directory("", "/")
