"""A session that holds one of everything a person would look for in an export."""

from __future__ import annotations

import base64
from pathlib import Path

from awl.conversation import (
    Image,
    Message,
    ModelRef,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    text_message,
)
from awl.entries import (
    CondensationEntry,
    PartialBlock,
    PartialEntry,
    Summary,
    ToolCallEntry,
    ToolResultEntry,
)
from awl.formats.format import Source
from awl.log.blobs import Blobs
from awl.replay import read
from awl.session import Session

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
HOSTILE = "</script><script>alert(2)</script><img src=x onerror=alert(1)> \x1b[31m\u202e"
"""What a page or a terminal must not act on."""


def everything(root: Path, *, turns: int = 5) -> Path:
    """A session with tools, errors, pictures, reasoning, branches, a summary and a partial."""
    session = Session.create(root, str(root), ModelRef("anthropic", "claude-x"))
    picture = session.blobs.put(PICTURE)
    session.append_message(text_message("system", "You are awl."))
    answers = []
    for n in range(turns):
        session.append_message(text_message("user", f"Fix module {n} {HOSTILE}\nand say **why**"))
        edit = f'{{"path":"m{n}.py","old":"a\\nb","new":"a\\nc"}}'
        calls = (
            Thinking(thinking=f"The parser of {n} fails"),
            Text(text=f"I look.\n\n```python\nx = {n}\n```"),
            ToolUse(id=f"b{n}", name="bash", input='{"command":"ls -la"}'),
            ToolUse(id=f"e{n}", name="edit", input=edit),
        )
        session.append_message(Message("assistant", calls), stop_reason="toolUse", model="claude-x")
        session.append(ToolCallEntry(tool_use_id=f"b{n}", name="bash"))
        session.append(
            ToolResultEntry(
                tool_use_id=f"b{n}",
                name="bash",
                content="total 0",
                is_error=False,
                duration_ms=1200,
            )
        )
        results = (
            ToolResult(
                tool_use_id=f"b{n}",
                content="total 0",
                duration_ms=1200,
                images=(Image(mime_type="image/png", blob=picture),),
            ),
            ToolResult(tool_use_id=f"e{n}", content=f"no m{n}.py {HOSTILE}", is_error=True),
        )
        session.append_message(Message("user", results))
        done = text_message("assistant", f"Module {n} is done. 明天下午")
        answers.append(session.append_message(done, stop_reason="stop", model="claude-x"))
    session.label(answers[0], "good point")
    session.rewind(answers[0])
    session.append_message(text_message("user", "Another way, please"))
    session.append_message(text_message("assistant", "The other way."), stop_reason="stop")
    summary = Summary(session_intent="mend the modules", decisions_made=("use a regex",))
    session.append(
        CondensationEntry(replaced=(2, 4), summary=summary, tokens_before=900, tokens_after=90)
    )
    session.append_message(text_message("user", "What now?"))
    session.append(PartialEntry(content=(PartialBlock(type="text", index=0, text="I was about"),)))
    session.close()
    return session.path


def source_of(path: Path) -> Source:
    """A session as the formats are given it."""
    return Source(state=read(path), blob=Blobs(path).get)
