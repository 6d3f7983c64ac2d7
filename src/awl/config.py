"""Settings: `config.toml` and the environment, read into typed structs.

The file is `$AWL_CONFIG`, else `$XDG_CONFIG_HOME/awl/config.toml`, else `~/.config/awl/config.toml`.
A project's own `.awl/config.toml` is read for `[session.condense]` and `[session.resume]` only: a
cloned repository must not choose where data goes or which tools run.
"""

from __future__ import annotations

import msgspec


class Condense(msgspec.Struct, frozen=True, kw_only=True):
    """`[session.condense]`."""

    condense_provider: str = ""
    threshold: float = 0.85
    keep_recent: int = 20


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """`[session.resume]`."""

    show_banner: bool = True
    expand_default_lines: int = 20


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[session]`."""

    enabled: bool = True
    data_dir: str = ""
    encrypt: bool = False
    max_event_log_mb: int = 256
    condense: Condense = Condense()
    resume: Resume = Resume()


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[agent]`. `approval`: ask, auto or deny."""

    provider: str = ""
    approval: str = "ask"
    max_turns: int = 50


class ProviderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[llm.providers]]`. `type`: anthropic, openai, local or scripted.

    `base_url` empty means the provider type's own endpoint. `wire` (openai only): chat or
    responses. `path` (scripted: the file of turns; local: a GGUF file instead of the shipped one).
    `context_window` is in tokens.
    """

    name: str
    type: str
    model: str = ""
    api_key_env: str = ""
    base_url: str = ""
    context_window: int = 0
    wire: str = "chat"
    path: str = ""
    max_tokens: int = 0
    thinking_budget: int = 0

    @property
    def endpoint(self) -> str | None:
        """Where requests go, when it is not the provider type's own place."""
        return self.base_url or None
