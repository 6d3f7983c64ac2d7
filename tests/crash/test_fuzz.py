"""Whatever bytes come from outside: an answer or an error that says what is wrong, in a moment, in
little memory, and nothing is written but where it belongs.

The short form tries some; `pytest --long tests/crash` thousands.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log.making import DATA
from rawlog import CHANGES, changed, everything

from awl.config import load
from awl.errors import AwlError, ConfigError
from awl.formats import NAMES, find
from awl.health.verify import verify
from awl.log.file import torn_files
from awl.log.line import BadLine, decode, decode_outer, is_object
from awl.log.names import encode_cwd, is_session_id, log_path, parse_log_name
from awl.log.scan import scan
from awl.replay import read
from awl.session import Session
from awl.store.files import Store
from awl.store.importing import Importer

from .conftest import Figures
from .explore import SHARED

PATIENCE = 20
"""Seconds that one input may take, on a machine that does much else."""
MOST_MEMORY = 64 << 20
"""Bytes that one small input may need."""

_inside: list[Path] = []


# -- the fence -------------------------------------------------------------------------------------

_NAMING = {"os.mkdir": 0, "os.remove": 0, "os.rmdir": 0, "os.truncate": 0, "os.chmod": 0}
_NAMING |= {"os.rename": 1, "os.link": 1, "os.symlink": 1}


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _inside:
        return
    if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _must_be_inside(arguments[0])
    elif event in _NAMING:
        _must_be_inside(arguments[_NAMING[event]])


def _must_be_inside(path: Any) -> None:
    if isinstance(path, str | bytes | os.PathLike):
        full = Path(os.path.normpath(Path(os.fsdecode(path)).absolute()))
        if not full.is_relative_to(_inside[-1]):
            _inside.clear()
            raise SystemExit(f"{full} was touched, outside of where it belongs")


sys.addaudithook(_watch)


@contextmanager
def fenced() -> Iterator[Path]:
    """A folder. What is touched outside of it, takes long or needs much memory is an error."""

    def too_long(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it hangs")

    shared = SHARED if SHARED.is_dir() else None
    before = signal.signal(signal.SIGALRM, too_long)
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        root = Path(folder).resolve()
        tracemalloc.start()
        _inside.append(root)
        signal.alarm(PATIENCE)
        try:
            yield root
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
            _inside.clear()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak} bytes for a small input"


# -- what comes from outside -----------------------------------------------------------------------

LOG = everything().data
BITS = st.sampled_from(
    (b"{", b"}", b"[", b'"', b"\n", b"\0", b"\\u", b"\xff", b"1e999", b"null", b'{"type":"message"')
)
noise = st.binary(max_size=200) | st.lists(BITS, max_size=30).map(b"".join)
deep = st.integers(0, 20_000).map(lambda n: b'{"a":' * n + b"1" + b"}" * n)


def bent(data: bytes) -> st.SearchStrategy[bytes]:
    """Some of its bytes are changed."""
    return CHANGES.map(lambda changes: changed(data, changes))


logs = noise | deep | bent(LOG)
lines = noise | deep | st.sampled_from(LOG.splitlines()).flatmap(bent)
hostile = st.text(max_size=60) | st.sampled_from(
    (
        *("../../x", "/etc/passwd", "..", ".", "", "a/b", "CON", "#1", "#", "x" * 5000, "-p"),
        *("~", "~nobody/x", "\0", "/\0"),
    )
)
TOML = (
    b'[session]\nenabled = true\ndata_dir = "x"\nmax_event_log_mb = 256\n[session.condense]\n'
    b'threshold = 0.85\nkeep_recent = 20\n[agent]\nprovider = "p"\n'
    b'approval = "ask"\nmax_turns = 50\n'
    b'[[llm.providers]]\nname = "p"\ntype = "anthropic"\nmodel = "m"\ncontext_window = 200000\n'
)
configs = noise | bent(TOML)
SOURCES = [
    (name, path)
    for name in NAMES
    for path in sorted((DATA / "formats" / name).rglob("*.json*"))
    if path.is_file() and path.stat().st_size < 100_000
]
sources = st.tuples(st.sampled_from(SOURCES), CHANGES)


# -- what must hold --------------------------------------------------------------------------------


def any_line(data: bytes) -> None:
    line = data.replace(b"\n", b" ")
    for read_line in (decode, decode_outer):
        try:
            read_line(line)
        except BadLine as bad:
            assert str(bad)
    is_object(line)


def any_log(data: bytes) -> None:
    with fenced() as root:
        path = log_path(root, "/x", "2026-04-25T17:40:15.990Z", "019dc5ba")
        path.parent.mkdir()
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
        found = list(scan(fd))
        os.close(fd)
        assert all(one.start <= one.end <= len(data) for one in found)
        for look in (read, verify):
            try:
                look(path)
            except AwlError as error:
                assert str(error)
            assert path.read_bytes() == data
        with closing(Store(root)) as store:
            store.list()
            store.search("x")
        try:
            session = Session.open(path, cwd="/x")
        except AwlError as error:
            assert str(error)
        else:
            session.rewind(None)
            session.close()
        log, torn = path.read_bytes(), [file.read_bytes() for file in torn_files(path)]
        stays = data[: len(data) - len(b"".join(torn))]
        assert data.endswith(b"".join(torn)) and log.startswith(stays), "bytes were lost"


def any_config(data: bytes) -> None:
    with fenced() as root:
        (root / "config.toml").write_bytes(data)
        (root / ".awl").mkdir()
        (root / ".awl" / "config.toml").write_bytes(data)
        try:
            load({"AWL_CONFIG": str(root / "config.toml"), "HOME": str(root)}, root)
        except ConfigError as error:
            assert "\n" not in str(error)


def any_name(text: str) -> None:
    label = encode_cwd(text)
    assert "/" not in label and not label.startswith(".") and len(os.fsencode(label)) <= 200
    if is_session_id(text):
        path = log_path(Path("/root"), "/x", "2026-04-25T17:40:15.990Z", text)
        assert path.parent.parent == Path("/root") and path.name.isprintable()
        named = parse_log_name(path.name)
        assert named is not None and named.session_id == text
    parse_log_name(text)


def any_query(text: str) -> None:
    with fenced() as root, closing(Store(root / "sessions")) as store:
        for ask in (store.resolve, store.open, store.fork, store.delete, store.trash.restore):
            try:
                found = ask(text)
            except AwlError as error:
                assert str(error)
            else:
                assert found == Path(text).resolve(), "something was found in an empty store"
        assert not list(root.glob("sessions/*/*"))


def any_source(given_source: tuple[tuple[str, Path], list[tuple[int, int, bytes]]]) -> None:
    (name, original), changes = given_source
    data = changed(original.read_bytes(), changes)
    with fenced() as root:
        folder = root / "there"
        shutil.copytree(original.parent, folder)
        source = folder / original.name
        source.write_bytes(data)
        try:
            brought = Importer(root / "sessions", (), "/x").bring(source, find(name))
        except AwlError as error:
            assert str(error)
            assert not list(root.glob("sessions/*/*.jsonl"))
        else:
            if brought.path is not None:
                assert not read(brought.path).damage
                assert verify(brought.path).ok
        assert source.read_bytes() == data


CASES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "a line": (lines, any_line),
    "a log": (logs, any_log),
    "a configuration": (configs, any_config),
    "a name": (hostile, any_name),
    "a query": (hostile, any_query),
    "another program's session": (sources, any_source),
}


def fuzz(what: str, examples: int, figures: Figures) -> None:
    strategy, check = CASES[what]

    def counted(value: Any) -> None:
        figures.count(f"inputs: {what}")
        check(value)

    chosen = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    given(strategy)(chosen(counted))()


@pytest.mark.parametrize(("name", "at"), [("01a228f2-ba3d", 272), ("ses_dd6fa0541", 1532)])
def test_a_kept_part_that_is_no_utf8_is_damage_of_the_source_and_none_of_the_log(
    name: str, at: int
) -> None:
    (source,) = (pair for pair in SOURCES if name in pair[1].name)
    any_source((source, [(at, 0, b"\x80")]))


@pytest.mark.parametrize("text", ["~nobody/x", "/\0", "~nobody/x.jsonl"])
def test_a_path_that_cannot_be_is_not_found(text: str) -> None:
    any_query(text)


@pytest.mark.parametrize("what", CASES)
def test_whatever_comes_is_taken_or_refused(what: str, figures: Figures) -> None:
    fuzz(what, 40, figures)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("what", CASES)
def test_whatever_comes_in_thousands_is_taken_or_refused(what: str, figures: Figures) -> None:
    fuzz(what, 3000, figures)
