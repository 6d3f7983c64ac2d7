"""Goes from conversation to conversation without end; run by test_swap, which kills it.

`swapper.py HOME SEED`: prompts, swaps, copies and goes back in the sessions below HOME.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

from awl.access import Wish
from awl.app import begin
from awl.beginning import Wanted
from awl.config import load
from awl.errors import AwlError

MOST = 12
"""Sessions there are at most."""


async def main(home: Path, seed: int) -> None:
    chance = random.Random(seed)
    wanted = Wanted(cwd=str(home / "work"))
    app = begin(load(os.environ), os.environ, wanted, approve=None)
    while True:
        async for _ in app.prompt("go"):
            pass
        rows = (await app.sessions(None)).rows
        print("at", app.session.id, flush=True)
        try:
            if len(rows) < MOST and chance.random() < 0.5:
                await app.fork(chance.choice([None, *(row.info.id for row in rows)]), Wish())
            else:
                await app.resume(chance.choice(rows).info.id, Wish())
            if chance.random() < 0.3:
                await app.rewind("1")
        except AwlError:
            pass  # the one that is running was picked


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
