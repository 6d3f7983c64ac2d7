"""A stand-in for model servers: it speaks their wires over real HTTP and plays scripted answers.

    with StandIn() as server:
        server.plays([Say("Let me look."), Call("read", {"path": "a.py"})], [Say("Done.")])
        ...  # point an official SDK at server.anthropic_url or server.openai_url
        server.requests[0].body

Each request gets the next answer; one that a real server would refuse is refused with its status,
shape and words (`refusals`), and plays nothing. All answers are streamed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import uvicorn
from refusals import (
    item_id,
    reasoning_item,
    refusal_anthropic,
    refusal_chat,
    refusal_responses,
    seal,
    sign,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

__all__ = [
    "Answer",
    "Call",
    "Drop",
    "End",
    "Fail",
    "Hold",
    "Redacted",
    "Say",
    "StandIn",
    "StreamError",
    "Think",
    "Wait",
    "reasoning_item",
    "refusal_anthropic",
    "refusal_chat",
    "refusal_responses",
    "seal",
    "sign",
]

JSON = dict[str, Any]
LIMIT = 10.0
"""Seconds after which whatever a test waits for has failed."""


# What an answer is made of


@dataclass(frozen=True)
class Say:
    """Text, `chunk` characters at a time."""

    text: str
    chunk: int = 5


@dataclass(frozen=True)
class Think:
    """Reasoning, with the signature (or the encrypted content) that the stand-in issues."""

    text: str
    chunk: int = 5


@dataclass(frozen=True)
class Redacted:
    """Reasoning that only the server can read."""

    secret: str


@dataclass(frozen=True)
class Call:
    """A tool call. `input` as a string is sent as it stands, valid JSON or not."""

    name: str
    input: JSON | str = field(default_factory=dict)
    id: str = ""

    @property
    def text(self) -> str:
        return self.input if isinstance(self.input, str) else json.dumps(self.input)


@dataclass(frozen=True)
class Wait:
    """Silence, in seconds."""

    seconds: float


@dataclass(frozen=True)
class Hold:
    """Silence until `StandIn.release()`, or until the client hangs up."""


@dataclass(frozen=True)
class Drop:
    """The connection breaks here."""


@dataclass(frozen=True)
class End:
    """The stream ends here in good order, but without its closing event."""


@dataclass(frozen=True)
class StreamError:
    """An error inside the stream; `failed` (responses) tells it as `response.failed`."""

    type: str = "overloaded_error"
    message: str = "Overloaded"
    failed: bool = False


@dataclass(frozen=True)
class Fail:
    """An HTTP error instead of an answer. `body` overrides the wire's usual shape."""

    status: int
    message: str = "no"
    type: str = ""
    code: str | None = None
    body: str | None = None


Part = Say | Think | Redacted | Call | Wait | Hold | Drop | End | StreamError


@dataclass(frozen=True)
class Answer:
    """An answer. `stop` is the wire's own word, if it is not what the parts imply.

    `after` stands still, as a `Hold` would, behind the first piece of the stream that holds these
    words: also in the middle of a part.
    """

    parts: Sequence[Part] = ()
    stop: str = ""
    after: str = ""
    model: str = ""
    input_tokens: int = 20
    output_tokens: int = 7
    cache_read: int = 4
    cache_write: int = 2


Playable = Answer | Fail | Sequence[Part]


@dataclass(frozen=True)
class Recorded:
    """A request that was made. `refusal` is why it was refused, if it was."""

    path: str
    headers: dict[str, str]
    body: JSON
    refusal: str | None


Frame = str | Wait | Hold | Drop | End
"""A piece of the stream as it is sent, or what happens between two of them."""


# The server


