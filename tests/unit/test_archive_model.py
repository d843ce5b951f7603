"""`builtin/archive`: it demotes the memories that are used least and are oldest, until the target is reached."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from memory.models import Agent
from memory.recording import usage
from refinement import backlog, loop
from refinement.llm.archive import Archive
from refinement.llm.base import Message, Request, ToolCall
from refinement.models import Mode, RefinementSession
from refinement.tools import schemas
from tests import queueing
from tests.api.calling import Caller
from tests.conftest import House
from tests.refining import change, filler, notice, opened, protected, sound
from tests.steps import active, fresh, remember, row


@pytest.fixture
def archivist(ada: Agent) -> Agent:
    """Twenty memories of 50 tokens. The number of days since its origin falls from 119 to 100, number by number."""
    now = timezone.now()
    for place in range(20):
        remember(ada, filler(50, place), origin=now - timedelta(days=119 - place))
    change(ada, model="builtin/archive", budget_tokens=900, target_tokens=800)
    return fresh(ada)


def recall(agent: Agent, times: int, *numbers: int) -> None:
    for _ in range(times):
        usage.note(agent, numbers, timezone.now())


def refine(agent: Agent, mode: str = Mode.FULL) -> RefinementSession:
    return loop.refine(fresh(agent), trigger="manual", mode=mode)


def beneath(agent: Agent) -> list[int]:
    return [number for number in range(1, fresh(agent).next_number) if row(agent, number).layer == "beneath"]


def test_it_demotes_what_was_used_least_and_is_oldest_down_to_the_target(archivist: Agent) -> None:
    recall(archivist, 2, 1)
    recall(archivist, 1, *range(2, 18))
    protected(archivist, 18)
    session = refine(archivist)
    assert beneath(archivist) == [2, 3, 19, 20]
    assert (session.outcome, session.demoted, session.tokens_after) == ("completed", 4, 800)
    assert (session.model_calls, session.prompt_tokens, session.failed_calls) == (0, 0, 0)
    assert "not a language model. It reads nothing." in notice(archivist)
    assert sound(archivist)
    assert refine(archivist).demoted == 0, "the target is reached"


def test_memories_younger_than_14_days_stay(archivist: Agent) -> None:
    """Of a merged memory, the latest date counts."""
    change(archivist, target_tokens=1, retention="0.50")
    now = timezone.now()

    def age(number: int, origin: datetime, latest: datetime | None) -> None:
        type(row(archivist, number)).objects.filter(agent=archivist, number=number).update(
            origin=origin, origin_latest=latest
        )

    for number in range(1, 20):
        age(number, now - timedelta(days=100), now - timedelta(days=13))
    age(20, now - timedelta(days=15), None)
    refine(archivist)
    assert beneath(archivist) == [20]


def test_a_memory_that_would_cross_the_floor_stays(archivist: Agent) -> None:
    [large] = remember(archivist, filler(400, "large"), origin=timezone.now() - timedelta(days=400))
    change(archivist, budget_tokens=1_300, target_tokens=1_300, retention="1.00")
    assert (refine(archivist).outcome, beneath(archivist)) == ("completed", [1, 2])
    assert large in active(archivist)


def test_it_works_in_batches(archivist: Agent, settings: Any) -> None:
    settings.BATCH_TOKENS = 200
    session = refine(archivist)
    assert (session.batches, session.outcome, session.tokens_after) == (7, "completed", 800)
    assert beneath(archivist) == [1, 2, 3, 4]


def test_it_tries_no_memory_twice(archivist: Agent) -> None:
    """For example a memory that somebody changes while the session runs."""
    opened(archivist)
    edits = [{"tool": "demote_memory", "arguments": {"id": number}} for number in (1, 2)]
    refused = Message("assistant", "", (ToolCall("a", "apply", {"edits": edits}),))
    [call] = Archive(archivist).complete(Request("archive", (refused,), schemas(Mode.FULL))).tool_calls
    assert [edit["arguments"]["id"] for edit in (call.arguments or {})["edits"]] == [3, 4, 5, 6]


def test_in_dedupe_only_it_changes_nothing(archivist: Agent) -> None:
    assert (refine(archivist, Mode.DEDUPE_ONLY).outcome, beneath(archivist)) == ("completed", [])


def on_schedule(agent: Agent, key: str) -> None:
    change(agent, due_at=timezone.now(), due_reason="weekly")
    backlog.sweep()
    queueing.work()


def on_command(agent: Agent, key: str) -> None:
    call_command("refine", agent.label, "--json")


def on_request(agent: Agent, key: str) -> None:
    assert Caller(key).post("refinement-sessions", {"driver": "server"}).status == 202
    queueing.work()


@pytest.mark.parametrize("start", [on_schedule, on_command, on_request])
def test_it_works_whoever_starts_it(
    archivist: Agent, house: House, start: Callable[[Agent, str], None], capsys: Any
) -> None:
    start(archivist, house.ada_key)
    assert (RefinementSession.objects.get().outcome, beneath(archivist)) == ("completed", [1, 2, 3, 4])
