"""Markdown on a terminal while it arrives.

The output is only ever appended to: nothing that was printed is moved, erased or printed again.
So an answer of any length stands in the scrollback whole and once, whatever happens to the size of
the window, and there is nothing to flicker.

That asks for care about *when* a piece of source can be printed. The unit is the line, as models
do not wrap theirs: headings, table rows and lines of code are shown when they are complete, all
other lines word by word, except that a word waits while an inline construct is open (`**bold`,
a link, a code span). Tables wait for their last row, as the columns depend on it.
"""

from __future__ import annotations

import re
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from awl.printing import safe

_HELD: Final = 600
"""Characters that may wait for a construct to close; after that they are printed as they are."""

_LONGEST: Final = 4_096
"""Characters of a word that are printed at once, and of a line that may be more than plain text."""

_CONTEXT: Final = 2_000
"""Characters of code that give a line its context when it is coloured."""

_WIDE: Final = "\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
_CUT: Final = re.compile(rf"\S(?=\s)|[{_WIDE}](?=\S)")
_PIECE: Final = re.compile(rf"\s+|[{_WIDE}]|[^\s{_WIDE}]+")

# Possessive and unambiguous throughout: a model must not be able to make a pattern backtrack.
_QUOTE: Final = r"(?:[ \t]{0,3}(?=>))?(?:>[ \t]?)*+"
_MARK: Final = r"(?:[-*+]|\d{1,9}[.)])[ \t]++"
_PREFIX: Final = re.compile(rf"({_QUOTE})([ \t]*+)({_MARK}(?=\S))?")
_RULE: Final = re.compile(r"([-*_])(?:[ \t]*+\1){2,}+[ \t]*+")
_HEADING: Final = re.compile(r"(#{1,6})[ \t]++(?=[^#\s])")
_FENCE: Final = re.compile(r"(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`]*+")
_DELIMITERS: Final = re.compile(r"\|?(?:[ \t]*+:?-++:?[ \t]*+(?:\||\Z))++")
_UNDECIDED: Final = re.compile(
    rf"{_QUOTE}[ \t]*+(?:{_MARK})?+(?:[-*+_~` \t]*+|\d{{1,9}}+[.)]?[ \t]*+|[#|].*+|```.*+|~~~.*+)"
)
"""The beginning of a line that does not yet tell what the line is, or that must be complete."""

# What is complete in itself, most binding first; see `_is_open`.
_CLOSED: Final = (
    re.compile(r"(?<![`\\])(`+)(?!`).+?(?<!`)\1(?!`)"),
    re.compile(r"\\."),
    re.compile(r"!?\[[^\[\]]*\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+\"[^\"]*\")?\s*\)"),
    re.compile(r"(\*{1,3})(?=[^\s*])(?:[^*]*[^\s*])\1"),
    re.compile(r"(?<!\w)(_{1,3})(?=[^\s_]).*?[^\s_]\1(?!\w)"),
    re.compile(r"~~(?=\S).+?(?<=\S)~~"),
)
_OPENER: Final = re.compile(r"`|\*(?=\S)|(?<!\w)_(?=\S)|~~(?=\S)|\[[^\]]*$|\]\(")
_SPECIAL: Final = re.compile(r"[\\`*_~\[\]<&]")

_INLINE: Final = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
_STYLES: Final = {"em_open": "italic", "strong_open": "bold", "s_open": "strike"}


