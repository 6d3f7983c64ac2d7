"""Starting a conversation and seeing it to its end: in the terminal, or one turn for a program."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from awl.agent import Approval
from awl.app import App, begin
from awl.beginning import Wanted
from awl.config import Config, sessions_dir
from awl.conversation import ToolUse
from awl.entries import EndReason
from awl.errors import NotSaved
from awl.events import (
    AgentEvent,
    AnswerCompleted,
    AnswerText,
    Condensed,
    Condensing,
    Notice,
    Retrying,
    ToolFinished,
    ToolStarted,
    TurnEnded,
    Unsaved,
)
from awl.index.conversations import Logless
from awl.printing import one_line, safe

NOT_ALLOWED = (
    "Refused: awl runs without a person to ask, and this call can change things."
    " Started with -y it would run."
)


# -- the terminal ----------------------------------------------------------------------------------


def terminal(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    resume: Path | Logless | None,
    *,
    yes: bool,
) -> int:
    """Talk with a person until they leave. Returns the exit code."""
    return asyncio.run(_terminal(config, environ, wanted, resume, yes))


async def _terminal(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    resume: Path | Logless | None,
    yes: bool,
) -> int:
    from awl.channels.terminal import Terminal

    keeps = sessions_dir(config, environ) / ".awl" / "prompts" if wanted.kept else None
    channel = Terminal(history_file=keeps, history_lines=config.session.resume.expand_default_lines)
    approve = {"ask": channel.approve, "auto": None, "deny": _deny}[config.agent.approval]
    app = begin(config, environ, wanted, approve=None if yes else approve, resume=resume)
    app.notify = channel.notify
    code = 1
    reason: EndReason = "error"
    try:
        if not wanted.kept:
            _tell("nothing of this conversation is kept (--no-session)")
        resumed = None
        if resume is not None and config.session.resume.show_banner:
            resumed = app.banner(app.notices)
        else:
            for notice in app.notices:
                _tell(notice)
        code = await channel.talk(app, resumed=resumed)
        reason = "shutdown" if code else "user_quit"
    finally:
        await _let_go(app)
        saved = await _settle(app, channel.ask_path)
        _close(app, reason)
    if not saved:
        return 1
    if app.session.resumable:
        print(safe(f"Go on with: awl --resume {app.resume_name}"))
    return code


async def _let_go(app: App) -> None:
    """Close the model's connections. That this fails must not cost the session its end."""
    try:
        await app.close()
    except Exception as error:
        _tell(f"the connection to the model could not be closed: {error}")


async def _settle(app: App, ask_path: Callable[[str], Awaitable[str | None]] | None) -> bool:
    """Before leaving: write what is queued, here or elsewhere. Whether all of it is saved."""
    session = app.session
    if not session.unsaved:
        return True
    with contextlib.suppress(NotSaved):
        _tell(f"saved after all: {session.flush()} waiting")
        return True
    entries = "1 entry is" if session.unsaved == 1 else f"{session.unsaved} entries are"
    _tell(f"{entries} NOT SAVED: {session.path} cannot be written")
    while ask_path is not None:
        path = await ask_path("Write the whole session to (empty: give it up): ")
        if not path:
            return False
        try:
            await asyncio.to_thread(session.save_copy, Path(path))
        except (OSError, RuntimeError, ValueError) as error:  # also a path that is none
            _tell(f"{path}: {getattr(error, 'strerror', None) or error}")
        else:
            _tell(f"the whole session is in {path}")
            return False
    return False


def _close(app: App, reason: EndReason) -> None:
    """Close the session, which tries once more to write what is queued."""
    waiting = app.session.unsaved
    app.session.close(reason)
    if waiting and not app.session.unsaved:
        _tell("it could be written after all: everything is saved")


# -- one turn --------------------------------------------------------------------------------------


def once(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    resume: Path | Logless | None,
    prompt: str,
    output: str,
    *,
    yes: bool,
) -> int:
    """One turn for `awl -p`. Returns the exit code: 0 when it came to an answer."""
    return asyncio.run(_once(config, environ, wanted, resume, prompt, output, yes))


