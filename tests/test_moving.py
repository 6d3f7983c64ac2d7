"""The verbs that copy, delete and bring back sessions, on the command line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from running import HARMFUL, JSON, Awl, call, kind, read_log, say, user
from terminals import Terminal

from awl.errors import told
from awl.formats import NAMES, find
from awl.session import Session


def test_fork_prints_the_new_id_last_and_both_go_on(awl: Awl) -> None:
    awl.plays([say("one")], [say("two")], loop=True)
    awl("-p", "question one")
    awl("--resume", "-p", "question two")
    parent = awl.log
    before = parent.read_bytes()
    session_id = awl.id
    whole = awl("sessions", "fork", session_id[:12]).lines[-1]
    cut = awl("sessions", "fork", session_id, "--at", "3").lines[-1]
    assert parent.read_bytes().startswith(before)
    (log,) = [path for path in awl.logs if cut in path.name]
    assert [kind(entry) for entry in read_log(log)[1:]] == ["system", "user", "assistant"]
    shown = {info["id"]: info for info in awl("sessions", "--json").json}
    assert shown[cut]["forked_from"] == {"sessionId": session_id, "seq": 3}
    assert awl("--resume", whole, "-p", "more").out
    assert awl("--resume", cut, "-p", "other").out
    assert b"more" not in parent.read_bytes()


def test_lineage_shows_on_both_sides(awl: Awl) -> None:
    awl("-p", "hello")
    parent = awl.id
    child = awl("sessions", "fork", parent, "--at", "2").lines[-1]
    above = awl("sessions", "show", parent).out
    assert f"forked as {child[:8]}" in above
    assert f"forked at 2 as {child}" in above
    assert f"fork of {parent} at 2" in awl("sessions", "show", child).out
    # What the parent's own log says is a courtesy: the child's header decides.
    log = next(path for path in awl.logs if parent in path.name)
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert f"forked as {child[:8]}" in awl("sessions", "show", parent).out
    awl("sessions", "delete", child)
    assert "forked as" not in awl("sessions", "show", parent).out


def test_the_name_of_a_file_says_its_format_as_in_a_conversation_and_format_wins(awl: Awl) -> None:
    awl("-p", "hello")
    log = awl.log.read_bytes()
    for name, begins in (("x.md", b"# hello"), ("x.HTML", b"<!doctype html>"), ("x.jsonl", log)):
        awl("sessions", "export", awl.id, name)
        assert (awl.work / name).read_bytes()[: len(begins)].lower() == begins.lower()
    awl("sessions", "export", awl.id, "y.md", "--format", "awl")
    assert (awl.work / "y.md").read_bytes() == log


def test_the_help_names_every_format_that_is_written_and_every_one_that_is_read(awl: Awl) -> None:
    for verb, can in (("export", "write"), ("import", "read")):
        shown = awl("sessions", verb, "--help").out
        (option,) = re.findall(r"--format NAME(.*?)(?:Without|\n  --)", shown, re.DOTALL)
        wanted = {"awl", *(name for name in NAMES if getattr(find(name), can) is not None)}
        assert wanted == wanted.intersection(re.findall(r"[a-z]+(?:-[a-z]+)?", option))
        assert not set(NAMES).difference(wanted).intersection(re.split(r"[\s,.]+", option))


@pytest.mark.parametrize("at", ["0", "99", "-3"])
def test_a_cut_that_is_not_there_is_refused_in_one_line(awl: Awl, at: str) -> None:
    awl("-p", "hello")
    before = awl.log.read_bytes()
    done = awl("sessions", "fork", awl.id, "--at", at, code=1)
    assert "1 to" in done.err
    assert done.err.count("\n") == 1
    assert awl.log.read_bytes() == before


def test_a_torn_parent_is_mended_aloud(awl: Awl) -> None:
    awl("-p", "hello")
    session_id = awl.id
    with awl.log.open("ab") as file:
        file.write(b'{"type":"mess')
    done = awl("sessions", "fork", session_id)
    assert "incomplete last line" in done.err
    assert len(done.lines) == 1


def test_a_conversation_without_a_log_is_forked_only_with_sessions_enabled(awl: Awl) -> None:
    awl.plays([say("Hello there.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "old words")
    (found,) = awl("sessions", "--json").json
    done = awl("sessions", "fork", found["id"], code=1)
    assert "enabled was false" in done.err
    assert awl.logs == []
    awl.plays([say("Hello there.")], loop=True)
    child = awl("sessions", "fork", found["id"]).lines[-1]
    assert len(awl.logs) == 2
    assert awl("--resume", child, "-p", "go on").out == "Hello there.\n"
    assert "old words" in awl("sessions", "show", child).out


def test_where_there_are_no_sessions_looking_for_one_makes_no_folder(awl: Awl) -> None:
    for verb in ("restore", "delete", "fork", "tree", "condense"):
        assert "matches" in awl("sessions", verb, "019dc5ba", code=1).err
    assert not awl.sessions.exists()


def test_a_title_in_the_trash_reaches_no_terminal_as_it_is(awl: Awl) -> None:
    path = awl.write_log(user("x"), {"type": "title", "title": "\x1b[31mred\nawl: fake"})
    awl("sessions", "delete", str(path))
    done = awl("sessions", "restore")
    assert not HARMFUL.search(done.out)
    assert len(done.lines) == 1


def test_a_session_goes_out_and_comes_in_elsewhere(awl: Awl) -> None:
    awl("-p", "hello")
    session_id, log = awl.id, awl.log
    done = awl("sessions", "export", session_id[:12], "x.jsonl")
    assert (done.out, done.err) == ("", "")
    assert (awl.work / "x.jsonl").read_bytes() == log.read_bytes()
    assert awl("sessions", "import", "x.jsonl").out == f"{session_id}\n"
    assert awl.logs == [log]
    there = {"AWL_SESSION_DIR": str(awl.home / "there")}
    assert awl("sessions", "import", "x.jsonl", env=there).out == f"{session_id}\n"
    awl("--resume", session_id, "-p", "there", env=there)
    awl("sessions", "export", session_id, "x.jsonl", env=there, code=1)
    awl("sessions", "export", session_id, "x.jsonl", "--force", env=there)
    awl("sessions", "import", "x.jsonl")
    assert b"there" in log.read_bytes()
    awl("--resume", "-p", "again")
    awl("--resume", session_id, "-p", "apart", env=there)
    awl("sessions", "export", session_id, "x.jsonl", "--force", env=there)
    assert "--keep-id" in awl("sessions", "import", "--keep-id", "x.jsonl", code=1).err
    done = awl("sessions", "import", "x.jsonl")
    assert session_id in done.err
    assert done.out.strip() != session_id
    assert awl("sessions", "import", "x.jsonl").out == done.out


def test_export_writes_to_stdout_and_in_other_formats(awl: Awl) -> None:
    awl("-p", "hello")
    assert awl("sessions", "export", awl.id, "-").raw == awl.log.read_bytes()
    done = awl("sessions", "export", awl.id, "-", "--format", "zeph")
    assert '"session_started"' in done.out
    assert "left out: 1 system text\n" in done.err
    awl("sessions", "export", awl.id, "x", "--format", "markdown")
    assert "Hello there." in (awl.work / "x").read_text()
    for arguments in (["x"], [awl.id, "x", "y"], ["--all", "x", "y"], [awl.id, "x", "--format=no"]):
        awl("sessions", "export", *arguments, code=2)
    awl("sessions", "export", awl.id, "no/where", code=1)


def test_a_backup_and_what_comes_of_it(awl: Awl) -> None:
    awl("-p", "one")
    awl("-p", "two")
    awl("sessions", "fork", awl.logs[0].stem.split("_")[1])
    assert awl("sessions", "export", "--all", "b").out == "0 unchanged, 3 new\n"
    assert awl("sessions", "export", "--all", "b").out == "3 unchanged\n"
    there = {"AWL_SESSION_DIR": str(awl.work / "b")}
    assert awl("sessions", "--json", env=there).json != []
    there = {"AWL_SESSION_DIR": str(awl.home / "there")}
    found = awl("sessions", "import", "b", env=there).lines
    assert sorted(found) == sorted(info["id"] for info in awl("sessions", "--json").json)
    log = awl.logs[0]
    log.write_bytes(log.read_bytes().replace(b"Hello", b"Holla"))
    done = awl("sessions", "export", "--all", "b", code=1)
    assert log.name in done.err
    assert done.out == "2 unchanged, 1 apart\n"
    awl("sessions", "export", "--all", "b", "--force")
    assert awl("sessions", "export", "--all", "b").out == "3 unchanged\n"
    awl("sessions", "export", "--all", str(awl.sessions / "b"), code=1)


def test_one_file_that_cannot_come_in_keeps_no_other_out(awl: Awl) -> None:
    awl("-p", "hello")
    awl("sessions", "export", awl.id, "y.jsonl")
    (awl.work / "x.jsonl").write_bytes(b"words\n")
    there = {"AWL_SESSION_DIR": str(awl.home / "there")}
    done = awl("sessions", "import", "x.jsonl", "nothing", "y.jsonl", env=there, code=1)
    assert done.out == f"{awl.id}\n"
    assert [line.split(":")[1].split()[0] for line in done.err.splitlines()] == [
        "x.jsonl",
        "nothing",
        "sessions",
    ]
    done = awl("sessions", "import", ".", env=there)
    assert done.out == f"{awl.id}\n"


def test_files_of_other_programs_come_in_beside_awls_own(awl: Awl) -> None:
    awl("-p", "hello")
    session_id = awl.id
    (awl.work / "z").mkdir()
    awl("sessions", "export", session_id, "z/events.jsonl", "--format", "zeph")
    awl("sessions", "export", session_id, "z/x.jsonl")
    own, foreign = awl("sessions", "import", "z").lines
    assert own == session_id
    assert foreign not in (session_id, "")
    assert awl("sessions", "import", "z").lines == [own, foreign]
    assert awl("sessions", "import", "z", "--format", "awl").lines == [own]
    assert awl("sessions", "import", "z", "--format", "zeph").lines == [foreign]
    assert len(awl.logs) == 2


KEY = "sk-ant-api03-" + "aB3" * 12


@pytest.mark.parametrize("name", ["awl", "html", "markdown", "pi", "zeph"])
def test_an_export_with_redact_holds_no_secret_and_the_session_keeps_its_own(
    awl: Awl, name: str
) -> None:
    awl.plays(
        [call("bash", command=f"echo {KEY}; seq 20000; echo hunter2-hunter2")],
        [say(f"It is {KEY}")],
    )
    awl("-y", "-p", f"my key is {KEY}", env={"MY_PASSWORD": "hunter2-hunter2"})
    before = awl.log.read_bytes()
    assert before.count(KEY.encode()) > 3
    target = awl.home / "out"
    done = awl(
        "sessions",
        "export",
        awl.id,
        str(target),
        "--format",
        name,
        "--redact",
        env={"MY_PASSWORD": "hunter2-hunter2"},
    )
    assert "masked: " in done.err
    out = [path for path in (target, *awl.home.glob("out.blobs/*")) if path.is_file()]
    assert any(b"[redacted]" in path.read_bytes() for path in out)
    for path in out:
        assert KEY.encode() not in path.read_bytes()
        assert b"hunter2-hunter2" not in path.read_bytes()
    assert awl.log.read_bytes() == before
    assert list(awl.tmp.iterdir()) == []


def test_what_was_exported_with_redact_is_a_session_that_goes_on(awl: Awl) -> None:
    awl.plays([call("bash", command=f"echo {KEY}")], [say("done")], [say("on")])
    awl("-y", "-p", f"my key is {KEY}")
    target = awl.home / "out.jsonl"
    awl("sessions", "export", awl.id, str(target), "--redact")
    awl("sessions", "delete", awl.id, "--purge", "-y")
    found = awl("sessions", "import", str(target)).lines[-1]
    assert awl("sessions", "verify", found).code == 0
    assert awl("--resume", found, "-p", "go on").out == "on\n"


@pytest.mark.parametrize("name", ["awl", "pi", "zeph", "openai", "markdown", "html"])
def test_what_a_provider_signed_leaves_untouched_or_not_at_all(awl: Awl, name: str) -> None:
    def thought(words: str, signature: str) -> JSON:
        return {"type": "thinking", "thinking": words, "signature": signature}

    answers: list[list[JSON]] = [
        [thought(f"the key is {KEY}", "c2lnbmVkLW9uZQ=="), {"type": "text", "text": "one"}],
        [
            thought("plain", "c2lnbmVkLXR3bw=="),
            {"type": "redacted_thinking", "data": "c2VhbGVkLXR3bw=="},
            {"type": "text", "text": f"two {KEY}"},
        ],
        [thought("plain", KEY), {"type": "text", "text": "three"}],
    ]
    lines, last = [], None
    for number, content in enumerate(answers):
        for role, said in (("user", f"prompt {KEY}"), ("assistant", content)):
            record: JSON = {"type": role, "uuid": f"{role}{number}", "parentUuid": last}
            message = {"role": role, "content": said, "id": f"m{number}", "model": "claude-x"}
            lines.append(record | {"sessionId": "s", "cwd": str(awl.work), "message": message})
            last = record["uuid"]
    (awl.work / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (session_id,) = awl("sessions", "import", "s.jsonl").lines
    out = awl.home / "out.jsonl"
    awl("sessions", "export", session_id, str(out), "--format", name, "--redact")
    text = out.read_text()
    assert KEY not in text and "[redacted]" in text
    assert "c2lnbmVkLW9uZQ" not in text, "what was signed is no more what it was"
    if name in ("awl", "pi", "zeph"):
        assert "c2lnbmVkLXR3bw==" in text and "c2VhbGVkLXR3bw==" in text
        env = {"AWL_SESSION_DIR": str(awl.home / "elsewhere")}
        (again,) = awl("sessions", "import", str(out), env=env).lines
        assert awl("--resume", again, "-p", "on", env=env).out == "Hello there.\n"


def test_a_backup_is_whole(awl: Awl) -> None:
    assert "--all" in awl("sessions", "export", "--all", "backup", "--redact", code=2).err


def test_at_a_terminal_purging_asks_and_takes_no_for_an_answer(awl: Awl) -> None:
    awl("-p", "hello \x1b[31mworld")
    session_id = awl.id
    for answer, left in (("n", 1), ("", 1), ("y", 0)):
        with Terminal(awl, "sessions", "delete", session_id, "--purge") as terminal:
            terminal.see(session_id)
            terminal.see("3 messages")
            terminal.see("[y/N]")
            terminal.type(answer)
            assert terminal.ends() == left
            assert "\x1b[31m" not in terminal.raw
        assert len(awl.logs) == left


def test_what_goes_to_a_terminal_is_harmless(awl: Awl) -> None:
    awl("-p", "hello \x1b[31mworld")
    for name in ("awl", "markdown"):
        with Terminal(awl, "sessions", "export", awl.id, "-", "--format", name) as terminal:
            terminal.see("hello")
            assert terminal.ends() == 0
            assert "\x1b[31m" not in terminal.raw


def test_json_on_a_terminal_is_harmless_and_says_the_same(awl: Awl) -> None:
    said = "a\x9b31mb \u202ec\x7fd"
    awl("-p", said)
    for name in ("awl", "openai", "zeph", "pi"):
        with Terminal(awl, "sessions", "export", awl.id, "-", "--format", name) as terminal:
            terminal.see("31mb")
            assert terminal.ends() == 0
            assert not {"\x9b", "\u202e", "\x7f"} & {*terminal.raw}
            assert json.dumps(said)[1:-1].replace("\x7f", "\\u007f") in terminal.raw
    with Terminal(awl, "sessions", "resume", awl.id, "--print") as terminal:
        terminal.see("\\u009b31mb")
        assert terminal.ends() == 0


def test_a_log_whose_header_says_nothing_comes_back_from_a_backup(awl: Awl) -> None:
    awl("-p", "old words")
    session_id = awl.id
    lines = awl.log.read_bytes().split(b"\n")
    awl.log.write_bytes(b"\n".join([b"{}", *lines[1:]]))
    bare = awl.log.with_name(awl.log.name.replace("-7", "-6", 1).replace("_0", "_1"))
    bare.write_bytes(b"{}\n")
    awl("sessions", "export", "--all", "backup")
    shutil.rmtree(awl.sessions)
    done = awl("sessions", "import", "backup", code=1)
    assert session_id in done.lines
    assert bare.name in done.err
    assert "old words" in awl("sessions", "show", session_id).out


def test_a_copy_whose_model_at_the_cut_is_gone_is_not_made(awl: Awl) -> None:
    awl("-p", "one")
    log, name = awl.log, awl.entries()[0]["provider"]
    log.write_bytes(log.read_bytes().replace(json.dumps(name).encode(), b'"go\\rne"'))
    awl("--resume", "--provider", name, "-p", "two")
    done = awl("--fork", awl.id, "--at", "2", "-p", "three", code=1)
    assert "is configured" in done.err
    assert "\r" not in done.err
    assert awl.logs == [log]
    awl("--fork", awl.id, "-p", "three")
    assert len(awl.logs) == 2


def test_what_another_process_moved_meanwhile_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as gone:
        Session.open(tmp_path / "x.jsonl")
    assert "another process may have moved or deleted the session" in told(gone.value)
    assert "awl sessions restore" in told(gone.value)


def test_conversations_without_a_log_say_what_they_lack(awl: Awl) -> None:
    awl.plays([say("Hello there.")], loop=True, settings="[session]\nenabled = false")
    awl("-p", "old words")
    (found,) = awl("sessions", "--json").json
    done = awl("sessions", "export", found["id"], "x", code=1)
    assert "has no log" in done.err
    awl("sessions", "delete", found["id"])
    assert awl("sessions", "--json").json == []
    (row,) = awl("sessions", "restore").lines
    assert row.endswith("2 messages  old words")
    awl("sessions", "restore", found["id"])
    assert awl("--resume", found["id"], "-p", "more").out == "Hello there.\n"


def test_an_argument_that_is_not_utf8_finds_nothing_and_leaves_the_index_alone(awl: Awl) -> None:
    awl("-p", "hello")
    awl("sessions")
    for words in (["sessions", "fork", "\udcff"], ["sessions", "show", "\udcff"]):
        done = awl(*words, code=1)
        assert done.err.count("\n") == 1
        assert "\\udcff" in done.err
    assert awl("sessions", "redact", awl.id, "\udcff", code=1).err.count("\n") == 1
