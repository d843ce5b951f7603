"""A system check: the server's default embedder must be installed."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning, register

from config.checks import OURS


@register(OURS)
def default_embedder_is_there(**_: Any) -> list[CheckMessage]:
    if not settings.EMBEDDER:
        return []
    from refinement.llm.local import problem_of

    problem = problem_of(settings.EMBEDDERS_DIR / settings.EMBEDDER.removeprefix("local/"))
    hint = "Until then, agents without an embedder of their own search by words only."
    return [Warning(f"EMBEDDER is not available: {problem}", hint=hint, id="palimpsest.W004")] if problem else []