class StandIn:
    """The server, in a thread of this process, on a free port of 127.0.0.1."""

    def __init__(self, *, context_tokens: int = 0, key: str = "") -> None:
        self.requests: list[Recorded] = []
        self.hung_up = threading.Event()
        """Set when a client closed its connection before the answer was whole."""
        self.holding = threading.Event()
        """Set while an answer stands at a `Hold`."""
        self._answers: deque[Playable | Callable[[JSON], Playable]] = deque()
        self._released = threading.Event()
        self._numbers = itertools.count(1)
        self._context_tokens, self._key = context_tokens, key
        self._socket = socket.create_server(("127.0.0.1", 0))
        routes = [
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/responses", self._responses, methods=["POST"]),
        ]
        config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off")
        self._server = _Uvicorn(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="stand-in", daemon=True
        )

    @property
    def anthropic_url(self) -> str:
        host, port = self._socket.getsockname()
        return f"http://{host}:{port}"

    @property
    def openai_url(self) -> str:
        return f"{self.anthropic_url}/v1"

    @property
    def bodies(self) -> list[JSON]:
        return [request.body for request in self.requests]

    def plays(self, *answers: Playable | Callable[[JSON], Playable]) -> None:
        """Add answers, one a request. A function is given the request's body."""
        self._answers.extend(answers)

    def release(self) -> None:
        """Let the answers that stand at a `Hold` go on."""
        self._released.set()

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + LIMIT
        while not self._server.started:
            assert self._thread.is_alive() and time.monotonic() < deadline, "it did not start"
            time.sleep(0.005)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._server.should_exit = True
        self._thread.join(LIMIT)
        self._socket.close()

    async def _messages(self, request: Request) -> Response:
        # The header of old, or the one that the SDK has come to send.
        key = request.headers.get("x-api-key") or _bearer(request)
        return await self._answer(
            request, key, refusal_anthropic, anthropic_error, anthropic_frames
        )

    async def _chat(self, request: Request) -> Response:
        key = _bearer(request)
        return await self._answer(request, key, refusal_chat, openai_error, chat_frames)

    async def _responses(self, request: Request) -> Response:
        key = _bearer(request)
        return await self._answer(request, key, refusal_responses, openai_error, responses_frames)

    async def _answer(
        self,
        request: Request,
        key: str,
        refusal_of: Callable[[JSON], str | None],
        error: Callable[[Fail], Response],
        frames: Callable[[Answer, JSON, Iterator[int]], Iterator[Frame]],
    ) -> Response:
        body: JSON = json.loads(await request.body())
        refusal = refusal_of(body) if body.get("stream") else "the stand-in only streams"
        path, headers = request.url.path, dict(request.headers)
        self.requests.append(Recorded(path, headers, body, refusal))
        if not key or (self._key and key != self._key):
            return error(Fail(401, "invalid x-api-key", "authentication_error", "invalid_api_key"))
        if refusal:
            return error(Fail(400, refusal, "invalid_request_error"))
        tokens = len(json.dumps(body)) // 4
        if self._context_tokens and tokens > self._context_tokens:
            return error(too_long(path, tokens, self._context_tokens))
        if not self._answers:
            return error(Fail(400, "no answer is scripted for this request"))
        answer = self._answers.popleft()
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, Fail):
            return error(answer)
        if not isinstance(answer, Answer):
            answer = Answer(tuple(answer))
        return _Stream(self, _held(frames(answer, body, self._numbers), answer.after))


def _held(frames: Iterator[Frame], after: str) -> Iterator[Frame]:
    for frame in frames:
        yield frame
        if after and isinstance(frame, str) and after in frame:
            yield Hold()
            after = ""


