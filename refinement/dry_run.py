"""The dry run of a session. It calls no model and changes nothing."""

from __future__ import annotations

from typing import Any

from memory.models import Agent
from memory.policy import switches, tokens
from memory.writing import duplicates
from refinement import ledger, limits, schedule
from refinement.models import Mode


def preview(agent: Agent, mode: str = Mode.FULL) -> dict[str, Any]:
    """Return the reason why the agent is due, the agent's figures and limits, and the size of its ledger. No content is
    included.

    Raises MemoryDisabled.
    """
    switches.require_on(agent)
    removable = {memory.number for memory in duplicates.removable(agent)}
    entries = [e for e in ledger.read(agent) if e.memory.number not in removable]
    batches = ledger.batches(entries)
    return {
        "mode": mode,
        "model": agent.model,
        "due": schedule.why(agent) or None,
        "tokens": agent.core_tokens,
        "target": agent.target_tokens,
        "budget": agent.budget_tokens,
        "floor": limits.floor(agent.retention, agent.target_tokens, agent.high_water_tokens),
        "memories": agent.core_count,
        "constitutional": agent.constitutional_count,
        "duplicates": len(removable),
        "batches": len(batches),
        "ledger_tokens": sum(tokens.count(ledger.text(batch)) for batch in batches),
        **limits.of(agent),
    }
