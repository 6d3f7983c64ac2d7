"""Forks: what the child holds, what the parent is told, and that nothing else is touched."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from histories import JUMPS, NAMING, TALK, Step, examples, facts, histories, replayed, story
from hypothesis import assume, example, given
from hypothesis import strategies as st
from killing import killed_at_each_step
from log.making import names_in, wait_for
from rawlog import SESSION_ID, RawLog, everything, result, text
from running import Awl, read_log

from awl.conversation import BlobRef, ModelRef, text_message
from awl.entries import ToolResultEntry, Usage
from awl.errors import AwlError, NoLog, NoSuchEntry, NotASession
from awl.index.conversations import Logless, Said
from awl.log.birth import birth
from awl.log.blobs import Blobs
from awl.replay import read
from awl.session import Session
from awl.state import State
from awl.store.copying import copy_bytes
from awl.store.files import Store
from store.having import make, outputs

MODEL = ModelRef("anthropic", "claude-1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions")


def turns(count: int = 3) -> RawLog:
    log = RawLog()
    for n in range(count):
        log.prompt(f"question {n}")
        log.answer(f"answer {n}", inner={"usage": {"input": 100, "output": 10}})
    return log


def head(log: Path) -> dict[str, Any]:
    return dict(json.loads(log.read_bytes().split(b"\n", 1)[0]))


def body(log: Path) -> bytes:
    """All behind the header."""
    return log.read_bytes().split(b"\n", 1)[1]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def everything_in(root: Path) -> dict[str, bytes]:
    """All files below a folder but the index."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".awl" not in path.parts
    }


# -- what a fork holds ---------------------------------------------------------------------------


def test_a_fork_is_the_parents_bytes_under_a_header_of_its_own(store: Store) -> None:
    raw = everything()
    parent = raw.write(store.root)
    child = store.fork(parent)
    mine, theirs = head(child), json.loads(raw.lines[0])
    assert mine["id"] != theirs["id"]
    assert child.name.endswith(f"_{mine['id']}.jsonl")
    assert mine["forkedFrom"] == {"sessionId": SESSION_ID, "seq": read(parent).seqs[-2]}
    changed = ("id", "timestamp", "forkedFrom")
    assert {**mine, **{key: theirs[key] for key in changed}} == theirs
    assert body(child) == b"".join(line + b"\n" for line in raw.lines[1:])
    assert child.parent == parent.parent
    assert child.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a disk is not told")
