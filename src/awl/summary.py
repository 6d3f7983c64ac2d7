"""From what a model answers to a summary that counts. Pure.

A model that can fill in a form gives its fields. One that cannot writes JSON, headings or plain
sentences; all are read. What says nothing about the record, or says the same thing over and over,
is no summary, however it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from awl.conversation import ContentBlock, Text, ToolUse, parse_input
from awl.entries import Summary
from awl.providers import ToolSpec

_LIST: Final = {"type": "array", "items": {"type": "string"}}
FORM: Final = ToolSpec(
    "record_summary",
    "Keeps the summary of a conversation.",
    {
        "type": "object",
        "properties": {
            "session_intent": {
                "type": "string",
                "description": "What the user wants, and what came of it so far.",
            },
            "files_modified": {**_LIST, "description": "Files that were made or changed."},
            "decisions_made": {**_LIST, "description": "What was decided or found out, and why."},
            "open_questions": {**_LIST, "description": "What is not settled."},
            "next_steps": {**_LIST, "description": "What was going to be done next."},
        },
        "required": [
            "session_intent",
            "files_modified",
            "decisions_made",
            "open_questions",
            "next_steps",
        ],
        "additionalProperties": False,
    },
)
"""The form that a summary is asked for in, where a model can be made to fill in one."""

MOST_LINES: Final = 100
"""Of each list in a summary."""

_LONGEST_LINE: Final = 500
_FORM_LIKE: Final = 2
"""An answer with more fields than this is a form that was filled in."""

_LEAST_WORDS: Final = 4
"""Words that plain sentences need to say anything."""

_SHARED: Final = 2
"""Telling words that a summary shares at least with what it stands for."""


def read_summary(content: Sequence[ContentBlock], record: str) -> Summary | None:
    """The summary that an answer gives of a record; None if it gives none that counts."""
    for block in content:
        if isinstance(block, ToolUse):
            return _if_it_counts(_from_fields(parse_input(block.input) or {}), record)
    text = "\n".join(block.text for block in content if isinstance(block, Text)).strip()
    forms = [_from_fields(fields) for fields in _objects(text)]
    best = max(forms, key=len, default={}) or _from_words(text)
    return _if_it_counts(best, record)


def merged(summaries: Sequence[Summary]) -> Summary:
    """One summary of what several tell of one part of a record each, in order."""
    return Summary(
        session_intent="\n".join(dict.fromkeys(one.session_intent for one in summaries)),
        files_modified=lines(line for one in summaries for line in one.files_modified),
        decisions_made=lines(line for one in summaries for line in one.decisions_made),
        # What was open in an earlier part, the last part knows best.
        open_questions=summaries[-1].open_questions,
        next_steps=summaries[-1].next_steps,
    )


def lines(found: Iterable[str]) -> tuple[str, ...]:
    """Entries of a list: each on one line and once, and none that says that there is none."""
    tidy = (" ".join(line.split()).lstrip("-*\u2022 ")[:_LONGEST_LINE] for line in found)
    real = (line for line in tidy if line.strip(".- ").lower() not in _NOTHING)
    return tuple(dict.fromkeys(real))[:MOST_LINES]


# -- what counts -----------------------------------------------------------------------------------

_NOTHING: Final = frozenset({"", "none", "n/a", "nothing", "null", "unknown", "not applicable"})
_NO_SPACES: Final = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
"""Scripts that write words without spaces between them: each sign counts as a word."""
_WORD: Final = re.compile(rf"[{_NO_SPACES}]|(?:(?![{_NO_SPACES}])[^\W_])+")
_TELLS_NOTHING: Final = frozenset(
    {"about", "assistant", "been", "conversation", "could", "from", "have", "record", "should"}
    | {"some", "summary", "that", "their", "them", "then", "there", "these", "they", "this"}
    | {"user", "were", "what", "when", "where", "which", "will", "with", "would", "your"}
)
"""Long words that occur in any text, and those of the request itself."""


_GOES_ON: Final = re.compile(r"^\W*(?:user|assistant)\W*:|<record>", re.IGNORECASE | re.MULTILINE)
"""Signs that a model went on with the conversation instead of summarising it."""


def _if_it_counts(found: _Fields, record: str) -> Summary | None:
    """The summary, if it says something, not the same all the time, and of this record: a form
    that is filled in is believed sooner than a few words."""
    summary = Summary(**found)
    words = _words(summary.session_intent)
    if len(_GOES_ON.findall(summary.session_intent)) > 1 or _goes_round(words):
        return None
    if len(found) > _FORM_LIKE:
        return summary if len(words) > 1 and re.search(r"[^\W\d_]", "".join(words)) else None
    there = _telling(record)
    shared = _telling(" ".join((summary.session_intent, *_all_lines(summary)))) & there
    says = len(words) >= _LEAST_WORDS and len(shared) >= min(_SHARED, len(there))
    return summary if says else None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _telling(text: str) -> set[str]:
    return {
        word
        for word in _words(text)
        if word not in _TELLS_NOTHING and (len(word) >= 4 or re.match(f"[{_NO_SPACES}]", word))
    }


def _goes_round(words: list[str]) -> bool:
    """Whether it is a small model that cannot stop: most of what it says, it said before."""
    threes = list(zip(words, words[1:], words[2:], strict=False))
    return len(threes) >= 10 and len(set(threes)) < len(threes) / 2


def _all_lines(summary: Summary) -> Iterator[str]:
    yield from summary.files_modified
    yield from summary.decisions_made
    yield from summary.open_questions
    yield from summary.next_steps


# -- forms -----------------------------------------------------------------------------------------

_FIELDS: Final[Mapping[str, str]] = {
    "session intent": "session_intent",
    "intent": "session_intent",
    "goal": "session_intent",
    "summary": "session_intent",
    "files modified": "files_modified",
    "modified files": "files_modified",
    "files changed": "files_modified",
    "changed files": "files_modified",
    "files": "files_modified",
    "decisions made": "decisions_made",
    "key decisions": "decisions_made",
    "decisions": "decisions_made",
    "open questions": "open_questions",
    "questions": "open_questions",
    "next steps": "next_steps",
    "next step": "next_steps",
    "to do": "next_steps",
    "todo": "next_steps",
}
"""What models call the fields of the form, as plain words."""

_HEADING: Final = re.compile(
    rf"[\W\d]*({'|'.join(sorted(_FIELDS, key=len, reverse=True))})[*_ ]*(?::[*_ ]*(.*)|[*_#]*)",
    re.IGNORECASE,
)
_PREAMBLE: Final = re.compile(r"\A(?:here(?:'s| is)|sure|summary)\b[^\n:]{0,80}:\s*", re.IGNORECASE)
_CODE: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


_Fields = dict[str, Any]
"""What was found of a summary, by field."""


def _from_fields(fields: Mapping[str, Any]) -> _Fields:
    named: _Fields = {}
    for name, value in fields.items():
        plain = re.sub(r"(?<=[a-z])(?=[A-Z])|[\W_]+", " ", name).strip().lower()
        if plain in _FIELDS:
            named[_FIELDS[plain]] = value
    return {
        name: " ".join(_strings(value)).strip()
        if name == "session_intent"
        else lines(_strings(value))
        for name, value in named.items()
    }


def _strings(value: Any) -> Iterator[str]:
    """The words of a field, whatever it was filled in with."""
    if isinstance(value, str):
        yield from value.split("\n")
    elif isinstance(value, Mapping):
        yield ": ".join(part for one in value.values() for part in _strings(one))
    elif isinstance(value, Sequence):
        for one in value:
            yield from _strings(one)
    elif value is not None:
        yield str(value)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            yield value
        start = text.find("{", start + 1)


def _from_words(text: str) -> _Fields:
    """What is told under headings; without any, all of it is the intent."""
    found: dict[str, list[str]] = {"session_intent": []}
    field = "session_intent"
    for line in _PREAMBLE.sub("", _CODE.sub("", text).strip()).split("\n"):
        heading = _HEADING.fullmatch(line.strip())
        if heading is not None:
            field = _FIELDS[heading[1].lower()]
            line = heading[2] or ""
        found.setdefault(field, []).append(line)
    intent = "\n".join(found.pop("session_intent")).strip()
    return {"session_intent": intent, **{name: lines(value) for name, value in found.items()}}
