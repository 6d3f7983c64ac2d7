"""Processes that get in each other's way at the worst moment, which these tests bring about."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from awl.conversation import ModelRef, text_message
from awl.index import catalog, fulltext, intake, level
from awl.index.sqlite import Unusable
from awl.session import Session
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """One folder as two processes see it."""
    made = Store(tmp_path / "sessions"), Store(tmp_path / "sessions")
    yield made
    for store in made:
        store.close()


def begin(store: Store, words: str) -> Session:
    session = store.create("/home/dev", MODEL)
    session.append_message(text_message("user", words))
    return session


def numbers(store: Store) -> set[int | None]:
    return {info.conversation_id for info in store.list().sessions}


def counts(store: Store) -> dict[str, int]:
    return {info.title: info.message_count for info in store.list().sessions}


class Late:
    """A store that has looked at the logs, and is held up before it looks at the index."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        looked, self._go_on = threading.Event(), threading.Event()
        real = store.catalog.catch_up

        def catch_up(*arguments: Any) -> list[str]:
            looked.set()
            assert self._go_on.wait(20)
            return real(*arguments)

        monkeypatch.setattr(store.catalog, "catch_up", catch_up)
        self._thread = threading.Thread(target=store.list)
        self._thread.start()
        assert looked.wait(20)

    def go_on(self) -> None:
        self._go_on.set()
        self._thread.join(20)
        assert not self._thread.is_alive()


def before_hits_are_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Have this happen once, when the texts have been taken in and are about to be looked at."""
    real = fulltext._found
    acts = [act]

    def found(*arguments: Any) -> Any:
        if acts:
            acts.pop()()
        return real(*arguments)

    monkeypatch.setattr(fulltext, "_found", found)


def test_a_search_finds_what_was_said_before_it_though_another_looked_before_that(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one knows nothing of the log, and must not take it for deleted."""
    mine, other = stores
    begin(other, "older").close()
    late = Late(other, monkeypatch)
    begin(mine, "a parser").close()
    assert len(mine.search("parser").hits) == 1
    before_hits_are_read(monkeypatch, late.go_on)
    assert len(mine.search("parser").hits) == 1
    assert set(counts(mine)) == set(counts(other)) == {"older", "a parser"}


def test_what_another_read_earlier_and_records_meanwhile_does_not_win(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stores
    session = begin(mine, "a parser")
    other_read, both_read = threading.Event(), threading.Event()
    elsewhere = threading.Thread(target=other.list)
    real = level._read_open

    def read_open(*arguments: Any, **more: Any) -> Any:
        read = real(*arguments, **more)
        if threading.current_thread() is elsewhere:
            other_read.set()
            assert both_read.wait(20)
        elif not both_read.is_set():
            both_read.set()
            elsewhere.join(20)
        return read

    monkeypatch.setattr(level, "_read_open", read_open)
    elsewhere.start()
    assert other_read.wait(20)
    session.append_message(text_message("assistant", "an answer"))
    assert counts(mine) == {"a parser": 2}
    session.close()


def test_a_search_sees_the_texts_of_one_moment(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins the texts anew when this one is about to look at them."""
    mine, other = stores
    begin(mine, "a parser").close()
    assert len(mine.search("parser").hits) == 1
    path = next(mine.logs())

    def rewrite() -> None:
        data = path.read_bytes()
        path.write_bytes(data.replace(b"a parser", b"a Parser"))
        assert counts(other) == {"a Parser": 1}

    before_hits_are_read(monkeypatch, rewrite)
    assert len(mine.search("parser").hits) == 1


def test_a_list_has_the_numbers_of_sessions_that_another_process_is_taking_in(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stores
    begin(mine, "a parser").close()
    assert numbers(mine) == {1}
    recorded, listed = threading.Event(), threading.Event()
    elsewhere = threading.Thread(target=other.list)
    numbered, level_now = level.Level._number, catalog.is_level

    def number(this: level.Level, *arguments: Any) -> None:
        if threading.current_thread() is elsewhere:
            recorded.set()
            assert listed.wait(20)
        numbered(this, *arguments)

    def is_level(*arguments: Any) -> bool:
        found = level_now(*arguments)
        if threading.current_thread() is not elsewhere and not recorded.is_set():
            begin(other, "another").close()
            elsewhere.start()
            assert recorded.wait(20)
        return found

    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    mine.list()
    monkeypatch.setattr(level.Level, "_number", number)
    monkeypatch.setattr(catalog, "is_level", is_level)
    assert numbers(mine) == {1, 2}
    listed.set()
    elsewhere.join(20)
    assert numbers(other) == {1, 2}


def test_processes_with_the_same_to_do_share_it(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another took in meanwhile is not read again, neither for lists nor for its texts."""
    mine, other = stores
    for n in range(5):
        begin(mine, f"parser {n}").close()
    reads: list[str] = []
    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    monkeypatch.setattr(level, "_BATCH", 0)
    monkeypatch.setattr(intake, "_PORTION", 1)

    def share(module: Any, name: str, act: Callable[[], object]) -> None:
        real = getattr(module, name)

        def read(*arguments: Any) -> Any:
            reads.append(name)
            if reads.count(name) == 2:
                act()
            return real(*arguments)

        monkeypatch.setattr(module, name, read)

    share(level, "_read_open", other.list)
    share(intake, "_read", lambda: other.search("parser"))
    assert len(mine.search("parser").hits) == 5
    assert reads.count("_read_open") == 5 + 1  # the one at which both were
    assert reads.count("_read") == 5 + 1


def test_an_index_that_is_built_anew_is_used_by_others_until_it_is_done(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stores
    for n in range(5):
        begin(mine, f"parser {n}").close()
    listed = mine.list()
    before = mine.catalog.database.path.stat().st_ino
    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    real = intake._read
    tried: list[str] = []

    def read(*arguments: Any) -> Any:
        if not tried:
            assert other.list() == listed
            with pytest.raises(Unusable) as caught:
                other.reindex()
            tried.append(str(caught.value))
            begin(other, "another parser").close()
        return real(*arguments)

    monkeypatch.setattr(intake, "_read", read)
    assert len(mine.reindex().sessions) == 6
    path = mine.catalog.database.path
    assert tried == [f"{path} cannot be built anew: another process is at it"]
    assert path.stat().st_ino != before
    assert len(other.search("parser").hits) == 6
    assert not mine.notices
    assert not other.notices
    assert not list(path.parent.glob("index.new.db*"))


def test_a_log_that_was_listed_by_one_who_had_not_seen_it_goes_when_it_is_deleted(
    stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stores
    begin(other, "older").close()
    late = Late(other, monkeypatch)
    begin(mine, "a parser").close()
    assert set(counts(mine)) == {"older", "a parser"}
    monkeypatch.setattr(level, "is_settled", lambda *arguments: True)
    late.go_on()
    next(path for path in mine.logs() if b"a parser" in path.read_bytes()).unlink()
    assert set(counts(mine)) == {"older"}
