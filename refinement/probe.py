"""Finds out whether a session with a model can start, before the session is opened.

An error of the server's configuration, such as a missing API key, must not cost the agent a session.
"""

from collections.abc import Iterable

from django.conf import settings

from memory.models import Agent
from refinement import providers
from refinement.llm.base import Message, ModelError, ModelNotConfigured, ModelUnavailable, NoModel, Request
from refinement.llm.catalog import open_model
from refinement.models import Provider

SECONDS = 120.0  # a server may have to load the model first


def trouble(agent: Agent, *, calls: bool = False) -> ModelError | None:
    """The reason why no session of the agent can start, or None.

    If the model has never answered, if its last calls failed, or with `calls`, the model is called with a fixed
    question. If several workers test a model, only one of them calls it at a time (`refinement.providers`).
    """
    try:
        opened, name = open_model(agent.model, agent)
        if not calls and (agent.model.startswith("builtin/") or providers.is_proven(agent)):
            return None
        seconds = min(SECONDS, settings.MODEL_CALL_SECONDS)
        question = Message("user", "Answer with one word: yes.")
        opened.complete(Request(model=name, messages=(question,), max_output_tokens=16, seconds=seconds, retries=0))
    except (ModelUnavailable, NoModel) as unavailable:
        return unavailable
    except ModelNotConfigured as missing:
        providers.refuse(agent.model)
        return missing
    except ModelError as refusal:
        if refusal.is_configuration:
            providers.refuse(agent.model, str(refusal))
            return refusal
    return None


def problems(models: Iterable[str]) -> dict[str, str]:
    """Map those of the models that the server's configuration makes unusable to the reason. No model is called."""
    models = set(models)
    found = dict(Provider.objects.filter(name__in=models).exclude(problem="").values_list("name", "problem"))
    for model in models:
        try:
            open_model(model)
        except ModelNotConfigured as missing:
            found[model] = str(missing)
    return found
