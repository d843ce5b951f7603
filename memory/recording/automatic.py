"""Work for an agent that nobody asked for: it does not wait long, and a fault of one agent stops no other."""

from __future__ import annotations

from collections.abc import Callable

import structlog
from django.db import OperationalError, transaction

from audit.patience import wait_at_most
from config.errors import DomainError

PATIENCE = 1  # seconds for an agent that somebody else holds

log = structlog.get_logger("palimpsest.recording")


def attempt(agent_id: int, act: Callable[[], bool], work: str) -> bool:
    """What `act` returns. False after a fault, such as a missing key: the log names the `work`, and the next task tries
    again."""
    try:
        with transaction.atomic():
            wait_at_most(PATIENCE)
            return act()
    except (DomainError, OperationalError) as failure:
        log.warning("automatic work failed", operation=work, agent=agent_id, error=type(failure).__name__)
        return False
