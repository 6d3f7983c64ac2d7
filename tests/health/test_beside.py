"""What lies beside a log is checked, too: blobs to the last byte, and what nobody needs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from log.making import a_session, message
from msgspec.structs import replace
from rawlog import RawLog, result

from awl.health.verify import verify
from awl.log.blobs import Blobs
from awl.log.line import encode
from awl.log.lock import owner_path
from awl.log.scan import Damage, Line, scan
from awl.session import Session
from health.test_verify import damage, notes


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return a_session(tmp_path / "sessions", tmp_path)


def the_blob(log: Path) -> Path:
    (blob,) = Blobs(log).directory.iterdir()
    return blob


# -- blobs -----------------------------------------------------------------------------------------


def test_a_blob_that_is_missing_cut_or_changed_is_damage_named_with_its_line(log: Path) -> None:
    blob = the_blob(log)
    whole = blob.read_bytes()
    lines = log.read_bytes().split(b"\n")
    line = next(n for n, text in enumerate(lines, 1) if blob.name.encode() in text)
    for content, said in (
        (whole[:-1], f"has {len(whole) - 1} bytes, not {len(whole)}"),
        (whole[:-1] + b"!", "is not what was stored"),
        (None, "is missing"),
    ):
        blob.unlink()
        if content is not None:
            blob.write_bytes(content)
            blob.chmod(0o600)
        else:
            blob.parent.rmdir()
        (finding,) = damage(verify(log))
        assert finding.text == f"blob {blob.name[:12]} {said}"
        assert finding.line == line
        assert log.read_bytes()[finding.start : finding.end] == lines[line - 1]


def test_a_blob_is_named_by_its_hash_alone_and_has_one_size(tmp_path: Path) -> None:
    raw = RawLog()
    raw.calls("a", "b")
    raw.results(
        result("a", output={"blob": "../../secret", "size": 1}),
        result("b", output={"blob": "../../secret", "size": 2}),
    )
    path = raw.write(tmp_path)
    assert [finding.text for finding in damage(verify(path))] == [
        "blob ../../secret has no blob's name",
        "blob ../../secret has no blob's name",
    ]


def test_blobs_that_nothing_names_are_notes_unless_something_unknown_may_name_them(
    log: Path,
) -> None:
    blobs = Blobs(log)
    unnamed, in_entry, in_block = (blobs.put(data).blob for data in (b"1", b"2", b"3"))
    with log.open("ab") as file:
        entry = {"type": "odd", "id": "o1", "where": [f"sha256:{in_entry}"]}
        block = {"type": "video", "source": in_block}
        said = {"type": "message", "id": "o2", "message": {"role": "user", "content": [block]}}
        for line in (entry, said):
            file.write(json.dumps(line).encode() + b"\n")
    temporary = blobs.directory / f".{unnamed}.0a1b2c3d"
    temporary.write_bytes(b"half")
    temporary.chmod(0o600)
    checked = verify(log)
    assert checked.ok
    folder = blobs.directory.name
    assert [finding.file for finding in checked.findings if finding.kind == "leftover"] == [
        f"{folder}/{temporary.name}",
        f"{folder}/{unnamed}",
    ]


def test_the_blobs_of_an_exported_log_lie_under_its_own_name(log: Path) -> None:
    folder = Blobs(log).directory
    folder.rename(log.with_name(log.name + ".blobs"))
    assert verify(log).findings == ()


# -- who can read it -------------------------------------------------------------------------------


def test_whatever_others_can_read_is_named(log: Path) -> None:
    blob = the_blob(log)
    torn = log.with_name(log.name + ".torn-2026-04-25T17-40-15-990Z")
    torn.write_bytes(b"{")
    for path, mode in ((log, 0o644), (blob, 0o620), (blob.parent, 0o755), (torn, 0o604)):
        path.chmod(mode)
    checked = verify(log)
    assert checked.ok
    assert [(one.file, one.text) for one in checked.findings if one.kind == "mode"] == [
        (log.name, "mode 0644 lets others in: `chmod 600` it"),
        (torn.name, "mode 0604 lets others in: `chmod 600` it"),
        (blob.parent.name, "mode 0755 lets others in: `chmod 700` it"),
        (blob.name, "mode 0620 lets others in: `chmod 600` it"),
    ]


# -- what is left over -----------------------------------------------------------------------------


def test_torn_tails_and_what_a_killed_process_left_are_notes(log: Path) -> None:
    left = {
        log.name + ".torn-2026-04-25T17-40-15-990Z": "11 bytes that recovery cut from the end;"
        " they are no part of the log",
        f".{log.name}.0a1b2c3d": "left by a process that was killed while it made this",
    }
    for name in left:
        log.with_name(name).write_bytes(b'{"type":"me')
        log.with_name(name).chmod(0o600)
    checked = verify(log)
    assert checked.ok
    assert {finding.file: finding.text for finding in checked.findings} == left


def test_what_is_no_file_is_no_torn_tail_whatever_its_name(log: Path) -> None:
    torn = log.with_name(log.name + ".torn-2026-04-25T17-40-15-99")
    os.mkfifo(f"{torn}0Z")
    Path(f"{torn}1Z").symlink_to("/dev/zero")
    Path(f"{torn}2Z").symlink_to("nowhere")
    Path(f"{torn}3Z").mkdir()
    assert verify(log).findings == ()


def test_the_owner_of_a_session_is_named_once_it_is_gone(log: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    owner = owner_path(log)
    for hint, said in (
        ({"pid": os.getpid(), "host": socket.gethostname()}, False),
        ({"pid": gone.pid, "host": "elsewhere"}, False),
        ({"pid": gone.pid, "host": socket.gethostname()}, True),
        ({"pid": -(2**70), "host": socket.gethostname()}, False),
        ({"pid": "x"}, True),
    ):
        owner.write_text(json.dumps(hint))
        owner.chmod(0o600)
        assert bool(notes(verify(log))) == said, hint


# -- a session that is open ------------------------------------------------------------------------


def test_a_session_that_is_open_is_sound_also_in_the_middle_of_a_write(log: Path) -> None:
    session = Session.open(log)
    assert verify(log).findings == ()
    line = encode(replace(message(14), parent_id=session.leaf_id))
    with log.open("ab") as file:
        for piece in (line[:20], line[20:-2], b"}"):
            file.write(piece)
            file.flush()
            assert verify(log).findings == ()
    session._log.close()  # type: ignore[union-attr]
    assert [finding.kind for finding in verify(log).findings] == ["tail"]


def test_a_session_that_grows_while_it_is_checked_is_sound_each_time(log: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from awl.session import Session; from awl.conversation import text_message\n"
        "session = Session.open(Path(sys.argv[1])); print('open', flush=True)\n"
        "for n in range(10**6): session.append_message(text_message('user', f'{n} ' * (n % 99)))\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", code, str(log)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None and writer.stdout.readline()
        sizes = set()
        for _ in range(60):
            assert verify(log).findings == ()
            sizes.add(log.stat().st_size)
        assert len(sizes) > 1
    finally:
        writer.kill()
        writer.communicate()


def test_a_line_that_is_cut_back_while_it_is_read_is_no_damage(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that is between two blocks can see half of a line that a writer gives up, and then
    the end of the next one."""
    whole = log.read_bytes()

    def torn_once(fd: int) -> list[Line | Damage]:
        monkeypatch.setattr("awl.health.verify.scan", scan)
        log.write_bytes(whole + b'{"type":"mess"type":"end","id":"e"}\n')
        found = list(scan(fd))
        os.truncate(log, len(whole))
        return found

    monkeypatch.setattr("awl.health.verify.scan", torn_once)
    assert verify(log).ok
