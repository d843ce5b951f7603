"""Embedders: they turn texts into vectors. An agent's setting has the form `provider/name`, as for a model.

`openai/NAME` and `ollama/NAME` use the addresses and keys of the models. `local/NAME` runs on this machine
(`refinement/llm/local.py`). Every embedder raises only `ModelError`.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from django.conf import settings
from pydantic import FailFast, ValidationError

from refinement.llm import http, ollama, openai
from refinement.llm.base import Message, ModelError, ModelNotConfigured, Request, json_value
from refinement.llm.vectors import MAX_DIMENSIONS, Embedded, Embedder, checked, invalid
from refinement.providers import EmbedderAvailability

PROVIDERS = ("openai", "ollama", "local")
LONGEST = 200  # characters, as in the agent's row
# Limits of a reply. Without them, a server could occupy much time and RAM, even for one query.
NUMBER_BYTES, OTHER_BYTES = 32, 65_536
OTHER_PARTS = 100  # lists and objects in a reply, besides two for each vector

Numbers = Annotated[list[float], FailFast()]


class _Tokens(http.Wire):
    prompt_tokens: http.Count = 0


class _Item(http.Wire):
    index: int
    embedding: Numbers


class _OpenAIAnswer(http.Wire):
    data: Annotated[list[_Item], FailFast()]
    usage: _Tokens | None = None

    def embedded(self) -> tuple[list[list[float]], int]:
        items = sorted(self.data, key=lambda item: item.index)
        if [item.index for item in items] != list(range(len(items))):
            return [], 0
        return [item.embedding for item in items], self.usage.prompt_tokens if self.usage else 0


class _OllamaAnswer(http.Wire):
    embeddings: Annotated[list[Numbers], FailFast()]
    prompt_eval_count: http.Count | None = None

    def embedded(self) -> tuple[list[list[float]], int]:
        return self.embeddings, self.prompt_eval_count or 0


class _OpenAI(openai.OpenAI):
    what = "embedder"
    path = "/embeddings"
    vectors = _OpenAIAnswer

    def body(self, request: Request) -> dict[str, Any]:
        return {"model": request.model, "input": [m.text for m in request.messages], "encoding_format": "float"}


class _Ollama(ollama.Ollama):
    what = "embedder"
    path = "/api/embed"
    vectors = _OllamaAnswer

    def body(self, request: Request) -> dict[str, Any]:
        return {"model": request.model, "input": [m.text for m in request.messages], "truncate": True}


class _Remote:
    """An embedder on an HTTP server."""

    def __init__(self, server: _OpenAI | _Ollama, name: str) -> None:
        self._server, self._name = server, name

    def embed(self, texts: Sequence[str], *, seconds: float, retries: int) -> Embedded:
        messages = tuple(Message("user", text) for text in texts)
        size = len(texts) * MAX_DIMENSIONS * NUMBER_BYTES + OTHER_BYTES
        request = Request(model=self._name, messages=messages, seconds=seconds, retries=retries, reply_bytes=size)
        try:
            body = http.Call(self._server, request).response()
        except ModelError as error:
            error.__cause__ = error.__context__ = None  # they refer to the request, which has the key and the texts
            raise
        if body.count(b"[") + body.count(b"{") > 2 * len(texts) + OTHER_PARTS:
            raise invalid(self._server.who, "does not follow its protocol")
        try:
            vectors, tokens = self._server.vectors.model_validate(json_value(body)).embedded()
        except ValidationError:
            raise invalid(self._server.who, "does not follow its protocol") from None
        return Embedded(checked(vectors, len(texts), self._server.who), tokens)


def parse(embedder: str) -> tuple[str, str]:
    """Split `provider/name`. Raises ModelNotConfigured."""
    provider, _, name = embedder.partition("/")
    if provider not in PROVIDERS or not name or len(embedder) > LONGEST or not embedder.isprintable():
        problem = f"Write an embedder as provider/name, or none. The provider must be one of: {', '.join(PROVIDERS)}."
        raise ModelNotConfigured(problem)
    if provider == "local" and not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
        raise ModelNotConfigured("The name of a local embedder has only letters, digits and . _ -")
    if provider != "local" and settings.MODELS and not any(fnmatchcase(embedder, each) for each in settings.MODELS):
        raise ModelNotConfigured(f"This server does not allow this embedder. Use one of: {', '.join(settings.MODELS)}.")
    return provider, name


def open_embedder(embedder: str, availability: EmbedderAvailability | None = None) -> Embedder:
    """The embedder. Makes no call. Raises ModelNotConfigured. `availability` is for calls on behalf of an agent."""
    provider, name = parse(embedder)
    if provider == "local":
        from refinement.llm import local

        return local.open_model(name)
    if provider == "openai":
        return _Remote(_OpenAI(settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL, availability), name)
    return _Remote(_Ollama(settings.OLLAMA_BASE_URL, availability), name)
