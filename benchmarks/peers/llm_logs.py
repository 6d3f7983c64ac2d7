"""llm's LogStore; its list and its search are what `llm logs` asks it for."""

from pathlib import Path

import llm
import sqlite_utils
from llm.logs import LogStore, merged_log_rows
from llm.parts import Message, TextPart

NEEDS = ("llm", "sqlite-utils")
NOTES = {
    "list": "of prompts with their answers, as `llm logs` has it",
    "search": "of prompts with their answers, as `llm logs -q` has it",
    "fork": "a pointer; nothing is copied",
}


def message(text: str, n: int) -> Message:
    return Message(role=("user", "assistant")[n % 2], parts=[TextPart(text=text)])


class Says(llm.Model):
    """A model that answers with what it is given."""

    model_id = "says"

    def __init__(self) -> None:
        self.answer = "It is done."

    def execute(self, prompt, stream, response, conversation=None):
        yield self.answer


class Peer:
    def __init__(self, folder: Path) -> None:
        self.store = LogStore(sqlite_utils.Database(str(folder / "logs.db")))
        self.store.ensure_thread("one")

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            self.store.append("one", [message(text, n)])

    def fill(self, texts: list[str]) -> None:
        with self.store.db.atomic():
            self.store.append("one", [message(text, n) for n, text in enumerate(texts)])

    def load(self) -> int:
        return len(self.store.thread_messages("one"))

    def fork(self) -> None:
        self.store.fork(self.store.thread_tip("one"))

    def index(self, texts: list[str]) -> None:
        model = Says()
        with self.store.db.atomic():
            for prompt, model.answer in zip(texts[::2], texts[1::2], strict=True):
                response = model.prompt(prompt)
                response.text()
                self.store.log(response)

    def search(self, word: str) -> int:
        return len(merged_log_rows(self.store, count=50, query=word))

    def sessions(self, count: int) -> None:
        self.index([f"Fix the parser {n}" for n in range(2 * count)])

    def list(self) -> int:
        return len(merged_log_rows(self.store))

    def close(self) -> None:
        self.store.db.close()
