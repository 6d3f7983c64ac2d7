"""SQLite itself, as one would write it by hand: WAL, synchronous FULL, a row a message, FTS5."""

import json
import sqlite3
from pathlib import Path

NEEDS = ()
FOUND = """
SELECT snippet(words, 0, '[', ']', '…', 16) FROM words WHERE words MATCH ? ORDER BY rank LIMIT 50
"""


class Peer:
    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "bare.db", isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS said (seq INTEGER PRIMARY KEY, session, body)")
        self.db.execute("CREATE INDEX IF NOT EXISTS of ON said (session)")

    def _row(self, text: str, n: int) -> tuple[str, str]:
        return "one", json.dumps({"role": ("user", "assistant")[n % 2], "content": text})

    def append(self, texts: list[str]) -> None:
        for n, text in enumerate(texts):
            self.db.execute("INSERT INTO said (session, body) VALUES (?, ?)", self._row(text, n))

    def fill(self, texts: list[str]) -> None:
        rows = [self._row(text, n) for n, text in enumerate(texts)]
        with self.db:
            self.db.execute("BEGIN")
            self.db.executemany("INSERT INTO said (session, body) VALUES (?, ?)", rows)

    def load(self) -> int:
        rows = self.db.execute("SELECT body FROM said WHERE session = 'one' ORDER BY seq")
        return len([json.loads(body) for (body,) in rows])

    def index(self, texts: list[str]) -> None:
        with self.db:
            self.db.execute("BEGIN")
            self.db.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
            rows = [(text,) for text in texts]
            self.db.executemany("INSERT INTO words (text) VALUES (?)", rows)

    def search(self, word: str) -> int:
        return len(self.db.execute(FOUND, (word,)).fetchall())

    def fork(self) -> None:
        copied = "SELECT 'two', body FROM said WHERE session = 'one'"
        self.db.execute(f"INSERT INTO said (session, body) {copied}")

    def sessions(self, count: int) -> None:
        with self.db:
            self.db.execute("BEGIN")
            rows = [(f"s{n}", "{}") for n in range(count)]
            self.db.executemany("INSERT INTO said (session, body) VALUES (?, ?)", rows)

    def list(self) -> int:
        found = "SELECT session, count(*), max(seq) FROM said GROUP BY session"
        return len(self.db.execute(found).fetchall())

    def close(self) -> None:
        self.db.execute("DELETE FROM said WHERE session = 'two'")
        self.db.close()
