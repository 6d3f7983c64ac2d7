"""Conversations that are kept without a log: `[session] enabled = false`.

Only who said what, in words, is kept, in `conversations.db`. The rest of the session (calls,
results, reasoning) is in memory and ends with the process. With sessions enabled again, `with_log`
gives such a conversation a log, whose first entry tells what was said before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from awl.conversation import ModelRef, Role, text_message
from awl.entries import (
    EndReason,
    Entry,
    Header,
    ImportedText,
    ImportEntry,
    LoggedMessage,
    MessageEntry,
)
from awl.errors import AwlError
from awl.index.conversations import Conversations, Logless, Said
from awl.log.blobs import MemoryBlobs
from awl.log.durable import create_private, make_directories
from awl.log.lock import name_owner, open_locked, owner_path
from awl.session import Session, new_header
from awl.state import State


class Hold:
    """The right to go on with a conversation that has no log. One process has it at a time; it
    dies with the process.

    Raises:
        SessionBusy: another process has it; the error names it.
        OSError: it cannot be had at all.
    """

    def __init__(self, conversations: Conversations, session_id: str) -> None:
        self._path = conversations.lock_path(session_id)
        self._pid = os.getpid()
        self._fd = -1
        make_directories(self._path.parent)
        while self._fd < 0:
            with contextlib.suppress(FileExistsError):
                os.close(create_private(self._path))
            with contextlib.suppress(FileNotFoundError):  # who had it has just let go of it
                self._fd = open_locked(self._path)
        name_owner(self._path)

    def release(self) -> None:
        """Let go of it. Without effect the second time, and in a process forked from the holder."""
        if self._fd < 0:
            return
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                owner_path(self._path).unlink(missing_ok=True)
                self._path.unlink()
        os.close(self._fd)
        self._fd = -1


class _Held(Session):
    """A session that is held although it has no log yet, or never."""

    hold: Hold | None = None

    def close(self, reason: EndReason = "user_quit") -> None:
        super().close(reason)
        if self.hold is not None:
            self.hold.release()


class LoglessSession(_Held):
    """A session whose words are rows of `conversations`."""

    def __init__(self, conversations: Conversations, header: Header) -> None:
        state = State(header)
        state.settle()
        super().__init__(conversations.path, header, state, None)
        self.kept = False
        self.blobs = MemoryBlobs()
        self._conversations = conversations
        self._has_rows = self._loading = False

    @classmethod
    def begin(cls, conversations: Conversations, cwd: str, model: ModelRef) -> LoglessSession:
        """A new conversation; its rows appear with the first prompt."""
        return cls(conversations, new_header(cwd, model))

    @classmethod
    def go_on(cls, conversations: Conversations, before: Logless, hold: Hold) -> LoglessSession:
        """A conversation that has rows, as they are since it is held."""
        header = new_header(
            before.cwd, before.model, session_id=before.session_id, created=before.created
        )
        session = cls(conversations, header)
        session.hold = hold
        if before.said:
            session._fold_rows(before.said)
        session._has_rows = True
        return session

    @property
    def resumable(self) -> bool:
        return self._has_rows

    def _fold_rows(self, rows: Sequence[Said]) -> None:
        """Take in what the rows say, without making them anew."""
        self._loading = True
        self.append_many([_entry(said) for said in rows])
        self._loading = False

    def _keep(self, data: bytes, entries: Sequence[Entry]) -> None:
        said = [
            Said(entry.message.role, text, entry.timestamp)
            for entry in entries
            if isinstance(entry, MessageEntry)
            and entry.message.role != "system"
            and (text := entry.message.said().text).strip()
        ]
        if said and not self._loading:
            header = self.header
            facts = Logless(header.id, self.cwd, self.active_model, header.timestamp, ())
            try:
                if self.hold is None:
                    self.hold = Hold(self._conversations, header.id)
                self._conversations.append(facts, said)
            except AwlError as error:
                raise OSError(str(error)) from error  # like a disk that cannot be written
            self._has_rows = True


def with_log(root: Path, before: Logless, cwd: str, hold: Hold) -> Session:
    """A session under the id of a conversation that has no log, as it is since it is held. Its log
    appears with the first append, and begins with what was said before."""
    session = _Held.create(
        root,
        cwd,
        before.model,
        session_id=before.session_id,
        created=before.created,
        opening=(_legacy(before),),
    )
    session.hold = hold
    return session


def given_log(root: Path, before: Logless) -> Session:
    """As `with_log`, in its own directory, and the log is there at once. It is held meanwhile."""
    session = Session.create(
        root,
        before.cwd,
        before.model,
        session_id=before.session_id,
        created=before.created,
    )
    session.append(_legacy(before))
    return session


def _legacy(before: Logless) -> ImportEntry:
    texts = tuple(ImportedText(said.role, said.text) for said in before.said)
    return ImportEntry(source="legacy", message_count=len(texts), messages=texts)


def _entry(said: Said) -> MessageEntry:
    role: Role = "assistant" if said.role == "assistant" else "user"
    message = LoggedMessage.of(text_message(role, said.text))
    return MessageEntry(timestamp=said.timestamp, message=message)
