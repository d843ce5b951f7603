"""Which model an agent's setting names, and whether it can be called.

A model is written `provider/name` and split at the first slash, for names have slashes of their own.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings

from refinement.llm.base import Model, ModelNotConfigured
from refinement.providers import Gate

PROVIDERS = ("openai", "anthropic", "ollama", "builtin")
LONGEST = 200  # of the column


def parse(model: str) -> tuple[str, str]:
    """(provider, the provider's own name for the model). Raises `ModelNotConfigured`."""
    if model != model.strip() or not model.isprintable() or len(model) > LONGEST:
        raise ModelNotConfigured(
            f"A model has at most {LONGEST} characters, no control character, and no white space at its ends."
        )
    provider, _, name = model.partition("/")
    if provider not in PROVIDERS or not name:
        choices = ", ".join(PROVIDERS)
        raise ModelNotConfigured(f"A model is written provider/name, and the provider is one of: {choices}.")
    if provider == "builtin" and name != "dedupe":
        raise ModelNotConfigured("The only built-in model is builtin/dedupe.")
    return provider, name


def open_model(model: str) -> tuple[Model, str]:
    """What answers for this model, and the name to put in its requests. Calls nobody; raises `ModelNotConfigured`."""
    provider, name = parse(model)
    return _OPENERS[provider](name), name


def check(model: str) -> None:
    """Raise `ModelNotConfigured` unless the model could be called as things are set. Calls nobody."""
    open_model(model)


# Each brings its own protocol's shapes with it, or word matching, which the others do without: imported when opened.


def _openai(name: str) -> Model:
    from refinement.llm.openai import OpenAI

    opened = OpenAI(settings.OPENAI_API_KEY or "", settings.OPENAI_BASE_URL, gate=Gate(f"openai/{name}"))
    if opened.official and not settings.OPENAI_API_KEY:
        raise ModelNotConfigured("OpenAI needs an API key: set OPENAI_API_KEY.")
    return opened


def _anthropic(name: str) -> Model:
    if not settings.ANTHROPIC_API_KEY:
        raise ModelNotConfigured("Anthropic needs an API key: set ANTHROPIC_API_KEY.")
    from refinement.llm.anthropic import Anthropic

    return Anthropic(settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL, gate=Gate(f"anthropic/{name}"))


def _ollama(name: str) -> Model:
    from refinement.llm.ollama import Ollama

    return Ollama(settings.OLLAMA_BASE_URL, gate=Gate(f"ollama/{name}"))


def _builtin(_name: str) -> Model:
    from refinement.llm.dedupe import Dedupe

    return Dedupe()


_OPENERS: dict[str, Callable[[str], Model]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "ollama": _ollama,
    "builtin": _builtin,
}
