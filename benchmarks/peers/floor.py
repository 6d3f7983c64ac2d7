"""What no store can do better: the bytes written and synced, read and decoded."""

import json
import os
from pathlib import Path

NEEDS = ()


def line(text: str, n: int) -> bytes:
    message = {"role": ("user", "assistant")[n % 2], "content": [{"type": "text", "text": text}]}
    entry = {"type": "message", "id": f"{n:08x}", "parentId": f"{n - 1:08x}", "message": message}
    return json.dumps(entry).encode() + b"\n"


class Peer:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "floor.jsonl"
        self.many = folder / "many"

    def append(self, texts: list[str]) -> None:
        lines = [line(text, n) for n, text in enumerate(texts)]
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for one in lines:
            os.write(fd, one)
            os.fdatasync(fd)
        os.close(fd)

    def fill(self, texts: list[str]) -> None:
        with self.path.open("ab") as file:
            file.writelines(line(text, n) for n, text in enumerate(texts))

    def load(self) -> int:
        with self.path.open("rb") as file:
            return len([json.loads(one) for one in file])

    def fork(self) -> None:
        copy = self.path.with_suffix(".copy")
        copy.write_bytes(self.path.read_bytes())
        fd = os.open(copy, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        copy.unlink()

    def sessions(self, count: int) -> None:
        self.many.mkdir(exist_ok=True)
        for n in range(count):
            (self.many / f"{n}.jsonl").write_bytes(line("Fix the parser", n))

    def list(self) -> int:
        return len([entry.stat() for entry in os.scandir(self.many)])
