"""After a redaction nothing that awl keeps holds the text: every byte below the folder is searched.

And at no moment is the session lost: it is killed at every step, and run again.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rawlog import RawLog, result, text, use
from running import Awl, say
from terminals import Terminal

from awl.conversation import Message, ModelRef, Text, Thinking, ToolResult, ToolUse, text_message
from awl.entries import PartialBlock, PartialEntry, TitleEntry
from awl.errors import AwlError, SessionBusy
from awl.health.pattern import Pattern
from awl.health.redact import leftovers, redact, survey
from awl.health.verify import verify
from awl.log.blobs import Blobs
from awl.replay import read
from awl.session import Session
from awl.store.files import Store

SECRET = 'sk-live/"0\\1\tdéf\U0001f511'
MODEL = ModelRef("anthropic", "claude-1")


def forms(secret: str) -> list[bytes]:
    """Ways in which bytes can hold a text."""
    plain = [secret]
    for ascii_only in (False, True):
        said = secret
        for _ in range(3):
            said = json.dumps(said, ensure_ascii=ascii_only)[1:-1]
            plain += [said, said.replace("/", "\\/")]
    number = secret.encode("utf-16-be").hex()
    plain.append("".join(f"\\u{number[at : at + 4]}" for at in range(0, len(number), 4)))
    return [
        *(form.encode() for form in plain),
        secret.encode("utf-16-le"),
        secret.encode("utf-16-be"),
    ]


def holding(root: Path, secret: str = SECRET) -> list[Path]:
    """The files below a folder of which any byte still tells the secret."""
    wanted = forms(secret)
    return [
        path
        for path in sorted(root.rglob("*"))
        if path.is_file() and any(form in path.read_bytes() for form in wanted)
    ]


def remember(root: Path, prompt: str) -> None:
    """A history of prompts, as the terminal writes it."""
    path = root / ".awl" / "prompts"
    with path.open("a") as file:
        file.write("\n# 2026-04-25 17:40:15.990\n")
        file.writelines(f"+{line}\n" for line in prompt.split("\n"))
    path.chmod(0o600)


def a_secret_session(store: Store, cwd: Path, secret: str = SECRET) -> Path:
    """A session that holds a secret wherever one can be."""
    session = store.create(str(cwd), MODEL)
    session.append_message(text_message("user", f"use {secret}!"))
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text=secret[:7]),)))
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text=secret[7:]),)))
    output = session.blobs.put(f"before\n{json.dumps({'key': secret})}\nafter".encode())
    binary = session.blobs.put(b"\x89PNG\xff" + secret.encode("utf-16-le"))
    session.append_message(
        Message(
            "assistant",
            (
                Thinking(thinking=f"{secret}?", signature="c2ln"),
                Text(text="I will."),
                ToolUse(id="t1", name="bash", input=json.dumps({"command": secret})),
                ToolUse(id="t2", name="bash", input=f'{{"command": {json.dumps(secret)}'),
            ),
        ),
        provider="anthropic",
        model="claude-1",
        stop_reason="toolUse",
    )
    session.append_message(
        Message(
            "user",
            (
                ToolResult(tool_use_id="t1", content=f"{secret}\n", output=output),
                ToolResult(tool_use_id="t2", content="ok", output=binary),
            ),
        )
    )
    branch = session.append_message(text_message("user", f"off the path: {secret}"))
    session.rewind(branch)
    session.append(TitleEntry(title=f"About {secret}"))
    session.append_message(text_message("assistant", "Done."), stop_reason="stop")
    session.close()
    with session.path.open("ab") as log:
        said = json.dumps(secret).encode()[:-1]
        log.write(b'{"type":"message","text":' + said + b"\n" + b'{"type":"mess' + said)
    session = Session.open(session.path)  # moves what is torn aside
    session.append_message(text_message("user", "go on"))
    session.close()
    return session.path


class Place:
    """A store with one secret session, indexed, and what is known of it."""

    def __init__(self, home: Path, secret: str = SECRET) -> None:
        self.secret = secret
        self.root = home / "sessions"
        self.store = Store(self.root)
        self.log = a_secret_session(self.store, home, secret)
        self.store.search("use")
        remember(self.root, f"use {secret}!")
        remember(self.root, "harmless\nprompt")

    def redact(self, pattern: Pattern | None = None) -> None:
        pattern = pattern or Pattern(self.secret)
        store = Store(self.root)
        try:
            redact(store, survey(store, self.log, pattern), pattern)
        finally:
            store.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.store.close()


# -- everywhere ------------------------------------------------------------------------------------


def test_nothing_below_the_folder_holds_it_any_more(place: Place) -> None:
    place.store.close()
    before = {path.name for path in holding(place.root)}
    assert before > {place.log.name, "prompts"} and any("torn" in name for name in before)
    assert any("index.db" in name for name in before)
    blobs = {blob.name for blob in Blobs(place.log).directory.iterdir()}
    assert len(blobs & before) == 2
    place.redact()
    assert holding(place.root) == []
    assert list(leftovers(place.root, Pattern(SECRET))) == []
    Store(place.root).search("use")  # the index that is built then does not know it either
    assert holding(place.root) == []


def test_the_session_is_the_same_session_and_says_what_was_done(place: Place) -> None:
    before, name = read(place.log), place.log.name
    (old,) = place.store.list().sessions
    place.redact()
    after = read(place.log)
    assert [entry.id for entry in after.entries][:-1] == [entry.id for entry in before.entries]
    assert after.seqs[:-1] == before.seqs and after.parents[:-1] == before.parents
    checked = verify(place.log)
    assert checked.ok, checked.findings
    store = Store(place.root)
    (new,) = store.list().sessions
    assert (new.id, new.conversation_id, new.path) == (old.id, old.conversation_id, old.path)
    assert (new.updated, new.created) == (old.updated, old.created)
    assert new.title == "About [redacted]"
    revision = json.loads(place.log.read_bytes().splitlines()[-1])
    assert (revision["type"], revision["reason"]) == ("revision", "redaction")
    assert SECRET not in json.dumps(revision, ensure_ascii=False)
    assert revision["changes"][0].startswith(
        "a text was taken out of 7 lines, 2 blobs, 1 torn tail"
    )
    assert revision["changes"][1].startswith("1 signed blocks")
    store.close()
    session = Session.open(place.log)
    assert session.path.name == name
    session.append_message(text_message("user", "and now?"))
    session.close()
    assert verify(place.log).ok


def test_lines_that_do_not_hold_it_keep_their_bytes(place: Place) -> None:
    before = place.log.read_bytes().splitlines()
    place.redact()
    after = place.log.read_bytes().splitlines()
    kept = sum(one == other for one, other in zip(before, after, strict=False))
    assert kept == len(before) - 7


def test_blobs_are_what_the_log_names_and_binaries_keep_their_size(place: Place) -> None:
    sizes = {blob.stat().st_size for blob in Blobs(place.log).directory.iterdir()}
    place.redact()
    state = read(place.log)
    results = [
        block
        for item in state.items
        for block in item.message.content
        if isinstance(block, ToolResult)
    ]
    outputs = [Blobs(place.log).get(block.output) for block in results if block.output]
    assert outputs[0] == b'before\n{"key": "[redacted]"}\nafter'
    assert outputs[1] == b"\x89PNG\xff" + b"*" * len(SECRET.encode("utf-16-le"))
    assert len(outputs[1]) in sizes


def test_again_it_changes_nothing(place: Place) -> None:
    place.redact()
    before = {
        path: path.read_bytes()
        for path in place.root.rglob("*")
        if path.is_file() and not path.suffix.startswith(".db")
    }
    found = survey(place.store, place.log, Pattern(SECRET))
    assert not found
    place.redact()
    after = {path: path.read_bytes() for path in before}
    assert after == before


def test_the_history_of_prompts_keeps_the_others_and_its_form(place: Place) -> None:
    remember(place.root, "a secret\nof two lines")
    place.redact(Pattern("secret\nof two"))
    assert (place.root / ".awl" / "prompts").read_text().splitlines()[-5:] == [
        "+harmless",
        "+prompt",
        "",
        "# 2026-04-25 17:40:15.990",
        "+a [redacted] lines",
    ]
    place.redact()
    assert (place.root / ".awl" / "prompts").read_text().splitlines()[2] == "+use [redacted]!"
    assert (place.root / ".awl" / "prompts").stat().st_mode & 0o777 == 0o600


def test_an_expression_takes_out_all_that_it_fits(place: Place) -> None:
    place.redact(Pattern(r"sk-live/[\s\S]{6,9}", regex=True, replacement="gone"))
    assert "use gone" in read(place.log).first_prompt


# -- forks, the trash, conversations without a log -------------------------------------------------


def test_forks_their_forks_parents_and_deleted_copies_hold_the_same_and_are_found(
    place: Place,
) -> None:
    store = place.store
    child = store.fork(place.log)
    grandchild = store.fork(child, at=3)
    before = store.create(str(place.root.parent), MODEL)
    before.append_message(text_message("user", f"not related, but {SECRET}"))
    before.close()
    deleted = store.fork(place.log)
    store.delete(deleted)
    clean = store.fork(place.log, at=1)
    pattern = Pattern(SECRET)
    found = survey(store, grandchild, pattern)
    assert found.own is not None and found.own.log == grandchild
    related = {held.log for held in found.related}
    assert {place.log, child} < related and clean in related and before.path not in related
    assert any(".trash" in held.log.parts for held in found.related)
    assert len(related) == 4
    redact(store, found, pattern)
    store.close()
    assert [path.name for path in holding(place.root)] == [before.path.name]
    assert list(leftovers(place.root, pattern)) == [before.path]
    for log in (place.log, child, grandchild, clean):
        assert verify(log).ok
    store = Store(place.root)
    assert store.trash.restore(store.trash.contents()[0].id)
    redact(store, survey(store, before.path, pattern), pattern)
    store.close()
    assert holding(place.root) == []


def test_only_what_was_asked_for_is_touched(place: Place) -> None:
    child = place.store.fork(place.log)
    bytes_before = child.read_bytes()
    pattern = Pattern(SECRET)
    redact(place.store, survey(place.store, place.log, pattern).alone(), pattern)
    assert child.read_bytes() == bytes_before
    assert verify(child).ok and child in leftovers(place.root, pattern)


def test_messages_that_were_kept_without_a_log_lose_it_for_good(awl: Awl) -> None:
    secret = "hunter2-hunter2"
    awl.plays([say(f"Hello {secret}.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", f"my key is {secret}")
    awl("-p", "something else")
    rows = awl("sessions", "--all", "--json").json
    session_id = next(row["id"] for row in rows if secret in row["title"])
    other = next(row["id"] for row in rows if secret not in row["title"])
    done = awl(
        "sessions", "redact", session_id, secret, "-y", code=1
    )  # the other one holds it, too
    assert "2 messages that were kept without a log" in done.err
    done = awl("sessions", "redact", other, secret, "-y")
    assert f"nothing in {awl.sessions} holds it any more" in done.err
    assert holding(awl.sessions, secret) == []
    shown = awl("sessions", "show", session_id).out
    assert "my key is [redacted]" in shown and "Hello [redacted]." in shown
    awl.plays([say("Hi.")], loop=True)
    awl("--resume", session_id, "-p", "again")  # it gets a log
    awl("sessions", "redact", session_id, "again", "-y")
    assert holding(awl.sessions, "again") == []


def test_a_conversation_that_has_a_log_now_is_kin_to_what_was_kept_without(awl: Awl) -> None:
    secret = "hunter2-hunter2"
    awl.plays([say("Hello.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", f"my key is {secret}")
    parent = awl("sessions", "--all", "--json").json[0]["id"]
    awl.plays([say("Hello.")], loop=True)
    child = awl("sessions", "fork", parent).lines[-1]
    for session_id in (child, parent):
        awl("sessions", "redact", session_id, secret, "-y")
        assert holding(awl.sessions, secret) == []


def test_torn_lines_stay_as_many_as_they_were(place: Place) -> None:
    (torn,) = place.log.parent.glob("*.torn-*")
    torn.write_bytes(b"one two\nthree\nfour")
    place.redact(Pattern(r"two\s+three|o", regex=True))
    assert torn.read_bytes() == b"[redacted]ne tw[redacted]\nthree\nf[redacted]ur"


def test_pages_that_a_database_freed_hold_nothing_either(place: Place) -> None:
    path = place.root / ".awl" / "conversations.db"
    place.store.close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA secure_delete = OFF")
    db.execute("INSERT INTO messages VALUES (1, 'x', 'user', ?, '')", (f"{SECRET} " * 500,))
    db.commit()
    db.execute("DELETE FROM messages")
    db.commit()
    db.close()
    assert path in holding(place.root)
    place.redact()
    assert holding(place.root) == []


# -- refused ---------------------------------------------------------------------------------------


def test_an_open_session_is_refused_and_nothing_is_done(place: Place) -> None:
    child = place.store.fork(place.log)
    session = Session.open(child)
    before = place.log.read_bytes(), child.read_bytes()
    with pytest.raises(SessionBusy):
        place.redact()
    assert (place.log.read_bytes(), child.read_bytes()) == before
    session.close()
    place.redact()
    assert holding(place.root) == []


def test_pipes_among_what_it_looks_through_stop_nobody(place: Place) -> None:
    os.mkfifo(place.root / ".awl" / "prompts.old")
    os.mkfifo(f"{place.log}.torn-2026-04-25T17-40-15-990Z")
    os.mkfifo(place.log.with_name(f"{place.log.name}.owner"))
    place.redact()
    assert holding(place.root) == []


def test_a_file_elsewhere_is_not_touched(place: Place, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(place.log.read_bytes())
    with pytest.raises(AwlError, match="is no session in"):
        survey(place.store, copy, Pattern(SECRET))


def test_what_holds_the_log_together_is_named_as_left(awl: Awl) -> None:
    awl("-p", "Hi")
    done = awl("sessions", "redact", awl.id, awl.id[:13], "-y", code=1)
    assert f"it is still in {awl.log}" in done.err


# -- killed ----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from awl.health.pattern import Pattern
from awl.health.redact import redact, survey
from awl.store.files import Store

root, log, secret, at = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
count = 0

def counted(name):
    done = getattr(os, name)
    def call(*arguments, **options):
        global count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done(*arguments, **options)
    setattr(os, name, call)

pattern = Pattern(secret)
store = Store(root)
found = survey(store, log, pattern)
for name in ("fsync", "replace", "rename", "unlink", "link", "rmdir", "mkdir"):
    counted(name)
redact(store, found, pattern)
print(count)
"""


