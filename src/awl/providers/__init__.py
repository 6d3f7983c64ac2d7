"""Models. One module a kind of provider; each is imported only when it is used.

A provider turns a `Request` into a stream of `StreamEvent`s. It knows nothing of logs, tools or
approval, and it changes nothing in what it is sent: `awl.view` has made it valid already.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from awl.config import ProviderSettings
from awl.conversation import BlobRef, ContentBlock, Message, ModelRef
from awl.entries import Usage
from awl.errors import ConfigError, ProviderError

KEY_VARIABLES: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
URL_VARIABLES: Final = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
PLACEHOLDER_KEY: Final = "none"


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it. `parameters` is a JSON schema of type object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked: system text, then messages that alternate user and assistant.

    `read_blob` gives the bytes of an image in the messages. `thinking` False asks for an answer
    without reasoning: the messages hold none. `form` is what the answer is to fill in, as a call of
    it or as JSON text; a model that cannot be made to answers as it likes. It goes without tools
    and without reasoning.
    """

    system: str | None
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    read_blob: Callable[[BlobRef], bytes] | None = None
    thinking: bool = True
    form: ToolSpec | None = None


class TextDelta(msgspec.Struct, frozen=True):
    """Text arrived for the content block at `index` of the answer."""

    index: int
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    """Reasoning arrived for the content block at `index` of the answer."""

    index: int
    thinking: str


class ToolUseDelta(msgspec.Struct, frozen=True):
    """A tool call is being written: its `name` is known, its input grows (for spinners)."""

    index: int
    name: str


class Reading(msgspec.Struct, frozen=True):
    """The model is still reading: so many of so many tokens of the request. A sign of life."""

    done: int
    total: int


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer is whole: always the last event of a stream that did not fail.

    `content` is the answer as it is logged, signatures and provider data included. `model` is the
    model as the response names it. `stop_reason`: stop, length or toolUse.
    """

    content: tuple[ContentBlock, ...]
    stop_reason: str
    model: str
    usage: Usage | None = None


StreamEvent = TextDelta | ThinkingDelta | ToolUseDelta | Reading | Completed


class Provider(Protocol):
    """A model that can be asked.

    `ref` is whom requests are submitted to, as the log records it. `context_window` and
    `max_answer` (the most that an answer takes of it) are in tokens; 0 means unknown.
    `fills_forms`: whether it can be made to fill in a request's `form`. `takes_tools`: whether it
    is sent a request's tools.
    """

    @property
    def ref(self) -> ModelRef: ...

    @property
    def context_window(self) -> int: ...

    @property
    def max_answer(self) -> int: ...

    @property
    def fills_forms(self) -> bool: ...

    @property
    def takes_tools(self) -> bool: ...

    def warm(self) -> None:
        """Import what the first request needs. Called from a thread while a person types."""

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask the model. Closing the iterator (`aclose`) or cancelling the task ends the request.

        Raises `ProviderError`: before any event was yielded it may be retried by the caller.
        A provider does not retry by itself.
        """

    async def close(self) -> None:
        """Let go of connections."""


def connect(settings: ProviderSettings, environ: Mapping[str, str]) -> Provider:
    """The provider that `settings` describe, with its key from `environ`.

    Asks nothing of the network. Raises `MissingExtra` when a library is not installed,
    `ProviderError` (auth) when a key is missing, `ConfigError` when a setting is not usable.
    """
    match settings.type:
        case "anthropic":
            from awl.providers.anthropic import AnthropicProvider

            key = api_key(settings, environ)
            return AnthropicProvider(with_base_url(settings, environ), key)
        case "openai":
            key = api_key(settings, environ)
            settings = with_base_url(settings, environ)
            if settings.wire == "responses":
                from awl.providers.openai_responses import OpenAIResponsesProvider

                return OpenAIResponsesProvider(settings, key)
            from awl.providers.openai import OpenAIChatProvider

            return OpenAIChatProvider(settings, key)
        case "local":
            from awl.providers.local import LocalProvider

            return LocalProvider(settings)
        case "scripted":
            from awl.providers.scripted import ScriptedProvider

            return ScriptedProvider(settings)
    raise ConfigError(
        f"provider {settings.name!r} has type {settings.type!r}:"
        " allowed are anthropic, openai, local and scripted",
        key="type",
    )


def with_base_url(settings: ProviderSettings, environ: Mapping[str, str]) -> ProviderSettings:
    """`settings` with the base URL that the SDK's own variable names, if they name none.

    Taken here and not by the SDK, so that the log records where requests went.
    """
    url = environ.get(URL_VARIABLES.get(settings.type, ""), "").strip()
    if settings.base_url or not url:
        return settings
    return msgspec.structs.replace(settings, base_url=url)


def api_key(settings: ProviderSettings, environ: Mapping[str, str]) -> str:
    """The key for `settings`, from the variable that they name or their type's own.

    A configured server of one's own (`base_url`) is never sent the key of the type's own provider:
    without `api_key_env` it gets a placeholder. One that the SDK's own variable names gets that
    SDK's key, if there is one.
    """
    if settings.base_url and not settings.api_key_env:
        return PLACEHOLDER_KEY
    variable = settings.api_key_env or KEY_VARIABLES[settings.type]
    if key := environ.get(variable, "").strip():
        return key
    if not settings.api_key_env and with_base_url(settings, environ).base_url:
        return PLACEHOLDER_KEY
    raise ProviderError(
        f"no API key for {settings.name}: set {variable}, or choose another provider"
        " (`--provider local` needs no key)",
        fault="auth",
    )
