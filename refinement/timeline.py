"""The timeline of a session: one line for each call, without content."""

import time

from django.utils import timezone

from refinement import tools
from refinement.effects import CallContext
from refinement.models import SessionStep


def add_step(call: CallContext, name: str, started: float) -> None:
    """Add one line to the session's timeline."""
    taken = round((time.perf_counter() - started) * 1_000_000)
    call.session.own_microseconds += taken
    SessionStep.objects.create(
        session_id=call.session.pk,
        agent_id=call.session.agent_id,
        at=timezone.now(),
        tool=name if name in tools.TOOLS else "unknown",
        result=call.code,
        memories=call.memories,
        core_tokens=call.agent.core_tokens,
        microseconds=taken,
    )
