"""`bash`: run a command."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from awl.providers import ToolSpec
from awl.tools import MAX_SHOWN, ToolContext, ToolOutcome
from awl.tools._input import Failure, Input, describe, failed, os_reason, parse, schema

KEPT: Final = 64 << 20
"""Bytes of output that are kept whole; of what comes after, only the last `TAIL`."""

TAIL: Final = 4 * MAX_SHOWN

GRACE: Final = 1.0
"""Seconds between asking a process group to end and killing it."""

LINGER: Final = 0.25
"""Seconds to wait for the end of the output once the shell has ended, and for processes that do
not hold the output once it is closed."""

POLL: Final = 0.01

CHUNK: Final = 1 << 16
"""Bytes that are taken from the pipe at a time."""

MAX_CHUNKS_AFTER: Final = 16
"""Chunks that are taken once the command is over: more than a pipe holds."""


class BashInput(Input, frozen=True):
    command: Annotated[
        str, msgspec.Meta(min_length=1, description="The command, as for `bash -c`.")
    ]
    timeout: Annotated[
        float, msgspec.Meta(gt=0, le=3600, description="Seconds until it is stopped.")
    ] = 120


class Bash:
    """Runs a command in a process group of its own, which is stopped as a whole.

    A process that makes itself a session of its own (`setsid`) is out of reach.
    """

    mutates = True
    spec = ToolSpec(
        "bash",
        "Run a command with bash in the working directory and return its output, standard output"
        " and errors together. Each call is a new shell without a terminal and without input."
        f" Of long output you get the first and last part, {MAX_SHOWN} characters in all."
        " Processes left in the background are stopped with the shell, unless their output goes"
        " elsewhere: `server >log 2>&1 &`.",
        schema(BashInput),
    )

    def describe(self, input: Mapping[str, Any]) -> str:
        return describe("$", input.get("command", ""))

    async def run(self, input: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        output = _Output(context.progress)
        try:
            parsed = parse(BashInput, input)
            end = await _execute(parsed, context, output)
        except Failure as failure:
            return failed(str(failure))
        except OSError as error:
            return failed(f"the command could not be started: {os_reason(error)}")
        except ValueError as error:  # a NUL character, a lone surrogate
            return failed(f"invalid input: command: {error}")
        return output.outcome(end)


class _End(msgspec.Struct, frozen=True):
    """How a command ended: the note for the model, if there is something to say."""

    is_error: bool
    note: str = ""


async def _execute(wanted: BashInput, context: ToolContext, output: _Output) -> _End:
    """Run the command and collect its output; no process of its group is left when this ends."""
    loop = asyncio.get_running_loop()
    process, reading = _start(wanted.command, context)
    exited = loop.create_future()
    closed = loop.create_future()

    def await_exit() -> None:
        process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(exited.set_result, None)

    def on_readable() -> None:
        if not output.read(reading):
            loop.remove_reader(reading)
            closed.set_result(None)

    gone = False
    try:
        threading.Thread(target=await_exit, name="awl-bash", daemon=True).start()
        loop.add_reader(reading, on_readable)
        await asyncio.wait({exited}, timeout=wanted.timeout)
        timed_out = not exited.done()
        if not timed_out:
            await asyncio.wait({closed}, timeout=LINGER)
            for _ in range(MAX_CHUNKS_AFTER):  # a busy loop may not have come to it
                if not closed.done():
                    on_readable()
        left = not timed_out and not closed.done()
        if timed_out or left:
            await _end_group(process.pid, closed)
            await asyncio.wait({exited, closed}, timeout=LINGER)
        gone = True
    except asyncio.CancelledError:
        await _end_group(process.pid, closed)
        gone = True
        raise
    finally:
        if not gone:
            _signal(process.pid, signal.SIGKILL)
        loop.remove_reader(reading)
        output.finish(reading)
        os.close(reading)

    if timed_out:
        note = f"timed out after {wanted.timeout:g} s: the command and all it started were stopped"
        return _End(True, note)
    notes = [_exit_note(process.returncode)] if process.returncode else []
    if left:
        notes.insert(
            0,
            "processes in the background still held the output when the shell ended: they were"
            " stopped. To keep one running, send its output elsewhere: `command >log 2>&1 &`",
        )
    return _End(process.returncode != 0, "]\n[".join(notes))


def _start(command: str, context: ToolContext) -> tuple[subprocess.Popen[bytes], int]:
    """Start the command; the descriptor gives its output and does not block.

    This is not asyncio's subprocess: that can be cancelled between the start and our knowing of
    it, and what its wait() waits for (the process, or its pipes too) differs between versions.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        process = subprocess.Popen(
            [_shell(), "-c", command],
            cwd=context.cwd,
            env={**os.environ, **context.env},
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )
    except BaseException:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return process, reading


