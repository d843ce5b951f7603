"""The end of each test of a fleet: every agent is refined, and nothing is wrong."""

import time
from collections.abc import Callable
from typing import Any

from tests.jobs import inside
from tests.jobs.fleet import Fleet


def refine_all(fleet: Fleet, disturb: Callable[[], bool] = lambda: True, seconds: float = 90) -> None:
    """Supervise the fleet and run the schedules until every agent is refined. `disturb` is called again and again until
    it returns true."""
    next_sweep = 0.0

    def is_done() -> bool:
        nonlocal next_sweep
        has_disturbed = disturb()
        if time.monotonic() < next_sweep:
            return False
        next_sweep = time.monotonic() + 1
        return _sweep(fleet) and has_disturbed

    fleet.until(is_done, seconds, supervised=True)


def _sweep(fleet: Fleet) -> bool:
    """Run the schedules. Returns whether every agent is refined."""
    fleet.do(inside.let_time_pass)
    fleet.do(inside.queue_schedules)
    counts = fleet.do(inside.counts)
    return bool(counts["refined"] == counts["agents"] and not counts["due"] and not counts["open"])


def find_problems(fleet: Fleet) -> tuple[dict[str, Any], list[str]]:
    """Stop the fleet. Returns figures, and problems: an endless wait, a worker that does not end, a wrong session or
    edit, an invalid trail, content in a log."""
    waits = _endless_waits(fleet)
    fleet.until(lambda: all(worker.is_ready for worker in fleet.workers), supervised=True)
    ends = [f"a worker ended with code {code}" for code in fleet.stop() if code]
    figures = fleet.do(inside.report)
    verified = fleet.installation.manage("verify_audit", "--all", **fleet.environment)
    trail = verified.out.splitlines() if verified.code else []
    edits = [f"{figures[name]} edits {name}" for name in ("lost", "doubled") if figures[name]]
    content = [f"content of a memory: {log}" for log in fleet.leaks()]
    return figures, [*waits, *ends, *figures.pop("problems"), *edits, *trail, *content]


def _endless_waits(fleet: Fleet) -> list[str]:
    next_sweep = time.monotonic() + 1

    def is_over() -> bool:
        nonlocal next_sweep
        counts = fleet.do(inside.counts)
        if (counts["waiting"] or counts["queued"]) and time.monotonic() > next_sweep:
            next_sweep = time.monotonic() + 1
            _sweep(fleet)
        return not (counts["waiting"] or counts["queued"])

    try:
        fleet.until(is_over, 30, supervised=True)
    except TimeoutError:
        return [f"an endless wait: {fleet.do(inside.counts)}"]
    return []


def assert_clean(fleet: Fleet) -> None:
    _, problems = find_problems(fleet)
    assert problems == [], f"{problems}\n{fleet.last_log_lines()}"
