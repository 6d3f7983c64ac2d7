"""One measured step of one store, in its own environment: `python drive.py ADAPTER STEP FOLDER N`.

Prints the seconds that the step took and what it counted, as JSON. What is not measured (imports,
opening, making the texts, the first list) happens before the clock starts.
"""

import importlib.util
import json
import sys
import time
from pathlib import Path

adapter, step, folder, count = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
spec = importlib.util.spec_from_file_location("adapter", adapter)
assert spec is not None
assert spec.loader is not None
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
peer = module.Peer(folder)
texts = [f"{n}: " + "words of a message " * 15 for n in range(count)]
if step == "append":
    peer.append(texts[:5])
if step == "list":
    peer.list()
begun = time.perf_counter()
found = {
    "append": lambda: peer.append(texts),
    "fill": lambda: peer.fill(texts),
    "load": lambda: peer.load(),
    "fork": lambda: peer.fork(),
    "sessions": lambda: peer.sessions(count),
    "list": lambda: peer.list(),
}[step]()
print(json.dumps({"seconds": time.perf_counter() - begun, "count": found}))
