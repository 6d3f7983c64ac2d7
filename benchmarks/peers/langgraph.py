"""LangGraph's SqliteSaver: one checkpoint of the whole state a message, as a graph writes them."""

from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

NEEDS = ("langgraph", "langgraph-checkpoint-sqlite")
NOTES = {
    "append": "each writes the whole state once more",
    "list": "it lists checkpoints, not conversations",
    "search": "it has none",
    "fork": "it has none; an older checkpoint is gone on from in the same thread",
}


def message(text: str, n: int) -> HumanMessage | AIMessage:
    return (HumanMessage, AIMessage)[n % 2](content=text)


class Peer:
    def __init__(self, folder: Path) -> None:
        self.opened = SqliteSaver.from_conn_string(str(folder / "checkpoints.db"))
        self.saver = self.opened.__enter__()
        self.config = {"configurable": {"thread_id": "one", "checkpoint_ns": ""}}
        self.messages: list = []

    def prepare(self, step: str) -> None:
        if step == "append" and (found := self.saver.get_tuple(self.config)):
            self.config = found.config
            self.messages = found.checkpoint["channel_values"]["messages"]

    def _put(self) -> None:
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": list(self.messages)}
        checkpoint["channel_versions"] = {"messages": len(self.messages)}
        about = {"source": "loop", "step": len(self.messages)}
        self.config = self.saver.put(self.config, checkpoint, about, {})

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            self.messages.append(message(text, n))
            self._put()

    def fill(self, texts: list[str]) -> None:
        self.messages = [message(text, n) for n, text in enumerate(texts)]
        self._put()

    def load(self) -> int:
        return len(self.saver.get(self.config)["channel_values"]["messages"])

    def close(self) -> None:
        self.opened.__exit__(None, None, None)
