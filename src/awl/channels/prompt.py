"""What a person types: the input line, and questions that one key answers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, get_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus, is_done
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    Window,
)
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from awl.access import AgentAccess
from awl.channels.display import SAYS
from awl.commands import completions, is_command
from awl.log.durable import create_private, make_directories
from awl.printing import safe

if sys.platform != "win32":
    import termios

_HISTORY_BYTES: Final = 1 << 20
"""How much of the history of prompts is read, and what is kept of it once it is twice as long."""

_STYLE: Final = Style.from_dict(
    {
        "prompt": "bold ansigreen",
        "toolbar.text": "ansibrightblack",
        "toolbar.alert": "bold ansired",
        "question.key": "bold ansicyan",
    }
)


class InputLine:
    """Where prompts and commands are written. Enter sends; Alt-Enter or a backslash at the end adds
    a line; a pasted text stays one prompt.

    Ctrl-C clears the line; on an empty line, the second quits. So does Ctrl-D.
    """

    def __init__(
        self,
        agent: AgentAccess,
        *,
        history_file: Path | None = None,
        toolbar: Callable[[], StyleAndTextTuples] = list,
    ) -> None:
        self._toolbar = toolbar
        self._leaving = False  # Ctrl-C was pressed, and nothing was written since
        self._session: PromptSession[str] = PromptSession(
            [("class:prompt", SAYS)],
            multiline=True,
            prompt_continuation=" " * len(SAYS),
            history=_history(history_file),
            completer=_Commands(agent),
            complete_in_thread=True,  # ids of sessions are looked up
            # The room for the menu is taken only while a command is written.
            complete_while_typing=Condition(lambda: is_command(self._session.default_buffer.text)),
            reserve_space_for_menu=6,
            key_bindings=self._keys(),
            style=_STYLE,
            enable_suspend=True,
        )
        self._session.default_buffer.on_text_changed += self._changed
        self._add_toolbar()

    async def read(self, draft: str = "", *, refresh: bool = False) -> str | None:
        """What the person wrote, never blank; None if they want to leave.

        `draft` is in the line to begin with. With `refresh` the toolbar is redrawn every second.
        """
        self._leaving = False
        self._session.refresh_interval = 1.0 if refresh else 0
        try:
            text = await self._session.prompt_async(default=draft, handle_sigint=False)
        except EOFError:
            return None
        # Bytes that are no UTF-8 arrive as lone surrogates.
        return text.encode("utf-8", "replace").decode("utf-8").strip()

    @property
    def reading(self) -> bool:
        """Whether the line is on the screen."""
        return self._session.app.is_running

    def leave(self) -> None:
        """Let a running `read` return None."""
        leave(self._session.app)

    def interrupt(self) -> None:
        """As if Ctrl-C had been pressed."""
        if self._session.app.is_running:
            self._session.app.key_processor.send_sigint()

    def _add_toolbar(self) -> None:
        # PromptSession's own toolbar sticks to the bottom of the screen, and needs to know where
        # that is; this one is right below the input.
        line = Window(FormattedTextControl(self._bottom), height=1)
        layout = self._session.layout
        self._session.app.layout = Layout(
            HSplit([layout.container, ConditionalContainer(line, ~is_done)]), layout.current_window
        )

    def _bottom(self) -> StyleAndTextTuples:
        if self._leaving:
            return [("class:toolbar.text", "Ctrl-C again, or Ctrl-D, quits")]
        return self._toolbar()

    def _changed(self, buffer: Buffer) -> None:
        if buffer.text:
            self._leaving = False

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        typing = has_focus(DEFAULT_BUFFER)

        # What was typed before the line was on the screen, or at a dumb terminal, ends in Ctrl-J.
        @keys.add("enter", filter=typing)
        @keys.add("c-j", filter=typing)
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            elif buffer.text.strip():
                buffer.validate_and_handle()

        @keys.add("escape", "enter", filter=typing)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c", filter=typing)
        @keys.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if self._leaving and not buffer.text:
                event.app.exit(exception=EOFError)
            else:
                buffer.reset()
                self._leaving = True
                event.app.invalidate()

        return keys


class Question:
    """A question that a letter and Enter answer. It is gone from the screen when it is answered.

    Enter, because a question comes while a person may be writing the next prompt: no letter of that
    may allow anything.
    """

    def __init__(self, text: str, keys: Mapping[str, str] | None = None) -> None:
        """`keys`: what each letter means, in order; without them, any words are an answer."""
        self._text, self._keys = text, keys
        self._typed = ""
        bindings = KeyBindings()

        @bindings.add("<any>")
        def _(event: KeyPressEvent) -> None:
            self._typed += event.data if event.data.isprintable() else ""

        @bindings.add("backspace")
        def _(event: KeyPressEvent) -> None:
            self._typed = self._typed[:-1]

        @bindings.add("enter")
        @bindings.add("c-j")
        def _(event: KeyPressEvent) -> None:
            answer = self._typed.strip()
            self._typed = ""
            if keys is None:
                event.app.exit(result=answer)
            elif answer.lower() in keys:
                event.app.exit(result=answer.lower())

        @bindings.add("c-c")
        @bindings.add("c-d")
        @bindings.add("<sigint>")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError)

        self._app: Application[str] = Application(
            layout=Layout(
                Window(
                    FormattedTextControl(self._line, show_cursor=False),
                    wrap_lines=True,
                    dont_extend_height=True,
                )
            ),
            key_bindings=bindings,
            style=_STYLE,
            erase_when_done=True,
        )

    async def ask(self) -> str | None:
        """The answer; None for Ctrl-C. Of letters, those that were typed before do not count."""
        if self._keys is not None:
            forget_typed()
        try:
            return await self._app.run_async(handle_sigint=False)
        except EOFError:
            return None

    def leave(self) -> None:
        """Let a running `ask` return None."""
        leave(self._app)

    def _line(self) -> StyleAndTextTuples:
        parts: StyleAndTextTuples = [("bold", f"{safe(self._text)}  ")]
        for key, meaning in (self._keys or {}).items():
            parts += [("class:question.key", key), ("", f" {safe(meaning)}   ")]
        then = "then Enter " if self._keys else ""
        return [*parts, ("", f"{then}{SAYS} {safe(self._typed[-40:])}")]


async def ask_path(question: str) -> str | None:
    """A path that the person writes; None if they write none."""
    session: PromptSession[str] = PromptSession(
        [("bold", f"{safe(question)} ")], completer=PathCompleter(expanduser=True), style=_STYLE
    )
    forget_typed()
    try:
        path = (await session.prompt_async(handle_sigint=False)).strip()
    except (EOFError, KeyboardInterrupt):
        return None
    return path or None


def use_no_cpr() -> None:
    """Draw below the cursor only as much as is needed.

    prompt_toolkit would ask the terminal where the cursor is: an answer that comes late, or never,
    as over a slow line, ends up in what the person types.
    """
    output = get_app_session().output
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False


def leave(app: Application[str]) -> None:
    """End a prompt_toolkit application from outside."""
    if app.is_running and not app.is_done:
        app.exit(exception=EOFError)


def forget_typed() -> None:
    """Drop keys that were pressed before there was something to answer."""
    source = get_app_session().input
    clear_typeahead(source)
    if sys.platform != "win32":
        with suppress(OSError, ValueError, termios.error, NotImplementedError):
            termios.tcflush(source.fileno(), termios.TCIFLUSH)


@contextmanager
def quiet_keys() -> Iterator[None]:
    """Keys pressed meanwhile are not echoed, and wait for the next prompt. Ctrl-C is a signal."""
    if sys.platform == "win32":
        yield
        return
    try:
        source = get_app_session().input.fileno()
        before = termios.tcgetattr(source)
    except (OSError, ValueError, termios.error, NotImplementedError):
        yield
        return
    mode = [*before]
    mode[0] &= ~termios.ICRNL  # Enter stays Enter for the next prompt, and is no Ctrl-J
    mode[3] &= ~(termios.ECHO | termios.ICANON)
    mode[3] |= termios.NOFLSH  # Ctrl-C drops neither what was typed nor what is being shown
    mode[6] = [*before[6]]
    mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    # Suspended now, what was typed ahead would go to the shell, which would run it.
    mode[6][termios.VSUSP] = os.fpathconf(source, "PC_VDISABLE").to_bytes(1, "big")
    termios.tcsetattr(source, termios.TCSANOW, mode)
    try:
        yield
    finally:
        with suppress(OSError, termios.error):  # the terminal may be gone
            termios.tcsetattr(source, termios.TCSANOW, before)


class _Commands(Completer):
    """Completes slash commands and their arguments."""

    def __init__(self, agent: AgentAccess) -> None:
        self._agent = agent

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        line = document.text_before_cursor
        word = line.rpartition(" ")[2]
        for choice, meaning in completions(line, self._agent):
            yield Completion(safe(choice), -len(word), display_meta=safe(meaning))


class _PromptHistory(FileHistory):
    """A file of prompts that stays private and short, and whose failure costs no prompt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(path)
        with suppress(OSError):
            self._shorten()

    def load_history_strings(self) -> Iterable[str]:
        try:
            return [*super().load_history_strings()]
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            make_directories(self._path.parent)
            with suppress(FileExistsError):
                os.close(create_private(self._path))
            self._path.chmod(0o600)
            super().store_string(string)

    def _shorten(self) -> None:
        if self._path.stat().st_size <= 2 * _HISTORY_BYTES:
            return
        kept = self._path.read_bytes()[-_HISTORY_BYTES:]
        short = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with os.fdopen(os.open(short, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(kept[kept.find(b"\n\n") + 1 :])  # from the beginning of a prompt
        short.replace(self._path)


def _history(path: Path | None) -> History:
    return InMemoryHistory() if path is None else _PromptHistory(path)
