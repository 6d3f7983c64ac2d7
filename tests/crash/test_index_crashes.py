"""The index in any state that a crash can leave it in: lists and search are right all the same.

SQLite's files are opaque here. They are lost, cut anywhere, of different moments, or followed by
NULs, beside logs that lost what was not synced.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from awl.conversation import text_message
from awl.session import Session
from awl.store.files import Store

from .conftest import Figures
from .disk import Tree, build
from .explore import scratch
from .promises import MODEL

PAGE = 4096


def history(root: Path) -> list[Tree]:
    """A store that grows and is listed and searched; what its folder holds at each moment, with its
    index open."""
    moments = []

    def look() -> None:
        store.list()
        store.search("parser")
        moments.append(tree_of(root))

    with closing(Store(root)) as store:
        sessions: list[Session] = []
        for n in range(4):
            session = Session.create(root, f"/{n % 2}", MODEL)
            sessions.append(session)
            session.append_message(text_message("user", f"The parser of {n}"))
            moments.append(tree_of(root))
            look()
            for other in sessions:
                other.append_message(text_message("assistant", f"I parse {n} " + "x" * 300 * n))
            look()
        for session in sessions:
            session.close()
        look()
    look()
    return moments


def tree_of(root: Path) -> Tree:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if not path.name.endswith((".owner", "-shm"))
    }


def index_states(tree: Tree, chance: random.Random) -> Iterator[dict[str, bytes]]:
    """What may be left of the index's two files."""
    database = tree.get(".awl/index.db") or b""
    ahead = tree.get(".awl/index.db-wal") or b""
    yield {}
    yield {".awl/index.db": database}
    yield {".awl/index.db-wal": ahead}
    yield {".awl/index.db": b"", ".awl/index.db-wal": ahead}
    edges = range(0, len(ahead), PAGE + 24)
    for cut in {
        *chance.sample(edges, min(4, len(edges))),
        *(chance.randrange(len(ahead) + 1) for _ in range(4)),
    }:
        yield {".awl/index.db": database, ".awl/index.db-wal": ahead[:cut]}
        nothing = b"\0" * (len(ahead) - cut)
        yield {".awl/index.db": database, ".awl/index.db-wal": ahead[:cut] + nothing}
    for cut in {chance.randrange(len(database) + 1), chance.randrange(0, len(database) + 1, PAGE)}:
        yield {".awl/index.db": database[:cut], ".awl/index.db-wal": ahead}
        yield {".awl/index.db": database[:cut] + b"\0" * (len(database) - cut)}


def answers(root: Path) -> tuple[Any, ...]:
    """What a person is told of the sessions."""
    with closing(Store(root)) as store:
        listed = store.list()
        hits = [store.search(query).hits for query in ("parser", "pars", "I parse 3", "x" * 40)]
        assert not listed.unreadable
        for info in listed.sessions:
            assert store.resolve(info.id) == Path(info.path)
        return [(i.id, i.title, i.updated, i.message_count) for i in listed.sessions], hits


def crash(moments: list[Tree], chance: random.Random, most: int) -> int:
    """Put each moment's index beside the logs of that moment and of others. How many states."""
    count = 0
    known: dict[tuple[int, bool], tuple[Any, ...]] = {}
    with scratch() as folder:
        pairs = list(itertools.product(range(len(moments)), range(len(moments))))
        for then, now in chance.sample(pairs, min(most, len(pairs))):
            logs = {n: d for n, d in moments[now].items() if not n.startswith(".awl/index")}
            torn = chance.random() < 0.3
            if torn:
                name = chance.choice([name for name in logs if name.endswith(".jsonl")])
                data = logs[name] or b""
                logs[name] = data[: len(data) - chance.randrange(200)]
            for index in index_states(moments[then], chance):
                place = folder / str(count)
                place.mkdir()
                build({".awl": None, **logs, **index}, place)
                found = answers(place)
                if torn or (now, False) not in known:
                    for path in place.glob(".awl/index.db*"):
                        path.unlink()
                    known[now, torn] = answers(place)
                assert relative(found, place) == relative(known[now, torn], place)
                count += 1
    return count


def relative(found: tuple[Any, ...], place: Path) -> str:
    return repr(found).replace(str(place), "")


def test_whatever_a_crash_leaves_of_the_index_lists_and_search_are_right(
    tmp_path: Path, figures: Figures
) -> None:
    moments = history(tmp_path / "sessions")
    figures.count("states of the index", crash(moments, random.Random(1), 8))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_many_crashes_leave_of_the_index_lists_and_search_are_right(
    tmp_path: Path, seed: int, figures: Figures
) -> None:
    moments = history(tmp_path / "sessions")
    figures.count("states of the index", crash(moments, random.Random(seed), 100))
