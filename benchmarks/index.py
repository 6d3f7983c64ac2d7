"""Lists and search against their floors, in one run: `uv run python benchmarks/index.py [WHAT]`.

WHAT is lists, process, memory or search; without it, all run. Every figure is the best of several
runs in one process, and each is given as a ratio to its floor of the same run.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from awl.conversation import ModelRef, text_message
from awl.entries import Entry
from awl.log.names import new_session_id
from awl.session import Session
from awl.store.files import Store

MODEL = ModelRef("anthropic", "claude-1")


def best(work: Callable[[], object], times: int = 9) -> float:
    """Seconds of the quickest run."""
    found = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found = min(found, time.perf_counter() - begun)
    return found


def fill(root: Path, sessions: int, messages: Callable[[int], list[str]]) -> None:
    """Sessions in twenty directories. What is measured does not depend on syncs."""
    with patch("awl.log.file.sync"), patch("os.fsync"):
        for number in range(sessions):
            session = Session.create(root, f"/home/dev/{number % 20}", MODEL)
            made: list[Entry] = []
            for n, text in enumerate(messages(number)):
                made.append(session.message_entry(text_message(("user", "assistant")[n % 2], text)))
            session.append_many(made)
            session.close()


def lists() -> None:
    for count in (1000, 10_000):
        _list(count)


def _list(count: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        fill(root, count, lambda n: [f"Fix the parser, part {n}", "It is done."])
        time.sleep(0.2)
        store = Store(root)
        begun = time.perf_counter()
        store.list()
        build = time.perf_counter() - begun
        store.list()

        def floor() -> None:
            for folder in os.scandir(root):
                if not folder.name.startswith("."):
                    for file in os.scandir(folder.path):
                        file.stat()

        base = best(floor)
        full, newest = best(store.list), best(lambda: store.list(limit=50))
        print(
            f"list {count}: floor {1e3 * base:.1f} ms, build {build:.2f} s,"
            f" full {full / base:.2f} x, newest 50 {newest / base:.2f} x"
        )
        store.close()


def process() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "sessions"
        fill(root, 1000, lambda n: [f"Fix the parser, part {n}", "It is done."])
        environ = {**os.environ, "AWL_SESSION_DIR": str(root)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as awl runs: what is compiled is kept

        def run(*arguments: str) -> None:
            subprocess.run(
                [sys.executable, *arguments], env=environ, capture_output=True, check=True
            )

        run("-m", "awl", "sessions", "--all")
        base = best(lambda: run("-c", "pass"))
        for arguments in (
            ["--version"],
            ["sessions", "--all"],
            ["sessions", "--all", "--limit", "50"],
            ["sessions", "--all", "--json"],
        ):
            taken = best(lambda: run("-m", "awl", *arguments)) - base  # noqa: B023
            print(f"awl {' '.join(arguments)}, 1,000 sessions: +{1e3 * taken:.0f} ms")


def memory() -> None:
    """In a process of its own: its peak is measured."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        block = "word " * 4000
        fill(root, 1, lambda n: [block] * 1000)
        first = next(Store(root).logs())
        old = first.name.split("_")[1].removesuffix(".jsonl")
        for _ in range(199):
            new = new_session_id()
            copy = first.with_name(first.name.replace(old, new))
            copy.write_bytes(first.read_bytes().replace(old.encode(), new.encode()))
        code = (
            "import resource, sys, time; from pathlib import Path;"
            "from awl.store.files import Store; s = Store(Path(sys.argv[1]));"
            "t = time.perf_counter(); assert len(s.list().sessions) == 200;"
            "a = time.perf_counter() - t; t = time.perf_counter(); s.list();"
            "b = time.perf_counter() - t;"
            "m = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024;"
            "print(f'200 logs of {sys.argv[2]} MB: first list {a:.1f} s, warm {1e3 * b:.1f} ms,"
            " peak {m} MB')"
        )
        size = str(first.stat().st_size // 1_000_000)
        subprocess.run([sys.executable, "-c", code, str(root), size], check=True)


def search() -> None:
    chance = random.Random(1)  # noqa: S311
    letters = "etaoinshrdlucmfwypvbgk"
    vocabulary = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(40_000)]
    weights = [1 / (rank + 10) for rank in range(len(vocabulary))]

    texts: list[str] = []

    def kept(number: int) -> list[str]:
        made = [" ".join(chance.choices(vocabulary, weights, k=100))[:640] for _ in range(5000)]
        for at in range(0, 5000, 100):
            made[at] += " Zebrafish"
            made[at + 1] += " 明天下午三点开会"
        texts.extend(made)
        return made

    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        fill(root, 20, kept)
        size = sum(len(text.encode()) for text in texts)
        store = Store(root)
        begun = time.perf_counter()
        store.list()
        listed = time.perf_counter()
        store.search("x", limit=1)
        print(f"list {listed - begun:.1f} s, texts {time.perf_counter() - listed:.1f} s")
        store.close()
        index = sum(path.stat().st_size for path in (root / ".awl").glob("index.db*"))
        print(f"{len(texts)} messages, {size / 1e6:.0f} MB: index {index / size:.2f} x the text")
        two = f"{vocabulary[0]} {vocabulary[300]}"
        for query in ("zebrafish", vocabulary[0], two, "ebrafis", "下午", "zq", "e e", "$%&"):
            _search(store, query, texts)
        store.close()


def _search(store: Store, query: str, texts: list[str]) -> None:
    needle = query.lower()
    base = best(lambda: [i for i, t in enumerate(texts) if needle in t.lower()], 3)
    taken = best(lambda: store.search(query, limit=50), 5)
    found = len(store.search(query, limit=50).hits)
    print(
        f"search {query!r}: floor {1e3 * base:.0f} ms, {1e3 * taken:.1f} ms"
        f" = {taken / base:.3f} x, {found} hits"
    )


WORK: dict[str, Callable[[], None]] = {
    "lists": lists,
    "process": process,
    "memory": memory,
    "search": search,
}

if __name__ == "__main__":
    for what in sys.argv[1:] or WORK:
        WORK[what]()
