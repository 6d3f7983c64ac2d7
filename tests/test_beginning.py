"""Which model a name means."""

from __future__ import annotations

import pytest

from awl.beginning import named_model
from awl.config import Config, ProviderSettings
from awl.errors import ConfigError

CONFIG = Config()


@pytest.mark.parametrize(
    ("name", "active", "meant"),
    [
        ("openai", "local", ("openai", "gpt-4o")),
        ("openai/o9", "local", ("openai", "o9")),
        ("gpt-4o", "local", ("openai", "gpt-4o")),
        ("o9", "openai", ("openai", "o9")),
        ("meta/llama", "openai", ("openai", "meta/llama")),
        ("local", "anthropic", ("local", "SmolLM2-135M-Instruct")),
    ],
)
def test_a_name_means_one_model(name: str, active: str, meant: tuple[str, str]) -> None:
    settings = named_model(CONFIG, name, active)
    assert (settings.name, settings.model) == meant


@pytest.mark.parametrize("name", ["nope", "xyz/abc", "local/none"])
def test_the_local_provider_has_the_one_model_it_loads(name: str) -> None:
    with pytest.raises(ConfigError, match="openai/gpt-4o"):
        named_model(CONFIG, name, "local")


def test_a_provider_that_is_not_configured_is_an_error_with_the_choices() -> None:
    here = ProviderSettings(name="here", type="openai", model="q", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(ConfigError, match="choose here"):
        named_model(Config(providers=(here,)), "o9", "gone")
