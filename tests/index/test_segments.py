"""Segments: what is in them, however they come about."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from histories import examples
from hypothesis import given
from hypothesis import strategies as st
from rawlog import RawLog

from awl.index import patience, segments
from awl.index.segments import KEY, Segments
from awl.index.texts import Doc, words
from awl.store.files import Store

TEXTS = st.lists(st.sampled_from(("a", "bb", "ccc", "aba", "x" * 65, "下")), max_size=5).map(
    " ".join
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "sessions")
    yield made
    made.close()


def put(store: Store, number: int, *texts: str) -> None:
    session_id = f"019dc5ba-53f6-71a5-ab8f-{number:012x}"
    log = RawLog(cwd="/home/dev", id=session_id)
    for text in texts:
        log.prompt(text)
    log.write(store.root, "/home/dev", session_id=session_id)


def kept(store: Store) -> segments.Contents:
    return store.catalog.database.run(segments.read_contents)


@examples(60)
@given(st.lists(st.lists(TEXTS, min_size=1, max_size=6), max_size=12), st.integers(1, 40))
def test_each_word_is_where_the_texts_have_it(batches: list[list[str]], chunk: int) -> None:
    """In any number of segments, made one after the other and made one of each other."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(
        "CREATE TABLE meta (key, value); INSERT INTO meta VALUES ('contents', NULL);"
        "CREATE TABLE messages (doc INTEGER PRIMARY KEY, about, text, checksum, seal);"
        "CREATE TABLE words (first INTEGER PRIMARY KEY, words, checksum);"
        "CREATE TABLE segments (id INTEGER PRIMARY KEY, runs, checksum);"
        "CREATE TABLE postings (segment, word, part, data, checksum);"
    )
    said: dict[int, str] = {}
    reader = Segments(db)
    with (
        patch.object(segments, "_LOOKED_AT", 3),
        patch.object(segments, "_MOST_DOCS", 12),
        patch.object(segments, "_MOST_SMALL", 3),
        patch.object(segments, "_CHUNK", chunk),
        patch.object(segments, "_BLOCK", chunk),
    ):
        for key, batch in enumerate(batches, 1):
            first = key % 3 + 1 << KEY | key * 100
            docs = [Doc(n, "e", "user", "", text) for n, text in enumerate(batch)]
            segments.add_pending(db, segments.write_docs(db, first, docs))
            said |= {first + n: text for n, text in enumerate(batch)}
            segments.make_segments(db, reader, full=False)
    reader.refresh()
    where = {}
    for stretch in reader.stretches():
        for n in range(stretch.docs):
            where[stretch.first + n] = (stretch.segment, stretch.place + n)
    assert where.keys() == said.keys()
    assert segments._extent(reader.contents.pending)[0] <= 3
    numbers = reader.numbers()
    for number, (segment, place) in where.items():
        if segment is None:
            continue
        for word, n in numbers.items():
            places = segments.read_places(db, segment.id, n)
            assert (places is not None and place in places) is (word in words(said[number]))
    read = segments.read_docs(db, list(said))
    assert {number: doc.text for number, doc in read.items()} == said


def test_what_was_learned_of_a_copy_is_not_held_to_be_so_of_the_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the index cannot be used for a while, a copy goes on, and so does the index."""
    monkeypatch.setattr(segments, "_LOOKED_AT", 0)
    monkeypatch.setattr(patience, "ENOUGH", 0)
    put(store, 1, "nought")
    store.search("nought")
    other = Store(store.root)
    with other.catalog.database._alone():
        put(store, 2, "one")
        assert store.search("one").hits
    for log in store.root.glob("*/*000000000002.jsonl"):
        log.unlink()
    put(store, 3, "two", "three", "four")
    assert other.search("four").hits
    other.close()
    for word in ("two", "three", "four"):
        assert len(store.search(word).hits) == 1


def test_the_words_that_hold_a_piece_are_found_in_every_block(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_LOOKED_AT", 0)
    monkeypatch.setattr(segments, "_BLOCK", 10)
    for number, text in enumerate(("one bone", "stone on", "none twoone two", "one")):
        put(store, number, text)
        store.search("x")
    reader = store.catalog.segments
    assert reader is not None
    names = {n: word for word, n in reader.numbers().items()}
    found = reader.words_with("one", 10)
    assert found is not None
    assert sorted(names[n] for n in found) == ["bone", "none", "one", "stone", "twoone"]
    assert reader.words_with("one", 4) is None
    assert reader.words_with("three", 10) == []


@pytest.mark.parametrize("most", [1024, 1])
def test_what_is_remembered_of_a_segment_is_not_taken_for_another_ones(
    store: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Also where another process built the index anew, and gave the same numbers."""
    monkeypatch.setattr(segments, "_LOOKED_AT", 0)
    monkeypatch.setattr(segments, "_MOST_PLACES", most)
    for texts in (("parser", "other"), ("下午", "parser"), ("other", "下午", "parser")):
        put(store, 1, *texts)
        for word in (*texts, "parser"):
            assert [hit.snippet for hit in store.search(word).hits] == [f"«{word}»"]
        for file in (store.root / ".awl").glob("index.db*"):
            file.unlink()


def test_small_segments_become_one_and_what_is_gone_is_left_out(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_LOOKED_AT", 1)
    monkeypatch.setattr(segments, "_MOST_SMALL", 4)
    for number in range(4):
        put(store, number, "a parser", "and another")
        store.search("x")
    assert [segment.docs for segment in kept(store).segments] == [2, 2, 2, 2]
    next(store.logs()).unlink()
    put(store, 9, "a parser", "and another")
    assert len(store.search("parser").hits) == 4
    assert [segment.docs for segment in kept(store).segments] == [8]
    assert store.catalog.database.run(
        lambda db: db.execute("SELECT count(*), count(DISTINCT segment) FROM postings").fetchone()
    ) == (1, 1)


def test_while_another_process_makes_a_segment_there_is_none_to_make(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Store(tmp_path / "sessions")
    put(store, 1, *(f"parser {n}" for n in range(10)))
    store.search("x")
    assert not kept(store).segments
    monkeypatch.setattr(segments, "_LOOKED_AT", 0)
    real = segments._inverted
    calls: list[object] = []

    def inverted(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 1:
            put(store, 2, "parser")
            assert len(other.search("parser").hits) == 11
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(segments, "_inverted", inverted)
    put(store, 99, "nothing")
    assert len(store.search("parser").hits) == len(other.search("parser").hits) == 11
    assert len(calls) == 1
    assert [(segment.docs) for segment in kept(store).segments] == [11]
    assert [run.docs for run in kept(store).pending] == [1]
    other.close()


def test_a_process_that_dies_while_it_makes_a_segment_keeps_others_from_it_for_a_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 1, "parser")
    store.search("x")
    monkeypatch.setattr(segments, "_LOOKED_AT", 0)

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(segments, "_inverted", die)
        put(store, 2, "parser")
        with pytest.raises(KeyboardInterrupt):
            store.search("parser")
    put(store, 3, "parser")
    assert len(store.search("parser").hits) == 3
    assert not kept(store).segments
    monkeypatch.setattr(segments, "_CLAIM", 0.0)
    put(store, 4, "parser")
    assert len(store.search("parser").hits) == 4
    assert [segment.docs for segment in kept(store).segments] == [4]
