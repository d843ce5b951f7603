"""Finds out whether a session with a model can start, before the session is opened.

An error of the server's configuration, such as a wrong API key, must not cost the agent a session.
"""

from collections.abc import Iterable

from django.conf import settings
from django.utils import timezone

from memory.models import Agent
from refinement import allowance
from refinement.llm.base import NO_SUCH_MODEL, Message, ModelError, ModelNotConfigured, ModelUnavailable, Request
from refinement.llm.catalog import BUILTIN, PROVIDERS, open_model, parse
from refinement.models import Provider
from refinement.providers import of

SECONDS = 120.0  # a server may have to load the model first


def trouble(agent: Agent) -> ModelError | None:
    """The reason why no session of the agent can start, or None.

    The model is called with a fixed question, unless it is built in. If a model fails, only one worker tests it at a
    time (`refinement.providers`).
    """
    try:
        opened, name = open_model(agent.model, agent)
        if agent.model.startswith("builtin/"):
            return None
        seconds = min(SECONDS, settings.MODEL_CALL_SECONDS)
        question = Message("user", "Answer with one word: yes.")
        request = Request(model=name, messages=(question,), max_output_tokens=16, seconds=seconds, retries=0)
        tokens = opened.complete(request).usage.charged  # somebody may cancel their dream now, again and again
        allowance.add(agent.tenant_id, agent.model, tokens, timezone.now())
    except ModelError as problem:
        return problem if isinstance(problem, ModelUnavailable) or problem.is_configuration else None
    return None


def problems(models: Iterable[str]) -> dict[str, str]:
    """Map those of the models that the server's configuration makes unusable to the reason. No model is called."""
    models, found = set(models), {}
    if any(of(model) != "builtin" for model in models):
        rows = Provider.objects.exclude(problem="").values_list("name", "problem")  # few, but there may be many models
        found = {name: problem for name, problem in rows if name in models}
    for model in models:
        try:
            open_model(model)
        except ModelNotConfigured as missing:
            found[model] = str(missing)
    return found


def usable(models: Iterable[str]) -> list[str]:
    """Those of the models that the server's configuration makes usable, with the built-in models and the models that
    the settings MODELS and MODEL_PRICES name. No model is called."""
    named = {*BUILTIN, *models, *settings.MODELS, *settings.MODEL_PRICES} - {""}
    named = {each for each in named if not set("*?[") & set(each)}  # a pattern is not a model
    return sorted(named - problems(named).keys())


def configured_providers() -> list[str]:
    """The providers that the server's configuration makes usable, for all models or for those in the setting MODELS."""
    samples = {*BUILTIN, *settings.MODELS, *(f"{provider}/any" for provider in PROVIDERS)}
    return sorted({of(each) for each in samples - problems(samples).keys()})


def problem_of_name(model: str) -> str:
    """The problem of a model that the agent's side can correct with another name, or an empty text."""
    try:
        parse(model)
    except ModelNotConfigured as malformed:
        return str(malformed)
    is_unknown = Provider.objects.filter(name=model, problem__contains=NO_SUCH_MODEL).exists()
    return "The server has no such model." if is_unknown else ""