def run_killed(place: Place, at: int) -> int:
    """Redact, and die before this step. Returns the exit code, or minus the number of steps."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, place.root, place.log, place.secret, str(at)],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return int(done.stdout)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return 0


def check_killed(home: Path, at: int) -> bool:
    """Whether a redaction is still running at this step; and that its death there is no loss."""
    home.mkdir()
    place = Place(home, "sk-live-0123456789")
    ids = [entry.id for entry in read(place.log).entries]
    place.store.fork(place.log)
    place.store.close()
    ended = run_killed(place, at)
    for log in Store(place.root).logs():
        assert [entry.id for entry in read(log).entries][: len(ids)] == ids
        assert verify(log).ok, (at, verify(log).findings)
        Session.open(log).close()
    store = Store(place.root)
    store.search("use")
    store.close()
    place.redact()
    assert holding(place.root, place.secret) == [], at
    assert not list(place.root.rglob(".*.new*"))
    for log in Store(place.root).logs():
        assert verify(log).ok
    return not ended


@pytest.mark.parametrize("at", [1, 7, 12, 17, 22, 27, 32])
def test_killed_at_some_step_it_loses_nothing_and_is_completed(tmp_path: Path, at: int) -> None:
    check_killed(tmp_path / "x", at)


@pytest.mark.long
def test_killed_at_any_step_it_loses_nothing_and_is_completed(tmp_path: Path) -> None:
    at = 1
    while check_killed(tmp_path / str(at), at):
        at += 1
    assert at > 20


# -- the command -----------------------------------------------------------------------------------


def test_the_command_says_what_it_found_and_asks(awl: Awl) -> None:
    awl.plays([say("I see hunter2-hunter2.")], loop=True)
    awl("-p", "my key is hunter2-hunter2")
    child = awl("sessions", "fork", awl.id).lines[-1]
    session_id = next(row["id"] for row in awl("sessions", "--json").json if row["id"] != child)
    refused = awl("sessions", "redact", session_id, "hunter2-hunter2", code=2)
    assert f"{session_id}: 2 lines" in refused.err
    assert f"{child}, which has the same entries" in refused.err
    assert "there is nobody to ask: say -y" in refused.err
    assert len(holding(awl.sessions, "hunter2-hunter2")) >= 2
    done = awl("sessions", "redact", session_id, "-", "-y", stdin="hunter2-hunter2\n")
    assert f"nothing in {awl.sessions} holds it any more" in done.err
    assert "exports, backups" in done.err
    assert "hunter2" not in done.err + refused.err + done.out
    assert holding(awl.sessions, "hunter2-hunter2") == []
    assert "my key is [redacted]" in awl("sessions", "show", session_id).out
    assert "something was redacted" in awl("sessions", "show", session_id).out
    again = awl("sessions", "redact", session_id, "hunter2-hunter2", "-y")
    assert f"nothing in {awl.sessions} holds it\n" in again.err


@pytest.mark.parametrize(
    ("answers", "left"), [(["n"], 2), (["y", "n"], 1), (["y", "y"], 0)], ids=str
)
def test_a_person_is_asked_for_the_text_and_before_anything_goes(
    awl: Awl, answers: list[str], left: int
) -> None:
    secret = "hunter2-hunter2"
    awl("-p", f"my key is {secret}")
    parent = awl.id
    awl("sessions", "fork", parent)
    with Terminal(awl, "sessions", "redact", parent, "-") as terminal:
        terminal.see("What is to go")
        terminal.type(secret)
        for question, answer in zip(("for good?", "the same entries, too?"), answers, strict=False):
            terminal.see(question)
            terminal.type(answer)
        assert terminal.ends() == (130 if answers == ["n"] else 1 if left else 0)
        assert secret not in terminal.raw
    assert sum(path.suffix == ".jsonl" for path in holding(awl.sessions, secret)) == left


def test_patterns_that_cannot_be_used_are_refused(awl: Awl) -> None:
    awl("-p", "Hi")
    for pattern, *options in (("", ""), ("(", "--regex"), ("x*", "--regex")):
        done = awl("sessions", "redact", awl.id, pattern, *filter(None, options), code=1)
        assert done.err.startswith("awl: ")
    assert "no session matches" in awl("sessions", "redact", "zzz", "x", code=1).err


def test_a_damaged_log_loses_it_too(tmp_path: Path) -> None:
    log = RawLog()
    log.prompt(SECRET)
    log.bad(b'{"type":"x' + json.dumps(SECRET).encode())
    log.answer(text("x"), use("t", json.dumps({"a": SECRET})))
    log.results(result("t", SECRET))
    log.lines[0] = json.dumps({"broken": SECRET}).encode()[:-1]
    path = log.write(tmp_path / "sessions")
    store = Store(tmp_path / "sessions")
    pattern = Pattern(SECRET)
    redact(store, survey(store, path, pattern), pattern)
    store.close()
    assert holding(tmp_path) == []
    assert len(path.read_bytes().splitlines()) == len(log.lines) + 1
