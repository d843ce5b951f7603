"""How a test of a fleet ends: every agent refined, and nothing wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.jobs import inside
from tests.jobs.fleet import Fleet


def refine_all(fleet: Fleet, meanwhile: Callable[[], bool] = lambda: True, seconds: float = 90) -> None:
    """Tend the fleet, and look round as the schedules do, until every agent is refined and `meanwhile`, which is called
    over and over, is done as well."""
    next_look = 0.0

    def is_done() -> bool:
        nonlocal next_look
        is_ready = meanwhile()
        if time.monotonic() < next_look:
            return False
        next_look = time.monotonic() + 1
        return _look_round(fleet) and is_ready

    fleet.until(is_done, seconds, tended=True)


def _look_round(fleet: Fleet) -> bool:
    """Whether every agent is refined."""
    fleet.do(inside.let_time_pass)
    fleet.do(inside.look_round)
    now = fleet.do(inside.standing)
    return bool(now["refined"] == now["agents"] and not now["due"] and not now["open"])


def wrong_with(fleet: Fleet, told: dict[str, Any]) -> list[str]:
    """What is not as it should be after all that, in words: something waits for ever, a worker does not end when it is
    asked to, a session or an edit is amiss, the trail does not verify, or a memory's words are in a log."""
    waits = _waits(fleet)
    fleet.until(lambda: all(worker.is_ready for worker in fleet.workers), tended=True)
    ends = [f"a worker ended with code {code}" for code in fleet.stop() if code]
    told |= fleet.do(inside.told)
    verified = fleet.installation.manage("verify_audit", "--all", **fleet.environment)
    trail = verified.out.splitlines() if verified.code else []
    edits = [f"{told[what]} edits {what}" for what in ("lost", "doubled") if told[what]]
    return [*waits, *ends, *told.pop("wrong"), *edits, *trail, *(f"a memory's words: {log}" for log in fleet.leaks())]


def _waits(fleet: Fleet) -> list[str]:
    next_look = time.monotonic() + 1

    def is_over() -> bool:
        nonlocal next_look
        now = fleet.do(inside.standing)
        if (now["waiting"] or now["queued"]) and time.monotonic() > next_look:
            next_look = time.monotonic() + 1
            _look_round(fleet)
        return not (now["waiting"] or now["queued"])

    try:
        fleet.until(is_over, 30, tended=True)
    except TimeoutError:
        return [f"something waits for ever: {fleet.do(inside.standing)}"]
    return []


def is_clean(fleet: Fleet) -> bool:
    wrong = wrong_with(fleet, {})
    assert wrong == [], f"{wrong}\n{fleet.said()}"
    return True
