"""The document: everything is in it, and nothing in it acts."""

from __future__ import annotations

import re
from pathlib import Path

from formats.exported import everything, source_of
from hypothesis import given
from hypothesis import strategies as st

from awl.conversation import Image, Message, ModelRef, ToolResult, text_message
from awl.entries import NoteEntry
from awl.formats.markdown import _words, write
from awl.session import Session


def document(path: Path) -> str:
    return b"".join(write(source_of(path))).decode()


def test_all_that_was_said_is_there_and_branches_say_so(tmp_path: Path) -> None:
    text = document(everything(tmp_path))
    for words in (
        "Fix module 4",
        "Module 4 is done",
        "The other way.",
        "I was about",
        "You are awl",
    ):
        assert words in text
    assert text.count("(not on the current path)") == 4 * 3  # prompt and two answers of each
    assert "mend the modules" in text
    assert "use a regex" in text
    assert text.startswith("# Fix module 0")


def test_tool_calls_are_folded_with_input_output_time_and_error(tmp_path: Path) -> None:
    text = document(everything(tmp_path))
    assert "<summary>bash {&quot;command&quot;:&quot;ls -la&quot;} 1.2 s</summary>" in text
    assert text.count("total 0") == 5  # once a call, though it was logged twice
    assert text.count("(error)</summary>") == 5
    assert "[image, image/png" in text
    assert text.count("<details>") == text.count("</details>")


def test_results_without_their_call_and_notes_with_pictures_are_there(tmp_path: Path) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude-x"))
    picture = Image(mime_type="image/png", blob=session.blobs.put(b"a picture"))
    session.append_message(text_message("user", "go"))
    for name, images in (("gone", ()), ("lost", (picture,))):
        result = ToolResult(tool_use_id=name, content=f"{name} words", images=images)
        session.append_message(Message("user", (result,)))
    session.append(NoteEntry(kind="pi:custom", text="a note", images=(picture,)))
    session.close()
    text = document(session.path)
    assert "gone words" in text
    assert "lost words" in text
    assert text.count("*[image, image/png, 9 bytes]*") == 2


def test_nothing_stored_is_markup_or_a_control_sequence(tmp_path: Path) -> None:
    text = document(everything(tmp_path))
    assert "\x1b" not in text
    assert "\u202e" not in text
    outside = "".join(text.split("```")[::2])
    assert not re.search(r"(?<!\\)<(?!/?(details|summary|sub)>)", outside)


@given(st.text(alphabet="`~ab<\n ", max_size=60))
def test_an_open_fence_of_one_message_does_not_swallow_the_next(text: str) -> None:
    fence = ""
    for line in _words(text).split("\n"):
        body = line.lstrip(" ")
        indent = len(line) - len(body)
        mark = body[:1]
        run = len(body) - len(body.lstrip(mark)) if mark in ("`", "~") else 0
        rest = body[run:]
        if indent > 3 or run < 3:
            continue
        if fence:
            if mark == fence[0] and run >= len(fence) and not rest.strip():
                fence = ""
        elif mark == "~" or "`" not in rest:
            fence = mark * run
    assert fence == ""


def test_a_fence_in_a_result_cannot_end_the_block_around_it(tmp_path: Path) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("local", "small"))
    session.append_message(text_message("user", "one\n````\nopen"))
    session.append_message(text_message("assistant", "closed"), stop_reason="stop")
    session.close()
    assert "open\n````\n" in document(session.path)
