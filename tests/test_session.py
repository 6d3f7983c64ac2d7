"""A session: what is appended is on disk and in the state, or is said not to be."""

from __future__ import annotations

import errno
import itertools
import json
import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from histories import ANTHROPIC, ELSEWHERE, OPENAI, facts, replayed
from rawlog import SESSION_ID, TIME, RawLog, said

import awl.log.durable
import awl.log.file
import awl.session
from awl.conversation import (
    Image,
    Message,
    ModelRef,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.entries import (
    EndEntry,
    Entry,
    LabelEntry,
    MessageEntry,
    PartialBlock,
    PartialEntry,
    RewindEntry,
    TitleEntry,
    ToolCallEntry,
    ToolResultEntry,
    Usage,
)
from awl.errors import (
    InvalidEntry,
    InvalidTarget,
    NewerFormat,
    NotASession,
    NotSaved,
    SessionBusy,
    SessionClosed,
)
from awl.log.names import encode_cwd, log_path, now
from awl.replay import UnknownDirectory, read
from awl.session import MOST_QUEUED, Session

JSON = dict[str, Any]
MODEL = ModelRef("anthropic", "claude-1")
PROMPT = text_message("user", "What files are here?")
SYSTEM = text_message("system", "You are a helpful assistant.")
CALLS = Message(
    "assistant",
    (
        Thinking(thinking="The user wants files.", signature="s=="),
        Text(text="I'll check."),
        ToolUse(id="a", name="bash", input='{"command":"ls"}'),
        ToolUse(id="b", name="read", input='{"path":"x"}'),
    ),
)
RESULTS = Message(
    "user",
    (
        ToolResult(tool_use_id="a", content="one\ntwo", duration_ms=3),
        ToolResult(tool_use_id="b", content="no such file", is_error=True),
    ),
)
ANSWER = text_message("assistant", "Two files.")


def result_entry(n: int) -> ToolResultEntry:
    return ToolResultEntry(
        tool_use_id=f"t{n}", name="bash", content=str(n), is_error=False, duration_ms=1
    )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session.create(tmp_path / "sessions", str(tmp_path), MODEL)
    yield made
    made.close()


def lines(path: Path) -> list[JSON]:
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def assert_sound(path: Path) -> None:
    """Each entry follows the one before it, seqs grow by one, ids differ."""
    entries = lines(path)[1:]
    ids = [entry["id"] for entry in entries]
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry["parentId"] for entry in entries] == [None, *ids[:-1]]
    assert len(set(ids)) == len(ids)
    state = read(path)
    assert not state.damage
    assert not state.all_findings


