"""The reply of an embedder, and what every embedder must ensure."""

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from config.wording import several
from refinement.llm.base import ModelReplyInvalid

MAX_DIMENSIONS = 8_192


class Embedded(NamedTuple):
    """The vectors of texts, in their order. `tokens` is the provider's count, or 0."""

    vectors: list["array[float]"]
    tokens: int


class Embedder(Protocol):
    """`seconds` is the time limit of the call, including retries."""

    def embed(self, texts: Sequence[str], *, seconds: float, retries: int) -> Embedded: ...


def checked(vectors: Sequence[Sequence[float]], count: int, who: str) -> list["array[float]"]:
    """Return the vectors. Raises ModelReplyInvalid unless there are `count` vectors with the same number of dimensions,
    with finite values that are not all 0."""
    if len(vectors) != count:
        raise invalid(who, f"has {several(len(vectors), 'vector')} for {several(count, 'text')}")
    sizes = {len(vector) for vector in vectors}
    if len(sizes) > 1 or not 0 < max(sizes, default=1) <= MAX_DIMENSIONS:
        raise invalid(who, "has vectors with different or with wrong numbers of dimensions")
    found = [array("f", vector) for vector in vectors]
    if not all(any(vector) and math.isfinite(sum(map(abs, vector))) for vector in found):
        raise invalid(who, "has values that are not numbers, or only zeros")
    return found


def invalid(who: str, problem: str) -> ModelReplyInvalid:
    return ModelReplyInvalid(f"{who} sent a reply that {problem}: check the agent's embedder.")
