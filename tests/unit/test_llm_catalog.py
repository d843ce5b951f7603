"""From an agent's setting to something that can be called, or to a message that says what is missing."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from refinement.llm import catalog
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import ModelNotConfigured
from refinement.llm.ollama import Ollama
from refinement.llm.openai import OpenAI


@pytest.fixture(autouse=True)
def _configured(settings: Any) -> None:
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "key"
    settings.OPENAI_BASE_URL = "https://api.openai.com/v1"
    settings.ANTHROPIC_BASE_URL = "https://api.anthropic.com"
    settings.OLLAMA_BASE_URL = "http://127.0.0.1:11434"


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("openai/gpt-4.1", ("openai", "gpt-4.1")),
        ("openai/meta-llama/Llama-3", ("openai", "meta-llama/Llama-3")),
        ("ollama/llama3:8b", ("ollama", "llama3:8b")),
        ("builtin/dedupe", ("builtin", "dedupe")),
    ],
)
def test_a_model_is_split_at_the_first_slash(model: str, parts: tuple[str, str]) -> None:
    assert catalog.parse(model) == parts


def test_anything_else_names_the_providers() -> None:
    for model in ["", "/", "gpt-4.1", "openai", "openai/", "/gpt", "OpenAI/gpt", "marker/gpt"]:
        with pytest.raises(ModelNotConfigured, match="openai, anthropic, ollama, builtin") as caught:
            catalog.check(model)
        assert "marker" not in str(caught.value)


@pytest.mark.parametrize(
    "model", ["openai/gpt\nX: y", "openai/gpt\r", "openai/g\x00", " openai/gpt", "openai/gpt ", "openai/" + "x" * 194]
)
def test_a_model_that_would_break_a_line_is_refused(model: str) -> None:
    with pytest.raises(ModelNotConfigured, match="control character") as caught:
        catalog.parse(model)
    assert "gpt" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "kind"), [("openai/gpt", OpenAI), ("anthropic/claude", Anthropic), ("ollama/llama3", Ollama)]
)
def test_a_model_is_opened_with_its_name(model: str, kind: type) -> None:
    opened, name = catalog.open_model(model)
    assert (type(opened), name) == (kind, model.split("/")[1])


@pytest.mark.parametrize(
    ("model", "variable"), [("openai/gpt", "OPENAI_API_KEY"), ("anthropic/claude", "ANTHROPIC_API_KEY")]
)
def test_a_missing_key_is_named_before_any_call(settings: Any, model: str, variable: str) -> None:
    setattr(settings, variable, "")
    with pytest.raises(ModelNotConfigured, match=variable):
        catalog.check(model)


def test_a_compatible_server_needs_no_key(settings: Any) -> None:
    settings.OPENAI_API_KEY = ""
    settings.OPENAI_BASE_URL = "http://127.0.0.1:8000/v1"
    catalog.check("openai/local")


@pytest.mark.parametrize(
    ("model", "variable"),
    [("openai/x", "OPENAI_BASE_URL"), ("anthropic/x", "ANTHROPIC_BASE_URL"), ("ollama/x", "OLLAMA_BASE_URL")],
)
def test_an_unusable_address_is_found_before_any_call(settings: Any, model: str, variable: str) -> None:
    setattr(settings, variable, "not a url")
    with pytest.raises(ModelNotConfigured, match="address"):
        catalog.check(model)


def test_the_built_in_program_is_loaded_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("refinement.llm.dedupe")
    module.Dedupe = type("Dedupe", (), {})
    monkeypatch.setitem(sys.modules, "refinement.llm.dedupe", module)
    assert type(catalog.open_model("builtin/dedupe")[0]) is module.Dedupe


def test_there_is_one_built_in_program() -> None:
    for ask in (catalog.parse, catalog.check):
        with pytest.raises(ModelNotConfigured, match="builtin/dedupe"):
            ask("builtin/gpt")
