"""Tests a model whose last calls failed, before a session with this model is opened."""

from __future__ import annotations

from django.conf import settings

from refinement.llm.base import Message, ModelError, ModelUnavailable, Request
from refinement.llm.catalog import open_model

SECONDS = 120.0  # a server may have to load the model first


def is_available(model: str) -> bool:
    """Whether the model responds to one call with a fixed question. A refusal counts as a response. If several workers
    test a model, only one of them calls it at a time (`refinement.providers`)."""
    try:
        opened, name = open_model(model)
        seconds = min(SECONDS, settings.MODEL_CALL_SECONDS)
        question = Message("user", "Answer with one word: yes.")
        opened.complete(Request(model=name, messages=(question,), max_output_tokens=16, seconds=seconds, retries=0))
    except ModelUnavailable:
        return False
    except ModelError:
        pass
    return True
