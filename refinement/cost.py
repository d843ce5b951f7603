"""What a session costs: an estimate before it, and prices for both the estimate and the tokens that it used."""

from fnmatch import fnmatchcase

from django.conf import settings

from refinement import ledger
from refinement.llm.base import Usage
from refinement.models import RefinementSession

# The estimate, from honest merges of two LoCoMo ledgers. All figures are tokens, except the number of edits in a reply.
FIXED = 2_500  # rules, tools and briefing
LINE = 4  # of a memory in the ledger, without its text
SAVED, WRITTEN, ANSWERED = 45, 170, 60  # by one edit: saved, written by the model, and in the answer to it
EDITS_IN_A_REPLY = 12


def expected(model: str, tokens: int, memories: int, target: int, context_tokens: int | None) -> Usage:
    """The estimated tokens of a session that refines `tokens` in `memories` to the target, without a cache. Each reply
    needs the whole conversation of its batch."""
    if model.startswith("builtin/"):
        return Usage()
    whole = tokens + LINE * memories
    batches = max(1, -(-whole // max(1, ledger.batch_tokens(context_tokens))))
    edits = -(-max(0, tokens - target) // SAVED)
    replies = 1 + -(-edits // (batches * EDITS_IN_A_REPLY))  # of a batch
    talk = (WRITTEN + ANSWERED) * edits * (replies - 1) // 2  # the conversation so far, in all prompts
    return Usage(prompt=replies * (batches * FIXED + whole) + talk, completion=WRITTEN * (edits + batches))


def of_session(session: RefinementSession) -> Usage:
    """The estimated tokens of a session, from its figures when it opened."""
    tokens = session.tokens_before - session.repeated_tokens
    context = session.agent.context_tokens
    return expected(session.model, tokens, session.memories_before, session.target_tokens, context)


def price(model: str, usage: Usage) -> float | None:
    """The price of these tokens, in the currency of MODEL_PRICES. None if the model has no price there."""
    for pattern, (prompt, cached, completion) in settings.MODEL_PRICES.items():
        if fnmatchcase(model, pattern):
            total = prompt * (usage.prompt - usage.cached) + cached * usage.cached + completion * usage.completion
            return round(total / 1e6, 4)
    return None


def figures(session: RefinementSession) -> dict[str, int | float | None]:
    """The expected and the actual cost of a session. The actual price is None if a runtime calls the model."""
    estimate = of_session(session)
    return {
        "expected_prompt_tokens": estimate.prompt,
        "expected_completion_tokens": estimate.completion,
        "expected_price": price(session.model, estimate),
        **{name: getattr(session, name) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")},
        "price": price(session.model, session.used) if session.model_calls else None,
    }
