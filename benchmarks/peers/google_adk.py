"""Google's ADK: SqliteSessionService."""

import asyncio
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part

NEEDS = ("google-adk", "aiosqlite")


def event(text: str, n: int) -> Event:
    role = ("user", "model")[n % 2]
    return Event(author=role, content=Content(role=role, parts=[Part(text=text)]))


class Peer:
    def __init__(self, folder: Path) -> None:
        self.service = SqliteSessionService(str(folder / "adk.db"))
        self.loop = asyncio.new_event_loop()

    def _run(self, work):
        return self.loop.run_until_complete(work)

    def append(self, texts: list[str]) -> None:
        async def work() -> None:
            known = {"app_name": "a", "user_id": "u", "session_id": "one"}
            session = await self.service.get_session(**known)
            if session is None:
                session = await self.service.create_session(**known)
            for n, text in enumerate(texts):
                await self.service.append_event(session, event(text, n))

        self._run(work())

    fill = append

    def load(self) -> int:
        known = {"app_name": "a", "user_id": "u", "session_id": "one"}
        return len(self._run(self.service.get_session(**known)).events)

    def sessions(self, count: int) -> None:
        async def work() -> None:
            for _ in range(count):
                session = await self.service.create_session(app_name="a", user_id="u")
                await self.service.append_event(session, event("Fix the parser", 0))

        self._run(work())

    def list(self) -> int:
        return len(self._run(self.service.list_sessions(app_name="a", user_id="u")).sessions)
