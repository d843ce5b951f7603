"""Many writers at once, and writers killed at any moment: the trail holds, and nothing is lost or half done."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections

from audit.models import AuditEntry
from memory import errors
from memory.access import authentication
from memory.agents import lifecycle
from memory.models import Agent, Memory, Tenant
from memory.writing import edits, operations
from tests import steps
from tests.conftest import OPERATOR, House
from tests.fault import writer
from tests.steps import ME, problems, remember, row

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

THREADS, PROCESSES, EDITS, KILLS = 4, 3, 25, 28


def database_url() -> str:
    """The test database, for another process."""
    at = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{at['NAME']}"
    return f"postgres://{at['USER']}:{at['PASSWORD']}@{at['HOST']}:{at['PORT']}/{at['NAME']}"


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fault.writer", *map(str, arguments)],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATABASE_URL": database_url()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Run each in a thread of its own, starting together; what each returned, or raised."""
    together = threading.Barrier(len(works))

    def work(do: Callable[[], Any]) -> Any:
        together.wait()
        try:
            return do()
        except errors.MemoryFault as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(work, works))


def whole(agent: Agent) -> None:
    """Trail, replay and numbering are as if one writer had written everything."""
    with edits.locked(agent):  # waits for what a killed client's server is still ending
        seqs = list(AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq").values_list("seq", flat=True))
        numbers = list(Memory.objects.filter(agent=agent).order_by("number").values_list("number", flat=True))
        assert problems(agent) == []
        assert seqs == list(range(1, len(seqs) + 1))
        assert numbers == list(range(1, len(numbers) + 1))


def test_threads_writing_to_one_agent_lose_nothing(ada: Agent) -> None:
    first = steps.last_entry(ada).seq
    made = at_once(*(lambda seed=seed: writer.edits(ada.pk, EDITS, seed) for seed in range(THREADS)))
    assert sorted(seq for seqs in made for seq in seqs) == list(range(first + 1, first + 1 + THREADS * EDITS))
    whole(ada)


def test_processes_writing_to_one_agent_lose_nothing(ada: Agent, bob: Agent) -> None:
    """Trap: history in one local file, so that the service could never run twice."""
    first = steps.last_entry(ada).seq
    running = [start(ada.pk, EDITS, seed) for seed in range(PROCESSES)]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * PROCESSES
    made = sorted(seq for output in outputs for seq in json.loads(output))
    assert made == list(range(first + 1, first + 1 + PROCESSES * EDITS))
    whole(ada)
    whole(bob)


def test_two_agents_written_at_once_keep_apart(ada: Agent, bob: Agent) -> None:
    at_once(*(lambda agent=agent: writer.edits(agent.pk, EDITS, agent.pk) for agent in (ada, bob)))
    whole(ada)
    whole(bob)


def test_of_two_discards_of_one_memory_one_goes_through(ada: Agent) -> None:
    remember(ada, "tea")
    outcomes = at_once(*[lambda: operations.discard(ada, [1], ME)] * 2)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Discarded", "Edited"]
    whole(ada)


def test_of_two_revisions_that_saw_the_same_version_one_is_stale(ada: Agent) -> None:
    remember(ada, "tea")
    seen = {1: row(ada, 1).version}
    outcomes = at_once(
        *(lambda text=text: operations.revise(ada, 1, ME, content=text, expect=seen) for text in ("milk", "mocha"))
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Edited", "Stale"]
    whole(ada)


def test_of_two_merges_sharing_a_source_one_goes_through(ada: Agent) -> None:
    remember(ada, "one", "two", "three")
    outcomes = at_once(*(lambda pair=pair: operations.consolidate(ada, pair, "both", ME) for pair in ([1, 2], [2, 3])))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Discarded", "Edited"]
    assert len(steps.active(ada)) == 2
    whole(ada)


def test_a_memory_is_not_discarded_and_protected_at_once(ada: Agent) -> None:
    remember(ada, "law")
    outcomes = at_once(lambda: operations.discard(ada, [1], ME), lambda: steps.protect(ada, 1))
    assert sum(isinstance(outcome, errors.NumbersError) for outcome in outcomes) == 1
    whole(ada)


def test_agents_protecting_at_once_stay_within_half_the_budget(ada: Agent) -> None:
    Agent.objects.filter(pk=ada.pk).update(budget_tokens=40, target_tokens=20)
    remember(ada, "x" * 60, "y" * 60)
    outcomes = at_once(*(lambda n=n: operations.protect(ada, [n], ME, session=1) for n in (1, 2)))
    assert sum(isinstance(outcome, errors.ProtectionFull) for outcome in outcomes) == 1
    assert steps.fresh(ada).constitutional_tokens == 15


@pytest.mark.parametrize("tenant", ["acme", "new"])
def test_of_agents_made_at_once_under_one_name_one_is(ada: Agent, tenant: str) -> None:
    make = lambda: lifecycle.create(tenant, "eve", model="x/y", actor=OPERATOR)  # noqa: E731
    outcomes = at_once(*[make] * 4)
    assert sum(isinstance(outcome, errors.AlreadyExists) for outcome in outcomes) == 3
    whole(authentication.agent_named(f"{tenant}/eve"))


def test_agents_made_at_once_in_a_new_tenant_share_it(db: None) -> None:
    outcomes = at_once(
        *(
            lambda slug=slug: lifecycle.create("new", slug, model="x/y", actor=OPERATOR)
            for slug in ("eve", "fay", "gil")
        )
    )
    assert [type(outcome) for outcome in outcomes] == [tuple] * 3
    assert Tenant.objects.filter(slug="new").count() == 1


def test_a_key_used_by_many_at_once_opens_for_all(house: House) -> None:
    outcomes = at_once(*[lambda: authentication.agent_of_key(house.ada_key)] * 4)
    assert outcomes == [house.ada] * 4


def wait_for_entry(agent: Agent, seq: int) -> None:
    deadline = time.monotonic() + 30
    while steps.last_entry(agent).seq < seq:
        assert time.monotonic() < deadline, "the writer does not write"
        time.sleep(0.001)


@pytest.fixture
def killable(ada: Agent) -> Iterator[subprocess.Popen[str]]:
    forker = start(ada.pk, "forks")
    yield forker
    forker.communicate(timeout=20)


def test_a_writer_killed_at_any_moment_leaves_nothing_half_done_and_the_next_goes_on(
    ada: Agent, bob: Agent, killable: subprocess.Popen[str]
) -> None:
    assert killable.stdin is not None
    assert killable.stdout is not None
    dice = random.Random(7)
    grown = 0
    for seed in range(KILLS):
        before = steps.last_entry(ada).seq
        killable.stdin.write(f"{seed}\n")
        killable.stdin.flush()
        child = int(killable.stdout.readline())
        wait_for_entry(ada, before + dice.randint(0, 3))
        time.sleep(dice.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert killable.stdout.readline() == "gone\n"
        if seed % 4 == 3:
            whole(ada)
        grown += steps.last_entry(ada).seq > before
    assert len(remember(ada, "still here")) == 1
    whole(ada)
    whole(bob)
    assert grown > KILLS // 2  # it was killed at work, not before


class Stop(Exception):
    """The test's own failure in the middle of an edit."""


@pytest.mark.parametrize(
    "place",
    [
        "audit.trail.append",
        "audit.bulk.insert_many",
        "audit.bulk.update_many",
        "memory.writing.counters.save",
    ],
)
def test_an_edit_that_fails_part_way_leaves_nothing(ada: Agent, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "one", "two")
    before = steps.state(ada)

    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    monkeypatch.setattr(place, stop)
    with pytest.raises(Stop):
        operations.consolidate(ada, [1, 2], "both", ME)
    monkeypatch.undo()
    assert steps.state(ada) == before
    whole(ada)
