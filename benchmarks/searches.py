"""Search in all messages with the index caught up, beside a look through their texts in memory."""

from __future__ import annotations

import random
from collections.abc import Callable

from awl.store.files import Store
from benchmarks.corpus import fill, folder
from benchmarks.figures import Curve, Figure, Found, in_turns, medians, ratio

FLOOR = "a look through the texts in memory"
A_SESSION = 1_000
"""Messages of a session."""
WORD, PART, CJK = "zebrafish", "ebrafis", "下午"
IN_A_ROW = 20
"""Searches at a time: one alone takes a fiftieth of its floor, which is too short a turn, and would
tell most of all what a look through 64 MB leaves in the processor's caches. That one is shown too.
"""


def measure(quick: bool) -> Found:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    names = ("a word", "a part of a word", "CJK", "floor")
    points: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    figures: list[Figure] = []
    for count in sizes:
        texts, words = _texts(count)
        found, index = _searched(texts, words)
        for name, (ours, first, base) in found.items():
            if name in points:
                points[name].append((count, ours))
            if count == sizes[-1]:
                quick_ones = name in ("a word", "a common word")
                what = f"search of {count:,} messages for {name}"
                figures.append(ratio(what, ours, FLOOR, base, 0.02 if quick_ones else 3.0))
                if quick_ones:
                    what += ", right behind the floor"
                    figures.append(ratio(what, first, FLOOR, base, None))
        points["floor"].append((count, found["a word"][2]))
        if count == sizes[-1]:
            size = sum(len(text.encode()) for text in texts)
            figures.append(ratio("size of the index", index, "the text", size, 1.6, "B"))
    return Found(figures, [Curve("search", "messages", "a search", points)])


def _texts(count: int) -> tuple[list[str], list[str]]:
    """Texts of words as frequent as words are, and those words, the most frequent first."""
    chance = random.Random(1)  # noqa: S311
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(40_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    texts = [" ".join(chance.choices(words, weights, k=100))[:640] for _ in range(count)]
    for at in range(0, count, 100):
        texts[at] += " Zebrafish"
        texts[at + 1] += " 明天下午三点开会"
    return texts, words


def _searched(
    texts: list[str], words: list[str]
) -> tuple[dict[str, tuple[float, float, float]], int]:
    """The seconds of searches, of the first one behind the floor, and of the floors, by what is
    looked for; the size of the index."""
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
        found = {}
        queries = {"a word": WORD, "a common word": words[0], "a part of a word": PART, "CJK": CJK}
        for name, query in queries.items():

            def floor(needle: str = query.lower()) -> object:
                return [i for i, t in enumerate(texts) if needle in t.lower()]

            def ours(query: str = query) -> object:
                return store.search(query, limit=50).hits

            def many(search: Callable[[], object] = ours) -> object:
                return [search() for _ in range(IN_A_ROW)]

            assert ours(), query
            taken = medians(in_turns({"floor": floor, "first": ours, "awl": many}, 7))
            found[name] = taken["awl"] / IN_A_ROW, taken["first"], taken["floor"]
        store.close()
    return found, size
