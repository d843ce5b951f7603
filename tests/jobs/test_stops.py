"""A worker is asked to end: by its first process it lets sessions end, by its group it closes them."""

from __future__ import annotations

import os
import signal

import pytest

from tests.jobs import inside
from tests.jobs.ending import is_clean, refine_all
from tests.jobs.fleet import Fleet, Worker
from tests.jobs.scripted import SlowModel

pytestmark = pytest.mark.postgresql


@pytest.fixture
def model() -> SlowModel:
    return SlowModel(shortest=1, longest=1.5)


def at_work(fleet: Fleet, model: SlowModel, seconds_to_stop: int = 30, agents: int = 2) -> Worker:
    """One worker, in the midst of two sessions."""
    fleet.do(inside.furnish, agents)
    fleet.start(STOP_SECONDS=str(seconds_to_stop))
    fleet.do(inside.look_round)
    fleet.until(lambda: len({whose for whose, _, _ in model.calls}) == 2)
    return fleet.workers[0]


def ended(fleet: Fleet) -> list[tuple[str, str]]:
    return [(session["outcome"], session["reason"]) for session in fleet.do(inside.sessions)]


STOPPED, ABANDONED = ("incomplete", "worker_stopped"), ("abandoned", "lease_expired")


def test_sessions_that_outlast_the_stop_are_closed_and_are_another_s_at_once(fleet: Fleet, model: SlowModel) -> None:
    worker = at_work(fleet, model, seconds_to_stop=1)
    for _ in range(5):
        fleet.do(inside.look_round)
    worker.process.terminate()
    fleet.until(lambda: ended(fleet) == [STOPPED] * 2)
    fleet.until(worker.is_gone, 20)
    assert fleet.do(inside.standing)["due"] == 2
    refine_all(fleet)
    assert is_clean(fleet)
    assert ended(fleet) == [STOPPED, ("completed", "")] * 2


def test_asked_by_its_group_it_closes_sessions_at_once(fleet: Fleet, model: SlowModel) -> None:
    worker = at_work(fleet, model)
    worker.signal_group(signal.SIGTERM)
    fleet.until(lambda: ended(fleet) == [STOPPED] * 2, 5)
    fleet.until(worker.is_gone, 10)
    assert fleet.do(inside.standing)["due"] == 2
    refine_all(fleet)
    assert is_clean(fleet)


def test_asked_by_its_first_process_it_lets_sessions_end_and_begins_nothing_new(fleet: Fleet, model: SlowModel) -> None:
    """Though others stand in line, and tasks have been fetched."""
    parts = at_work(fleet, model, agents=4).parts()
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in parts["works"]] == [10, 10], "who refines yields to others"
    assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in parts["first"] + parts["guards"]] == [0, 0]
    assert fleet.stop() == [0]
    assert ended(fleet) == [("completed", "")] * 2
    refine_all(fleet)
    assert is_clean(fleet)


def test_its_first_process_killed_all_of_it_ends_and_others_go_on(fleet: Fleet, model: SlowModel) -> None:
    worker = at_work(fleet, model)
    worker.process.kill()
    fleet.until(worker.is_gone, 20)
    assert ended(fleet) == [("completed", "")] * 2
    assert is_clean(fleet)


def test_killed_its_agents_are_another_s_when_the_lease_is_over(fleet: Fleet, model: SlowModel) -> None:
    at_work(fleet, model).signal_group(signal.SIGKILL)
    assert ended(fleet) == [("open", "")] * 2
    fleet.until(
        lambda: fleet.do(inside.close_stale) == "closed" and ended(fleet) == [("abandoned", "lease_expired")] * 2
    )
    assert fleet.do(inside.standing)["due"] == 2
    refine_all(fleet)
    assert is_clean(fleet)
