"""The model in this process, and the official SDKs against its server: all real."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from asking import HELLO, answer, ask, failure

from awl.config import ProviderSettings
from awl.conversation import BlobRef, Image, Message, Text, ToolResult, ToolUse, text_message
from awl.errors import ConfigError, ProviderError
from awl.providers import Completed, Provider, Reading, Request, TextDelta, ToolSpec, connect, local

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.xdist_group("local model")

NAME = "SmolLM2-135M-Instruct"
LIMIT = 20.0
SDKS = [("anthropic", "chat"), ("openai", "chat"), ("openai", "responses")]


def small(max_tokens: int = 8) -> Provider:
    return connect(ProviderSettings(name="local", type="local", max_tokens=max_tokens), {})


def sdk(kind: str, wire: str, key: str = "") -> Provider:
    """A provider of an official SDK that talks to llama.cpp's own server."""
    model = local.load(local.shipped_weights())
    url = model.server.listening_address + ("" if kind == "anthropic" else "/v1")
    settings = ProviderSettings(
        name=kind, type=kind, wire=wire, model=NAME, max_tokens=8, base_url=url, api_key_env="KEY"
    )
    return connect(settings, {"KEY": key or model.key})


def check(events: list[object]) -> Completed:
    """The deltas are the answer, piece by piece."""
    *deltas, last = events
    assert isinstance(last, Completed)
    pieces = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    [said] = last.content
    assert isinstance(said, Text)
    assert said.text == "".join(pieces)
    assert said.text.strip()
    return last


def test_it_answers(capfd: pytest.CaptureFixture[str]) -> None:
    provider = small()
    assert (provider.ref.model, provider.context_window) == (NAME, 8192)
    events = ask(provider, text_message("user", "Tell me a long story."))
    assert isinstance(events[0], Reading)
    said = check([*events])
    assert (said.model, said.stop_reason) == (NAME, "length")
    assert said.usage is not None
    assert said.usage.output == 8
    assert said.usage.input + (said.usage.cache_read or 0) > 10
    assert capfd.readouterr() == ("", "")


def test_it_is_loaded_once_for_all() -> None:
    weights = local.shipped_weights()
    with_threads: list[object] = []
    threads = [
        threading.Thread(target=lambda: with_threads.append(local.load(weights).server))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(server) for server in with_threads}) == 1


def test_tools_are_never_offered_and_old_calls_are_told_in_words() -> None:
    picture = Image(mime_type="image/png", blob=BlobRef("0" * 64, 4))
    call = Message("assistant", (ToolUse(id="t1", name="read", input='{"path":"a"}'),))
    result = Message("user", (ToolResult(tool_use_id="t1", content="x = 1"), picture))
    tool = ToolSpec("read", "Read a file.", {"type": "object", "properties": {}})
    provider = small()
    assert isinstance(provider, local.LocalProvider)
    request = Request(system="s", messages=[HELLO, call, result], tools=[tool])
    body = provider._body(request)
    assert "tools" not in body
    assert [message["role"] for message in body["messages"]] == [
        "system",
        "user",
        "assistant",
        "user",
    ]
    assert "x = 1" in body["messages"][3]["content"]
    answer(provider, HELLO, call, result, tools=[tool])


def test_a_prompt_beyond_the_context_is_told() -> None:
    error = failure(small(), text_message("user", "word " * 9000))
    assert error.fault == "context_length"
    assert "takes more" in str(error)


def test_a_history_far_beyond_the_context_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """llama.cpp would count its tokens for minutes, and awl could not even leave."""
    monkeypatch.setattr(local, "load", lambda *_: pytest.fail("the model was loaded"))
    error = failure(small(), *(text_message("user", "word " * 1_000_000) for _ in range(5)))
    assert error.fault == "context_length"
    assert "25,000,000 characters do not fit into 8,192 tokens" in str(error)
    assert "takes more" in str(error)


def _generating() -> bool:
    return any(thread.name == "awl-local" for thread in threading.enumerate())


@pytest.mark.parametrize("prompt", ["Tell me a story.", "word " * 6000], ids=["answer", "prompt"])
def test_leaving_ends_the_generation(prompt: str) -> None:
    provider = small(max_tokens=4000)

    async def listen(begun: asyncio.Event) -> None:
        request = Request(system=None, messages=[text_message("user", prompt)])
        async with contextlib.aclosing(provider.stream(request)) as events:
            begun.set()
            async for _ in events:
                pass

    async def run() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(listen(begun))
        await begun.wait()
        while not _generating():
            assert not task.done()
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(run())
    deadline = time.monotonic() + LIMIT
    while _generating():
        assert time.monotonic() < deadline, "llama.cpp goes on for nobody"
        time.sleep(0.01)
    answer(small())  # and the next request is served


def test_two_requests_at_once_are_both_answered() -> None:
    provider = small(max_tokens=4)

    async def one() -> int:
        request = Request(system=None, messages=[HELLO])
        return len([event async for event in provider.stream(request)])

    async def both() -> tuple[int, int]:
        return await asyncio.gather(one(), one())

    assert all(count > 1 for count in asyncio.run(both()))


def test_a_file_that_is_no_model_is_told(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    with pytest.raises(ConfigError, match="no model at"):
        connect(ProviderSettings(name="local", type="local", path=str(file)), {})
    file.write_bytes(b"not a model")
    provider = connect(ProviderSettings(name="local", type="local", path=str(file)), {})
    with pytest.raises(ProviderError, match="cannot be loaded") as caught:
        ask(provider)
    assert caught.value.fault == "internal"


def test_a_process_that_leaves_in_the_middle_ends_silently() -> None:
    code = """
import asyncio
from awl.config import ProviderSettings
from awl.conversation import text_message
from awl.providers import Request, connect

async def main():
    provider = connect(ProviderSettings(name="local", type="local"), {})
    async for event in provider.stream(
        Request(system=None, messages=[text_message("user", "Tell me a long story.")])
    ):
        return

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize(("kind", "wire"), SDKS)
def test_the_sdks_talk_to_a_real_model(kind: str, wire: str) -> None:
    earlier = (HELLO, text_message("assistant", "Hello!"))
    asked = text_message("user", "Tell me a long story.")
    said = check([*ask(sdk(kind, wire), *earlier, asked, system="Be kind.")])
    assert said.usage is not None
    assert said.usage.output > 0
    assert said.usage.input + (said.usage.cache_read or 0) > 20


@pytest.mark.parametrize(("kind", "wire"), SDKS)
def test_a_real_servers_refusals_are_recognised(kind: str, wire: str) -> None:
    assert failure(sdk(kind, wire, key="wrong")).fault == "auth"
    long = text_message("user", "word " * 9000)
    assert failure(sdk(kind, wire), long).fault == "context_length"
