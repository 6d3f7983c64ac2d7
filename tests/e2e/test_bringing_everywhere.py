"""Sessions of other programs go on with any provider, at a server as strict as the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from formats.landing import DATA
from running import Awl
from standin import Call, Say, StandIn, Think
from wires import NAMES, configure, told
from zygote import Forks

from awl.formats import listing

FOUND = [found for found in listing.sessions_in(DATA) if isinstance(found, listing.Found)]


@pytest.mark.parametrize("found", FOUND, ids=[f"{one.format}-{one.path.stem}" for one in FOUND])
def test_it_goes_on_everywhere(
    awl: Awl, forks: Forks, server: StandIn, found: listing.Found
) -> None:
    for name in NAMES:
        configure(awl, server, first=name)
        (session_id,) = forks(awl, "sessions", "import", str(found.path)).lines
        copy = forks(awl, "sessions", "fork", session_id).out.strip()
        work = ("--cwd", str(awl.work))
        server.plays([Think("hm"), Say("Let me look."), Call("bash", {"command": "true"})])
        server.plays([Say("On.")], [Say("And on.")])
        done = forks(awl, "--resume", copy, *work, "-y", "-p", "and now?")
        assert done.out.endswith("On.\n")
        assert forks(awl, "--resume", copy, "-y", "-p", "next").out == "And on.\n"
        assert all(request.refusal is None for request in server.requests)
        words = told(server.bodies[-1])
        assert [text for who, text in words if who == "user"][-2:] == ["and now?", "next"]


def test_what_was_cut_off_is_told(awl: Awl, forks: Forks, server: StandIn) -> None:
    killed = DATA / "pi" / "2026-11-29T20-13-16-421Z_killed-in-tool.jsonl"
    for name in NAMES:
        configure(awl, server, first=name)
        (session_id,) = forks(awl, "sessions", "import", str(killed)).lines
        copy = forks(awl, "sessions", "fork", session_id).out.strip()
        server.plays([Say("On.")])
        forks(awl, "--resume", copy, "--cwd", str(awl.work), "-p", "and now?")
        results = [text for who, text in told(server.bodies[-1]) if who == "result"]
        assert results[-1].startswith("[interrupted: no result was recorded")


def test_all_kinds_of_sources_are_here() -> None:
    kinds = {found.format for found in FOUND}
    assert kinds == {folder.name for folder in Path(DATA).iterdir()}
    assert len(FOUND) == 20
