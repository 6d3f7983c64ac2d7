"""The steps of one store, in its own environment: `python drive.py ADAPTER`.

Each line of stdin is [STEP, FOLDER, N] as JSON; the answer is a line with the seconds that the step
took, or none if the store has no such step. What is not measured (imports, opening, making the
texts, the first list)
happens before the clock starts.
"""

import contextlib
import gc
import importlib.util
import json
import sys
import time
from pathlib import Path

spec = importlib.util.spec_from_file_location("adapter", sys.argv[1])
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)


def run(step: str, folder: str, count: int) -> dict:
    if not hasattr(module.Peer, step):
        return {}
    peer = module.Peer(Path(folder))
    texts = [f"{n}: " + "words of a message " * 15 for n in range(count)]
    work = getattr(peer, step)
    if step == "append":
        peer.append(texts[:5])
    if step == "list":
        peer.list()
    given = {"append": [texts], "fill": [texts], "sessions": [count]}.get(step, [])
    gc.collect()
    begun = time.perf_counter()
    work(*given)
    return {"seconds": time.perf_counter() - begun}


for line in sys.stdin:
    with contextlib.redirect_stdout(sys.stderr):  # what a store prints is no answer
        try:
            answer = run(*json.loads(line))
        except Exception as error:
            answer = {"problem": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
