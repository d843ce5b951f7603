"""Stops and kills of a worker: its sessions end, are closed, or are taken over."""

import os
import signal

import pytest

from tests.jobs import inside
from tests.jobs.ending import assert_clean, refine_all
from tests.jobs.fleet import Fleet, Worker
from tests.jobs.scripted import SlowModel

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]
COMPLETED, OPEN = ("completed", ""), ("open", "")
STOPPED, ABANDONED = ("incomplete", "worker_stopped"), ("abandoned", "lease_expired")


@pytest.fixture
def model() -> SlowModel:
    return SlowModel(shortest=1, longest=1.5)


def start_two_sessions(fleet: Fleet, model: SlowModel, stop_seconds: int = 30, agents: int = 2) -> Worker:
    """Start one worker and wait until it is in two sessions."""
    fleet.do(inside.create_agents, agents)
    fleet.start(STOP_SECONDS=str(stop_seconds))
    fleet.do(inside.queue_schedules)
    fleet.until(lambda: len({agent for agent, _, _ in model.calls}) == 2)
    return fleet.workers[0]


def outcomes(fleet: Fleet) -> list[tuple[str, str]]:
    return [(session["outcome"], session["reason"]) for session in fleet.do(inside.sessions)]


def assert_both_are_refined_again(fleet: Fleet) -> None:
    assert fleet.do(inside.counts)["due"] == 2
    refine_all(fleet)
    assert_clean(fleet)


def test_sessions_that_outlast_the_stop_are_closed_and_their_agents_are_due(fleet: Fleet, model: SlowModel) -> None:
    worker = start_two_sessions(fleet, model, stop_seconds=1)
    for _ in range(5):
        fleet.do(inside.queue_schedules)
    worker.process.terminate()
    fleet.until(lambda: outcomes(fleet) == [STOPPED] * 2)
    fleet.until(worker.has_ended, 20)
    assert_both_are_refined_again(fleet)
    assert outcomes(fleet) == [STOPPED, COMPLETED] * 2


def test_sigterm_to_the_group_closes_sessions_at_once(fleet: Fleet, model: SlowModel) -> None:
    worker = start_two_sessions(fleet, model)
    worker.signal_group(signal.SIGTERM)
    fleet.until(lambda: outcomes(fleet) == [STOPPED] * 2, 5)
    fleet.until(worker.has_ended, 10)
    assert_both_are_refined_again(fleet)


def test_sigterm_to_the_first_process_lets_sessions_end_and_starts_no_other(fleet: Fleet, model: SlowModel) -> None:
    """Although other agents wait, and tasks are fetched."""
    parts = start_two_sessions(fleet, model, agents=4).parts()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    priorities = {name: {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids} for name, pids in parts.items()}
    assert priorities["works"] == {min(own + 10, 19)}, "sessions have a low priority"
    assert priorities["first"] == priorities["guards"] == {own}
    assert fleet.stop() == [0]
    assert outcomes(fleet) == [COMPLETED] * 2
    refine_all(fleet)
    assert_clean(fleet)


def test_a_kill_of_the_first_process_lets_sessions_end(fleet: Fleet, model: SlowModel) -> None:
    worker = start_two_sessions(fleet, model)
    worker.process.kill()
    fleet.until(worker.has_ended, 20)
    assert outcomes(fleet) == [COMPLETED] * 2
    assert_clean(fleet)


def test_agents_of_a_killed_worker_are_due_when_the_leases_expire(fleet: Fleet, model: SlowModel) -> None:
    start_two_sessions(fleet, model).signal_group(signal.SIGKILL)
    assert outcomes(fleet) == [OPEN] * 2
    fleet.until(lambda: fleet.do(inside.close_stale) == "closed" and outcomes(fleet) == [ABANDONED] * 2)
    assert_both_are_refined_again(fleet)
