"""From an agent's setting to a model that can be called, or to an error that says what is missing."""

from __future__ import annotations

from typing import Any

import pytest

from refinement.llm import catalog
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import ModelNotConfigured
from refinement.llm.dedupe import Dedupe
from refinement.llm.ollama import Ollama
from refinement.llm.openai import OpenAI


@pytest.fixture(autouse=True)
def _configured(settings: Any) -> None:
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "key"
    settings.OPENAI_BASE_URL = "https://api.openai.com/v1"
    settings.ANTHROPIC_BASE_URL = "https://api.anthropic.com"
    settings.OLLAMA_BASE_URL = "http://127.0.0.1:11434"


@pytest.mark.parametrize(
    ("model", "kind", "name"),
    [
        ("openai/meta-llama/Llama-3", OpenAI, "meta-llama/Llama-3"),
        ("anthropic/claude", Anthropic, "claude"),
        ("ollama/llama3:8b", Ollama, "llama3:8b"),
        ("builtin/dedupe", Dedupe, "dedupe"),
    ],
)
def test_a_model_is_split_at_the_first_slash(model: str, kind: type, name: str) -> None:
    opened, own_name = catalog.open_model(model)
    assert (type(opened), own_name) == (kind, name)


@pytest.mark.parametrize("model", ["", "openai", "openai/", "/gpt", "OpenAI/gpt", "marker/gpt"])
def test_an_unknown_provider_or_no_name_is_refused(model: str) -> None:
    with pytest.raises(ModelNotConfigured, match="openai, anthropic, ollama, builtin") as caught:
        catalog.parse(model)
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("model", ["openai/gpt\nX: y", "openai/g\x00", " openai/gpt", "openai/" + "x" * 194])
def test_a_model_that_would_break_a_line_is_refused(model: str) -> None:
    with pytest.raises(ModelNotConfigured, match="control character") as caught:
        catalog.parse(model)
    assert "gpt" not in str(caught.value)


def test_there_is_one_built_in_program() -> None:
    with pytest.raises(ModelNotConfigured, match="builtin/dedupe"):
        catalog.parse("builtin/gpt")


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"])
def test_a_missing_key_is_named_before_any_call(settings: Any, variable: str) -> None:
    setattr(settings, variable, "")
    with pytest.raises(ModelNotConfigured, match=variable):
        catalog.open_model(f"{variable.split('_')[0].lower()}/any")


def test_a_compatible_server_needs_no_key(settings: Any) -> None:
    settings.OPENAI_API_KEY = ""
    settings.OPENAI_BASE_URL = "http://127.0.0.1:8000/v1"
    opened, _ = catalog.open_model("openai/local")
    assert isinstance(opened, OpenAI)
    assert "Authorization" not in opened.headers


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
def test_an_unusable_address_is_found_before_any_call(settings: Any, provider: str) -> None:
    setattr(settings, f"{provider.upper()}_BASE_URL", "not a url")
    with pytest.raises(ModelNotConfigured, match="address"):
        catalog.open_model(f"{provider}/any")
