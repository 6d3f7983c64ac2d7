"""The steps of one store, in its own environment: `python drive.py ADAPTER`.

Each line of stdin is [STEP, FOLDER, N] as JSON. The answer is a line with the seconds that the step
took, for each of its appends if it is that, and what it found; or with nothing if the store has no
such step. Before the clock starts, everything is imported, texts are made, the session is opened
and has got five messages, and a list, or a search for something else, has been asked for once.
After it has stopped, the session is closed and what the step made is removed.
"""

import contextlib
import gc
import importlib.util
import json
import sys
import time
from pathlib import Path

LONG = 2.0
"""Seconds: a store whose appends would take longer gets fewer of them."""
WORDS = ("wildebeest", "zebrafish")
"""What is searched for, before the clock starts and then: who was asked once may remember. One
message of a hundred has both."""

spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


def run(step: str, folder: str, count: int) -> dict:
    if not hasattr(module.Peer, step):
        return {}
    peer = module.Peer(Path(folder))
    try:
        if hasattr(peer, "prepare"):
            peer.prepare(step)
        return timed(peer, step, count)
    finally:
        if hasattr(peer, "close"):
            peer.close()


def timed(peer, step: str, count: int) -> dict:
    work, given, times = getattr(peer, step), [], 1
    if step in ("append", "fill", "index"):
        given = [[text(n) for n in range(count)]]
    if step == "append":
        peer.append(given[0][:1])
        times = min(count, max(5, int(LONG / seconds(peer.append, given[0][1:5])[0] * 4)))
        given = [given[0][:times]]
    if step == "sessions":
        given = [count]
    if step == "list":
        work()
    if step == "search":
        work(WORDS[0])
        given = [WORDS[1]]
    took, found = seconds(work, *given)
    return {"seconds": took / times, "times": times, "found": found}


def seconds(work, *given):
    gc.collect()
    begun = time.perf_counter()
    found = work(*given)
    return time.perf_counter() - begun, found


def text(n: int) -> str:
    return f"{n}: " + "words of a message " * 15 + " ".join(WORDS if n % 100 == 0 else ())


for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):  # what a store prints is no answer
        try:
            answer = run(*json.loads(line))
        except Exception as error:
            answer = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