class MarkdownStream:
    """Prints Markdown to a console as it is fed. `column` is where the cursor stands."""

    def __init__(self, console: Console, *, style: str = "", column: int = 0) -> None:
        self._console = console
        self._style = style
        self._out = Text(end="")
        self._column = column
        self._width = console.width
        self._source = ""  # what arrived of the line and was not printed
        self._half = ""  # "\r", which may be the first half of a line's end
        self._judged = 0  # how much of the source is known to wait for a construct to close
        self._in_line = False  # its beginning was printed
        self._hang = Text()  # what later rows of the line begin with
        self._gap = ""  # white space that is printed if a word follows on the row
        self._line_style = ""
        self._started = False
        self._blank = False  # a blank line is due before what comes next
        self._code: _Code | None = None
        self._table: list[str] = []

    @property
    def at_line_start(self) -> bool:
        """Whether the cursor stands at the beginning of a row, so that a status line fits."""
        return self._column == 0

    def feed(self, text: str) -> None:
        """Print what can be printed by now."""
        self._width = self._console.width  # which asks the system each time
        text = self._half + text
        self._half = "\r" if text.endswith("\r") else ""
        *lines, rest = (self._source + safe(text.removesuffix(self._half))).split("\n")
        for line in lines:
            self._take(line, complete=True)
            if len(self._out) > _LONGEST:
                self._print()
        self._source = self._take(rest, complete=False)
        self._print_code()
        self._print()

    def finish(self) -> None:
        """Print what is left. The cursor stands at the beginning of a row after it."""
        rest = self._source + safe(self._half)
        self._source = self._half = ""
        if rest or self._in_line:
            self._take(rest, complete=True)
        self._end_table()
        self._end_code()
        if self._column:
            self._new_line()
        self._print()

    def _take(self, line: str, *, complete: bool) -> str:
        """Print of a line what can be printed; the rest of it is returned."""
        if self._in_line:
            return self._body(line, complete=complete)
        if self._code is not None:
            return self._code_line(line) if complete else line
        if len(line) <= _LONGEST:
            if not complete and (line.isspace() or _UNDECIDED.fullmatch(line)):
                return line
            if line.lstrip(" \t").startswith("|"):
                self._table.append(line)
                return ""
        self._end_table()
        if not line.strip():
            self._blank = self._started
            return ""
        return self._begin(line, complete=complete)

    def _begin(self, line: str, *, complete: bool) -> str:
        """Print the prefix of a line (quote marks, indentation, list mark), then its body."""
        match = _PREFIX.match(line)
        assert match is not None
        quote, indent, mark = match[1].count(">") * "▌ ", match[2].expandtabs(4), match[3] or ""
        body = line[match.end() :]
        special = complete and len(line) <= _LONGEST
        if special and _RULE.fullmatch(line[match.end(2) :]):
            return self._rule(quote)
        if special and (fence := _FENCE.fullmatch(body)):
            self._code = _Code(fence[1], len(match[0]), fence[2])
            self._row(Text(quote + indent + mark + body, self._mixed("dim")))
            return ""
        if special and (heading := _HEADING.match(body)):
            self._line_style = "bold underline" if heading[1] == "#" else "bold"
            body = body[heading.end() :].rstrip()
            text = body.rstrip("#")
            body = text.rstrip() if text.endswith((" ", "\t")) else body
        if mark[:1] in ("-", "*", "+"):
            mark = "• "
        hang = quote + indent + " " * len(mark)
        self._hang = Text(hang if len(hang) <= self._width // 2 else "", self._mixed("dim"))
        if self._column and (quote or mark):
            self._new_line()
        self._due_blank()
        self._put(Text(quote, self._mixed("dim")))
        self._put(Text(indent + mark, self._mixed("cyan")))
        self._in_line = True
        return self._body(body, complete=complete)

    def _body(self, body: str, *, complete: bool) -> str:
        # Piece by piece also if the line is complete: how it arrived must make no difference.
        start = 0
        while end := self._ready(body, start) or (
            len(body) if complete and start < len(body) else 0
        ):
            self._flow(_inline(body[start:end], self._mixed(self._line_style)))
            start = end
        if complete:
            self._new_line()
            self._in_line, self._line_style = False, ""
        self._judged = 0 if complete else max(self._judged - start, 0)
        return body[start:]

    def _ready(self, body: str, start: int) -> int:
        """Where the piece from `start` on ends, if it can be printed by now; else 0."""
        for match in _CUT.finditer(body, max(start, self._judged), start + _LONGEST):
            end = match.end()
            if end - start > _HELD or not _is_open(body[start:end]):
                return end
            self._judged = end
        return start + _LONGEST if len(body) - start > _LONGEST else 0

    def _flow(self, text: Text) -> None:
        """Print words, beginning a new row where the next would not fit."""
        width = self._width
        for match in _PIECE.finditer(text.plain):
            if match[0].isspace():
                self._gap += match[0].expandtabs(4)
                continue
            taken = cell_len(match[0])
            if self._column + len(self._gap) + taken > width and self._column > len(self._hang):
                self._new_line()
                self._put(self._hang)
            else:
                self._put(Text(self._gap, text.get_style_at_offset(self._console, match.start())))
            self._gap = ""
            # A word longer than a row is left to the terminal, which keeps it whole for copying.
            self._put(text[match.start() : match.end()])

    def _code_line(self, line: str) -> str:
        assert self._code is not None
        body = self._code.dedent(line)
        if self._code.closes(body):
            self._end_code()
            self._row(Text(body.strip(), self._mixed("dim")))
        else:
            self._code.waiting.append(body.expandtabs(4))
        return ""

    def _print_code(self) -> None:
        """Print the lines of code that wait: together, as colouring each alone would be slow."""
        if self._code is not None and self._code.waiting:
            text = self._code.coloured()
            self._row(Text(text.plain, self._style) if self._style else text)

    def _end_code(self) -> None:
        self._print_code()
        self._code = None

    def _rule(self, quote: str) -> str:
        self._row(Text(quote + "─" * min(40, self._width - len(quote)), self._mixed("dim")))
        return ""

    def _end_table(self) -> None:
        rows, self._table = self._table, []
        if not rows:
            return
        columns = len(_split_row(rows[0]))
        fits = self._width >= 8 * columns
        if len(rows) < 2 or not _DELIMITERS.fullmatch(rows[1].strip()) or not fits:
            for row in rows:
                self._begin(row, complete=True)
            return
        self._fresh_row()
        self._print()
        self._console.print(_table(rows, columns, self._style))

    def _row(self, text: Text) -> None:
        self._fresh_row()
        self._put(text)
        self._new_line()

    def _fresh_row(self) -> None:
        if self._column:
            self._new_line()
        self._due_blank()

    def _due_blank(self) -> None:
        if self._blank:
            self._new_line()
        self._blank, self._started = False, True

    def _put(self, text: Text) -> None:
        self._out.append_text(text)
        self._column += cell_len(text.plain)
        if self._column > self._width:  # the terminal wrapped a long word
            self._column = self._column % self._width or self._width

    def _new_line(self) -> None:
        self._out.append("\n")
        self._column, self._gap = 0, ""

    def _print(self) -> None:
        if self._out.plain:
            self._console.print(self._out, end="", soft_wrap=True)
            self._out = Text(end="")

    def _mixed(self, style: str) -> str:
        return f"{self._style} {style}".strip()


class _Code:
    """An open code block: how its fence was written, and the lines that were not printed yet."""

    def __init__(self, fence: str, indent: int, language: str) -> None:
        self._fence, self._indent = fence, indent
        lexer = Syntax("", language).lexer if language else None
        # The theme that uses the terminal's own colours: it fits light and dark ones.
        self._syntax = Syntax("", lexer, theme="ansi_dark") if lexer is not None else None
        self._before = ""
        self.waiting: list[str] = []

    def dedent(self, line: str) -> str:
        """The line without the indentation (or the quote marks) of the fence."""
        head = line[: self._indent]
        return line[len(head) :] if not head.strip(" \t>") else line

    def closes(self, body: str) -> bool:
        mark = body.strip()
        fits = len(mark) >= len(self._fence) and not mark.strip(self._fence[0])
        return fits and not body.startswith("    ")

    def coloured(self) -> Text:
        """The lines that wait, coloured as their language asks. They wait no more."""
        code, self.waiting = "\n".join(self.waiting), []
        if self._syntax is None:
            return Text(code, "cyan")
        known = f"{self._before}{code}\n"
        found = self._syntax.highlight(known)[len(self._before) : len(known) - 1]
        self._before = known if len(known) < _CONTEXT else ""
        return found if found.plain == code else Text(code)


def _is_open(source: str) -> bool:
    """Whether an inline construct may have begun that is not closed."""
    if _SPECIAL.search(source) is None:
        return False
    for closed in _CLOSED:
        source = closed.sub("x", source)
    return _OPENER.search(source) is not None


def _inline(source: str, style: str = "") -> Text:
    """A piece of a line with its bold, italic, code and links. Links show where they lead."""
    if _SPECIAL.search(source) is None:
        return Text(source, style)
    # The parser would drop white space at the edges.
    body = source.strip()
    start = source.index(body) if body else 0
    text = Text(source[:start], style)
    styles, links = [style], [(0, "")]
    for token in _INLINE.parseInline(body)[0].children or ():
        if token.type in _STYLES:
            styles.append(_STYLES[token.type])
        elif token.type == "link_open":
            styles.append("underline")
            links.append((len(text), safe(str(token.attrs["href"]))))
        elif token.type == "link_close":
            styles.pop()
            begin, href = links.pop()
            if text.plain[begin:] != href.removeprefix("mailto:"):
                text.append(f" ({href})", f"{style} cyan dim".strip())
        elif token.type in ("em_close", "strong_close", "s_close"):
            styles.pop()
        else:
            text.append(*_leaf(token, " ".join(filter(None, styles))))
    return text.append(source[start + len(body) :], style)


def _leaf(token: Token, style: str) -> tuple[str, str]:
    # `safe` again: the parser has resolved entities such as &#x202e; and &#10;.
    if token.type == "code_inline":
        return safe(token.content), f"{style} cyan".strip()
    if token.type == "image":
        return safe(f"[image: {token.content}] ({token.attrs['src']})"), style
    return safe(token.content).replace("\n", " "), style


def _split_row(row: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))
    return [cell.strip().replace("\\|", "|") for cell in cells]


def _table(rows: list[str], columns: int, style: str) -> Table:
    table = Table(
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        border_style=f"{style} dim".strip(),
        header_style="bold",
    )
    rules = [*_split_row(rows[1]), *[""] * columns]
    for title, rule in zip(_split_row(rows[0]), rules, strict=False):
        table.add_column(_inline(title, style), justify=_justify(rule), overflow="fold")
    for row in rows[2:]:
        cells = _split_row(row)
        # Cells without a column are not dropped.
        cells[columns - 1 :] = [" | ".join(cells[columns - 1 :])]
        table.add_row(*(_inline(cell, style) for cell in cells))
    return table


def _justify(rule: str) -> JustifyMethod:
    if rule.endswith(":"):
        return "center" if rule.startswith(":") else "right"
    return "left"
