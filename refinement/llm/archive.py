"""`builtin/archive`: a program that replaces a language model. So an agent without a model keeps its budget.

It demotes the memories that searches returned least often, and of these the oldest, until the target is reached. It
reads no content: it uses only numbers, dates and sizes. It uses no network and no tokens.
"""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models.functions import Coalesce
from django.utils import timezone

from memory.models import Agent
from memory.recording import usage
from refinement import ledger
from refinement.llm.base import Reply, Request, tool_calls
from refinement.models import Outcome, RefinementSession

MIN_AGE = timedelta(days=14)  # of a memory that it demotes
EDITS_A_CALL, CALLS_A_REPLY = 25, 50  # few edits, because the agent is locked during a call
_SUMMARY = (
    "This is builtin/archive, a deterministic program, not a language model. It reads nothing. It demotes the memories "
    "that searches returned least often, and of these the oldest. Search still finds them."
)


class Archive:
    """A `Model` for the open session of an agent."""

    def __init__(self, agent: Agent | None) -> None:
        self._agent = agent

    def complete(self, request: Request) -> Reply:
        """Reply with calls of `apply`, or with `complete_refinement` if nothing is left to demote."""
        past = [call.arguments or {} for message in request.messages for call in message.tool_calls]
        tried = {edit["arguments"]["id"] for arguments in past for edit in arguments.get("edits", ())}
        numbers: list[int] = []
        if any(tool.name == "demote_memory" for tool in request.tools):
            session = RefinementSession.objects.get(agent=self._agent, outcome=Outcome.OPEN)
            numbers = [number for number in _chosen(session, tried) if str(number) in session.shown]
        edits = [{"tool": "demote_memory", "arguments": {"id": number}} for number in numbers]
        parts = [edits[start : start + EDITS_A_CALL] for start in range(0, len(edits), EDITS_A_CALL)]
        wanted = [(None, "apply", {"edits": part}) for part in parts[:CALLS_A_REPLY]]
        finish = (None, "complete_refinement", {"summary": _SUMMARY})
        return Reply(_SUMMARY, tool_calls(wanted or [finish], request), stop="tool_calls", calls=0)


def _chosen(session: RefinementSession, tried: set[int]) -> Iterator[int]:
    """The memories that must be demoted to reach the target, in all batches. Memories that are so large that the floor
    would be reached are left out."""
    agent, recalled = session.agent, usage.times(session.agent)
    excess = agent.core_tokens - session.target_tokens
    room = min(session.counted_tokens, agent.core_tokens - agent.duplicate_tokens) - session.floor_tokens
    rows = ledger.refinable(agent).filter(constitutional=False)
    old = rows.annotate(last=Coalesce("origin_latest", "origin")).filter(last__lte=timezone.now() - MIN_AGE)
    found = old.order_by("last", "number").values_list("number", "tokens")
    for number, tokens in sorted(found, key=lambda row: recalled.get(row[0], 0)):
        if number not in tried and excess > 0 and tokens <= room:
            excess, room = excess - tokens, room - tokens
            yield number
