"""pi itself opens what awl exports for it: the loader of its published package.

The package and its dependencies are some 200 MB, so this is a long test, which installs them in a
folder of its own with npm. To run it with an installation that is there already:

    npm install --ignore-scripts --prefix FOLDER @earendil-works/pi-coding-agent
    AWL_PI=FOLDER pytest --long tests/formats/test_pi_itself.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from formats.counting import JSON, lines_of
from formats.exported import everything
from formats.landing import DATA
from running import Awl

PACKAGE = "@earendil-works/pi-coding-agent"
VERSION = "1.6.0"
FILES = sorted((DATA / "pi").glob("*.jsonl"))
LOADER = """
import { pathToFileURL } from "node:url";
const [loader, ...files] = process.argv.slice(1);
const { SessionManager } = await import(pathToFileURL(loader));
for (const file of files) {
  const session = SessionManager.open(file);
  const entries = session.getEntries();
  const { messages, model, thinkingLevel } = session.buildSessionContext();
  console.log(JSON.stringify({
    id: session.getSessionId(), cwd: session.getCwd(), name: session.getSessionName(),
    leaf: session.getLeafId(), messages, model, thinkingLevel,
    entries: entries.map(({ id, parentId, type }) => ({ id, parentId, type })),
    labels: entries.map(({ id }) => session.getLabel(id)).filter(Boolean),
  }));
}
"""

Open = Callable[..., list[JSON]]
"""Opens files with pi's loader and gives what it sees in each."""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    folder = Path(os.environ.get("AWL_PI") or tmp_path_factory.mktemp("pi"))
    loader = folder / "node_modules" / PACKAGE / "dist" / "core" / "session-manager.js"
    if not loader.exists():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed, and AWL_PI names no folder with pi")
        quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
        wanted = f"{PACKAGE}@{VERSION}"
        command = ["npm", "install", *quiet, "--prefix", str(folder), wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"npm cannot get {wanted} here: {done.stderr.strip()[-200:]}")

    def open_files(*files: Path) -> list[JSON]:
        before = [file.read_bytes() for file in files]
        node = ["node", "--input-type=module", "-e", LOADER, str(loader), *map(str, files)]
        done = subprocess.run(node, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert [file.read_bytes() for file in files] == before, "pi had to rewrite it"
        return [json.loads(line) for line in done.stdout.splitlines()]

    return open_files


def exported(awl: Awl, session_id: str, folder: Path) -> Path:
    path = folder / f"{session_id}.jsonl"
    awl("sessions", "export", session_id, str(path), "--format", "pi")
    return path


def words(messages: list[JSON]) -> list[tuple[str, Any]]:
    """What is sent of messages: who, and the content without what a provider is paid for."""
    return [
        (message["role"], message.get("content") or message.get("summary") or message.get("output"))
        for message in messages
        if message["role"] != "system"  # what pi sends in its own sections
    ]


def test_what_came_from_pi_is_the_same_to_pi(awl: Awl, opened: Open, tmp_path: Path) -> None:
    ids = awl("sessions", "import", *map(str, FILES)).lines
    back = [exported(awl, session_id, tmp_path) for session_id in ids]
    copies = [Path(shutil.copy(path, tmp_path / path.name)) for path in FILES]
    for copy in copies:
        copy.chmod(0o600)
    for before, after in zip(opened(*copies), opened(*back), strict=True):
        assert after["entries"] == before["entries"]
        for same in ("leaf", "cwd", "name", "model", "thinkingLevel", "labels"):
            assert after.get(same) == before.get(same), same
        assert words(after["messages"]) == words(before["messages"])


def test_what_came_from_all_programs_opens_in_pi(awl: Awl, opened: Open, tmp_path: Path) -> None:
    ids = awl("sessions", "import", str(DATA)).lines
    assert len(ids) == 20
    files = [exported(awl, session_id, tmp_path) for session_id in ids]
    for session_id, file, seen in zip(ids, files, opened(*files), strict=True):
        first, *rest = lines_of(file)
        assert seen["id"] == first["id"] == session_id
        assert len(seen["entries"]) == len(rest)
        assert [one["id"] for one in seen["entries"]] == [one["id"] for one in rest]
        known = {one["id"] for one in rest}
        assert all(one["parentId"] in (None, *known) for one in seen["entries"])
        prompts = [message for message in seen["messages"] if message["role"] == "user"]
        assert prompts
        assert_paired(seen["messages"])


def test_a_session_of_awl_opens_in_pi_with_its_branches(
    awl: Awl, opened: Open, tmp_path: Path
) -> None:
    log = everything(awl.sessions)
    file = exported(awl, log.stem.split("_", 1)[1], tmp_path)
    (seen,) = opened(file)
    assert len(seen["entries"]) == len(list(lines_of(file))) - 1
    assert seen["labels"] == ["good point"]
    parents = [one["parentId"] for one in seen["entries"]]
    assert len(parents) > len(set(parents)), "there is no branch"
    said = words(seen["messages"])
    assert said[0][0] == "compactionSummary"
    assert "mend the modules" in said[0][1]
    assert [who for who, _ in said][-2:] == ["user", "assistant"]
    assert said[-1][1] == [{"type": "text", "text": "I was about"}]


def assert_paired(messages: list[JSON]) -> None:
    """Each result follows a call with its id."""
    called: set[str] = set()
    for message in messages:
        if message["role"] == "assistant":
            called |= {one["id"] for one in message["content"] if one["type"] == "toolCall"}
        elif message["role"] == "toolResult":
            assert message["toolCallId"] in called
