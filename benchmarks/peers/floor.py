"""What no store can do better: the bytes that awl writes, written and synced, read and decoded."""

import os
import shutil
from pathlib import Path

import msgspec

from awl.conversation import Text
from awl.entries import Header, KnownEntry, LoggedMessage, MessageEntry
from awl.log.line import encode

NEEDS = ()
decode = msgspec.json.Decoder(Header | KnownEntry).decode


def line(text: str, n: int) -> bytes:
    said = LoggedMessage(role=("user", "assistant")[n % 2], content=(Text(text=text),))
    return encode(
        MessageEntry(
            id=f"{n:08x}",
            parent_id=f"{n - 1:08x}" if n else None,
            timestamp="2026-04-25T17:40:15.990Z",
            seq=n + 1,
            provider="anthropic",
            model="claude-1",
            message=said,
        )
    )


class Peer:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "floor.jsonl"
        self.copy = folder / "floor.copy"
        self.many = folder / "many"
        self.fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.lines = self.path.open("rb")
        self.texts: list[str] = []

    def prepare(self, step: str) -> None:
        if step == "search":
            self.texts = [decode(one).message.content[0].text for one in self.lines]

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            os.write(self.fd, line(text, n))
            os.fdatasync(self.fd)

    def fill(self, texts: list[str]) -> None:
        self.path.write_bytes(b"".join(line(text, n) for n, text in enumerate(texts)))

    def load(self) -> int:
        return len([decode(one) for one in self.lines])

    index = fill

    def search(self, word: str) -> int:
        return len([n for n, text in enumerate(self.texts) if word in text.lower()][:50])

    def fork(self) -> None:
        shutil.copyfile(self.path, self.copy)
        fd = os.open(self.copy, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)

    def sessions(self, count: int) -> None:
        self.many.mkdir(exist_ok=True)
        for n in range(count):
            (self.many / f"{n}.jsonl").write_bytes(line("Fix the parser", n))

    def list(self) -> int:
        return len([entry.stat() for entry in os.scandir(self.many)])

    def close(self) -> None:
        os.close(self.fd)
        self.lines.close()
        self.copy.unlink(missing_ok=True)
