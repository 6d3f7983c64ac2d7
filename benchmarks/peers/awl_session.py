"""awl's own Session and Store, driven as the others are."""

from pathlib import Path

from awl.conversation import Message, ModelRef, text_message
from awl.session import Session
from awl.store.files import Store

NEEDS = ()
NOTES = {"load": "opened to be gone on with, which syncs what is there"}
MODEL = ModelRef("anthropic", "claude-1")


def message(text: str, n: int) -> Message:
    return text_message(("user", "assistant")[n % 2], text)


class Peer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / "sessions")
        self.log = next(self.store.logs(), None)
        self.session: Session | None = None
        self.child: Path | None = None

    def prepare(self, step: str) -> None:
        if step in ("append", "fill", "index"):
            self.session = (
                Session.open(self.log) if self.log else self.store.create(str(self.folder), MODEL)
            )

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            self.session.append_message(message(text, n))

    def fill(self, texts: list[str]) -> None:
        made = [self.session.message_entry(message(text, n)) for n, text in enumerate(texts)]
        self.session.append_many(made)

    def load(self) -> int:
        self.session = Session.open(self.log)
        return len(self.session.conversation)

    index = fill

    def search(self, word: str) -> int:
        return len(self.store.search(word, limit=50).hits)

    def fork(self) -> None:
        self.child = self.store.fork(self.log)

    def sessions(self, count: int) -> None:
        for n in range(count):
            session = self.store.create(str(self.folder), MODEL)
            session.append_message(message(f"Fix the parser {n}", 0))
            session.close()

    def list(self) -> int:
        return len(self.store.list().sessions)

    def close(self) -> None:
        if self.session:
            self.session.close()
        if self.child:
            self.child.unlink()
        self.store.close()
