"""Search in all messages with the index caught up, beside a look through their texts in memory.

A turn is a floor, then one search, then `IN_A_ROW` of them, each for something that was never asked
for before: what an open index remembers of earlier questions helps none. One search alone takes a
fiftieth of its floor, and tells most of all what a look through 64 MB leaves in the processor's
caches, so the bar is about those in a row. A search begins with a look whether a log has changed;
as the index is caught up, the bar is about what comes behind that. All three are shown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import cycle, islice
from statistics import median
from typing import Any
from unittest.mock import patch

import msgspec

from awl.store.files import Store
from benchmarks.corpus import fill, folder, made_up_words
from benchmarks.figures import Curve, Figure, Found, ratio

FLOOR = "a look through the texts in memory"
A_SESSION = 1_000
"""Messages of a session."""
CJK = "明天下午三点开会"
IN_A_ROW = 20
TURNS = 7


class Taken(msgspec.Struct, frozen=True):
    """The seconds of a search: of the floor, of one alone right behind it, of one of many in a row,
    and of that without the look at the logs."""

    floor: float
    alone: float
    whole: float
    caught_up: float


def measure(quick: bool) -> Found:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    names = ("a word", "a part of a word", "CJK", "floor")
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    figures: list[Figure] = []
    for count in sizes:
        texts, words = _texts(count)
        found, index = _searched(texts, words)
        for name, taken in found.items():
            if name in points:
                points[name].append((count, taken.caught_up))
            if count == sizes[-1]:
                figures += _figures(f"search of {count:,} messages for {name}", name, taken)
        points["floor"].append((count, found["a word"].floor))
        if count == sizes[-1]:
            size = sum(len(text.encode()) for text in texts)
            figures.append(ratio("size of the index", index, "the text", size, 1.6, "B"))
    return Found(figures, [Curve("search", "messages", "a search", points)])


def _figures(what: str, name: str, taken: Taken) -> Iterator[Figure]:
    is_word = name in ("a word", "a common word")
    yield ratio(what, taken.caught_up, FLOOR, taken.floor, 0.02 if is_word else 3.0)
    if is_word:
        yield ratio(f"{what}, with the look at the logs", taken.whole, FLOOR, taken.floor, None)
        what += ", with that and right behind the floor"
        yield ratio(what, taken.alone, FLOOR, taken.floor, None)


def _texts(count: int) -> tuple[list[str], list[str]]:
    """Texts of words as frequent as words are, and those words, the most frequent first."""
    chance = random.Random(1)  # noqa: S311
    words = made_up_words(chance, 40_000, 10)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    texts = [" ".join(chance.choices(words, weights, k=100))[:640] for _ in range(count)]
    for at in range(0, count, 100):
        texts[at] += f" {CJK}"
    return texts, words


def _queries(words: list[str]) -> dict[str, Iterator[str]]:
    """What is searched for: words that a hundredth of the messages hold, or a twentieth and more;
    parts that they have inside; of a sentence without spaces, all its pieces over and over."""
    pieces = [CJK[at:end] for at in range(len(CJK)) for end in range(at + 2, len(CJK) + 1)]
    return {
        "a word": (word for word in words[800:] if len(word) >= 5),
        "a common word": (word for word in words[:250] if len(word) >= 5),
        "a part of a word": (word[1:-1] for word in words[1300:] if len(word) >= 7),
        "CJK": cycle(pieces),
    }


def _searched(texts: list[str], words: list[str]) -> tuple[dict[str, Taken], int]:
    """What searches took, by what was looked for; the size of the index."""
    with folder() as root:
        fill(
            root,
            len(texts) // A_SESSION,
            lambda n: texts[n * A_SESSION : (n + 1) * A_SESSION],
        )
        store = Store(root)
        store.search("x", limit=1)
        store.close()
        size = sum(path.stat().st_size for path in (root / ".awl").glob("index.db*"))
        found = {name: _taken(store, texts, asked) for name, asked in _queries(words).items()}
        store.close()
    return found, size


def _taken(store: Store, texts: list[str], queries: Iterator[str]) -> Taken:
    looked = 0.0
    catch_up = store.catalog.catch_up

    def timed(*given: Any) -> list[str]:
        nonlocal looked
        begun = time.perf_counter()
        found = catch_up(*given)
        looked += time.perf_counter() - begun
        return found

    def seconds(needles: list[str]) -> float:
        begun = time.perf_counter()
        found = [store.search(needle, limit=50).hits for needle in needles]
        took = time.perf_counter() - begun
        assert all(found), needles
        return took

    floors, alone, whole, behind = [], [], [], []
    with patch.object(store.catalog, "catch_up", timed):
        store.search(next(queries), limit=50)
        for _ in range(TURNS):
            needle, *others = islice(queries, 1 + IN_A_ROW)
            begun = time.perf_counter()
            assert [i for i, t in enumerate(texts) if needle in t.lower()]
            floors.append(time.perf_counter() - begun)
            alone.append(seconds([needle]))
            looked = 0.0
            took = seconds(others)
            whole.append(took / IN_A_ROW)
            behind.append((took - looked) / IN_A_ROW)
    return Taken(median(floors), median(alone), median(whole), median(behind))
