"""An import is killed at any moment, again and again: each session is whole or absent, one that
grew holds a beginning of what is new, and an import that gets to its end brings all of it once.

The short form kills a few times; `pytest --long tests/crash` hundreds of times.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from formats.counting import count_awl
from formats.landing import DATA
from formats.samples import SAMPLES
from running import Awl
from zygote import Forks

from awl.errors import AwlError
from awl.log.scan import Damage, scan
from awl.replay import read
from awl.show import Range, as_json

from .conftest import Figures

SEED = int(os.environ.get("AWL_KILL_SEED", "20260425"))
Source = tuple[str, str]
"""What a session says it came from: the program, and the id over there or the file."""
LEFT = ("seq", "parentId", "replaced", "at", "absorbs", "cleared")


def sources(folder: Path) -> Path:
    """Sessions of all programs."""
    shutil.copytree(DATA, folder / "corpus")
    for sample in SAMPLES:
        if sample.form in ("zeph", "openai"):
            sample.make(folder / str(sample))
    return folder


def shorten(folder: Path) -> None:
    """Take away what the programs wrote last: lines, so far as a line is a record."""
    for path in folder.rglob("*.jsonl"):
        path.chmod(0o600)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))


def source_of(log: Path) -> Source:
    entry = json.loads(log.read_bytes().splitlines()[1])
    return entry["source"], entry.get("sourceId") or entry["sourcePath"]


def story(log: Path) -> list[Any]:
    """What a session holds, without what depends on the moment at which it was imported."""
    left = (*LEFT, "timestamp") if source_of(log)[0] == "openai" else LEFT  # it has no times
    entries = [
        {name: value for name, value in entry.items() if name not in left}
        for entry in json.loads(json.dumps(as_json(log, Range())))["entries"]
        if entry["type"] != "import"
    ]
    return [*entries, *(item.message for item in read(log).items)]


def stories(awl: Awl, known: dict[tuple[Path, bytes], list[Any]]) -> dict[Source, list[Any]]:
    """All sessions; no two are of one source, and none is damaged. `known` are those that were
    read."""
    found: dict[Source, list[Any]] = {}
    for log in awl.logs:
        assert source_of(log) not in found, "a session came twice"
        key = (log, log.read_bytes())
        if key not in known:
            state = read(log)
            assert not state.damage and not state.all_findings and not state.gaps, log
            known[key] = story(log)
        found[source_of(log)] = known[key]
    return found


def counted(awl: Awl) -> dict[Source, Any]:
    """What all sessions hold, counted, and the words on their paths."""
    return {
        source_of(log): (
            count_awl(json.loads(json.dumps(as_json(log, Range())))),
            "\n".join(item.message.text for item in read(log).items),
        )
        for log in awl.logs
    }


class Killer:
    """Imports a folder into the sessions of `awl`, and kills it meanwhile."""

    def __init__(
        self, awl: Awl, forks: Forks, folder: Path, figures: Figures, chance: random.Random
    ) -> None:
        self._awl, self._forks, self._folder, self._figures = awl, forks, folder, figures
        self._chance = chance
        self._lasts = 0.0

    def whole(self) -> list[str]:
        """Import all; the ids."""
        return self._forks(self._awl, "sessions", "import", str(self._folder)).lines

    def timed(self) -> None:
        """Import all, and learn how long that takes."""
        begun = time.monotonic()
        self.whole()
        self._lasts = time.monotonic() - begun

    def kill(self) -> bool:
        """Kill an import at some moment; whether it had not come to its end."""
        running = self._forks.start(self._awl, "sessions", "import", str(self._folder))
        time.sleep(self._chance.uniform(0, self._lasts))
        with contextlib.suppress(ProcessLookupError):
            running.signal("SIGKILL")
        code = running.wait()
        assert code in (0, -9), code
        error = running.out.with_suffix(".err")
        assert not error.exists() or "Traceback" not in error.read_text()
        self._figures.count("imports killed" if code else "imports that came to their end first")
        self._lasts *= 1 if code else 0.8
        return code != 0


def new_sessions(awl: Awl, killer: Killer, kills: int) -> None:
    killer.timed()
    known: dict[tuple[Path, bytes], list[Any]] = {}
    expected = stories(awl, known)
    assert len(expected) == len(awl.logs) > 20
    while kills > 0:
        shutil.rmtree(awl.sessions)
        known.clear()
        for _ in range(4):
            hit = killer.kill()
            kills -= hit
            for source, found in stories(awl, known).items():
                assert found == expected[source], f"{source} is not whole"
            if not hit:
                break
        ids = killer.whole()
        assert stories(awl, known) == expected
        assert Counter(ids) == Counter(log.stem.split("_", 1)[1] for log in awl.logs)
        assert killer.whole() == ids
    listed = awl("sessions", "list", "--all", "--json").json
    assert sorted(one["id"] for one in listed) == sorted(ids)


def grown_sessions(awl: Awl, killer: Killer, folder: Path, kills: int) -> None:
    whole = folder.with_name("whole")
    folder.rename(whole)
    shutil.copytree(whole, folder)
    shorten(folder)
    killer.whole()
    shutil.copytree(awl.sessions, awl.home / "before")
    before = {log.name: log.read_bytes() for log in awl.logs}
    shutil.rmtree(folder)
    shutil.copytree(whole, folder)
    killer.timed()
    expected = counted(awl)
    assert len(awl.logs) == len(expected)
    assert sum(log.read_bytes() != before.get(log.name) for log in awl.logs) > 15
    while kills > 0:
        shutil.rmtree(awl.sessions)
        shutil.copytree(awl.home / "before", awl.sessions)
        for _ in range(4):
            hit = killer.kill()
            kills -= hit
            for log in awl.logs:
                assert log.read_bytes().startswith(before.get(log.name, b""))
                with log.open("rb") as file:
                    bad = [one for one in scan(file.fileno()) if isinstance(one, Damage)]
                assert not bad or bad[-1].end == log.stat().st_size, "damage that is no torn tail"
            if not hit:
                break
        killer.whole()
        assert counted(awl) == expected
        assert all(not read(log).all_findings for log in awl.logs)


def run(
    folder: Path, forks: Forks, figures: Figures, seed: int, kills: int, *, grown: bool
) -> None:
    awl = Awl(folder)
    there = sources(folder / "there")
    killer = Killer(awl, forks, there, figures, random.Random(seed))
    try:
        if grown:
            grown_sessions(awl, killer, there, kills)
        else:
            new_sessions(awl, killer, kills)
    except (AssertionError, AwlError) as error:
        error.add_note(f"AWL_KILL_SEED={seed}")
        raise


@pytest.mark.parametrize("grown", [False, True], ids=["new", "grown"])
def test_killed_at_any_moment_an_import_leaves_what_is_whole(
    tmp_path: Path, forks: Forks, figures: Figures, grown: bool
) -> None:
    run(tmp_path, forks, figures, SEED, 3, grown=grown)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("grown", [False, True], ids=["new", "grown"])
def test_killed_at_any_of_many_moments_an_import_leaves_what_is_whole(
    tmp_path: Path, forks: Forks, figures: Figures, grown: bool, part: int
) -> None:
    run(tmp_path, forks, figures, SEED + part + 1, 40, grown=grown)
