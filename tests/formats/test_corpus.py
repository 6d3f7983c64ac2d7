"""Every file that the real programs wrote: what `awl sessions show --json` has of it is what a
count over the raw file finds that shares no code with awl."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from formats.counting import Counts, count_awl
from formats.landing import DATA
from formats.samples import SAMPLES
from running import Awl
from zygote import Forks

from awl.formats.listing import Found, sessions_in

FOUND = [found for found in sessions_in(DATA) if isinstance(found, Found)]
COUNTERS: dict[str, Callable[[Path], Counts]] = {one.form: one.count for one in SAMPLES}
AS_THEY_STAND = frozenset({"claude-code", "gemini-cli", "pi", "qwen-code"})
"""Programs that write arguments as values, on one line: their text is a part of the file."""
BESIDE = {".project_root", "kimi.json", "context.jsonl", "context_1.jsonl", "context_2.jsonl"}


def test_no_file_is_left_out() -> None:
    files = {path for path in DATA.rglob("*") if path.is_file()}
    others = files - {found.path for found in FOUND}
    assert {path.name for path in others if path.parent.name != "tool-results"} == BESIDE
    assert len(FOUND) == 20


@pytest.mark.parametrize("found", FOUND, ids=[f"{one.format}-{one.path.stem}" for one in FOUND])
def test_what_is_shown_is_what_the_raw_file_has(awl: Awl, forks: Forks, found: Found) -> None:
    before = found.path.read_bytes(), found.path.stat().st_mtime_ns
    (session_id,) = forks(awl, "sessions", "import", str(found.path)).lines
    shown = json.loads(forks(awl, "sessions", "show", session_id, "--json").out)
    assert (found.path.read_bytes(), found.path.stat().st_mtime_ns) == before
    expected, counted = COUNTERS[found.format](found.path), count_awl(shown)
    if found.format == "kimi-cli":  # its contexts may lack the line breaks at the end of outputs
        for counts in (expected, counted):
            counts.outputs = [(name, text.rstrip("\n"), bad) for name, text, bad in counts.outputs]
    assert counted == expected
    assert shown["damage"] == []
    if found.format in AS_THEY_STAND:
        assert all(given.encode() in before[0] for _, given in counted.inputs)
