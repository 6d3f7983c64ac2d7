"""`awl sessions import` with the files of other programs, as a process."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from formats.landing import DATA
from running import HARMFUL, Awl
from terminals import Terminal

CLAUDE = DATA / "claude-code" / "983e17d3-b4e1-4f2d-8bc6-194aadcc64d8.jsonl"
CODEX = sorted((DATA / "codex").glob("*.jsonl"))[-1]
SESSIONS = 20


def test_a_folder_of_all_programs_comes_in_once(awl: Awl) -> None:
    before = {path: path.read_bytes() for path in DATA.rglob("*") if path.is_file()}
    done = awl("sessions", "import", str(DATA))
    assert len(done.lines) == len(set(done.lines)) == SESSIONS
    *said, total = done.err.splitlines()
    assert total.startswith("awl: sessions: 20 new; 55 prompts, ")
    assert f"awl: {CLAUDE}: claude-code: 6 prompts, 16 answers, 11 tool calls" in done.err
    assert f"awl: {CLAUDE}: left out: 33 copies of requests" in done.err
    assert all(line.startswith("awl: ") for line in said)
    logs = {log: log.read_bytes() for log in awl.logs}
    again = awl("sessions", "import", str(DATA))
    assert again.lines == done.lines
    assert again.err == "awl: sessions: 20 unchanged\n"
    assert {log: log.read_bytes() for log in awl.logs} == logs
    assert {path: path.read_bytes() for path in DATA.rglob("*") if path.is_file()} == before
    listed = awl("sessions", "--all", "--json").json
    assert sorted(one["id"] for one in listed) == sorted(done.lines)
    assert not HARMFUL.search(done.err + awl("sessions").out)
    for session_id in done.lines:
        assert awl("sessions", "verify", session_id).err == ""
        assert not HARMFUL.search(awl("sessions", "show", session_id).out)


@pytest.mark.long
def test_a_thousand_files_come_over_once(awl: Awl) -> None:
    """Of several programs, in many folders; it takes seconds, and no more memory than one."""
    files = {
        "(in the header)": next((DATA / "pi").glob("*_real-model-2.jsonl")),
        "40621a2c": next((DATA / "qwen-code").glob("40621a2c*")),
        "01a228f2-c389": next((DATA / "codex").glob("*-01a228f2-c389-*")),
        "20e84248": next((DATA / "gemini-cli").rglob("*20e84248.jsonl")),
    }
    for number in range(1000):
        name, path = list(files.items())[number % 4]
        data = path.read_text()
        if "_" in path.name:  # pi's header has the id
            name = json.loads(data.split("\n")[0])["id"]
        new = f"{number:08x}-c389" if "-c389" in name else f"{number:08x}"
        folder = awl.work / "many" / f"{number % 10}" / f"{number // 10}"
        folder.mkdir(parents=True)
        (folder / path.name.replace(name, new)).write_text(data.replace(name, new))
    done = awl("sessions", "import", "many")
    assert len(done.lines) == len(set(done.lines)) == len(awl.logs) == 1000
    assert "sessions: 1000 new; " in done.err
    before = {log: log.read_bytes() for log in awl.logs}
    again = awl("sessions", "import", "many")
    assert (again.lines, again.err) == (done.lines, "awl: sessions: 1000 unchanged\n")
    assert {log: log.read_bytes() for log in awl.logs} == before
    listed = awl("sessions", "list", "--all", "--json").json
    assert sorted(one["id"] for one in listed) == sorted(done.lines)


def test_a_dry_run_tells_and_writes_nothing(awl: Awl) -> None:
    awl("-p", "hello")
    log = awl.log
    awl("sessions", "export", awl.id, "own.jsonl")
    shutil.copy(CODEX, awl.work)
    done = awl("sessions", "import", "--dry-run", ".", str(CLAUDE))
    rows = [line.split() for line in done.lines]
    assert [row[:2] for row in rows] == [
        ["unchanged", "awl"],
        ["new", "codex"],
        ["new", "claude-code"],
    ]
    assert done.lines[2].endswith("6 prompts, 16 answers, 11 tool calls, 11 results, 2 of the"
                                  " results errors, 28 other entries")  # fmt: skip
    assert "awl: sessions: 2 new, 1 unchanged; 10 prompts, " in done.err
    assert done.err.endswith("; nothing was written\n")
    assert awl.logs == [log]
    env = {"AWL_SESSION_DIR": str(awl.home / "none")}
    assert awl("sessions", "import", "--dry-run", "own.jsonl", env=env).lines[0].startswith("new")
    assert not (awl.home / "none").exists()


def test_a_programs_usual_place_is_known(awl: Awl) -> None:
    error = awl("sessions", "import", "--from", "codex", code=1).err
    assert f"Codex keeps its sessions in {awl.home}/.codex/sessions or " in error
    folder = awl.home / ".codex" / "sessions" / "2026" / "11" / "29"
    folder.mkdir(parents=True)
    assert "no session in it" in awl("sessions", "import", "--from", "codex").err
    shutil.copy(CODEX, folder)
    (codex,) = awl("sessions", "import", "--from", "codex").lines
    projects = awl.home / "elsewhere" / "projects" / "-x"
    projects.mkdir(parents=True)
    shutil.copy(CLAUDE, projects)
    env = {"CLAUDE_CONFIG_DIR": str(awl.home / "elsewhere")}
    (claude,) = awl("sessions", "import", "--from", "claude-code", env=env).lines
    shutil.copytree(awl.home / "elsewhere", awl.home / ".config" / "claude")
    assert awl("sessions", "import", "--from", "claude-code").lines == [claude]
    assert codex != claude
    assert awl("sessions", "import", str(awl.home / ".codex"), str(projects)).lines == [
        codex,
        claude,
    ]


def test_what_subagents_said_in_files_of_their_own_is_left_out_of_folders_and_counted(
    awl: Awl,
) -> None:
    folder = awl.work / "many"
    folder.mkdir()
    first, _, rest = CODEX.read_text().partition("\n")
    meta = json.loads(first)
    meta["payload"]["source"] = {"subagent": "review"}
    agent = folder / "rollout-of-a-subagent.jsonl"
    agent.write_text(f"{json.dumps(meta)}\n{rest}")
    done = awl("sessions", "import", "many")
    assert done.lines == []
    assert "left out: 1 conversation of subagents in files of their own;" in done.err
    assert "no session in it" not in done.err
    assert len(awl("sessions", "import", str(agent)).lines) == 1


def test_every_program_with_a_usual_place_can_be_named(awl: Awl) -> None:
    places = {
        "claude-code": ".claude/projects",
        "codex": ".codex/archived_sessions",
        "gemini-cli": ".gemini/tmp",
        "kimi-cli": ".kimi/sessions",
        "pi": ".pi/agent/sessions",
        "qwen-code": ".qwen/projects",
    }
    for name, place in places.items():
        data = DATA / name
        shutil.copytree(data / "sessions" if name == "kimi-cli" else data, awl.home / place)
        assert awl("sessions", "import", "--from", name, "--dry-run").lines, name


def test_a_program_that_keeps_its_sessions_where_it_runs_is_looked_for_there(awl: Awl) -> None:
    started = {"type": "session_started", "cwd": "/x", "provider_name": "p", "model": "m"}
    for place, name in ((awl.work, "here"), (awl.home, "there")):
        folder = place / ".zeph" / "sessions" / name
        folder.mkdir(parents=True)
        kinds = ({**started, "session_id": name}, {"type": "user_message", "text": name})
        events = ({"seq": n, "ts_ms": 1, "kind": kind} for n, kind in enumerate(kinds))
        (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    assert len(awl("sessions", "import", "--from", "zeph").lines) == 2
    assert len(awl("sessions", "import", "--from", "zeph", cwd=awl.home).lines) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--from", "nope"],
        ["--from", "opencode"],
        ["--from", "openai"],
        ["--from", "codex", "x"],
        ["--from", "codex", "--format", "pi"],
        ["--format", "nope", "x"],
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(awl: Awl, arguments: list[str]) -> None:
    assert awl("sessions", "import", *arguments, code=2).err


def test_a_file_that_grew_goes_on_or_comes_apart(awl: Awl) -> None:
    lines = CODEX.read_bytes().splitlines(keepends=True)
    path = awl.work / "rollout.jsonl"
    path.write_bytes(b"".join(lines[:20]))
    (first,) = awl("sessions", "import", "rollout.jsonl").lines
    path.write_bytes(b"".join(lines[:40]))
    done = awl("sessions", "import", "rollout.jsonl")
    assert done.lines == [first]
    assert "rollout.jsonl: codex: it grew: " in done.err
    awl("--resume", first, "-p", "and now?", "--cwd", str(awl.work))
    path.write_bytes(b"".join(lines))
    done = awl("sessions", "import", "rollout.jsonl")
    assert done.lines != [first]
    assert "because the session here has turns of its own" in done.err
    assert awl("sessions", "import", "rollout.jsonl").lines == done.lines


def test_what_is_no_session_costs_a_line_and_nothing_else(awl: Awl) -> None:
    work = awl.work
    (work / "empty.jsonl").touch()
    (work / "zeros.jsonl").write_bytes(bytes(5000))
    (work / "noise.jsonl").write_bytes(os.urandom(50_000))
    (work / "words.md").write_text("# Title\n")
    (work / "deep.jsonl").write_text("[" * 200_000)
    (work / "number.json").write_text("1")
    (work / "other.json").write_text('{"messages": {"role": "x"}}')
    (work / "hidden.jsonl").write_bytes(CODEX.read_bytes())
    (work / "hidden.jsonl").chmod(0)
    (work / "loop.jsonl").symlink_to("loop.jsonl")
    os.mkfifo(work / "pipe.jsonl")
    (work / "bad.jsonl.zst").write_bytes(b"no")
    names = sorted(path.name for path in work.iterdir())
    if os.geteuid() == 0:
        names.remove("hidden.jsonl")  # root reads all
    done = awl("sessions", "import", *names, "gone", str(CODEX), code=1)
    *said, total = done.err.splitlines()
    assert len(said) == len(names) + 2 + 1, done.err  # what came of the good one, what did not
    for name in (*names, "gone"):
        assert len([line for line in said if line.startswith(f"awl: {name}")]) == 1, name
    assert total.startswith(f"awl: sessions: 1 new, {len(names) + 1} failed; 4 prompts")
    assert len(done.lines) == 1
    for name in ("empty.jsonl", "noise.jsonl", "deep.jsonl", "pipe.jsonl", "other.json"):
        for known in ("codex", "opencode", "gemini-cli", "openai", "pi", "zeph", "kimi-cli"):
            given = ["sessions", "import", "--format", known, name]
            code = 1 if name == "pipe.jsonl" else 0
            done = awl(*given, code=code)
            assert not done.out
            assert done.err.startswith(f"awl: {name}")
    assert len(awl.logs) == 1


def test_files_in_a_folder_that_are_no_sessions_are_named_up_to_a_point(awl: Awl) -> None:
    for number in range(30):
        (awl.work / f"{number}.json").write_text("{}")
    done = awl("sessions", "import", ".")
    assert len(done.err.splitlines()) == 20 + 1 + 1
    assert done.err.splitlines()[-1] == "awl: sessions: 30 not recognised"


def test_a_damaged_line_costs_itself(awl: Awl) -> None:
    lines = CODEX.read_bytes().splitlines(keepends=True)
    path = awl.work / "rollout.jsonl"
    path.write_bytes(b"".join(lines[:5]) + b'{"half": \xff\n' + b"".join(lines[5:]))
    done = awl("sessions", "import", "rollout.jsonl")
    assert "rollout.jsonl: line 6 (bytes " in done.err
    assert "; only this is lost" in done.err
    whole = awl("sessions", "import", str(CODEX), env={"AWL_SESSION_DIR": str(awl.home / "b")})
    counts = [one.err.splitlines() for one in (done, whole)]
    assert counts[0][0].split(": ")[-1] == counts[1][0].split(": ")[-1]


def test_names_of_files_are_harmless_on_a_terminal(awl: Awl) -> None:
    shutil.copy(CODEX, awl.work / "a\x1b[2J\n\u202e.jsonl")
    (awl.work / "b\x1b[2J.jsonl").write_text("x")
    for arguments in (["."], ["--dry-run", "."]):
        done = awl("sessions", "import", *arguments)
        assert not HARMFUL.search(done.out + done.err)


def test_sessions_come_in_with_modes_for_the_owner_alone(awl: Awl) -> None:
    awl("sessions", "import", str(CLAUDE))
    assert stat.S_IMODE(awl.log.stat().st_mode) == 0o600


def test_an_import_at_a_terminal_which_shows_how_far_it_is_brings_the_same(awl: Awl) -> None:
    told = awl("sessions", "import", str(DATA), env={"AWL_SESSION_DIR": "elsewhere"})
    with Terminal(awl, "sessions", "import", str(DATA)) as window:
        window.see(told.err.splitlines()[-1])
        assert window.ends() == 0
    assert len(awl.logs) == len(told.lines) > 1
    (awl.work / "s.jsonl").write_bytes(CLAUDE.read_bytes())
    with Terminal(awl, "sessions", "import", "--dry-run", "s.jsonl") as window:
        window.see("unchanged")
        assert window.ends() == 0


def test_a_session_whose_model_nothing_told_is_said_to_come_from_its_program(awl: Awl) -> None:
    (awl.work / "array.json").write_text('[{"role": "user", "content": "Hi"}]')
    (session_id,) = awl("sessions", "import", "array.json").lines
    done = awl("--resume", session_id, "-p", "and?")
    assert "the session came from openai; it goes on with play/" in done.err


def test_a_session_of_another_program_goes_on_with_the_model_here(awl: Awl) -> None:
    (session_id,) = awl("sessions", "import", str(CLAUDE)).lines
    error = awl("--resume", session_id, "-p", "and?", code=1).err
    assert "--cwd DIR" in error
    done = awl("--resume", session_id, "-p", "and?", "--cwd", str(awl.work))
    assert done.out == "Hello there.\n"
    assert "the session was with anthropic/" in done.err
    assert " in claude-code; it goes on with play/" in done.err
    system = [e for e in awl.entries() if e.get("message", {}).get("role") == "system"]
    assert "You are awl" in system[0]["message"]["content"][0]["text"]
    done = awl("--resume", session_id, "-p", "and?")
    assert "it goes on with" not in done.err
    assert len([e for e in awl.entries() if e.get("message", {}).get("role") == "system"]) == 1


def test_a_fork_of_it_goes_on_too(awl: Awl) -> None:
    (session_id,) = awl("sessions", "import", str(CLAUDE)).lines
    done = awl("--fork", session_id, "-p", "and?", "--cwd", str(awl.work))
    assert done.out == "Hello there.\n"
    assert len(awl.logs) == 2


def test_messages_with_a_system_text_keep_it(awl: Awl) -> None:
    messages = [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Yes?"},
    ]
    (awl.work / "m.json").write_text(json.dumps(messages))
    (session_id,) = awl("sessions", "import", "m.json").lines
    awl("--resume", session_id, "-p", "and?")
    system = [e for e in awl.entries() if e.get("message", {}).get("role") == "system"]
    assert [e["message"]["content"][0]["text"] for e in system] == ["Be terse."]


@pytest.mark.parametrize("name", ["pi", "zeph", "openai", "markdown", "html"])
def test_what_came_in_goes_out(awl: Awl, name: str, tmp_path: Path) -> None:
    ids = awl("sessions", "import", str(DATA)).lines
    for number, session_id in enumerate(ids):
        path = tmp_path / f"{number}.jsonl"
        awl("sessions", "export", session_id, str(path), "--format", name)
        assert path.stat().st_size
    if name in ("pi", "zeph", "openai"):
        done = awl(
            "sessions", "import", str(tmp_path / "0.jsonl"), env={"AWL_SESSION_DIR": "elsewhere"}
        )
        assert done.lines
