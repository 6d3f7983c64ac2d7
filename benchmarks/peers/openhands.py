"""The OpenHands SDK's EventLog: a file an event."""

from pathlib import Path

from openhands.sdk import LocalFileStore
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.event import MessageEvent
from openhands.sdk.llm import Message, TextContent

NEEDS = ("openhands-sdk",)


class Peer:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = EventLog(LocalFileStore(str(folder)))

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            role, source = (("user", "user"), ("assistant", "agent"))[n % 2]
            message = Message(role=role, content=[TextContent(text=text)])
            self.log.append(MessageEvent(source=source, llm_message=message))

    fill = append

    def load(self) -> int:
        return sum(1 for _ in EventLog(LocalFileStore(str(self.folder))))
