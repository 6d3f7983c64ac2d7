"""A file of every program, each with a count of it that shares no code with awl."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from formats.counting import Counts
from formats.landing import DATA
from formats.test_claude_code import count_claude
from formats.test_codex import count_codex
from formats.test_gemini_cli import File as GeminiLog
from formats.test_gemini_cli import call, count_gemini
from formats.test_kimi_cli import count_kimi
from formats.test_openai_messages import MESSAGES, count_openai
from formats.test_opencode import count_opencode
from formats.test_pi import count_pi
from formats.test_qwen_code import count_qwen
from formats.test_zeph import count_zeph, everything

from awl.formats import Format, find


@dataclass(frozen=True)
class Sample:
    """A session of a program.

    Attributes:
        form: the format's name.
        name: what tells it from others of the format.
        make: makes it in a folder, with what lies beside it, and gives its file.
        count: counts a file of the format.
        by_line: whether a record is a line; else it is one JSON document.
        has_ids: whether records have ids, so that one which comes twice is known.
    """

    form: str
    name: str
    make: Callable[[Path], Path]
    count: Callable[[Path], Counts]
    by_line: bool = True
    has_ids: bool = True

    def __str__(self) -> str:
        return f"{self.form}-{self.name}"

    @property
    def format(self) -> Format:
        return find(self.form)


def _copied(file: str, around: int = 0) -> Callable[[Path], Path]:
    """Copies a file of the data, with the folder so many levels above it where that is part of the
    session."""

    def make(folder: Path) -> Path:
        (source,) = DATA.rglob(file)
        if not around:
            folder.mkdir(parents=True, exist_ok=True)
            return Path(shutil.copy(source, folder))
        top = source.parents[around - 1]
        shutil.copytree(top, folder, dirs_exist_ok=True)
        return folder / source.relative_to(top)

    return make


def _messages(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        return folder / name

    return make


def _gemini_document(folder: Path) -> Path:
    log = GeminiLog()
    log.message("u1", "user", "one ✓ 日本語")
    calls = [call("a", "out\n"), call("b", "bad", "error")]
    log.message("g1", "gemini", "two", toolCalls=calls, model="gemini-2.5-pro")
    log.message("u2", "user", [{"text": "three"}])
    log.message("g2", "gemini", "four")
    document = {**log.lines[0], "messages": log.lines[1:], "summary": "A title"}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "session-2026-01-01T00-00-s-1.json"
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False))
    return path


def _count_messages(path: Path) -> Counts:
    return count_openai(json.loads(path.read_bytes()))


def _count_lines(path: Path) -> Counts:
    return count_openai([json.loads(line) for line in path.read_bytes().splitlines()])


SAMPLES = (
    Sample("claude-code", "killed", _copied("316b4c2f*.jsonl"), count_claude),
    Sample("codex", "killed", _copied("*-01a228f2-c389-*.jsonl"), count_codex, has_ids=False),
    Sample("gemini-cli", "log", _copied("session-*-20e84248.jsonl", 2), count_gemini),
    Sample("gemini-cli", "document", _gemini_document, count_gemini, by_line=False),
    Sample("kimi-cli", "wire", _copied("5f1a8497*/wire.jsonl", 4), count_kimi, has_ids=False),
    Sample(
        "opencode", "export", _copied("*5ffeObFqX5YXf4GyRV.json"), count_opencode, by_line=False
    ),
    Sample("pi", "plain", _copied("*_real-model-2.jsonl"), count_pi),
    Sample("pi", "tree", _copied("*_treed-1.jsonl"), count_pi),
    Sample("qwen-code", "killed", _copied("40621a2c*.jsonl"), count_qwen),
    Sample("zeph", "everything", lambda to: everything(to / "one").write(), count_zeph),
    Sample(
        "openai",
        "lines",
        _messages("lines.jsonl", "".join(json.dumps(one) + "\n" for one in MESSAGES)),
        _count_lines,
        has_ids=False,
    ),
    Sample(
        "openai",
        "array",
        _messages("array.json", json.dumps(MESSAGES, indent=1)),
        _count_messages,
        by_line=False,
        has_ids=False,
    ),
)
