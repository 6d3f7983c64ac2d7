"""Search, in real logs with a real index."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rawlog import RawLog

from awl.conversation import ModelRef, text_message
from awl.entries import PartialBlock, PartialEntry
from awl.errors import AwlError
from awl.index import fulltext, intake, segments
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")


@pytest.fixture(params=["pending", "segments", "tiny"])
def store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Store]:
    """Docs that are all looked at; in segments; in many of these, in which everything is split."""
    if request.param != "pending":
        monkeypatch.setattr(segments, "_LOOKED_AT", 0)
    if request.param == "tiny":
        for name, value in (("_CHUNK", 2), ("_BLOCK", 9), ("_MOST_SMALL", 3), ("_MOST_DOCS", 7)):
            monkeypatch.setattr(segments, name, value)
    made = Store(tmp_path / "sessions")
    yield made
    made.close()


def put(store: Store, number: int, *words: str, cwd: str = "/home/dev", hour: int = 12) -> str:
    session_id = f"019dc5ba-53f6-71a5-ab8f-{number:012x}"
    log = RawLog(cwd=cwd, id=session_id)
    for word in words:
        log.prompt(word, timestamp=f"2026-04-25T{hour:02}:00:00.000Z")
    log.write(store.root, cwd, session_id=session_id)
    return session_id


def found(store: Store, query: str, **more: object) -> list[tuple[str, int]]:
    hits = store.search(query, **more).hits  # type: ignore[arg-type]
    return [(hit.session_id, hit.seq) for hit in hits]


def test_hits_are_in_order_of_their_sessions_and_a_limit_gives_the_newest(store: Store) -> None:
    late = put(store, 1, "a parser", "and parsers", hour=20)
    early = put(store, 2, "parser", hour=9)
    assert found(store, "parser") == [(early, 1), (late, 1), (late, 2)]
    assert found(store, "parser", limit=2) == [(late, 1), (late, 2)]
    assert store.search("parser", limit=2).more
    assert not store.search("parser", limit=3).more


def test_only_the_directory_that_is_asked_for_is_searched(store: Store) -> None:
    one, two = put(store, 1, "parser", cwd="/one"), put(store, 2, "parser", cwd="/two")
    assert found(store, "parser", cwd="/one") == [(one, 1)]
    assert found(store, "parser", cwd="/two") == [(two, 1)]
    assert found(store, "parser", cwd="/three") == []


def test_the_same_is_found_by_words_by_many_words_and_by_looking(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        put(store, number, f"parser{number} 明天下午", f"other {number} x_parser")
    queries = ("parser", "parser1", "er2", "下午", "r1 明天", "x_", "zz", "parser29 明天下午")
    by_words = {query: found(store, query) for query in queries}
    assert len(by_words["parser"]) == 60
    assert len(by_words["下午"]) == 30
    for name, value in (("_FEW", 3), ("_MOST_WORDS", 0)):
        monkeypatch.setattr(fulltext, name, value)
        assert {query: found(store, query) for query in queries} == by_words


def test_a_hit_says_where_it_is(store: Store) -> None:
    session_id = put(store, 1, "first", "the Parser is here", hour=15)
    (hit,) = store.search("parser").hits
    assert (hit.session_id, hit.seq, hit.entry_id, hit.role) == (session_id, 2, "e2", "user")
    assert (hit.timestamp, hit.snippet) == ("2026-04-25T15:00:00.000Z", "the «Parser» is here")


def test_what_was_condensed_or_gone_back_from_is_found(store: Store) -> None:
    log = RawLog(cwd="/home/dev")
    log.prompt("the first parser")
    log.answer("ok")
    log.condensed(1, 2)
    log.prompt("a second parser")
    log.add("rewind", parentId=None)
    log.write(store.root, "/home/dev")
    assert [seq for _, seq in found(store, "parser")] == [1, 4]


def test_what_an_answer_voids_is_not_found_any_more(store: Store) -> None:
    session = store.create("/home/dev", MODEL)
    session.append_message(text_message("user", "go"))
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text="streamed"),)))
    assert found(store, "streamed") == [(session.id, 2)]
    session.append_message(text_message("assistant", "something else"))
    assert found(store, "streamed") == []
    assert found(store, "else") == [(session.id, 3)]
    session.close()


def test_a_hit_that_stands_twice_in_a_log_is_one(store: Store) -> None:
    log = RawLog(cwd="/home/dev")
    log.prompt("parser")
    log.lines.append(log.lines[-1])
    log.write(store.root, "/home/dev")
    assert len(found(store, "parser")) == 1


def test_texts_are_taken_in_anew_when_most_are_gone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_MOST_DEAD", 5)
    for hour in range(8, 16):
        put(store, 1, *[f"parser {hour} {n}" for n in range(6)], hour=hour)
        assert len(found(store, f"parser {hour}")) == 6
    assert store.catalog.database.run(segments.read_contents).docs() <= 12


def test_a_log_in_portions_is_found_whole(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_PORTION", 500)
    told: list[tuple[int, int]] = []
    put(store, 1, *[f"parser number{n}" for n in range(50)])
    put(store, 2, *[f"parser number{n}" for n in range(50)])
    hits = store.search("parser", progress=lambda done, total: told.append((done, total))).hits
    assert len(hits) == 100
    assert len(told) > 10
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told)


def test_a_log_that_cannot_be_read_keeps_no_other_from_being_taken_in(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at once, nor the rest of one that is taken in piece by piece."""
    monkeypatch.setattr(intake, "_PORTION", 500)
    for number in range(6):
        put(store, number, *[f"parser number{n}" for n in range(10)])
    assert len(store.list().sessions) == 6
    barred = [path for path in store.logs() if path.stem[-1] in "0235"]
    real = os.open

    def denied(name: Any, flags: int, *more: Any) -> int:
        if Path(os.fsdecode(name)) in barred:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, *more)

    with monkeypatch.context() as context:
        context.setattr(os, "open", denied)
        result = store.search("parser")
        assert len(result.hits) == 20
        assert sorted(result.unreadable) == [f"{path}: Permission denied" for path in barred]
    assert len(store.search("parser").hits) == 60


@pytest.mark.parametrize("query", ["", "  "])
def test_a_query_of_nothing_is_an_error(store: Store, query: str) -> None:
    with pytest.raises(AwlError, match="nothing to search"):
        store.search(query)


@pytest.mark.parametrize("query", ['"', "*", "a*", "NEAR(", "' OR 1", "-x", "a AND", "\0", "[a]"])
def test_what_a_person_types_is_never_a_query_language(store: Store, query: str) -> None:
    session_id = put(store, 1, f"before {query} behind", "nothing")
    assert found(store, query) == [(session_id, 1)]
