"""Where sessions live: found by directory, by id, by path, whatever else lies beside them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rawlog import SESSION_ID, RawLog

from awl.conversation import ModelRef, text_message
from awl.errors import AmbiguousId, NotASession, SessionBusy, SessionNotFound
from awl.log.names import encode_cwd
from awl.session import Session
from awl.store.files import SHORTEST_PREFIX, Store

MODEL = ModelRef("anthropic", "claude-1")
HOUR = "2026-04-25T{:02}:00:00.000Z"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "sessions")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory that sessions belong to."""
    made = (tmp_path / "project").resolve()
    made.mkdir()
    return made


def session_id(number: int) -> str:
    """Ids of one minute: as with UUIDv7, they differ only behind their first characters."""
    return f"019dc5ba-53f{number:x}-71a5-ab8f-b1f8709c2572"


def put(store: Store, cwd: Path | str, number: int = 6, hour: int = 12, words: str = "x") -> Path:
    """A session whose last prompt was at this hour."""
    log = RawLog(cwd=str(cwd), id=session_id(number))
    log.prompt(words, timestamp=HOUR.format(hour))
    log.answer("y", timestamp=HOUR.format(hour))
    return log.write(store.root, str(cwd), session_id=session_id(number))


def files(store: Store) -> list[Path]:
    """All that lies in the store but its index."""
    return sorted(path for path in store.root.rglob("*") if ".awl" not in path.parts)


def listed(store: Store, cwd: Path | str | None = None) -> list[str]:
    return [info.path for info in store.list(None if cwd is None else str(cwd)).sessions]


# -- by directory --------------------------------------------------------------------------------


def test_where_there_is_nothing_nothing_is_found_and_nothing_made(store: Store) -> None:
    assert store.latest("/home/dev") is None
    assert store.list().sessions == ()
    assert list(store.logs()) == []
    with pytest.raises(SessionNotFound):
        store.resolve("019dc5ba")
    assert not store.root.exists()


def test_the_latest_is_the_one_in_which_something_happened_last(store: Store, place: Path) -> None:
    put(store, place, 1, hour=9)
    latest = put(store, place, 2, hour=15)
    put(store, place, 3, hour=12)
    put(store, place.parent, 4, hour=20)
    assert store.latest(str(place)) == latest
    assert len(listed(store, place)) == 3
    assert listed(store, place)[-1] == str(latest)


def test_each_worktree_of_a_repository_has_sessions_of_its_own(
    store: Store, place: Path, tmp_path: Path
) -> None:
    main, tree = tmp_path / "repository", tmp_path / "tree"
    author = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    for arguments in (
        ("init", "-q", str(main)),
        ("-C", str(main), *author, "commit", "-q", "--allow-empty", "-m", "x"),
        ("-C", str(main), "worktree", "add", "-q", str(tree)),
    ):
        subprocess.run(["git", *arguments], check=True, capture_output=True)
    paths = {where: put(store, where, number) for number, where in ((1, main), (2, tree))}
    for where, path in paths.items():
        assert [Path(info.path) for info in store.list(str(where)).sessions] == [path]


def test_looking_naming_touching_and_closing_change_no_order(store: Store, place: Path) -> None:
    first, second = put(store, place, 1, hour=9), put(store, place, 2, hour=15)
    order = listed(store)
    os.utime(first, (4e9, 4e9))
    os.utime(second, (0, 0))
    assert listed(store) == order
    with Opened(store.open(first)) as session:
        session.label("e1", "start")
        session.move(str(place.parent))
        session.move(str(place))
    assert listed(store) == order
    with Opened(store.open(first)) as session:
        session.append_message(text_message("user", "go on"))
    assert listed(store) == order[::-1]


