"""Sets of places: small, and the same whatever their kind."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awl.index.places import BITS, GAPS, PLAIN, Places, common

sets = st.one_of(
    st.sets(st.integers(0, 70), min_size=1),
    st.sets(st.integers(0, 4000), min_size=1, max_size=200),
    st.sets(st.integers(0, 65_535), min_size=1, max_size=20),
)


def kept(places: set[int]) -> Places:
    made = Places.of(array("H", sorted(places)))
    return Places(made.kind, made.data)  # as it comes from the database


@given(sets, st.integers(0, 70_000), st.integers(0, 70_000))
def test_a_set_is_what_it_was_made_of(places: set[int], one: int, other: int) -> None:
    made = kept(places)
    start, end = sorted((one, other))
    assert len(made) == len(places)
    assert list(made.between(0, 1 << 16)) == sorted(places)
    assert list(made.between(start, end)) == sorted(at for at in places if start <= at < end)
    around = {at + step for at in places for step in (-1, 0, 1)} - {-1}
    assert {at for at in around if at in made} == places


@pytest.mark.parametrize(
    ("places", "kind", "size"),
    [
        (range(0, 8000, 4), BITS, 1000),
        (range(0, 8000, 40), GAPS, 200),
        (range(0, 60_000, 400), PLAIN, 300),
        ((0,), BITS, 1),
        ((65_535,), PLAIN, 2),
        (range(65_536), BITS, 8192),
    ],
)
def test_a_set_takes_the_fewest_bytes(places: range, kind: int, size: int) -> None:
    made = kept(set(places))
    assert (made.kind, len(made.data)) == (kind, size)


@given(
    st.lists(st.lists(sets, min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(0, 5000),
    st.integers(0, 5000),
)
def test_what_groups_have_in_common(groups: list[list[set[int]]], one: int, other: int) -> None:
    start, end = sorted((one, other))
    wanted = set(range(start, end))
    for group in groups:
        wanted &= set[int]().union(*group)
    found = list(common([[kept(places) for places in group] for group in groups], start, end))
    assert found == sorted(wanted, reverse=True)


def test_a_group_of_no_sets_has_nothing() -> None:
    assert list(common([[kept({1, 2})], []], 0, 100)) == []
    assert list(common([[]], 0, 100)) == []
    assert list(common([[kept({1})]], 50, 50)) == []
