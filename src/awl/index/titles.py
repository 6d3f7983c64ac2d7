"""A session's title: the first words in it that a person wrote. Pure."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 80
"""Characters of a title."""

_COMMAND: Final = re.compile(r"/[A-Za-z][\w-]*(\s|$)")
_INJECTED: Final = re.compile(r"\s*<([A-Za-z][\w:-]*)\b[^<>]*>.*?(</\1\s*>|\Z)", re.DOTALL)


class Title:
    """A title in the making: give it the prompts in order until it is `found`.

    Text that a program put in (`<context>…</context>`) and slash commands are passed over. Where
    there is nothing else, the first prompt is the title all the same.
    """

    def __init__(self, text: str = "", *, found: bool = False) -> None:
        self.text = text
        self.found = found

    def take(self, prompt: str) -> None:
        """Consider the next prompt."""
        if self.found:
            return
        words = title_of(human_words(prompt))
        if words:
            self.text, self.found = words, True
        elif not self.text:
            self.text = title_of(prompt)


def human_words(prompt: str) -> str:
    """What a person wrote of a prompt; empty when it is a slash command or all of it was put in."""
    while (injected := _INJECTED.match(prompt)) is not None:
        prompt = prompt[injected.end() :]
    return "" if _COMMAND.match(prompt.strip()) else prompt


def title_of(prompt: str) -> str:
    """A title from a prompt: its first line that has words."""
    first = next((line.strip() for line in prompt.split("\n") if line.strip()), "")
    return first if len(first) <= LONGEST else first[: LONGEST - 1].rstrip() + "…"
