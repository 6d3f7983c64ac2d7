"""Mistral Vibe's list and its reading of session folders, as its older versions wrote them.

What its runtime writes today is inside a compiled program.
"""

import json
from pathlib import Path

from vibe.core.config import SessionLoggingConfig
from vibe.core.session.session_loader import MESSAGES_FILENAME, METADATA_FILENAME, SessionLoader

NEEDS = ("mistral-vibe",)
NOTES = {
    "append": "what its runtime writes is inside a compiled program",
    "search": "it has none",
    "fork": "inside that program",
}
TIME = "2026-04-25T17:40:15.990000+00:00"


class Peer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = SessionLoggingConfig(save_dir=str(folder))

    def _make(self, name: str, texts: list[str]) -> None:
        session = self.folder / f"session_{name}"
        session.mkdir()
        meta = {
            "session_id": name,
            "start_time": TIME,
            "end_time": TIME,
            "title": texts[0][:50],
            "environment": {"working_directory": "/home/dev"},
            "total_messages": len(texts),
        }
        (session / METADATA_FILENAME).write_text(json.dumps(meta))
        with (session / MESSAGES_FILENAME).open("w") as file:
            for n, text in enumerate(texts):
                said = {"role": ("user", "assistant")[n % 2], "content": text}
                file.write(json.dumps(said) + "\n")

    def fill(self, texts: list[str]) -> None:
        self._make("one", texts)

    def load(self) -> int:
        return len(SessionLoader.load_session(self.folder / "session_one")[0])

    def sessions(self, count: int) -> None:
        for n in range(count):
            self._make(f"s{n}", [f"Fix the parser {n}"])

    def list(self) -> int:
        return len(SessionLoader.list_sessions(self.config))  # its index is kept by the process