async def _once(
    config: Config,
    environ: Mapping[str, str],
    wanted: Wanted,
    resume: Path | Logless | None,
    prompt: str,
    output: str,
    yes: bool,
) -> int:
    asks = not yes and config.agent.approval != "auto"
    app = begin(config, environ, wanted, approve=_deny if asks else None, resume=resume)
    app.agent.refusal = NOT_ALLOWED
    for notice in app.notices:
        _tell(notice)
    if not wanted.kept:
        _tell("nothing of this conversation is kept (--no-session)")
    ended = TurnEnded("error")
    reason: EndReason = "error"
    got: list[int] = []
    unread: OSError | None = None
    try:
        with _cancelled_by_signals(app, got):
            async for event in app.prompt(prompt):
                if isinstance(event, TurnEnded):
                    ended = event
                try:
                    if unread is None:
                        _show(event, output)
                except OSError as error:
                    # Nobody reads any more, but the turn is logged to its end.
                    unread = error
                    app.cancel()
        reason = "shutdown" if got else "user_quit"
    except asyncio.CancelledError:
        if not got:
            raise
        reason = "shutdown"
    finally:
        await _let_go(app)
        saved = await _settle(app, None)
        _close(app, reason)
    if unread is not None:
        raise unread
    _finish(app, ended, output)
    if got:
        return 128 + got[0]
    return 0 if saved and ended.stop_reason in ("stop", "length") else 1


@contextlib.contextmanager
def _cancelled_by_signals(app: App, got: list[int]) -> Iterator[None]:
    """Let a signal end the turn, so that what was shown of it is logged; a second one ends awl
    without waiting for it."""
    loop = asyncio.get_running_loop()
    running = asyncio.current_task()
    assert running is not None

    def cancel(number: int) -> None:
        got.append(number)
        if len(got) == 1:
            app.cancel()
        else:
            running.cancel()

    numbers = [
        number
        for name in ("SIGINT", "SIGTERM", "SIGHUP")
        if (number := getattr(signal, name, None)) is not None
    ]
    for number in numbers:
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, cancel, number)
    try:
        yield
    finally:
        for number in numbers:
            with contextlib.suppress(NotImplementedError):
                loop.remove_signal_handler(number)


def _show(event: AgentEvent, output: str) -> None:
    if output == "stream-json":
        print(_ascii(event), flush=True)
        return
    match event:
        case AnswerText(text=text) if output == "text" and sys.stdout.isatty():
            print(safe(text), end="", flush=True)
        case AnswerCompleted() if output == "text" and sys.stdout.isatty():
            print(flush=True)
        case ToolStarted(summary=summary) if sys.stderr.isatty():
            _tell(summary)
        case Condensing() if sys.stderr.isatty():
            _tell(f"{event} ...")
        case ToolFinished(content=content, is_error=True, name=name):
            _tell(f"{name}: {one_line(content, 200)}")
        case Notice(text=text):
            _tell(text)
        case Condensed():
            _tell(str(event))
        case Unsaved(message=message):
            _tell(message)
        case Retrying(reason=reason, seconds=seconds):
            _tell(f"{reason}; trying again in {seconds:g} s")


def _finish(app: App, ended: TurnEnded, output: str) -> None:
    if output == "json":
        facts = {
            "session_id": app.session.id if app.session.resumable else None,
            "text": ended.text,
            "usage": msgspec.to_builtins(ended.usage),
            "stop_reason": ended.stop_reason,
        }
        print(_ascii({**facts, "error": ended.error} if ended.error else facts))
    elif output == "text" and ended.text and not sys.stdout.isatty():
        print(safe(ended.text))
    if ended.error and output != "stream-json" and ended.stop_reason != "unsaved":
        _tell(ended.error)  # what is unsaved was told when it happened
    elif ended.stop_reason == "length":
        _tell("the answer was cut at the model's limit")


def _ascii(value: object) -> str:
    import json

    return json.dumps(msgspec.to_builtins(value))


async def _deny(call: ToolUse, summary: str) -> Approval:
    return "deny"


def _tell(text: str) -> None:
    line = safe(text).replace("\n", "␊")
    with contextlib.suppress(OSError):  # then there is nobody to tell
        print(f"awl: {line}", file=sys.stderr, flush=True)