def _shell() -> str:
    return next((shell for shell in ("/bin/bash", "/usr/bin/bash") if Path(shell).exists()), "sh")


def _exit_note(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}: exit code {128 - code}"


async def _end_group(group: int, closed: asyncio.Future[None]) -> None:
    """End all processes of a group: first politely. Cancelled meanwhile, it kills at once."""
    try:
        if _signal(group, signal.SIGTERM):
            # The output is closed when all that held it are gone, also where a container's first
            # process leaves zombies in the group.
            await asyncio.wait({closed}, timeout=GRACE)
        for _ in range(round(LINGER / POLL)):
            if not _signal(group, 0):
                break
            await asyncio.sleep(POLL)
    finally:
        _signal(group, signal.SIGKILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a group. False if nobody is there to get it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS: not permitted, if all are zombies
        return False
    return True


class _Output:
    """A command's output as it arrives: bounded in memory, shown while it comes.

    Kept in memory and not in a file, since the outcome is bytes in memory in the end, and a full
    disk must not lose what a command said.
    """

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self._progress = progress
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = io.BytesIO()
        self._tail = bytearray()
        self._size = 0

    def read(self, descriptor: int) -> bool:
        """Take what is there. False at the end of the output."""
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return True
        self._take(data)
        return bool(data)

    def finish(self, descriptor: int) -> None:
        """Take what is still in the pipe. Bounded: someone may go on writing to it."""
        for _ in range(MAX_CHUNKS_AFTER):
            before = self._size
            self.read(descriptor)
            if self._size == before:
                break
        self._show(b"", final=True)

    def _take(self, data: bytes) -> None:
        whole = data[: max(0, KEPT - self._size)]
        self._head.write(whole)
        if rest := data[len(whole) :]:
            if not self._tail:
                self._say("\n[more output than is kept: the rest is not shown]\n")
            self._tail += rest
            del self._tail[:-TAIL]
        self._size += len(data)
        self._show(whole)

    def _show(self, data: bytes, *, final: bool = False) -> None:
        if text := self._decoder.decode(data, final):
            self._say(text)

    def _say(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    @property
    def _dropped(self) -> int:
        return self._size - self._head.tell() - len(self._tail)

    def outcome(self, end: _End) -> ToolOutcome:
        """What the model is shown, and the raw bytes unless that is all of them."""
        content, complete = self._content()
        if end.note:
            content += "" if content.endswith("\n") or not content else "\n"
            content += f"[{end.note}]"
        return ToolOutcome(
            content=content or "(no output)",
            is_error=end.is_error,
            output=None if complete else self._raw(),
        )

    def _raw(self) -> bytes:
        if not self._tail:
            return self._head.getvalue()
        note = f"\n[{self._dropped} bytes were dropped here]\n" if self._dropped else ""
        return self._head.getvalue() + note.encode() + bytes(self._tail)

    def _content(self) -> tuple[str, bool]:
        """Text for the model, and whether it holds every byte of the output."""
        if self._size <= 4 * MAX_SHOWN:  # the most bytes that this many characters can have
            data = self._head.getvalue()
            text = data.decode(errors="replace")
            if len(text) <= MAX_SHOWN:
                return text, text.encode() == data
        half = MAX_SHOWN // 2
        head = _until_line_end(self._head.getbuffer()[:half].tobytes())
        tail = _from_line_start(self._last(half))
        left_out = self._size - len(head) - len(tail)
        note = f"[{left_out} bytes left out here: {self._size} in all"
        note += f", of which {self._dropped} were dropped]" if self._dropped else "]"
        first, last = head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{first}{'' if first.endswith(chr(10)) else chr(10)}{note}\n{last}", False

    def _last(self, count: int) -> bytes:
        missing = max(0, count - len(self._tail))
        start = self._head.tell() - missing
        head = self._head.getbuffer()[start:].tobytes() if missing else b""
        return head + bytes(self._tail[-count:])


def _until_line_end(data: bytes) -> bytes:
    """Without a started last line, if it is not long; else without a started character."""
    end = data.rfind(b"\n") + 1
    if len(data) - end < 1000:
        return data[:end]
    for length in range(1, 4):
        if data[-length] >= 0xC0:  # the first byte of a character of several bytes
            return data[:-length]
        if data[-length] < 0x80:
            break
    return data


def _from_line_start(data: bytes) -> bytes:
    """Without the end of a line or character that began before."""
    start = data.find(b"\n") + 1
    if 0 < start < 1000:
        return data[start:]
    skip = 0
    while skip < 3 and 0x80 <= data[skip] < 0xC0:
        skip += 1
    return data[skip:]
