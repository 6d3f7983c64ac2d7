"""The ids that the entries of another program's session are given."""

from __future__ import annotations

import pytest

from awl.formats.chain import Chain


@pytest.mark.parametrize("name", ["0123abcd", "ffffffff", "00000000"])
def test_a_name_in_the_form_of_an_id_is_kept_once(name: str) -> None:
    chain = Chain("source", keep=True)
    assert chain.draw(name) == name
    assert chain.draw(name) != name


@pytest.mark.parametrize(
    "name",
    ["", "0123abc", "0123abcde", "0123ABCD", "0123 bcd", "0123abc\n", "a-name-x", "٣123abcd"],
)
def test_a_name_in_another_form_gets_an_id_of_its_own(name: str) -> None:
    chain = Chain("source", keep=True)
    found = chain.draw(name)
    assert len(found) == 8
    assert set(found) <= set("0123456789abcdef")
    assert chain.id_of(name) == found
    assert chain.draw() != found
