"""The OpenHands SDK's EventLog: a file an event; its LocalConversation for forks."""

import shutil
from pathlib import Path
from uuid import UUID

from openhands.sdk import LLM, Agent, LocalFileStore
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.conversation.impl.local_conversation import LocalConversation
from openhands.sdk.event import MessageEvent
from openhands.sdk.llm import Message, TextContent

NEEDS = ("openhands-sdk",)
NOTES = {"list": "it has none", "search": "it has none"}
ONE, OTHER = UUID(int=1), UUID(int=2)


class Peer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = str(folder / ONE.hex)
        self.log = EventLog(LocalFileStore(self.files))
        self.conversation: LocalConversation | None = None

    def prepare(self, step: str) -> None:
        if step == "fork":
            self.conversation = LocalConversation(
                agent=Agent(llm=LLM(model="none", api_key="none"), tools=[]),
                workspace=str(self.folder),
                persistence_dir=str(self.folder),
                conversation_id=ONE,
                visualizer=None,
                delete_on_close=False,
            )

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            role, source = (("user", "user"), ("assistant", "agent"))[n % 2]
            message = Message(role=role, content=[TextContent(text=text)])
            self.log.append(MessageEvent(source=source, llm_message=message))

    fill = append

    def load(self) -> int:
        return sum(1 for _ in EventLog(LocalFileStore(self.files)))

    def fork(self) -> None:
        self.conversation.fork(conversation_id=OTHER)

    def close(self) -> None:
        if self.conversation:
            self.conversation.close()
            shutil.rmtree(self.folder / OTHER.hex, ignore_errors=True)
