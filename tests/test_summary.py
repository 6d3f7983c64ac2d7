"""What counts as a summary, in whatever form a model gives it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from awl.conversation import ContentBlock, Text, ToolUse
from awl.entries import Summary
from awl.summary import MOST_LINES, merged, read_summary

RECORD = """user: The parser crashes on empty input. Please fix it in src/parser.py.

assistant: It reads text[0] without checking the length. I will raise ValueError.
[edit {"path": "src/parser.py"}]
[its result] edited"""
FORM: dict[str, Any] = {
    "session_intent": "Fix the parser's crash on empty input.",
    "files_modified": ["src/parser.py"],
    "decisions_made": ["Empty input raises ValueError."],
    "open_questions": [],
    "next_steps": ["Add a test."],
}
WHOLE = Summary(
    session_intent=FORM["session_intent"],
    files_modified=("src/parser.py",),
    decisions_made=("Empty input raises ValueError.",),
    next_steps=("Add a test.",),
)


def summary(*content: ContentBlock | str, record: str = RECORD) -> Summary | None:
    blocks = [Text(text=block) if isinstance(block, str) else block for block in content]
    return read_summary(blocks, record)


def call(input: Any) -> ToolUse:
    text = input if isinstance(input, str) else json.dumps(input)
    return ToolUse(id="t", name="record_summary", input=text)


CAMEL = {
    "sessionIntent": FORM["session_intent"],
    "filesModified": FORM["files_modified"],
    "Decisions Made": FORM["decisions_made"],
    "open-questions": None,
    "NextSteps": "Add a test.",
}
HEADINGS = """## Session intent
Fix the parser's crash on empty input.

**Files modified:**
- src/parser.py

Decisions: Empty input raises ValueError.
### Open questions
None.
4. Next steps:
* Add a test."""


@pytest.mark.parametrize(
    "content",
    [
        (call(FORM),),
        ("I fill it in.", call(FORM)),
        (json.dumps(FORM),),
        ("```json\n" + json.dumps(FORM, indent=2) + "\n```",),
        ("Here is the summary:\n\n" + json.dumps(FORM) + "\nI hope that this helps {you}!",),
        (json.dumps({"summary": FORM}),),
        (json.dumps(CAMEL),),
        (HEADINGS,),
        ("Sure, here it is:\n" + HEADINGS,),
    ],
    ids=[
        "call",
        "words and a call",
        "json",
        "fence",
        "json in words",
        "nested",
        "camel",
        "headings",
        "preamble",
    ],
)
def test_forms_of_all_kinds_are_read(content: tuple[ContentBlock | str, ...]) -> None:
    assert summary(*content) == WHOLE


def test_plain_sentences_are_the_intent() -> None:
    text = "The user wants the parser to survive empty input. It was fixed in src/parser.py."
    assert summary(text) == Summary(session_intent=text)
    assert summary(f"Summary: {text}") == Summary(session_intent=text)


def test_sentences_in_scripts_without_spaces_count() -> None:
    record = "user: 空の入力で解析器が落ちます。直してください。\n\nassistant: 直しました。"
    assert summary("利用者は空の入力で落ちる解析器の修正を求め、直された。", record=record)
    assert summary("今日は天気がいい", record="user: fix the parser") is None


@pytest.mark.parametrize(
    "content",
    [
        (),
        ("",),
        (" \n\t",),
        ("Done.",),
        ("{}",),
        ("[]",),
        ("null",),
        ('{"session_intent": ""}',),
        (call({}),),
        (call("not json"),),
        (call({"session_intent": "string"}),),
        (call({**FORM, "session_intent": ""}),),
        (call({**FORM, "session_intent": "1.2"}),),
        (call({**FORM, "session_intent": "Sessions"}),),
        ("I am sorry, but as an AI language model I do not have access to that.",),
        ("Bananas grow in Ecuador and they are sold in every shop of the world.",),
        ("The parser the parser the parser the parser the parser the parser the parser.",),
        ("user: The parser crashes on empty input.\n\nassistant: I will fix the parser.",),
        ("<record>\nThe parser crashes on empty input.\n<record> again",),
        ("```python\ndef parse(text): raise ValueError('empty input for parser')\n```",),
    ],
)
def test_what_says_nothing_of_the_record_is_no_summary(
    content: tuple[ContentBlock | str, ...],
) -> None:
    assert summary(*content) is None


def test_lists_hold_single_lines_once_and_nothing_that_says_that_there_is_nothing() -> None:
    lines = ["- a.py", "a.py", "None", "n/a", "", 7, None, {"path": "b.py"}, ["c\nd"]]
    found = summary(call({**FORM, "files_modified": lines}))
    assert found is not None
    assert found.files_modified == ("a.py", "7", "b.py", "c", "d")
    many = summary(call({**FORM, "next_steps": [f"step {n}" for n in range(1000)]}))
    assert many is not None
    assert len(many.next_steps) == MOST_LINES


def test_parts_are_merged_in_order_and_what_is_open_is_known_by_the_last() -> None:
    first = Summary(
        session_intent="Fix it.", files_modified=("a",), open_questions=("why?",), next_steps=("b",)
    )
    second = Summary(session_intent="Test it.", files_modified=("a", "c"), next_steps=("d",))
    assert merged([first, second]) == Summary(
        session_intent="Fix it.\nTest it.", files_modified=("a", "c"), next_steps=("d",)
    )


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*FORM, *CAMEL, "else"]), VALUES), st.text())
def test_whatever_a_model_says_it_is_a_summary_or_none(fields: dict[str, Any], text: str) -> None:
    for content in (call(fields), json.dumps(fields), json.dumps(fields)[:-1] + text, text):
        found = summary(content)
        assert found is None or found.session_intent.strip()