class Disk:
    """A disk that can be full: a write takes half of what it is given and fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.writes: list[bytes] = []
        self._write = awl.log.durable.write_all
        monkeypatch.setattr(awl.log.file, "write_all", self.write)

    def write(self, fd: int, data: bytes) -> None:
        if self.full:
            os.write(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        if not data.startswith(b'{"pid"'):  # the owner's hint is no part of the log
            self.writes.append(data)
        self._write(fd, data)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


# -- the seed's own tests ------------------------------------------------------------------------


def test_session_rebuild(session: Session) -> None:
    said_messages = (SYSTEM, PROMPT, CALLS, RESULTS, ANSWER)
    for message in said_messages:
        session.append_message(message, stop_reason="stop" if message.role == "assistant" else None)
    before = facts(session.state)
    session.close()
    again = Session.open(session.path)
    assert again.conversation.messages == said_messages
    assert again.active_model == MODEL
    assert again.notices == []
    ended = facts(replayed(again.path))
    assert ended["conversation"] == before["conversation"]
    assert (again.id, again.cwd) == (session.id, session.cwd)
    again.close()


def test_model_tracking_on_user_messages(session: Session) -> None:
    session.append_message(SYSTEM)
    session.append_message(PROMPT)
    session.append_message(
        CALLS, provider="anthropic", model="claude-1-2026", stop_reason="toolUse"
    )
    session.append_message(RESULTS)
    session.switch_model(OPENAI)
    session.append_message(PROMPT)
    session.append_message(ANSWER, provider="openai", model="gpt-5-2026", stop_reason="stop")
    session.append_message(PROMPT, provider="local", model="smollm2")
    users = [
        (entry["provider"], entry["model"])
        for entry in lines(session.path)[1:]
        if entry["type"] == "message" and entry["message"]["role"] == "user"
    ]
    assert users == [
        ("anthropic", "claude-1"),
        ("anthropic", "claude-1"),
        ("openai", "gpt-5"),
        ("local", "smollm2"),
    ]
    others = [entry for entry in lines(session.path)[1:] if entry["type"] == "message"]
    assert all("provider" not in entry for entry in others if entry["message"]["role"] != "user")
    assert session.active_model == ModelRef("local", "smollm2")
    session.close()
    assert read(session.path).active_model == ModelRef("local", "smollm2")


def test_tree_traversal(session: Session) -> None:
    assert session.path_entries() == []
    assert session.leaf_id is None
    ids = [session.append_message(message) for message in (SYSTEM, PROMPT, ANSWER)]
    assert session.leaf_id == ids[-1]
    assert [entry.id for entry in session.path_entries()] == ids
    assert [entry.id for entry in session.path_entries(ids[1])] == ids[:2]
    back = session.rewind(ids[1])
    branch = session.append_message(text_message("assistant", "Another."))
    assert [entry.id for entry in session.path_entries()] == [*ids[:2], back, branch]
    assert [entry.id for entry in session.path_entries(ids[2])] == ids
    assert [entry.seq for entry in session.entries(2, 3)] == [2, 3]
    assert len(list(session.entries())) == 5
    entry = session.get(ids[0])
    assert isinstance(entry, MessageEntry)
    assert entry.message.said() == SYSTEM
    assert session.get("nothing") is None
    with pytest.raises(InvalidTarget):
        session.path_entries("nothing")


# -- birth and death -----------------------------------------------------------------------------


def test_a_file_is_born_with_the_first_append_in_one_write(session: Session, disk: Disk) -> None:
    assert not session.born
    assert not session.path.parent.parent.exists()
    session.append_many([session.message_entry(SYSTEM), session.message_entry(PROMPT)])
    assert session.born
    assert disk.writes == [session.path.read_bytes()]
    header, system, prompt = lines(session.path)
    assert list(header) == ["type", "version", "id", "timestamp", "cwd", "provider", "model"]
    assert (header["id"], header["cwd"]) == (session.id, session.cwd)
    assert (system["parentId"], prompt["parentId"]) == (None, system["id"])
    assert [system["seq"], prompt["seq"]] == [1, 2]
    assert ("turnId" in system, prompt["turnId"]) == (False, 1)
    assert_sound(session.path)


def test_a_session_that_nothing_was_said_in_leaves_nothing(session: Session) -> None:
    session.switch_model(OPENAI)
    assert session.append_many([]) == []
    session.close()
    assert not session.path.parent.parent.exists()


def test_the_model_chosen_before_the_first_prompt_is_the_headers(session: Session) -> None:
    session.switch_model(ELSEWHERE)
    session.append_message(PROMPT)
    header, prompt = lines(session.path)
    assert (header["provider"], header["model"]) == ELSEWHERE[:2]
    assert header["endpoint"] == ELSEWHERE.endpoint
    assert prompt["model"] == ELSEWHERE.model
    assert read(session.path).active_model == ELSEWHERE


def test_a_model_chosen_in_a_log_that_is_only_a_header_is_recorded(tmp_path: Path) -> None:
    session = Session.open(RawLog(cwd=str(tmp_path)).write(tmp_path))
    session.switch_model(ELSEWHERE)
    session.close()
    assert [entry["type"] for entry in lines(session.path)] == ["session", "modelChange", "end"]
    assert read(session.path).active_model == ELSEWHERE


def test_switching_records_model_endpoint_and_level_as_one_and_only_what_changes(
    session: Session,
) -> None:
    session.append_message(PROMPT)
    session.switch_model(MODEL)
    session.switch_model(ELSEWHERE, thinking_level="high")
    session.switch_model(ELSEWHERE, thinking_level="high")
    session.switch_model(ELSEWHERE, thinking_level="low")
    changes = [entry for entry in lines(session.path) if entry["type"] == "modelChange"]
    assert [(entry["endpoint"], entry["thinkingLevel"]) for entry in changes] == [
        (ELSEWHERE.endpoint, "high"),
        (ELSEWHERE.endpoint, "low"),
    ]
    assert session.state.thinking_level == "low"


def test_close_records_the_end_only_of_what_went_on(session: Session) -> None:
    session.append_message(PROMPT)
    session.close("switched")
    session.close()
    assert [entry["type"] for entry in lines(session.path)] == ["session", "message", "end"]
    assert lines(session.path)[-1]["reason"] == "switched"
    before = session.path.read_bytes()
    for _ in range(2):
        again = Session.open(session.path)
        again.close()
    assert session.path.read_bytes() == before


def test_a_closed_session_takes_nothing_and_can_still_be_read(
    session: Session, tmp_path: Path
) -> None:
    session.append_message(PROMPT)
    session.append_message(ANSWER)
    session.close()
    with pytest.raises(SessionClosed):
        session.append_message(PROMPT)
    log = RawLog(cwd=str(tmp_path))
    first = log.prompt("on disk")
    log.answer("y")
    log.condensed(1, 2)
    lazy = Session.open(log.write(tmp_path))
    lazy.close()
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]  # they take the descriptor
    try:
        entry = lazy.get(first)
        assert isinstance(entry, MessageEntry)
        assert entry.message.said() == text_message("user", "on disk")
    finally:
        for fd in others:
            os.close(fd)


def test_a_session_is_open_once(session: Session) -> None:
    session.append_message(PROMPT)
    with pytest.raises(SessionBusy) as caught:
        Session.open(session.path)
    assert caught.value.pid == os.getpid()
    session.close()
    Session.open(session.path).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_forked_from_the_holder_writes_nothing(session: Session) -> None:
    session.append_message(PROMPT)
    before = session.path.read_bytes()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            session.append_message(ANSWER)
        except SessionClosed:
            session.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.path.read_bytes() == before
    session.append_message(ANSWER)
    assert_sound(session.path)


def test_an_open_that_fails_leaves_the_session_unlocked(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt("x")
    log.lines[0] = b"garbage"
    path = log.write(tmp_path)
    with pytest.raises(UnknownDirectory):
        Session.open(path)
    Session.open(path, cwd=str(tmp_path)).close()


# -- entries that are made here ------------------------------------------------------------------


def test_an_id_that_was_drawn_before_is_drawn_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append_message(PROMPT)
    lead = str(session.leaf_id)[:2]
    drawn = (number // 3 for number in itertools.count())  # each of them three times
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(drawn).to_bytes(3))
    ids = session.append_many([session.message_entry(ANSWER) for _ in range(500)])
    assert len({*ids}) == 500
    assert {f"{lead}{number:06x}" for number in range(400)} <= {*ids}


def test_turns_count_prompts_and_everything_in_them_carries_their_number(session: Session) -> None:
    for message in (SYSTEM, PROMPT, CALLS):
        session.append_message(message)
    session.append(ToolCallEntry(tool_use_id="a", name="bash"))
    session.append(result_entry(1))
    session.append_message(RESULTS)
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text="Tw"),)))
    session.append_message(ANSWER)
    session.append(TitleEntry(title="t"))
    session.rewind(None)
    session.append_message(PROMPT)
    turns = [entry.get("turnId") for entry in lines(session.path)[1:]]
    assert turns == [None, 1, 1, 1, 1, 1, 1, 1, None, None, 2]


def test_what_the_caller_stamped_is_overwritten(session: Session) -> None:
    entry = session.message_entry(PROMPT)
    stamped = MessageEntry(
        id="mine", parent_id="x", seq=9, turn_id=9, timestamp=TIME, message=entry.message
    )
    session.append(stamped)
    line = lines(session.path)[1]
    assert (line["parentId"], line["seq"], line["turnId"], line["timestamp"]) == (None, 1, 1, TIME)
    assert line["id"] != "mine"


def test_lone_surrogates_and_separators_are_stored_so_that_live_and_replayed_agree(
    session: Session,
) -> None:
    session.append_message(text_message("user", "a\ud800b\u2028c\x85d\x00e"))
    assert session.conversation.messages[0].text == "a\ufffdb\u2028c\x85d\x00e"
    assert facts(session.state) == facts(replayed(session.path))
    assert len(session.path.read_text("utf-8").splitlines()) == 2


def test_what_an_answer_came_about_by_is_logged_and_not_said(session: Session) -> None:
    session.append_message(PROMPT)
    session.append_message(
        ANSWER,
        provider="anthropic",
        model="claude-1-2026",
        stop_reason="stop",
        usage=Usage(input=5, output=2),
    )
    message = lines(session.path)[2]["message"]
    assert (message["model"], message["stopReason"]) == ("claude-1-2026", "stop")
    assert message["usage"] == {"input": 5, "output": 2}
    assert session.conversation.messages[1] == ANSWER


def test_rewind_and_label_point_at_an_entry_or_are_refused(session: Session) -> None:
    first = session.append_message(PROMPT)
    session.append_message(ANSWER)
    before = session.path.read_bytes()
    refused: list[Callable[[], object]] = [
        lambda: session.rewind("nothing"),
        lambda: session.label("nothing", "x"),
        lambda: session.append(RewindEntry(parent_id="nothing")),
        lambda: session.append(RewindEntry()),
        lambda: session.append(LabelEntry(target_id="nothing", label="x")),
    ]
    for refuse in refused:
        with pytest.raises(InvalidTarget):
            refuse()
    assert session.path.read_bytes() == before
    session.label(first, "start")
    session.rewind(first)
    assert session.state.labels == {first: "start"}
    assert session.conversation.messages == (PROMPT,)
    session.rewind(None)
    assert len(session.conversation) == 0
    assert lines(session.path)[-1]["parentId"] is None


def test_moving_is_recorded_once_and_not_for_another_spelling(
    session: Session, tmp_path: Path
) -> None:
    session.append_message(PROMPT)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    session.move(str(link))
    assert len(lines(session.path)) == 2
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    session.move(str(elsewhere))
    assert session.cwd == str(elsewhere.resolve())
    assert lines(session.path)[-1] == {
        **lines(session.path)[-1],
        "type": "cwdChange",
        "cwd": str(elsewhere.resolve()),
    }


def test_a_directory_whose_name_is_not_utf8_is_found_again(tmp_path: Path) -> None:
    cwd = os.fsdecode(os.fsencode(str(tmp_path.resolve())) + b"/\xff dir")
    Path(cwd).mkdir()
    session = Session.create(tmp_path / "sessions", cwd, MODEL)
    session.append_message(PROMPT)
    session.close()
    assert session.cwd == cwd
    assert read(session.path).cwd == cwd


# -- what could not be written -------------------------------------------------------------------


def test_an_intent_that_cannot_be_written_is_refused(session: Session, disk: Disk) -> None:
    session.append_message(PROMPT)
    before = facts(session.state)
    disk.full = True
    intents: list[Entry] = [
        session.message_entry(PROMPT),
        session.message_entry(SYSTEM),
        session.message_entry(Message("user", (*RESULTS.content, Text(text="and")))),
        ToolCallEntry(tool_use_id="a", name="bash"),
        PartialEntry(content=()),
        TitleEntry(title="t"),
        RewindEntry(parent_id=None),
    ]
    for intent in intents:
        with pytest.raises(NotSaved) as caught:
            session.append(intent)
        assert not caught.value.queued
        assert "NOT SAVED" in str(caught.value)
    assert session.unsaved == 0
    assert facts(session.state) == before
    disk.full = False
    session.append_message(ANSWER)
    assert_sound(session.path)


def test_the_first_prompt_that_cannot_be_written_leaves_no_file(
    session: Session, disk: Disk
) -> None:
    disk.full = True
    with pytest.raises(NotSaved) as caught:
        session.append_message(PROMPT)
    assert not caught.value.queued
    assert not session.born
    assert not session.path.exists()
    disk.full = False
    session.append_message(PROMPT)
    assert_sound(session.path)


def test_a_fact_waits_and_is_stamped_and_folded_when_it_is_written(
    session: Session, disk: Disk
) -> None:
    session.append_message(PROMPT)
    before, state = session.path.read_bytes(), facts(session.state)
    disk.full = True
    facts_said: list[Entry] = [session.message_entry(CALLS), result_entry(1)]
    facts_said.append(session.message_entry(RESULTS))
    for waiting, fact in enumerate(facts_said, 1):
        with pytest.raises(NotSaved) as caught:
            session.append(fact)
        assert caught.value.queued
        assert caught.value.waiting == session.unsaved == waiting
    assert session.path.read_bytes() == before
    assert facts(session.state) == state, "what is not written is not folded"
    with pytest.raises(NotSaved):
        session.flush()
    with pytest.raises(NotSaved) as caught:
        session.append_message(PROMPT)
    assert not caught.value.queued
    disk.full = False
    assert session.flush() == 3
    assert session.unsaved == session.flush() == 0
    assert [entry["type"] for entry in lines(session.path)[2:]] == [
        "message",
        "toolResult",
        "message",
    ]
    assert_sound(session.path)
    assert facts(session.state) == facts(replayed(session.path))


def test_what_waits_is_written_before_anything_new(session: Session, disk: Disk) -> None:
    session.append_message(PROMPT)
    disk.full = True
    for n in range(3):
        with pytest.raises(NotSaved):
            session.append(result_entry(n))
    disk.full = False
    session.append_message(ANSWER)
    written = [entry.get("content") for entry in lines(session.path)[2:]]
    assert written == ["0", "1", "2", None]
    assert_sound(session.path)


def test_a_queued_facts_time_is_when_it_happened(session: Session, disk: Disk) -> None:
    session.append_message(PROMPT)
    disk.full = True
    with pytest.raises(NotSaved):
        session.append(
            ToolResultEntry(
                tool_use_id="a", name="x", content="", is_error=False, duration_ms=1, timestamp=TIME
            )
        )
    disk.full = False
    session.flush()
    assert lines(session.path)[2]["timestamp"] == TIME


def test_the_queue_has_an_end_and_says_so(session: Session, disk: Disk) -> None:
    session.append_message(PROMPT)
    disk.full = True
    for n in range(MOST_QUEUED + 2):
        with pytest.raises(NotSaved) as caught:
            session.append(result_entry(n))
        assert caught.value.queued == (n < MOST_QUEUED)
    assert session.unsaved == MOST_QUEUED
    disk.full = False
    assert session.flush() == MOST_QUEUED
    assert_sound(session.path)


def test_several_entries_are_written_all_or_none(session: Session, disk: Disk) -> None:
    session.append_message(PROMPT)
    disk.full = True
    mixed = [session.message_entry(ANSWER), session.message_entry(PROMPT)]
    with pytest.raises(NotSaved) as caught:
        session.append_many(mixed)
    assert not caught.value.queued, "a prompt is among them"
    with pytest.raises(NotSaved) as caught:
        session.append_many([result_entry(1), result_entry(2)])
    assert caught.value.queued
    assert session.unsaved == 2
    disk.full = False
    session.append_many(mixed)
    assert len(lines(session.path)) == 6
    assert_sound(session.path)


def test_closing_with_a_queue_writes_it_if_that_works_and_never_half(
    session: Session, disk: Disk
) -> None:
    session.append_message(PROMPT)
    disk.full = True
    with pytest.raises(NotSaved):
        session.append_message(ANSWER)
    session.close()
    assert session.unsaved == 1
    assert len(lines(session.path)) == 2
    again = Session.open(session.path)
    disk.full = False
    again.close()
    assert_sound(session.path)


def test_a_copy_holds_what_is_written_and_what_waits(
    session: Session, disk: Disk, tmp_path: Path
) -> None:
    session.append_message(PROMPT)
    disk.full = True
    for fact in (session.message_entry(CALLS), session.message_entry(RESULTS)):
        with pytest.raises(NotSaved):
            session.append(fact)
    copy = tmp_path / "copy.jsonl"
    session.save_copy(copy)
    assert copy.read_bytes().startswith(session.path.read_bytes())
    assert copy.stat().st_mode & 0o777 == 0o600
    assert said(read(copy)) == [PROMPT.text, "I'll check.", "ToolResult+ToolResult"]
    assert_sound(copy)
    with pytest.raises(FileExistsError):
        session.save_copy(copy)
    assert session.unsaved == 2


def test_a_copy_that_fails_leaves_nothing(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    session.append_message(PROMPT)
    monkeypatch.setattr("awl.session.write_all", full)
    with pytest.raises(OSError, match="No space"):
        session.save_copy(tmp_path / "copy.jsonl")
    assert not (tmp_path / "copy.jsonl").exists()


def test_a_session_without_a_file_can_be_copied(session: Session, tmp_path: Path) -> None:
    session.save_copy(tmp_path / "empty.jsonl")
    assert len(lines(tmp_path / "empty.jsonl")) == 1
    unkept = Session.unkept(str(tmp_path), MODEL)
    unkept.append_message(PROMPT)
    unkept.save_copy(tmp_path / "unkept.jsonl")
    assert said(read(tmp_path / "unkept.jsonl")) == [PROMPT.text]


# -- other writers -------------------------------------------------------------------------------


def test_whoever_asks_for_the_state_while_others_append_it_is_folded_once(
    session: Session,
) -> None:
    session.append_message(PROMPT)
    seen: list[int] = []

    def look() -> None:
        while len(seen) < 5 or seen[-1] < 121:
            seen.append(session.state.next_seq - 1)

    def work() -> None:
        for _ in range(40):
            session.append_message(ANSWER)

    threads = [threading.Thread(target=one) for one in (work, look, work, look, work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert facts(session.state) == facts(replayed(session.path))


def test_threads_that_append_at_once_make_one_sound_chain(session: Session) -> None:
    session.append_message(PROMPT)
    ready = threading.Barrier(6)
    failures: list[BaseException] = []

    def work(name: int) -> None:
        try:
            ready.wait()
            for n in range(20):
                session.append_many([result_entry(name * 100 + n), result_entry(n)])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(lines(session.path)) == 2 + 6 * 40
    assert_sound(session.path)
    assert facts(session.state) == facts(replayed(session.path))


def foreign(session: Session, seq: int) -> bytes:
    entry = {
        "type": "message",
        "id": "f0f0f0f0",
        "parentId": session.leaf_id,
        "timestamp": TIME,
        "seq": seq,
        "message": {"role": "user", "content": [{"type": "text", "text": "from elsewhere"}]},
    }
    return json.dumps(entry).encode() + b"\n"


def test_a_log_that_another_program_wrote_to_is_read_again_and_gone_on_with(
    session: Session,
) -> None:
    session.append_message(PROMPT)
    with session.path.open("ab") as file:
        file.write(foreign(session, 2) + b"and half a li")
    session.append_message(ANSWER)
    assert said(session.state) == [PROMPT.text, "from elsewhere", ANSWER.text]
    assert_sound(session.path)
    assert any("changed by another program" in notice for notice in session.notices)
    assert any("13 bytes" in notice for notice in session.notices)
    assert facts(session.state) == facts(replayed(session.path))


def test_a_changed_log_that_could_not_be_read_again_is_read_before_anything_is_written(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append_message(PROMPT)
    with session.path.open("ab") as file:
        file.write(foreign(session, 2))

    def unreadable(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(awl.session, "replay", unreadable)
        for _ in range(2):
            with pytest.raises(NotSaved, match="Input/output"):
                session.append_message(PROMPT)
    session.append_message(ANSWER)
    assert said(session.state) == [PROMPT.text, "from elsewhere", ANSWER.text]
    assert_sound(session.path)
    assert facts(session.state) == facts(replayed(session.path))


def test_seqs_that_were_acknowledged_stay_used_when_their_lines_are_taken_away(
    session: Session,
) -> None:
    for message in (PROMPT, ANSWER, PROMPT):
        session.append_message(message)
    whole = session.path.read_bytes()
    os.truncate(session.path, len(b"".join(line + b"\n" for line in whole.split(b"\n")[:2])))
    session.append_message(ANSWER)
    assert [entry["seq"] for entry in lines(session.path)[1:]] == [1, 4]
    assert said(session.state) == [PROMPT.text, ANSWER.text]


def test_a_fact_is_kept_when_another_program_emptied_the_log(
    session: Session, tmp_path: Path
) -> None:
    session.append_message(PROMPT)
    os.truncate(session.path, 0)
    with pytest.raises(NotSaved) as caught:
        session.append_message(ANSWER)
    assert caught.value.queued
    with pytest.raises(NotSaved):
        session.append_message(PROMPT)
    assert session.unsaved == 1


def test_a_fact_is_kept_when_the_log_was_removed(session: Session, tmp_path: Path) -> None:
    session.append_message(PROMPT)
    session.path.unlink()
    with pytest.raises(NotSaved) as caught:
        session.append_message(ANSWER)
    assert caught.value.queued
    session.save_copy(tmp_path / "copy.jsonl")
    assert said(read(tmp_path / "copy.jsonl")) == [PROMPT.text, ANSWER.text]


def test_an_append_goes_on_when_another_thread_finds_its_target_gone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append_message(PROMPT)
    size = session.path.stat().st_size
    gone = session.append_message(ANSWER)
    os.truncate(session.path, size)
    refused: list[InvalidTarget] = []

    def go_back() -> None:
        try:
            session.rewind(gone)
        except InvalidTarget as error:
            refused.append(error)

    real = now

    def meanwhile() -> str:
        if threading.current_thread() is threading.main_thread() and not refused:
            thread = threading.Thread(target=go_back)
            thread.start()
            thread.join()
        return real()

    monkeypatch.setattr(awl.session, "now", meanwhile)
    session.append_message(ANSWER)
    assert refused
    assert [entry["seq"] for entry in lines(session.path)[1:]] == [1, 3]
    assert facts(session.state) == facts(replayed(session.path))


# -- signals -------------------------------------------------------------------------------------


def interrupted(work: Callable[[], object], at: int) -> bool:
    """Do something that is interrupted at one of the places where the exception of a signal may
    come: where a function in Python begins, and where one in C has ended. Whether there was it."""
    left = at

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if left < 0:
            raise KeyboardInterrupt

    sys.setprofile(profile)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


@pytest.mark.parametrize(
    ("before", "work"),
    [
        (0, lambda session: session.append_message(PROMPT)),
        (1, lambda session: session.append_message(ANSWER)),
        (1, lambda session: session.append_many([result_entry(1), result_entry(2)])),
    ],
    ids=["first", "one", "many"],
)
def test_what_interrupts_an_append_leaves_a_session_that_knows_its_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    work: Callable[[Session], object],
) -> None:
    monkeypatch.setattr(awl.log.file, "sync", lambda fd: None)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    for at in itertools.count():
        session = Session.create(tmp_path / str(at), str(tmp_path), MODEL)
        for _ in range(before):
            session.append_message(PROMPT)
        there = interrupted(lambda: work(session), at)  # noqa: B023
        session.append_message(ANSWER)
        session.append_many([result_entry(3), result_entry(4)])
        session.append_message(ANSWER)
        assert_sound(session.path)
        assert facts(session.state) == facts(replayed(session.path))
        session.close()
        if not there:
            break
    assert at > 20


def test_what_the_handler_of_a_signal_appends_takes_nothing_from_the_append_that_it_came_into(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.append_message(PROMPT)
    within: list[str] = []
    real = awl.log.durable.sync

    def sync(fd: int) -> None:
        if not within:
            within.append("")
            within[0] = session.append(TitleEntry(title="from the handler"))
        real(fd)

    monkeypatch.setattr(awl.log.file, "sync", sync)
    ids = [session.append_message(ANSWER), session.append_message(PROMPT)]
    assert [entry["id"] for entry in lines(session.path)[2:]] == [*within, *ids]
    assert_sound(session.path)
    assert facts(session.state) == facts(replayed(session.path))


# -- sessions that nothing is written of ---------------------------------------------------------


def test_an_unkept_session_touches_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session.unkept(str(tmp_path), MODEL)

    def touched(*args: Any, **kwargs: Any) -> int:
        raise AssertionError(f"opened {args[0]}")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", touched)
        patch.setattr(os, "mkdir", touched)
        patch.setattr("builtins.open", touched)
        blob = session.blobs.put(b"picture")
        image = Image(mime_type="image/png", blob=blob)
        session.append_message(Message("user", (Text(text="see"), image)))
        session.switch_model(OPENAI)
        answer = session.append_message(ANSWER, stop_reason="stop")
        session.label(answer, "here")
        session.rewind(answer)
        assert session.blobs.get(blob) == b"picture"
        session.close()
    assert [entry.seq for entry in session.entries()] == [1, 2, 3, 4, 5]
    assert session.active_model == OPENAI
    assert not session.born
    assert list(tmp_path.iterdir()) == []


# -- logs that others left -----------------------------------------------------------------------

SEED = """\
{"type":"session","version":1,"id":"019dc5ba-53f6-71a5-ab8f-b1f8709c2572",\
"timestamp":"2026-04-25T17:40:15.990Z","cwd":"%s","provider":"anthropic",\
"model":"claude-sonnet-4-20250514"}
{"type":"message","id":"s1s2s3s4","parentId":null,"timestamp":"2026-04-25T14:00:00.000Z",\
"message":{"role":"system","content":[{"type":"text","text":"You are a helpful assistant."}]}}
{"type":"message","id":"a1b2c3d4","parentId":"s1s2s3s4","timestamp":"2026-04-25T14:00:01.000Z",\
"message":{"role":"user","content":[{"type":"text","text":"What files are in this directory?"}]}}
{"type":"message","id":"b2c3d4e5","parentId":"a1b2c3d4","timestamp":"2026-04-25T14:00:02.000Z",\
"message":{"role":"assistant","content":[{"type":"thinking","thinking":"The user wants to list\
 files..."},{"type":"text","text":"I'll check that for you."},{"type":"toolUse","id":"tool_abc123",\
"name":"bash","input":"{\\"command\\":\\"ls\\"}"}],"provider":"anthropic",\
"model":"claude-sonnet-4-20250514","stopReason":"toolUse","usage":{"input":1500,"output":85}}}
{"type":"message","id":"c3d4e5f6","parentId":"b2c3d4e5","timestamp":"2026-04-25T14:00:03.000Z",\
"provider":"openai","model":"gpt-4o","message":{"role":"user","content":[{"type":"toolResult",\
"toolUseId":"tool_abc123","content":"file1.txt\\nfile2.txt"}]}}
"""


def test_a_log_as_the_seed_shows_it_opens_clean_and_goes_on(tmp_path: Path) -> None:
    path = log_path(tmp_path, "/Users/travis", TIME, SESSION_ID)
    path.parent.mkdir()
    seed = (SEED % tmp_path).encode()
    path.write_bytes(seed)
    session = Session.open(path)
    assert session.notices == []
    assert not session.state.all_findings
    assert session.active_model == ModelRef("openai", "gpt-4o")
    assert session.conversation.messages[2].tool_uses[0].input == '{"command":"ls"}'
    assert session.state.tokens.own_input == 1500
    session.append_message(ANSWER, stop_reason="stop")
    session.append_message(PROMPT)
    session.close()
    assert path.read_bytes().startswith(seed)
    added = lines(path)[5:]
    assert [entry["seq"] for entry in added] == [5, 6, 7]
    assert [entry.get("turnId") for entry in added] == [None, 1, None]
    assert added[0]["parentId"] == "c3d4e5f6"
    assert (added[1]["provider"], added[1]["model"]) == ("openai", "gpt-4o")
    again = Session.open(path)
    assert again.notices == []
    again.close()


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"garbage\n", b"\n\n"])
def test_a_newer_format_is_read_and_never_written(tmp_path: Path, before: bytes) -> None:
    log = RawLog(version=2)
    log.prompt("x")
    path = log.write(tmp_path)
    path.write_bytes(before + log.data + b"torn")
    whole = path.read_bytes()
    with pytest.raises(NewerFormat) as caught:
        Session.open(path)
    assert caught.value.version == 2
    assert path.read_bytes() == whole
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    assert said(read(path))[-1] == "x"


def test_a_byte_order_mark_costs_nothing(tmp_path: Path) -> None:
    log = RawLog(cwd=str(tmp_path))
    log.prompt("x")
    path = log.write(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + log.data)
    session = Session.open(path)
    assert session.notices == []
    assert said(session.state) == ["x"]
    session.close()


@pytest.mark.parametrize("data", [b"", b"\n", b'{"type":"session"', b"garbage\n"])
def test_a_log_that_holds_nothing_says_so_and_stays_as_it_is(tmp_path: Path, data: bytes) -> None:
    path = RawLog().write(tmp_path)
    path.write_bytes(data)
    for look in (Session.open, read):
        with pytest.raises(NotASession):
            look(path)
    assert path.read_bytes() == data


def test_what_recovery_and_damage_cost_is_said(tmp_path: Path) -> None:
    log = RawLog(cwd=str(tmp_path))
    log.prompt("x")
    log.bad(instead=True)
    log.prompt("y")
    path = log.write(tmp_path)
    path.write_bytes(log.data + b"torn")
    session = Session.open(path)
    session.close()
    torn, bad, rewind = session.notices
    assert "4 bytes" in torn
    assert ".torn-" in torn
    assert "line 3 (bytes " in bad
    assert "rewind" in rewind


# -- a damaged header ----------------------------------------------------------------------------


def headless(first: bytes | None = b"garbage") -> RawLog:
    log = RawLog()
    log.prompt("x", provider="openai", model="gpt-5")
    log.answer("y")
    log.lines[:1] = [] if first is None else [first]
    return log


@pytest.mark.parametrize("first", [b"garbage", b"\0\0\0", b'{"type":"session","id"', None])
def test_id_time_and_model_come_from_what_is_left(tmp_path: Path, first: bytes | None) -> None:
    path = headless(first).write(tmp_path)
    with pytest.raises(UnknownDirectory) as caught:
        Session.open(path)
    assert "--cwd" in str(caught.value)
    session = Session.open(path, cwd=str(tmp_path))
    assert (session.id, session.header.timestamp) == (SESSION_ID, TIME)
    assert session.active_model == ModelRef("openai", "gpt-5")
    assert session.cwd == str(tmp_path.resolve())
    assert any("no session header" in notice for notice in session.notices)
    assert said(session.state) == ["x", "y"]
    session.append_message(PROMPT)
    session.close()
    again = Session.open(path)
    assert again.cwd == str(tmp_path.resolve()), "what was given is recorded"
    assert again.active_model == ModelRef("openai", "gpt-5")
    again.close()


def test_the_model_is_the_last_user_messages_also_before_everything(tmp_path: Path) -> None:
    session = Session.open(headless().write(tmp_path), cwd=str(tmp_path))
    session.rewind(None)
    assert session.active_model == ModelRef("openai", "gpt-5")
    assert facts(session.state) == facts(replayed(session.path))
    session.close()


def test_the_directory_is_the_last_one_that_an_entry_names(tmp_path: Path) -> None:
    log = headless()
    log.add("cwdChange", cwd="/old")
    log.add("cwdChange", cwd="/new")
    path = log.write(tmp_path)
    session = Session.open(path)
    assert session.cwd == "/new"
    session.close()
    assert read(path).cwd == "/new"


def test_the_directory_is_the_present_one_if_the_folder_is_labelled_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "a dir"
    here.mkdir()
    path = headless().write(tmp_path / "sessions", str(here.resolve()))
    assert path.parent.name == encode_cwd(str(here.resolve()))
    with pytest.raises(UnknownDirectory):
        Session.open(path)
    monkeypatch.chdir(here)
    session = Session.open(path)
    assert session.cwd == str(here.resolve())
    session.close()


def test_a_header_that_names_no_directory_is_asked_about(tmp_path: Path) -> None:
    log = RawLog(cwd="")
    log.prompt("x")
    path = log.write(tmp_path)
    with pytest.raises(UnknownDirectory):
        Session.open(path)
    session = Session.open(path, cwd=str(tmp_path))
    assert session.cwd == str(tmp_path.resolve())
    session.close()


def test_without_header_and_without_a_name_there_is_no_session(tmp_path: Path) -> None:
    path = tmp_path / "copy.jsonl"
    path.write_bytes(headless().data)
    with pytest.raises(NotASession) as caught:
        read(path)
    assert "its name tells no session id" in str(caught.value)


def test_a_header_behind_garbage_is_the_header(tmp_path: Path) -> None:
    log = RawLog(cwd=str(tmp_path))
    log.prompt("x")
    log.lines.insert(0, b"garbage")
    session = Session.open(log.write(tmp_path))
    assert (session.cwd, session.active_model) == (str(tmp_path), MODEL)
    session.close()


def test_a_kept_session_ends_in_what_it_says(session: Session) -> None:
    session.append_message(PROMPT)
    session.close("idle_ttl")
    last = list(read(session.path).between(1, 9))[-1]
    assert isinstance(last, EndEntry)
    assert last.reason == "idle_ttl"
    assert ANTHROPIC.provider == session.header.provider


def test_another_programs_file_is_refused_before_anything_of_it_is_changed(tmp_path: Path) -> None:
    foreign = tmp_path / "claude.jsonl"
    foreign.write_bytes(b'{"type":"user","uuid":"a","message":{}}\n{"type":"assist')
    before = foreign.read_bytes()
    with pytest.raises(NotASession, match="no session header"):
        Session.open(foreign)
    assert foreign.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["claude.jsonl"]


def test_a_value_that_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "m"))
    odd = Message("user", (Text(text="hi", provider_data={"handle": object()}),))
    with pytest.raises(InvalidEntry, match="cannot be logged"):
        session.append_message(odd)
    assert not session.path.exists()


def test_a_copy_holds_what_another_program_emptied_and_the_blobs(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "s", str(tmp_path), MODEL)
    session.append_message(PROMPT)
    output = session.blobs.put(b"the whole output")
    session.append(
        ToolResultEntry(
            tool_use_id="t",
            name="bash",
            content="cut",
            output=output,
            is_error=False,
            duration_ms=1,
        )
    )
    session.path.write_bytes(b"")
    with pytest.raises(NotSaved):
        session.append_message(text_message("assistant", "late"))
    copy = tmp_path / "copy.jsonl"
    session.save_copy(copy)
    session.close()
    kept = Session.open(copy)
    assert [m.text for m in kept.conversation.messages] == [PROMPT.text, "late"]
    assert kept.blobs.get(output) == b"the whole output"
    kept.close()


def test_a_log_that_was_moved_while_it_was_open_is_not_written_to(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "s", str(tmp_path), MODEL)
    session.append_message(PROMPT)
    moved = session.path.rename(tmp_path / "moved.jsonl")
    before = moved.read_bytes()
    with pytest.raises(NotSaved, match="moved or deleted"):
        session.append_message(PROMPT)
    assert moved.read_bytes() == before
    session.close()


def test_a_copy_onto_another_file_leaves_nothing_behind(tmp_path: Path) -> None:
    session = Session.create(tmp_path / "s", str(tmp_path), MODEL)
    session.append_message(PROMPT)
    session.blobs.put(b"large")
    taken = tmp_path / "taken.jsonl"
    taken.write_text("mine")
    with pytest.raises(FileExistsError):
        session.save_copy(taken)
    assert taken.read_text() == "mine"
    assert not (tmp_path / "taken.blobs").exists()
    session.close()


def test_what_cannot_be_written_ever_waits_before_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session.create(tmp_path / "s", str(tmp_path), MODEL)
    session.append_message(PROMPT)
    answer = text_message("assistant", "there")
    odd = Message("assistant", (Text(text="odd", provider_data={"handle": object()}),))
    with monkeypatch.context() as full:
        full.setattr("awl.log.file.write_all", no_space)
        with pytest.raises(NotSaved):
            session.append_message(answer)
        with pytest.raises(InvalidEntry):
            session.append_message(odd)
    assert session.flush() == 1
    session.close()
    Session.open(session.path).close()


def no_space(fd: int, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_session_moves_to_a_directory_whose_name_is_no_utf8(tmp_path: Path) -> None:
    there = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    there.mkdir()
    session = Session.create(tmp_path / "s", str(tmp_path), MODEL)
    session.append_message(PROMPT)
    session.move(str(there))
    assert session.cwd == str(there)
    session.close()
    assert read(session.path).cwd == str(there)
