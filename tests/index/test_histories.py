"""Whatever happens to logs and index: lists and searches are those of an index built anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from histories import examples
from hypothesis import given
from hypothesis import strategies as st

from awl.errors import NotASession
from awl.replay import read
from awl.store.files import describe

from .stores import QUERIES, STEPS, WORDS, Place, Step, anonymous, place

words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
histories = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 99_999), words), max_size=25)


@examples(60)
@given(histories)
def test_after_any_history_list_and_search_are_those_of_a_fresh_build(steps: list[Step]) -> None:
    with place() as made:
        made.play(steps)
        searched, listed = made.searched(), made.listed()
        assert listed == made.listed()
        made.fresh()
        assert made.listed() == listed
        assert made.searched() == searched
        check_against_the_logs(made)


def check_against_the_logs(made: Place) -> None:
    """The list is what reading each log says, and a search finds what looking at it finds."""
    infos = {info.path: info for info in anonymous(made.listed())}
    found = {
        query: {(hit.session_id, hit.seq) for hit in made.store.search(query).hits}
        for query in QUERIES
    }
    for log in made.store.logs():
        cut_to_lines(log)
        try:
            state = read(log)
        except NotASession:
            assert str(log) not in infos
            continue
        assert infos.pop(str(log)) == describe(log, state)
        assert state.header is not None
        for item in state.items:
            for query in QUERIES:
                if item.kind == "message" and query.casefold() in item.message.text.casefold():
                    assert (state.header.id, item.seq) in found[query], (query, item)
    assert not infos


def cut_to_lines(log: Path) -> None:
    """Drop what is behind the last newline: it was never acknowledged, and the index passes it
    over, where a reader that finds it whole takes it."""
    data = log.read_bytes()
    log.write_bytes(data[: data.rfind(b"\n") + 1])


@pytest.mark.parametrize("step", sorted({*STEPS}))
def test_every_step_can_be_taken(step: str) -> None:
    with place() as made:
        made.play([("create", 0, "parser"), ("create", 1, "youer"), ("search", 0, "")])
        for n in range(8):
            made.play([(step, n, "words for it"), ("look", 0, ""), ("search", 0, "")])
        listed, searched = made.listed(), made.searched()
        made.fresh()
        assert (made.listed(), made.searched()) == (listed, searched)
