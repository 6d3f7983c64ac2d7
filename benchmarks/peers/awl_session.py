"""awl's own Session and Store, driven as the others are."""

from pathlib import Path

from awl.conversation import ModelRef, text_message
from awl.session import Session
from awl.store.files import Store

NEEDS = ()
MODEL = ModelRef("anthropic", "claude-1")


class Peer:
    def __init__(self, folder: Path) -> None:
        self.store = Store(folder / "sessions")
        self.folder = folder

    def _session(self) -> Session:
        found = sorted(self.store.logs())
        return Session.open(found[0]) if found else self.store.create(str(self.folder), MODEL)

    def append(self, texts: list[str]) -> None:
        session = self._session()
        for n, text in enumerate(texts):
            session.append_message(text_message(("user", "assistant")[n % 2], text))
        session.close()

    def fill(self, texts: list[str]) -> None:
        session = self._session()
        session.append_many(
            [
                session.message_entry(text_message(("user", "assistant")[n % 2], text))
                for n, text in enumerate(texts)
            ]
        )
        session.close()

    def load(self) -> int:
        session = self._session()
        count = len(session.conversation)
        session.close()
        return count

    def fork(self) -> None:
        self.store.fork(next(iter(self.store.logs())))

    def sessions(self, count: int) -> None:
        for n in range(count):
            session = self.store.create(str(self.folder), MODEL)
            session.append_message(text_message("user", f"Fix the parser {n}"))
            session.close()

    def list(self) -> int:
        return len(self.store.list().sessions)
