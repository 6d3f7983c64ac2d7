"""The OpenAI Agents SDK's SQLiteSession, its default store."""

import asyncio
from pathlib import Path

from agents import SQLiteSession

NEEDS = ("openai-agents",)


def item(text: str, n: int) -> dict:
    return {"role": ("user", "assistant")[n % 2], "content": text}


class Peer:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "sessions.db")
        self.session = SQLiteSession("one", self.path)
        self.loop = asyncio.new_event_loop()

    def append(self, texts: list[str]) -> None:
        async def work() -> None:
            for n, text in enumerate(texts):
                await self.session.add_items([item(text, n)])

        self.loop.run_until_complete(work())

    def fill(self, texts: list[str]) -> None:
        items = [item(text, n) for n, text in enumerate(texts)]
        self.loop.run_until_complete(self.session.add_items(items))

    def load(self) -> int:
        return len(self.loop.run_until_complete(self.session.get_items()))
