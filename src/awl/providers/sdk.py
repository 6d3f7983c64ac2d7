"""What the providers that use an official SDK have in common: a client for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, Protocol, TypeVar

from awl.config import ProviderSettings
from awl.conversation import ModelRef
from awl.errors import ProviderError
from awl.providers import KEY_VARIABLES, Request
from awl.providers.faults import provider_error


class Client(Protocol):
    """What is asked of an SDK's client here."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)


class SdkProvider(Generic[C]):
    """The part of a provider that does not depend on its wire."""

    def __init__(self, settings: ProviderSettings, default_endpoint: str) -> None:
        if not settings.model:
            raise ProviderError(
                f"no model is set for {settings.name}: set `model` in the config, or use --model",
                fault="model",
            )
        self._settings = settings
        self._endpoint = settings.base_url or default_endpoint
        self._clients: dict[asyncio.AbstractEventLoop, C] = {}

    @property
    def ref(self) -> ModelRef:
        settings = self._settings
        return ModelRef(settings.name, settings.model, settings.endpoint)

    @property
    def context_window(self) -> int:
        return self._settings.context_window

    @property
    def max_answer(self) -> int:
        return self._settings.max_tokens

    @property
    def fills_forms(self) -> bool:
        return True

    @property
    def takes_tools(self) -> bool:
        return True

    def warm(self) -> None:
        """Import what the first request needs. See `Provider.warm`."""
        raise NotImplementedError

    def _body(self, request: Request) -> dict[str, Any]:
        """The request as the wire has it."""
        raise NotImplementedError

    async def _prepare(self, request: Request) -> dict[str, Any]:
        """`_body`, made in a thread: importing an SDK takes a second, and pictures are read."""

        def prepare() -> dict[str, Any]:
            self.warm()
            return self._body(request)

        return await asyncio.to_thread(prepare)

    def _client(self, make: Callable[[], C]) -> C:
        """The client of the running loop: connections cannot be used from another one."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients = {
                other: c for other, c in self._clients.items() if not other.is_closed()
            }
            self._clients[loop] = make()
        return self._clients[loop]

    async def close(self) -> None:
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    @contextlib.asynccontextmanager
    async def _faults(self) -> AsyncGenerator[None, None]:
        """Whatever goes wrong inside is raised as a `ProviderError`."""
        settings = self._settings
        try:
            yield
        except Exception as error:
            raise provider_error(
                error,
                provider=settings.name,
                model=settings.model,
                endpoint=self._endpoint,
                key=settings.api_key_env or KEY_VARIABLES[settings.type],
            ) from error

    def _broken_off(self) -> ProviderError:
        """The error for a stream that ended without its closing event."""
        return ProviderError(
            f"{self._settings.name} broke off in the middle of its answer; try again",
            fault="connection",
        )