class Opened:
    """A session that is closed in the end."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __enter__(self) -> Session:
        return self.session

    def __exit__(self, *exc: object) -> None:
        self.session.close()


def test_sessions_of_one_moment_have_one_order(store: Store, place: Path) -> None:
    paths = [put(store, place, number) for number in (3, 1, 2)]
    assert listed(store) == sorted(map(str, paths))


def test_a_directory_is_the_same_under_every_spelling(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = place.parent / "link"
    link.symlink_to(place)
    real, linked = put(store, place, 1, hour=9), put(store, link, 2, hour=10)
    for spelling in (place, link, f"{place}/", f"{place}/../project"):
        assert store.latest(str(spelling)) == linked
        assert listed(store, spelling) == [str(real), str(linked)]
    monkeypatch.chdir(place)
    assert store.latest(".") == linked


def test_a_moved_directory_is_found_from_where_its_old_name_leads(
    store: Store, place: Path
) -> None:
    path = put(store, place)
    moved = place.rename(place.parent / "moved")
    assert store.latest(str(place)) == path, "a directory that is gone is known by its name"
    assert store.latest(str(moved)) is None
    place.symlink_to(moved)
    assert store.latest(str(place)) == store.latest(str(moved)) == path


def test_directories_whose_labels_collide_stay_apart(store: Store, tmp_path: Path) -> None:
    one, other = tmp_path / "a--b", tmp_path / "a" / "b"
    for directory in (one, other):
        directory.mkdir(parents=True)
    assert encode_cwd(str(one)) == encode_cwd(str(other))
    first, second = put(store, one, 1, hour=9), put(store, other, 2, hour=10)
    assert first.parent == second.parent
    assert store.latest(str(one)) == first
    assert store.latest(str(other)) == second


@pytest.mark.parametrize(
    "name", ["foo_bar", "foo-bar", "foo.bar", "a dir", "dir\u00e9 \u6771\u4eac", "..x"]
)
def test_each_directory_finds_its_own(store: Store, tmp_path: Path, name: str) -> None:
    others = ["foo_bar", "foo-bar", "foo.bar"]
    for number, other in enumerate(others):
        (tmp_path / other).mkdir()
        put(store, tmp_path / other, number, hour=20)
    mine = tmp_path / name
    mine.mkdir(exist_ok=True)
    with Opened(store.create(str(mine), MODEL)) as session:
        session.append_message(text_message("user", "x"))
    assert store.latest(str(mine)) == session.path
    assert store.resolve(session.id) == session.path


def test_a_file_under_another_label_is_found_all_the_same(store: Store, place: Path) -> None:
    path = put(store, place)
    odd = store.root / "some label"
    odd.mkdir()
    moved = path.rename(odd / path.name)
    assert store.latest(str(place)) == moved
    assert store.resolve(session_id(6)) == moved


def test_a_session_that_was_moved_belongs_to_its_new_directory(store: Store, place: Path) -> None:
    path = put(store, place)
    with Opened(store.open(path)) as session:
        session.move(str(place.parent))
    assert store.latest(str(place)) is None
    assert store.latest(str(place.parent)) == path


# -- what is no session --------------------------------------------------------------------------


def test_empty_and_torn_logs_are_passed_over(store: Store, place: Path) -> None:
    path = put(store, place, 1, hour=9)
    for number, data in ((2, b""), (3, b'{"type":"session","id"'), (4, b"\n\n")):
        put(store, place, number, hour=20).write_bytes(data)
    assert listed(store) == [str(path)]
    assert store.latest(str(place)) == path
    assert store.list().unreadable == ()
    with pytest.raises(NotASession):
        store.open(session_id(2))


def test_a_log_that_cannot_be_read_hides_no_other_and_is_named(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = put(store, place, 1), put(store, place.parent, 2)
    real = os.open

    def denied(name: str | Path, flags: int, *args: int, **more: int) -> int:
        if Path(name) == other:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *args, **more)

    monkeypatch.setattr(os, "open", denied)
    listing = store.list()
    assert [info.path for info in listing.sessions] == [str(path)]
    assert listing.unreadable == (f"{other}: Permission denied",)


def test_a_folder_that_cannot_be_read_hides_no_other_and_is_named(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = put(store, place, 1), put(store, place.parent, 2)
    real = os.scandir

    def denied(name: bytes) -> Iterator[os.DirEntry[bytes]]:
        if name == os.fsencode(other.parent):
            raise PermissionError(13, "Permission denied")
        return real(name)

    monkeypatch.setattr(os, "scandir", denied)
    listing = store.list()
    assert [info.path for info in listing.sessions] == [str(path)]
    assert listing.unreadable == (f"{other.parent}: Permission denied",)
    assert store.resolve(session_id(1)) == path


def test_damage_hides_neither_the_session_nor_another(store: Store, place: Path) -> None:
    path, other = put(store, place, 1, hour=9), put(store, place, 2, hour=10)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], b"\0" * 100, lines[2], b""]))
    infos = store.list(str(place)).sessions
    assert [(info.path, info.message_count) for info in infos] == [(str(path), 1), (str(other), 2)]


def test_a_log_without_its_header_is_listed_under_its_name(store: Store, place: Path) -> None:
    path = put(store, place)
    path.write_bytes(b"garbage\n" + path.read_bytes().split(b"\n", 1)[1])
    info = store.list().sessions[0]
    assert (info.id, info.provider, info.created) == (
        session_id(6),
        "anthropic",
        "2026-04-25T17:40:15.990Z",
    )
    assert store.resolve(session_id(6)) == path


def test_names_that_begin_with_a_dot_and_other_files_are_no_sessions(
    store: Store, place: Path
) -> None:
    path = put(store, place)
    for folder in (".trash", ".awl", "."):
        (store.root / folder).mkdir(exist_ok=True)
    (store.root / ".trash" / path.name).write_bytes(path.read_bytes())
    (store.root / path.name).write_bytes(path.read_bytes())
    for name in ("notes.txt", f"{path.name}.torn-2026", f"{path.name}.owner", f".{path.name}"):
        (path.parent / name).write_text("x")
    (path.parent / "2026-04-25T17-40-15-990Z_dir.jsonl").mkdir()
    assert list(store.logs()) == [path]
    assert listed(store) == [str(path)]
    assert store.resolve(session_id(6)) == path
    path.unlink()
    with pytest.raises(SessionNotFound):
        store.resolve(session_id(6))


# -- by id ---------------------------------------------------------------------------------------


def test_an_id_a_prefix_and_a_path_name_a_session(
    store: Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(store, place)
    monkeypatch.chdir(path.parent)
    for query in (
        SESSION_ID,
        SESSION_ID.upper(),
        f" {SESSION_ID[:8]} ",
        SESSION_ID[:8].upper(),
        "0",
        str(path),
        path.name,
        f"../{path.parent.name}/{path.name}",
    ):
        assert store.resolve(query) == path, query
    with Opened(store.open(SESSION_ID[:10])) as session:
        assert session.id == SESSION_ID
        with pytest.raises(SessionBusy):
            store.open(path)


def test_an_ambiguous_prefix_lists_prefixes_that_are_accepted(store: Store, place: Path) -> None:
    paths = [put(store, place, number) for number in (1, 2)]
    with pytest.raises(AmbiguousId) as caught:
        store.resolve("019dc5ba")
    assert [store.resolve(candidate) for candidate in caught.value.candidates] == paths
    for candidate in caught.value.candidates:
        assert candidate in str(caught.value)


def test_of_many_that_a_prefix_fits_the_error_says_how_many_it_does_not_name(
    store: Store, place: Path
) -> None:
    for number in range(12):
        put(store, place, number)
    with pytest.raises(AmbiguousId, match=r"and 2 more$") as caught:
        store.resolve("019dc5ba")
    assert len(caught.value.candidates) == 10


def test_an_exact_id_wins_over_one_that_goes_on(store: Store, place: Path) -> None:
    path = put(store, place)
    log = RawLog(cwd=str(place), id=f"{SESSION_ID}-copy")
    log.prompt("x")
    copy = log.write(store.root, str(place), session_id=f"{SESSION_ID}-copy")
    assert store.resolve(SESSION_ID) == path
    assert store.resolve(f"{SESSION_ID}-c") == copy
    short = store.short_ids()
    assert [store.resolve(short[known]) for known in (SESSION_ID, f"{SESSION_ID}-copy")] == [
        path,
        copy,
    ]


def test_a_typo_gets_suggestions_that_are_accepted(store: Store, place: Path) -> None:
    paths = [put(store, place, number) for number in (1, 2)]
    with pytest.raises(SessionNotFound) as caught:
        store.resolve("019dc5bx")
    assert [store.resolve(candidate) for candidate in caught.value.candidates] == paths
    assert "did you mean" in str(caught.value)


@pytest.mark.parametrize(
    "query", ["", " ", "ffffffff", "../x", "/etc/passwd", "nothing.jsonl", "\0", "*", "CON"]
)
def test_what_is_absent_is_not_found_and_not_made(store: Store, place: Path, query: str) -> None:
    put(store, place)
    before = files(store)
    with pytest.raises((SessionNotFound, NotASession)):
        store.open(store.resolve(query))
    assert files(store) == before


def test_two_files_with_one_id_are_both_named(store: Store, place: Path) -> None:
    path = put(store, place)
    copy = path.with_name(path.name.replace(SESSION_ID, "copy"))
    copy.write_bytes(path.read_bytes())
    for query in (SESSION_ID, SESSION_ID[:8]):
        with pytest.raises(AmbiguousId) as caught:
            store.resolve(query)
        assert sorted(caught.value.candidates) == sorted([str(path), str(copy)])
    assert store.resolve(str(copy)) == copy


def test_every_id_that_is_printed_is_accepted(store: Store, place: Path) -> None:
    """Sessions of one minute, made by awl itself, and one whose id is in capitals."""
    made = []
    for _ in range(20):
        with Opened(store.create(str(place), MODEL)) as session:
            session.append_message(text_message("user", "x"))
            made.append(session)
    log = RawLog(cwd=str(place), id="ABCDEF-imported")
    log.prompt("x")
    imported = log.write(store.root, str(place), session_id="ABCDEF-imported")
    short = store.short_ids([info.id for info in store.list().sessions])
    assert len(set(short.values())) == 21
    for session in made:
        assert len(short[session.id]) >= SHORTEST_PREFIX
        assert session.id.startswith(short[session.id])
        assert store.resolve(short[session.id]) == session.path
    assert store.resolve(short["ABCDEF-imported"]) == imported
    assert store.resolve("abcdef") == imported


@pytest.mark.parametrize("listed", [1, 30])
def test_ids_that_differ_in_case_alone_are_told_apart(
    store: Store, place: Path, listed: int
) -> None:
    paths = {}
    for name in ("ABCDEF-imported", "abcdef-Imported", *(f"other-{n}" for n in range(listed))):
        log = RawLog(cwd=str(place), id=name)
        log.prompt("x")
        paths[name] = log.write(store.root, str(place), session_id=name)
    short = store.short_ids()
    assert {name: store.resolve(short[name]) for name in paths} == paths
    with pytest.raises(AmbiguousId) as caught:
        store.resolve("abcdef")
    assert sorted(map(store.resolve, caught.value.candidates)) == sorted([*paths.values()][:2])


def test_a_prefix_is_no_longer_than_it_must_be(store: Store, place: Path) -> None:
    put(store, place, 1)
    assert store.short_ids() == {session_id(1): "019dc5ba"}
    put(store, place, 2)
    assert store.short_ids() == {
        session_id(1): "019dc5ba-53f1",
        session_id(2): "019dc5ba-53f2",
    }
    assert store.short_ids(["unborn"]) == {"unborn": "unborn"}


# -- what lists show -----------------------------------------------------------------------------


def test_a_session_is_described_by_its_log(store: Store, place: Path) -> None:
    log = RawLog(cwd=str(place), forkedFrom={"sessionId": "parent", "seq": 1})
    log.system("be brief")
    log.prompt("\n  Fix the parser  \nplease", provider="openai", model="gpt-5")
    log.answer("done", timestamp=HOUR.format(18))
    log.write(store.root, str(place))
    info = store.list().sessions[0]
    assert (info.id, info.cwd, info.title) == (SESSION_ID, str(place), "Fix the parser")
    assert (info.provider, info.model) == ("openai", "gpt-5")
    assert (info.created, info.updated) == ("2026-04-25T17:40:15.990Z", HOUR.format(18))
    assert (info.message_count, info.event_count) == (3, 3)
    assert info.forked_from is not None
    assert info.forked_from.session_id == "parent"
    log.add("title", title="Named")
    log.write(store.root, str(place))
    assert store.list().sessions[0].title == "Named"


def test_the_status_is_open_interrupted_or_idle(store: Store, place: Path) -> None:
    path = put(store, place)

    def status() -> str:
        return store.list().sessions[0].status

    assert status() == "idle"
    with Opened(store.open(path)) as session:
        assert status() == "open"
        session.append_message(text_message("user", "and?"))
    assert status() == "interrupted"
    path.with_name(path.name + ".owner").write_text('{"pid": 1}')
    assert status() == "interrupted", "a hint without a lock is stale"


def test_a_folder_and_a_log_behind_links_are_found(
    store: Store, place: Path, tmp_path: Path
) -> None:
    log = put(store, place)
    folder = log.parent.rename(tmp_path / "elsewhere")
    log.parent.symlink_to(folder)
    assert [info.id for info in store.list(str(place)).sessions] == [session_id(6)]
    moved = (folder / log.name).rename(tmp_path / log.name)
    (folder / log.name).symlink_to(moved)
    assert [info.id for info in store.list(str(place)).sessions] == [session_id(6)]
    assert store.resolve(session_id(6)) == moved.resolve()