def test_the_disk_begins_with_what_is_copied_before_the_sync(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the sync at the end has less to wait for."""
    parent = turns(8000).write(store.root)
    told: list[tuple[int, int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda fd, at, size, how: told.append((os.fstat(fd).st_ino, at, size))
    )
    child = store.fork(parent)
    begun = [(at, size) for inode, at, size in told if inode == child.stat().st_ino]
    assert len(begun) > 1
    assert sum(size for _, size in begun) == len(body(child))
    assert begun[0][0] == len(child.read_bytes().split(b"\n", 1)[0]) + 1
    assert all(a + size == b for (a, size), (b, _) in pairwise(begun))


def test_fields_that_awl_does_not_know_stay_in_the_header_as_they_are(store: Store) -> None:
    raw = turns()
    strange = (
        b'"x":{"n":1234567890123456789012345678901.50, "a":[ 1,2 ]},"\\u00e9":"\\ud83d\\ude00"'
    )
    raw.lines[0] = raw.lines[0][:-1] + b"," + strange + b"}"
    child = store.fork(raw.write(store.root))
    line = child.read_bytes().split(b"\n")[0]
    assert b'"x":{"n":1234567890123456789012345678901.50, "a":[ 1,2 ]}' in line
    assert head(child)["\u00e9"] == "\U0001f600"


def test_of_a_fork_at_an_entry_exactly_what_is_up_to_it_is_there(store: Store) -> None:
    raw = turns(5)
    parent = raw.write(store.root)
    for at in range(1, 11):
        child = store.fork(parent, at=at)
        assert body(child) == b"".join(line + b"\n" for line in raw.lines[1 : at + 1])
        assert head(child)["forkedFrom"] == {"sessionId": SESSION_ID, "seq": at}


def test_forks_of_a_session_and_of_its_forks_are_full_and_apart(store: Store) -> None:
    parent = turns().write(store.root)
    whole = body(parent)
    first = store.fork(parent)
    again = store.fork(parent, at=6)
    nested = store.fork(first, at=6)
    assert body(again) == body(nested) == whole
    assert body(first).startswith(whole)
    assert head(nested)["forkedFrom"] == {"sessionId": head(first)["id"], "seq": 6}
    session = store.open(nested)
    session.append_message(text_message("user", "my own way"))
    session.close()
    assert b"my own way" not in parent.read_bytes() + first.read_bytes() + again.read_bytes()
    assert len({path.name for path in (parent, first, again, nested)}) == 4


def test_the_parent_keeps_every_byte_and_is_told(store: Store) -> None:
    raw = turns()
    parent = raw.write(store.root)
    child = store.fork(parent, at=4)
    data = parent.read_bytes()
    assert digest(data[: len(raw.data)]) == digest(raw.data)
    (point,) = [json.loads(line) for line in data[len(raw.data) :].splitlines()]
    assert point["type"] == "forkPoint"
    assert (point["newSessionId"], point["at"]) == (head(child)["id"], 4)
    assert (point["seq"], point["parentId"]) == (7, "e6")
    assert not read(parent).all_findings


def test_an_open_session_is_told_through_itself_and_goes_on(store: Store, tmp_path: Path) -> None:
    session = store.create(str(tmp_path), MODEL)
    session.append_message(text_message("user", "one"))
    child = store.fork(session)
    session.append_message(text_message("assistant", "two"))
    session.close()
    kinds = [entry["type"] for entry in read_log(session.path)]
    assert kinds == ["session", "message", "forkPoint", "message", "end"]
    assert [entry["type"] for entry in read_log(child)] == ["session", "message"]
    assert facts(session.state) == facts(replayed(session.path))


def test_a_session_that_is_open_elsewhere_is_forked_up_to_its_last_line(
    store: Store, tmp_path: Path
) -> None:
    session = store.create(str(tmp_path), MODEL)
    session.append_message(text_message("user", "one"))
    before = session.path.read_bytes()
    with session.path.open("ab") as writing:  # a line that is being written
        writing.write(b'{"type":"title","id":"ab","title":"half"}')
        writing.flush()
        child = store.fork(session.path)
        writing.truncate(len(before))
    assert body(child) == before.split(b"\n", 1)[1]
    assert session.path.read_bytes() == before
    session.append_message(text_message("assistant", "two"))
    session.close()


def test_what_waits_to_be_written_is_in_no_fork(store: Store, tmp_path: Path) -> None:
    session = store.create(str(tmp_path), MODEL)
    with pytest.raises(AwlError, match="nothing to fork"):
        store.fork(session)
    unkept = Session.unkept(str(tmp_path), MODEL)
    unkept.append_message(text_message("user", "x"))
    with pytest.raises(AwlError, match="nothing to fork"):
        store.fork(unkept)
    assert not store.root.exists()


def test_a_seq_that_is_not_there_is_an_error_that_says_what_is(store: Store) -> None:
    raw = turns()
    damaged = b"garbage"
    raw.lines[4] = damaged
    parent = raw.write(store.root)
    before = everything_in(store.root)
    for at in (-1, 0, 7, 1 << 60):
        with pytest.raises(NoSuchEntry, match="choose one of 1 to 6"):
            store.fork(parent, at=at)
    with pytest.raises(NoSuchEntry, match="damaged: choose 3 or 5") as caught:
        store.fork(parent, at=4)
    assert caught.value.near == (3, 5)
    assert everything_in(store.root) == before


# -- damage --------------------------------------------------------------------------------------


def test_damaged_lines_stay_as_bytes(store: Store) -> None:
    raw = turns()
    raw.lines[3] = b"\x00\xff garbage"
    child = store.fork(raw.write(store.root))
    assert body(child) == b"".join(line + b"\n" for line in raw.lines[1:])
    assert head(child)["forkedFrom"]["seq"] == 6


@pytest.mark.parametrize("tail", [b'{"type":"mess', b"\0" * 5000, b"bad\nbad\n", b"\n\n"])
def test_of_a_torn_log_the_complete_part_is_forked(store: Store, tail: bytes) -> None:
    raw = turns()
    parent = raw.write(store.root)
    parent.write_bytes(raw.data + tail)
    child = store.fork(parent)
    assert body(child) == b"".join(line + b"\n" for line in raw.lines[1:])
    assert not read(child).damage
    (torn,) = parent.parent.glob("*.torn-*")
    assert torn.read_bytes() == tail
    assert any(torn.name in notice for notice in store.notices)
    lost = tail.count(b"bad\n")
    assert read_log(parent)[-1]["seq"] == 7 + lost


def test_a_last_line_that_only_lacks_its_newline_is_in_the_fork(store: Store) -> None:
    raw = turns()
    parent = raw.write(store.root)
    for at in (None, 6):
        parent.write_bytes(raw.data[:-1])
        child = store.fork(parent, at=at)
        assert body(child) == b"".join(line + b"\n" for line in raw.lines[1:])
    parent.write_bytes(raw.lines[0])
    assert store.fork(parent).read_bytes().count(b"\n") == 1


def test_a_fork_of_a_log_without_its_header_has_one(store: Store) -> None:
    raw = turns()
    raw.add("cwdChange", cwd="/home/dev/elsewhere")
    raw.lines[0] = raw.lines[0][:30]
    parent = raw.write(store.root)
    child = store.fork(parent)
    mine = head(child)
    assert mine["forkedFrom"] == {"sessionId": SESSION_ID, "seq": 7}
    assert (mine["cwd"], mine["provider"]) == ("/home/dev/elsewhere", "anthropic")
    assert (mine["model"], mine["version"]) == ("claude-1", 1)
    assert body(child) == b"".join(line + b"\n" for line in raw.lines[1:])
    assert not read(child).damage
    assert child.parent == parent.parent


def test_what_was_never_a_session_is_not_forked(store: Store, tmp_path: Path) -> None:
    for data in (b"", b"\n\n", b'{"type":"sess', b"garbage\n"):
        empty = turns().write(store.root)
        empty.write_bytes(data)
        with pytest.raises(NotASession):
            store.fork(empty)
    nameless = tmp_path / "x.jsonl"
    nameless.write_bytes(b"bad\n" + turns().data.split(b"\n", 1)[1])
    with pytest.raises(NotASession):
        store.fork(nameless)


def test_lines_that_stand_twice_confuse_no_fork(store: Store) -> None:
    raw = turns()
    raw.lines += raw.lines[3:5]
    parent = raw.write(store.root)
    path = read(parent).path
    child = store.fork(parent)
    assert head(child)["forkedFrom"]["seq"] == 6
    assert read(parent).path == [*path, len(path)]
    assert read_log(parent)[-1]["seq"] == 7


def test_a_rewind_to_an_entry_that_is_lost_stops_no_fork(store: Store) -> None:
    raw = turns()
    raw.add("rewind", parentId="lost")
    raw.answer("behind it")
    raw.lines.append(raw.lines[3])  # so that the last lines do not tell where the log ends
    parent = raw.write(store.root)
    for at in (None, 7, 8):
        child = store.fork(parent, at=at)
        assert head(child)["forkedFrom"]["seq"] == (at or 8)
    assert read(parent).path[-1] == len(read(parent).entries) - 1


def test_seqs_that_were_given_twice_are_not_given_again(store: Store) -> None:
    raw = turns()
    raw.prompt("of another writer", id="x4", seq=4)
    raw.answer("out of order", id="x5", seq=5)
    parent = raw.write(store.root)
    child = store.fork(parent)
    assert head(child)["forkedFrom"]["seq"] == 6
    assert read_log(parent)[-1]["seq"] == 7


def test_logs_without_seqs_are_forked(store: Store) -> None:
    raw = RawLog(stamped=False)
    for n in range(3):
        raw.said("user", text(f"q{n}"))
        raw.said("assistant", text(f"a{n}"))
    parent = raw.write(store.root)
    assert head(store.fork(parent))["forkedFrom"]["seq"] == 6
    assert read_log(parent)[-1]["seq"] == 7
    child = store.fork(parent, at=3)
    assert len(read_log(child)) == 4


@given(
    histories(*TALK, *NAMING, *JUMPS, "damage", "reopen", most=10),
    st.integers(0, 100),
)
@example([("damage", 2, "Hello"), ("damage", 0, "Hello")], 0)
@examples(60)
def test_a_fork_is_the_session_that_its_parent_was_at_the_cut(steps: list[Step], n: int) -> None:
    with story() as told:
        told.play([("prompt", 1, "begin"), *steps])
        told.session.close()
        parent = told.session.path
        assume(parent.exists())
        seqs = read(parent).seqs
        at = seqs[n % len(seqs)] if seqs and n % 3 else None
        before = parent.read_bytes()
        then = read(parent)
        child = Store(told.root).fork(parent, at=at)
        assert parent.read_bytes().startswith(before)
        there = then.seqs.index(at) if at is not None else then.leaf
        path = parent if at is None else _prefix(parent, then, there)
        expected, found = facts(replayed(path)), facts(replayed(child))
        for same in ("bodies", "parents", "path", "seqs", "conversation", "gaps", "labels", "turn"):
            if at is None:
                expected = facts(then)
            # What stood before the header is not in the fork, so its lines have other numbers, and
            # what was lost there with it is just missing.
            assert unplaced(found[same]) == unplaced(expected[same]), same
        assert found["tokens"].own_input == 0
        assert head(child)["forkedFrom"]["seq"] == max(found["seqs"], default=0)


def unplaced(fact: object) -> str:
    """A fact without the numbers of lines, and without which damaged line a gap is in."""
    gap = r"\[awl: (an entry is missing|line \d+ of the log)[^\]]*\]"
    return re.sub(r"line \d+", "line N", re.sub(gap, "[gap]", repr(fact)))


def _prefix(parent: Path, state: State, position: int) -> Path:
    """What an entry's log held when the entry was its last."""
    folder = parent.parent.with_name("prefix")
    folder.mkdir(exist_ok=True)
    cut = folder / parent.name
    cut.write_bytes(parent.read_bytes()[: state.ends[position] + 1])
    return cut


# -- usage, blobs, legacy ------------------------------------------------------------------------


def test_what_was_used_before_the_fork_is_the_parents(store: Store, tmp_path: Path) -> None:
    session = store.create(str(tmp_path), MODEL)
    session.append_message(text_message("user", "x"))
    session.append_message(text_message("assistant", "y"), usage=Usage(input=100, output=1))
    session.close()
    child = store.open(store.fork(store.fork(session.path)))
    child.append_message(text_message("user", "more"))
    child.append_message(text_message("assistant", "z"), usage=Usage(input=50, output=1))
    child.close()
    tokens = read(child.path).tokens
    assert (tokens.own_input, tokens.inherited_input) == (50, 100)
    assert read(session.path).tokens.own_input + tokens.own_input == 150


def with_blobs(store: Store, cwd: Path) -> tuple[Path, list[BlobRef]]:
    """A session with a blob in entries 1, 2 and 3."""
    session = store.create(str(cwd), MODEL)
    refs = [session.blobs.put(f"blob {n}".encode()) for n in range(3)]
    for ref in refs:
        session.append(
            ToolResultEntry(
                tool_use_id="t", name="bash", content="x", output=ref, is_error=False, duration_ms=1
            )
        )
    session.close()
    return session.path, refs


def test_blobs_are_in_the_fork_as_far_as_it_names_them(store: Store, tmp_path: Path) -> None:
    parent, refs = with_blobs(store, tmp_path)
    whole, cut = store.fork(parent), store.fork(parent, at=2)
    assert [Blobs(whole).get(ref) for ref in refs] == [b"blob 0", b"blob 1", b"blob 2"]
    assert names_in(Blobs(cut).directory) == sorted(ref.blob for ref in refs[:2])
    assert Blobs(whole).directory.stat().st_mode & 0o777 == 0o700
    for path in (*Blobs(whole).directory.iterdir(), *Blobs(cut).directory.iterdir()):
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_behind_a_link_keeps_its_blobs_in_a_fork(store: Store, tmp_path: Path) -> None:
    log = make(store, tmp_path, "one").path
    (tmp_path / "far").mkdir()
    for path in (log, Blobs(log).directory):
        path.rename(tmp_path / "far" / path.name)
    log.symlink_to(tmp_path / "far" / log.name)
    child = store.fork(log)
    assert outputs(child) == outputs(tmp_path / "far" / log.name) != {}


def test_a_session_that_is_deleted_while_it_is_forked_gives_no_fork_without_blobs(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make(store, tmp_path, "one").path
    copy = copy_bytes

    def deleted(*given: int) -> None:
        copy(*given)
        store.delete(log)

    monkeypatch.setattr("awl.store.fork.copy_bytes", deleted)
    with pytest.raises(FileNotFoundError) as gone:
        store.fork(log)
    assert gone.value.filename == str(log)
    assert names_in(log.parent) == []


def test_blobs_are_copied_where_they_cannot_be_linked(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, refs = with_blobs(store, tmp_path)
    real = os.link

    def link(source: Path, target: Path, **more: Any) -> None:
        if ".blobs" in str(target):
            raise OSError(18, "another device")
        real(source, target, **more)

    monkeypatch.setattr(os, "link", link)
    child = store.fork(parent)
    assert [Blobs(child).get(ref) for ref in refs] == [b"blob 0", b"blob 1", b"blob 2"]


def test_a_conversation_without_a_log_gets_one_and_is_forked_from_there(
    store: Store, tmp_path: Path
) -> None:
    session_id = "01a10000-0000-7000-8000-000000000000"
    said = [Said("user", "old words", "2026-04-25T17:40:15.990Z")]
    facts = Logless(session_id, str(tmp_path), MODEL, said[0].timestamp, ())
    store.catalog.conversations.append(facts, said)
    with pytest.raises(NoSuchEntry):
        store.fork(session_id, at=2)
    assert list(store.logs()) == []
    child = store.fork("#1")
    parent = store.resolve(session_id)
    assert [entry["type"] for entry in read_log(child)] == ["session", "import"]
    assert head(child)["forkedFrom"] == {"sessionId": session_id, "seq": 1}
    assert "old words" in read(child).conversation.messages[0].text
    assert [entry["type"] for entry in read_log(parent)] == [
        "session",
        "import",
        "forkPoint",
        "end",
    ]
    again = store.fork(session_id, at=1)
    assert body(again) == body(child)


def test_an_open_conversation_without_a_log_is_not_forked(store: Store, tmp_path: Path) -> None:
    from awl.logless import LoglessSession

    session = LoglessSession.begin(store.catalog.conversations, str(tmp_path), MODEL)
    session.append_message(text_message("user", "x"))
    with pytest.raises(NoLog):
        store.fork(session)


def test_a_cut_in_a_batch_of_calls_leaves_them_with_an_unknown_end(store: Store) -> None:
    raw = RawLog()
    raw.prompt("go")
    raw.calls("a", "b")
    raw.started("a")
    raw.ended("a")
    raw.results(result("a"), result("b"))
    parent = raw.write(store.root)
    for at in (2, 3, 4):
        state = read(store.fork(parent, at=at))
        known = [state.call_status(call) for call in state.open_calls]
        assert known == (["finished", "unknown"] if at == 4 else ["unknown", "unknown"])


# -- whole or absent -----------------------------------------------------------------------------


@pytest.mark.usefixtures("unsynced")
def test_killed_at_any_step_a_fork_is_whole_or_absent_and_its_rest_goes_away(
    store: Store, tmp_path: Path
) -> None:
    parent, refs = with_blobs(store, tmp_path)
    before, expected = parent.read_bytes(), body(parent)
    seen = {"absent": 0, "whole": 0}
    for _ in killed_at_each_step(lambda: store.fork(parent, at=4)):
        assert parent.read_bytes().startswith(before)
        children = [path for path in parent.parent.glob("*.jsonl") if path != parent]
        for child in children:
            assert body(child) == expected
            assert [Blobs(child).get(ref) for ref in refs] == [b"blob 0", b"blob 1", b"blob 2"]
            child.unlink()
            for blob in Blobs(child).directory.iterdir():
                blob.unlink()
            Blobs(child).directory.rmdir()
        seen["whole" if children else "absent"] += 1
        assert len(list(store.list().sessions)) == 1
    assert min(seen.values()) > 3, seen
    child = store.fork(parent, at=4)
    names = {path.name for path in parent.parent.iterdir()}
    stems = {log.name.removesuffix(".jsonl") for log in (parent, child)}
    assert names == {f"{stem}{end}" for stem in stems for end in (".jsonl", ".blobs")}


def test_a_fork_that_fails_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, _ = with_blobs(store, tmp_path)
    before = everything_in(store.root)
    for name in ("write_all", "give_name", "sync_directory"):
        with monkeypatch.context() as patch:

            def fail(*given: object) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(f"awl.log.birth.{name}", fail)
            with pytest.raises(OSError, match="No space"):
                store.fork(parent)
        assert everything_in(store.root) == before
        assert [path.name for path in parent.parent.iterdir() if path.name[0] == "."] == []


def test_a_birth_that_is_under_way_is_no_leftover(store: Store, tmp_path: Path) -> None:
    parent, _ = with_blobs(store, tmp_path)
    path = parent.with_name(parent.name.replace("2026", "2027"))
    with birth(path) as unborn:
        unborn.write(parent.read_bytes())
        store.fork(parent)
    assert path.read_bytes() == unborn_bytes(parent)


def unborn_bytes(parent: Path) -> bytes:
    """The log as it was before its fork was noted in it."""
    return b"".join(parent.read_bytes().splitlines(keepends=True)[:-1])


def test_a_log_is_born_over_no_other(store: Store, tmp_path: Path) -> None:
    parent, refs = with_blobs(store, tmp_path)
    before = everything_in(store.root)
    with pytest.raises(FileExistsError), birth(parent) as unborn:
        unborn.blobs.put(b"another")
        unborn.write(b"{}\n")
    assert everything_in(store.root) == before
    assert Blobs(parent).get(refs[0]) == b"blob 0"


def test_while_a_turn_runs_elsewhere_its_session_can_be_forked(awl: Awl) -> None:
    from running import say

    awl.plays([say("word " * 40, delay=0.02)], loop=True)
    store = Store(awl.sessions)
    with awl.started("-p", "go") as process:
        wait_for(lambda: awl.logs != [])
        children = [store.fork(awl.logs[0]) for _ in range(5)]
        assert process.wait(30) == 0
    (parent,) = set(awl.logs) - set(children)
    for child in children:
        assert body(parent).startswith(body(child))
        assert head(child)["forkedFrom"]["sessionId"] == head(parent)["id"]
    assert [kind for kind in read_log(parent) if kind["type"] == "forkPoint"] == []
