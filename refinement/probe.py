"""Finding out whether a provider that did not answer does again, before a session is begun in vain."""

from __future__ import annotations

from django.conf import settings

from refinement.llm.base import Message, ModelError, ModelUnavailable, Request
from refinement.llm.catalog import open_model

SECONDS = 120.0  # a server may have to load its model first


def answers(model: str) -> bool:
    """Call the model once, with a word of our own. That it refuses is an answer. (The gate lets one caller through.)"""
    try:
        opened, name = open_model(model)
        seconds = min(SECONDS, settings.MODEL_CALL_SECONDS)
        ask = Message("user", "Answer with one word: yes.")
        opened.complete(Request(model=name, messages=(ask,), max_output_tokens=16, seconds=seconds, retries=0))
    except ModelUnavailable:
        return False
    except ModelError:
        pass
    return True
