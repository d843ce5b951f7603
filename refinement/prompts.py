"""The first messages of a session, from templates/refinement/. An agent's own prompts are inserted as plain text. They
are never rendered as templates."""

from collections.abc import Sequence
from datetime import timedelta

from django.template.loader import render_to_string

from memory.agents import prompts
from memory.models import Agent
from refinement import dreams, ledger
from refinement.llm.base import Message
from refinement.models import Dream, RefinementSession


def opening(
    agent: Agent, session: RefinementSession, entries: Sequence[ledger.Entry], batch: int, batches: int
) -> list[Message]:
    """The system message and the first user message of one batch. The first batch has the number 1.

    Both messages stay the same during the batch, so a provider's prompt cache can serve them from the second call on.
    """
    own, added = (prompts.opened(agent, name) for name in prompts.NAMES)
    dream = Dream.objects.filter(agent_id=agent.pk, session=session.number).first() if session.store else None
    rules = render_to_string("refinement/rules.txt", {"refinement_prompt": added, "mode": session.mode}).strip()
    system = f"{own.strip()}\n\n{rules}".strip()
    context = {
        "session": session,
        "over_budget": session.tokens_after - session.budget_tokens,
        "over_target": session.tokens_after - session.target_tokens,
        "may_cut": max(0, session.counted_tokens - session.floor_tokens),
        "cadence": cadence(agent.refine_every),
        "batch": batch,
        "batches": batches,
        "ledger": ledger.text(entries),
        "similar": ledger.similar(entries),
        "instructions": dreams.instructions(agent, [dream]).get(dream.number, "") if dream else "",
        "recordings": [ledger.one_line(each) for each in dreams.recordings(agent, dream)] if dream else [],
    }
    template = "refinement/store_briefing.txt" if session.store else "refinement/briefing.txt"
    briefing = render_to_string(template, context).strip()
    return [Message("system", system, stable=True), Message("user", briefing, stable=True)]


def remark(name: str) -> Message:
    """A fixed text for the model: "nudge" or "cut_off"."""
    return Message("user", render_to_string(f"refinement/{name}.txt").strip())


def cadence(every: timedelta | None) -> str:
    """How often an agent is refined, in words."""
    if every is None:
        return "only when you outgrow your budget, or on request"
    days = every.total_seconds() / 86_400
    return f"every {days:g} days, when you outgrow your budget, and on request"
