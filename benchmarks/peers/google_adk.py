"""Google's ADK: SqliteSessionService."""

import asyncio
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part

NEEDS = ("google-adk", "aiosqlite")
NOTES = {
    "search": "it has none",
    "fork": "it has none; a rewind goes on in the same session",
}
ONE = {"app_name": "a", "user_id": "u", "session_id": "one"}


def event(text: str, n: int) -> Event:
    role = ("user", "model")[n % 2]
    return Event(author=role, content=Content(role=role, parts=[Part(text=text)]))


class Peer:
    def __init__(self, folder: Path) -> None:
        self.service = SqliteSessionService(str(folder / "adk.db"))
        self.loop = asyncio.new_event_loop()
        self.session = None

    def _run(self, work):
        return self.loop.run_until_complete(work)

    def prepare(self, step: str) -> None:
        if step in ("append", "fill"):
            self.session = self._run(self.service.get_session(**ONE))
            self.session = self.session or self._run(self.service.create_session(**ONE))

    def append(self, texts: list[str]) -> None:
        async def work() -> None:
            for n, text in enumerate(texts):
                await self.service.append_event(self.session, event(text, n))

        self._run(work())

    fill = append

    def load(self) -> int:
        return len(self._run(self.service.get_session(**ONE)).events)

    def sessions(self, count: int) -> None:
        async def work() -> None:
            for _ in range(count):
                session = await self.service.create_session(app_name="a", user_id="u")
                await self.service.append_event(session, event("Fix the parser", 0))

        self._run(work())

    def list(self) -> int:
        return len(self._run(self.service.list_sessions(app_name="a", user_id="u")).sessions)

    def close(self) -> None:
        self.loop.close()