def _bearer(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


class _Uvicorn(uvicorn.Server):
    """Tests start and stop many servers: this one stops at once, and answers no one first."""

    async def main_loop(self) -> None:
        while not self.should_exit:
            await self.on_tick(0)
            await asyncio.sleep(0.005)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in self.server_state.connections:
            if connection.transport is not None:
                connection.transport.abort()
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Stream(Response):
    """An event stream that can fall silent, break off, and notice that its client hung up."""

    def __init__(self, server: StandIn, frames: Iterator[Frame]) -> None:
        super().__init__()
        self._server, self._frames = server, frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        playing = asyncio.create_task(self._play(send))
        leaving = asyncio.create_task(_disconnect(receive))
        await asyncio.wait([playing, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not playing.done():
            self._server.hung_up.set()
        playing.cancel()
        leaving.cancel()
        await asyncio.gather(playing, leaving, return_exceptions=True)

    async def _play(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in self._frames:
            match frame:
                case str():
                    data = frame.encode()
                    await send({"type": "http.response.body", "body": data, "more_body": True})
                case Wait():
                    await asyncio.sleep(frame.seconds)
                case Hold():
                    self._server.holding.set()
                    while not self._server._released.is_set():
                        await asyncio.sleep(0.005)
                case Drop():
                    return  # Without a last chunk, uvicorn closes the connection.
                case End():
                    break
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# Errors, in the shapes of each wire

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


def anthropic_error(fail: Fail) -> Response:
    if fail.body is not None:
        return Response(fail.body, fail.status, media_type="text/html")
    kind = fail.type or _ANTHROPIC_TYPES.get(
        fail.status, "api_error" if fail.status >= 500 else "invalid_request_error"
    )
    error = {"type": kind, "message": fail.message}
    body = {"type": "error", "error": error, "request_id": "req_011CStandIn"}
    return JSONResponse(body, fail.status, headers={"request-id": "req_011CStandIn"})


def openai_error(fail: Fail) -> Response:
    if fail.body is not None:
        return Response(fail.body, fail.status, media_type="text/html")
    kind = fail.type or ("server_error" if fail.status >= 500 else "invalid_request_error")
    error = {"message": fail.message, "type": kind, "param": None, "code": fail.code}
    return JSONResponse({"error": error}, fail.status, headers={"x-request-id": "req_standin"})


def too_long(path: str, tokens: int, limit: int) -> Fail:
    if path == "/v1/messages":
        return Fail(400, f"prompt is too long: {tokens} tokens > {limit} maximum")
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in"
        f" {tokens} tokens. Please reduce the length of the messages."
    )
    return Fail(400, message, code="context_length_exceeded")


# Anthropic Messages


def anthropic_frames(answer: Answer, body: JSON, numbers: Iterator[int]) -> Iterator[Frame]:
    usage = {
        "input_tokens": answer.input_tokens,
        "cache_creation_input_tokens": answer.cache_write,
        "cache_read_input_tokens": answer.cache_read,
        "output_tokens": 1,
        "service_tier": "standard",
    }
    message: JSON = {
        "id": f"msg_{next(numbers):024d}",
        "type": "message",
        "role": "assistant",
        "model": answer.model or body["model"],
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield _event({"type": "message_start", "message": message})
    pinged = False
    index = 0
    for part in answer.parts:
        match part:
            case Say() | Think() | Redacted() | Call():
                block, deltas = _anthropic_block(part, numbers)
                start = {"type": "content_block_start", "index": index, "content_block": block}
                yield _event(start)
                if not pinged:
                    yield _event({"type": "ping"})
                    pinged = True
                for delta in deltas:
                    yield _event({"type": "content_block_delta", "index": index, "delta": delta})
                yield _event({"type": "content_block_stop", "index": index})
                index += 1
            case StreamError():
                error = {"type": part.type, "message": part.message}
                yield _event({"type": "error", "error": error})
                yield End()
            case _:
                yield part
    called = any(isinstance(part, Call) for part in answer.parts)
    stop = answer.stop or ("tool_use" if called else "end_turn")
    delta = {"stop_reason": stop, "stop_sequence": None}
    yield _event(
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": answer.output_tokens}}
    )
    yield _event({"type": "message_stop"})


def _anthropic_block(
    part: Say | Think | Redacted | Call, numbers: Iterator[int]
) -> tuple[JSON, list[JSON]]:
    match part:
        case Say():
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(part)]
            return {"type": "text", "text": ""}, deltas
        case Think():
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(part)]
            deltas.append({"type": "signature_delta", "signature": sign(part.text)})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case Redacted():
            return {"type": "redacted_thinking", "data": seal(part.secret)}, []
    name = part.id or f"toolu_{next(numbers):022d}"
    pieces = ["", *_pieces(part)] if part.text not in ("", "{}") else [""]
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return {"type": "tool_use", "id": name, "name": part.name, "input": {}}, deltas


def _event(data: JSON) -> str:
    return f"event: {data['type']}\ndata: {_json(data)}\n\n"


def _json(data: JSON) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    if any("\ud800" <= char <= "\udfff" for char in text):  # UTF-8 has no lone surrogates
        return json.dumps(data, separators=(",", ":"))
    return text


def _pieces(part: Say | Think | Call) -> list[str]:
    size = 7 if isinstance(part, Call) else part.chunk
    return [part.text[start : start + size] for start in range(0, len(part.text), size)]


# OpenAI chat completions


def chat_frames(answer: Answer, body: JSON, numbers: Iterator[int]) -> Iterator[Frame]:
    wants_usage = body.get("stream_options", {}).get("include_usage", False)
    base = {
        "id": f"chatcmpl-{next(numbers):024d}",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": answer.model or body["model"],
        "service_tier": "default",
        "system_fingerprint": "fp_standin",
    }

    def chunk(delta: JSON, finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if wants_usage else {}
        return f"data: {_json({**base, 'choices': [choice], **usage})}\n\n"

    calls = 0
    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for part in answer.parts:
        match part:
            case Say():
                yield from (chunk({"content": piece}) for piece in _pieces(part))
            case Think():
                yield from (chunk({"reasoning_content": piece}) for piece in _pieces(part))
            case Call():
                name = part.id or f"call_{next(numbers):020d}"
                head = {"name": part.name, "arguments": ""}
                call = {"index": calls, "id": name, "type": "function", "function": head}
                yield chunk({"tool_calls": [call]})
                for piece in _pieces(part):
                    call = {"index": calls, "function": {"arguments": piece}}
                    yield chunk({"tool_calls": [call]})
                calls += 1
            case Redacted():
                raise AssertionError("chat completions know no redacted thinking")
            case StreamError():
                error = {"message": part.message, "type": part.type, "param": None, "code": None}
                yield f"data: {_json({'error': error})}\n\n"
                yield End()
            case _:
                yield part
    yield chunk({}, answer.stop or ("tool_calls" if calls else "stop"))
    if wants_usage:
        prompt = answer.input_tokens + answer.cache_read
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": answer.output_tokens,
            "total_tokens": prompt + answer.output_tokens,
            "prompt_tokens_details": {"cached_tokens": answer.cache_read, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }
        yield f"data: {_json({**base, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


# OpenAI Responses


def responses_frames(answer: Answer, body: JSON, numbers: Iterator[int]) -> Iterator[Frame]:
    sequence = itertools.count()
    response: JSON = {
        "id": f"resp_{next(numbers):024d}",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": answer.model or body["model"],
        "output": [],
        "parallel_tool_calls": True,
        "store": body.get("store", True),
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }

    def event(kind: str, **data: Any) -> str:
        return _event({"type": kind, "sequence_number": next(sequence), **data})

    yield event("response.created", response=response)
    yield event("response.in_progress", response=response)
    output: list[JSON] = []
    thought: str | None = None
    for part in answer.parts:
        match part:
            case Say() | Think() | Redacted() | Call():
                yield from _item_frames(event, part, len(output), thought, numbers, output)
                thought = output[-1]["id"] if output[-1]["type"] == "reasoning" else thought
            case StreamError(failed=True):
                error = {"code": part.type, "message": part.message}
                ended = {**response, "status": "failed", "error": error, "output": output}
                yield event("response.failed", response=ended)
                yield End()
            case StreamError():
                yield event("error", code=part.type, message=part.message, param=None)
                yield End()
            case _:
                yield part
    tokens = answer.input_tokens + answer.cache_read
    usage = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": answer.cache_read},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens + answer.output_tokens,
    }
    status = "incomplete" if answer.stop else "completed"
    details = {"reason": answer.stop} if answer.stop else None
    ended = {"status": status, "incomplete_details": details, "output": output, "usage": usage}
    yield event(f"response.{status}", response={**response, **ended})


def _item_frames(
    event: Callable[..., str],
    part: Say | Think | Redacted | Call,
    place: int,
    thought: str | None,
    numbers: Iterator[int],
    output: list[JSON],
) -> Iterator[str]:
    """The events of one output item, which is added to `output` when it is done."""
    item: JSON
    match part:
        case Say():
            name = item_id("msg", next(numbers), thought)
            item = {"id": name, "type": "message", "status": "in_progress", "role": "assistant"}
            yield event(
                "response.output_item.added", output_index=place, item={**item, "content": []}
            )
            at: JSON = {"item_id": name, "output_index": place, "content_index": 0}
            text = {"type": "output_text", "annotations": [], "logprobs": []}
            yield event("response.content_part.added", **at, part={**text, "text": ""})
            for piece in _pieces(part):
                yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
            yield event("response.output_text.done", **at, text=part.text, logprobs=[])
            text["text"] = part.text
            yield event("response.content_part.done", **at, part=text)
            item = {**item, "status": "completed", "content": [text]}
        case Think() | Redacted():
            words = part.text if isinstance(part, Think) else ""
            item = reasoning_item(words, next(numbers))
            begun = {**item, "summary": []}
            yield event("response.output_item.added", output_index=place, item=begun)
            if isinstance(part, Think):
                at = {"item_id": item["id"], "output_index": place, "summary_index": 0}
                empty = {"type": "summary_text", "text": ""}
                yield event("response.reasoning_summary_part.added", **at, part=empty)
                for piece in _pieces(part):
                    yield event("response.reasoning_summary_text.delta", **at, delta=piece)
                yield event("response.reasoning_summary_text.done", **at, text=words)
                yield event("response.reasoning_summary_part.done", **at, part=item["summary"][0])
        case Call():
            number = next(numbers)
            item = {
                "id": item_id("fc", number, thought),
                "type": "function_call",
                "status": "in_progress",
                "arguments": "",
                "call_id": part.id or f"call_{number:020d}",
                "name": part.name,
            }
            yield event("response.output_item.added", output_index=place, item=item)
            at = {"item_id": item["id"], "output_index": place}
            for piece in _pieces(part):
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            yield event("response.function_call_arguments.done", **at, arguments=part.text)
            item = {**item, "status": "completed", "arguments": part.text}
    yield event("response.output_item.done", output_index=place, item=item)
    output.append(item)
