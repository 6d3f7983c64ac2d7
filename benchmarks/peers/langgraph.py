"""LangGraph's SqliteSaver: one checkpoint of the whole state a message, as a graph writes them."""

import uuid
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

NEEDS = ("langgraph", "langgraph-checkpoint-sqlite")
MOST = 1_000  # a checkpoint holds the whole state: what n messages take grows with n squared


class Peer:
    def __init__(self, folder: Path) -> None:
        self._opened = SqliteSaver.from_conn_string(str(folder / "checkpoints.db"))
        self.saver = self._opened.__enter__()
        self.messages: list = []

    def _put(self, thread: str = "one") -> None:
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid.uuid1())
        checkpoint["channel_values"] = {"messages": list(self.messages)}
        checkpoint["channel_versions"] = {"messages": len(self.messages)}
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        self.saver.put(config, checkpoint, {"source": "loop", "step": len(self.messages)}, {})

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            self.messages.append((HumanMessage, AIMessage)[n % 2](content=text))
            self._put()

    def fill(self, texts: list[str]) -> None:
        self.messages = [(HumanMessage, AIMessage)[n % 2](content=t) for n, t in enumerate(texts)]
        self._put()

    def load(self) -> int:
        found = self.saver.get({"configurable": {"thread_id": "one"}})
        self.messages = found["channel_values"]["messages"]
        return len(self.messages)
