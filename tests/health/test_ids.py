from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from awl.health import ids
from awl.health.ids import Ids

NAMES = st.lists(st.text("ab", max_size=3), max_size=60)


@settings(deadline=None)
@given(NAMES, st.integers(1, 7))
def test_an_id_is_found_where_it_stood_last_however_many_are_packed(
    names: list[str], run: int
) -> None:
    packed = ids._RUN
    ids._RUN = run  # type: ignore[misc]
    try:
        known = Ids()
        for position, name in enumerate(names):
            known.add(name, position)
            places = [at for at in range(position + 1) if names[at] == name]
            assert known.latest(name) == position
            assert sorted(known.positions(name)) == places
        assert known.latest("c") is None
        again = [at for at, name in enumerate(names) if names.count(name) > 1]
        found = known.repeated()
        assert set(found) <= set(again)
        assert len(found) == len(names) - len(set(names))
    finally:
        ids._RUN = packed  # type: ignore[misc]
