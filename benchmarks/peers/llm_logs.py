"""llm's LogStore."""

from pathlib import Path

import sqlite_utils
from llm.logs import LogStore
from llm.parts import Message, TextPart

NEEDS = ("llm", "sqlite-utils")


def message(text: str, n: int) -> Message:
    return Message(role=("user", "assistant")[n % 2], parts=[TextPart(text=text)])


class Peer:
    def __init__(self, folder: Path) -> None:
        self.store = LogStore(sqlite_utils.Database(str(folder / "logs.db")))
        self.store.ensure_thread("one")

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            self.store.append("one", [message(text, n)])

    def fill(self, texts: list[str]) -> None:
        self.store.append("one", [message(text, n) for n, text in enumerate(texts)])

    def load(self) -> int:
        return len(self.store.thread_messages("one"))

    def fork(self) -> None:
        self.store.fork(self.store.thread_tip("one"))

    def sessions(self, count: int) -> None:
        for n in range(count):
            self.store.append(self.store.ensure_thread(f"t{n}"), [message(f"Fix {n}", 0)])

    def list(self) -> int:
        return len(list(self.store.db["threads"].rows))
