"""The OpenAI Agents SDK's SQLiteSession, its default store; its AdvancedSQLiteSession for forks."""

import asyncio
from pathlib import Path

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

NEEDS = ("openai-agents",)
NOTES = {
    "list": "it has none",
    "search": "it has none",
    "fork": "AdvancedSQLiteSession's, of all before the last turn; rows that point at the messages",
}


def item(text: str, n: int) -> dict:
    return {"role": ("user", "assistant")[n % 2], "content": text}


class Peer:
    def __init__(self, folder: Path) -> None:
        self.session = SQLiteSession("one", str(folder / "sessions.db"))
        self.advanced: AdvancedSQLiteSession | None = None
        self.advanced_path = str(folder / "advanced.db")
        self.turns, self.branch = 0, ""
        self.loop = asyncio.new_event_loop()

    def _run(self, work):
        return self.loop.run_until_complete(work)

    def prepare(self, step: str) -> None:
        self._run(self.session.get_items(limit=1))  # its thread has its connection
        if step == "fork":
            items = self._run(self.session.get_items())
            self.turns = sum(one["role"] == "user" for one in items)
            self.advanced = AdvancedSQLiteSession(
                session_id="one", db_path=self.advanced_path, create_tables=True
            )
            if not self._run(self.advanced.get_items(limit=1)):
                self._run(self.advanced.add_items(items))

    def append(self, texts: list[str]) -> None:
        async def work() -> None:
            for n, text in enumerate(texts):
                await self.session.add_items([item(text, n)])

        self._run(work())

    def fill(self, texts: list[str]) -> None:
        self._run(self.session.add_items([item(text, n) for n, text in enumerate(texts)]))

    def load(self) -> int:
        return len(self._run(self.session.get_items()))

    def fork(self) -> None:
        self.branch = self._run(self.advanced.create_branch_from_turn(self.turns))

    def close(self) -> None:
        if self.advanced and self.branch:
            self._run(self.advanced.delete_branch(self.branch, force=True))
        if self.advanced:
            self.advanced.close()
        self.session.close()
        self._run(self.loop.shutdown_default_executor())
        self.loop.close()
