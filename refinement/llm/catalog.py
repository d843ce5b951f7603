"""Opens the model of an agent. The agent's setting has the form `provider/name`. The name may contain slashes too."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from django.conf import settings

from memory.models import Agent
from refinement.llm.base import Model, ModelNotConfigured, NoModel
from refinement.providers import Availability

PROVIDERS = ("openai", "anthropic", "ollama", "builtin")
BUILTIN = ("builtin/archive", "builtin/dedupe")
LONGEST = 200  # length of the column


def parse(model: str) -> tuple[str, str]:
    """Split `provider/name` into the provider and the name that the provider uses for the model. Raises
    `ModelNotConfigured`."""
    if model != model.strip() or not model.isprintable() or len(model) > LONGEST:
        raise ModelNotConfigured(f"A model has up to {LONGEST} characters, no control character, no space at its ends.")
    provider, _, name = model.partition("/")
    if provider not in PROVIDERS or not name:
        choices = ", ".join(PROVIDERS)
        raise ModelNotConfigured(f"Write a model as provider/name. The provider must be one of: {choices}.")
    if provider == "builtin" and model not in BUILTIN:
        raise ModelNotConfigured(f"The built-in models are {' and '.join(BUILTIN)}.")
    if settings.MODELS and not any(fnmatchcase(model, pattern) for pattern in settings.MODELS):
        raise ModelNotConfigured(f"This server does not allow this model. Use one of: {', '.join(settings.MODELS)}.")
    return provider, name


def weight(model: str) -> int:
    """The number by which the tokens of a model are multiplied: that of the first pattern in MODELS that matches."""
    return next((weight for pattern, weight in settings.MODELS.items() if fnmatchcase(model, pattern)), 1)


def open_model(
    model: str, agent: Agent | None = None, require: Callable[[Agent], None] = lambda _: None
) -> tuple[Model, str]:
    """The adapter for a model, and the model's name for the adapter's requests. Makes no call. Raises
    `ModelNotConfigured`.

    If `agent` is set, the calls are on behalf of this agent. They wait while the model is closed, and report their
    results (`refinement.providers`). Before each attempt, `require` is called: it raises an error if the texts of the
    request may not be sent any more. Its argument is the proven present row of the agent.

    An adapter is imported only when it is first used, because it loads an HTTP client or a library that compares words.
    """
    if not model:
        raise NoModel
    provider, name = parse(model)
    if (provider, name) == ("builtin", "archive"):
        from refinement.llm.archive import Archive

        return Archive(agent), name
    if provider == "builtin":
        from refinement.llm.dedupe import Dedupe

        return Dedupe(), name
    from refinement.llm import anthropic, ollama, openai

    availability = Availability(model, agent, require) if agent else None
    if provider == "openai":
        return openai.OpenAI(settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL, availability), name
    if provider == "anthropic":
        return anthropic.Anthropic(settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL, availability), name
    return ollama.Ollama(settings.OLLAMA_BASE_URL, availability), name
