"""Concurrent writers, and writers killed at any moment: the trail holds, and nothing is lost or half done."""

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
from itertools import chain
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections, transaction

from audit.models import AuditEntry
from memory import errors
from memory.access import authentication
from memory.agents import lifecycle
from memory.models import Agent, Memory, Tenant
from memory.writing import edits, operations
from tests import steps
from tests.conftest import OPERATOR, House
from tests.fault import writer
from tests.steps import ME, problems, remember, row, signed_update

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
        [sys.executable, "-m", "tests.fault", "writer", *map(str, arguments)],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATABASE_URL": database_url()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def outputs(processes: list[subprocess.Popen[str]]) -> list[list[int]]:
    """The entries that each of these writers made, when all of them have ended well."""
    written = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(each) for each in written]


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """Start all in threads of their own at one moment; each result, or the error of the product."""
    together = threading.Barrier(len(works))

    def work(act: Callable[[], Any]) -> Any:
        together.wait()
        try:
            return act()
        except errors.MemoryFault as error:
            return error
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(work, works))


def outcomes(*works: Callable[[], Any]) -> list[str]:
    """The types of the results of `at_once`, sorted."""
    return sorted(type(result).__name__ for result in at_once(*works))


def assert_whole(agent: Agent) -> None:
    """Trail, replay and numbers are as if one writer wrote everything."""
    with edits.locked(agent):  # waits until the server of a killed client has ended
        seqs = list(AuditEntry.objects.filter(agent_id=agent.pk).order_by("seq").values_list("seq", flat=True))
        numbers = list(Memory.objects.filter(agent=agent).order_by("number").values_list("number", flat=True))
        assert problems(agent) == []
        assert seqs == list(range(1, len(seqs) + 1))
        assert numbers == list(range(1, len(numbers) + 1))


def test_threads_and_processes_that_write_to_one_agent_lose_nothing(ada: Agent, bob: Agent) -> None:
    """Trap: a history in one local file allows one process only."""
    first = steps.last_entry(ada).seq
    threads = at_once(*(lambda seed=seed: writer.edits(ada.pk, EDITS, seed) for seed in range(THREADS)))
    assert sorted(chain.from_iterable(threads)) == list(range(first + 1, first + 1 + THREADS * EDITS))
    assert_whole(ada)
    first = steps.last_entry(ada).seq
    processes = outputs([start(ada.pk, EDITS, seed) for seed in range(PROCESSES)])
    assert sorted(chain.from_iterable(processes)) == list(range(first + 1, first + 1 + PROCESSES * EDITS))
    assert_whole(ada)
    assert_whole(bob)


def test_concurrent_writes_to_two_agents_stay_separate(ada: Agent, bob: Agent) -> None:
    at_once(*(lambda agent=agent: writer.edits(agent.pk, EDITS, agent.pk) for agent in (ada, bob)))
    assert_whole(ada)
    assert_whole(bob)


def test_one_of_two_discards_of_a_memory_succeeds(ada: Agent) -> None:
    remember(ada, "tea")
    assert outcomes(*[lambda: operations.discard(ada, [1], ME)] * 2) == ["Discarded", "Edited"]
    assert_whole(ada)


def test_one_of_two_revisions_of_the_same_version_is_stale(ada: Agent) -> None:
    remember(ada, "tea")
    seen = {1: row(ada, 1).version}
    revise = lambda text: lambda: operations.revise(ada, 1, ME, content=text, expect=seen)  # noqa: E731
    assert outcomes(revise("milk"), revise("mocha")) == ["Edited", "Stale"]
    assert_whole(ada)


def test_one_of_two_merges_that_share_a_source_succeeds(ada: Agent) -> None:
    remember(ada, "one", "two", "three")
    merge = lambda pair: lambda: operations.consolidate(ada, pair, "both", ME)  # noqa: E731
    assert outcomes(merge([1, 2]), merge([2, 3])) == ["CoreMemoryRequired", "Edited"]
    assert len(steps.active(ada)) == 2
    assert_whole(ada)


def test_a_memory_is_not_discarded_and_protected_at_once(ada: Agent) -> None:
    remember(ada, "law")
    results = at_once(lambda: operations.discard(ada, [1], ME), lambda: steps.protect(ada, 1))
    assert sum(isinstance(result, errors.NumbersError) for result in results) == 1
    assert_whole(ada)


def test_concurrent_protections_stay_within_half_the_budget(ada: Agent) -> None:
    signed_update(Agent.objects.filter(pk=ada.pk), budget_tokens=40, target_tokens=20)
    remember(ada, "x" * 60, "y" * 60)
    results = at_once(*(lambda n=n: operations.protect(ada, [n], ME, session=1) for n in (1, 2)))
    assert sum(isinstance(result, errors.ProtectionFull) for result in results) == 1
    assert steps.fresh(ada).constitutional_tokens == 15


@pytest.mark.parametrize("tenant", ["acme", "new"])
def test_one_of_several_agents_of_the_same_name_is_created(ada: Agent, tenant: str) -> None:
    create = lambda: lifecycle.create(tenant, "eve", model="x/y", actor=OPERATOR)  # noqa: E731
    assert outcomes(*[create] * 4).count("AlreadyExists") == 3
    assert_whole(authentication.agent_named(f"{tenant}/eve"))


def test_concurrent_agents_of_a_new_tenant_share_it(db: None) -> None:
    create = lambda slug: lambda: lifecycle.create("new", slug, model="x/y", actor=OPERATOR)  # noqa: E731
    assert outcomes(create("eve"), create("fay"), create("gil")) == ["tuple"] * 3
    assert Tenant.objects.filter(slug="new").count() == 1


def test_concurrent_requests_with_one_key_are_all_authenticated(house: House) -> None:
    assert at_once(*[lambda: authentication.agent_key(house.ada_key).agent] * 4) == [house.ada] * 4


def wait_for_entry(agent: Agent, seq: int) -> None:
    deadline = time.monotonic() + 30
    while steps.last_entry(agent).seq < seq:
        assert time.monotonic() < deadline, "the writer does not write"
        time.sleep(0.001)


@pytest.fixture
def forker(ada: Agent) -> Iterator[subprocess.Popen[str]]:
    process = start(ada.pk, "forks")
    yield process
    process.communicate(timeout=20)


def test_a_writer_killed_at_any_moment_leaves_nothing_half_done_and_the_next_one_continues(
    ada: Agent, bob: Agent, forker: subprocess.Popen[str]
) -> None:
    assert forker.stdin is not None
    assert forker.stdout is not None
    dice = random.Random(7)
    grown = 0
    for seed in range(KILLS):
        before = steps.last_entry(ada).seq
        forker.stdin.write(f"{seed}\n")
        forker.stdin.flush()
        child = int(forker.stdout.readline())
        wait_for_entry(ada, before + dice.randint(0, 3))
        time.sleep(dice.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert forker.stdout.readline() == "gone\n"
        if seed % 4 == 3:
            assert_whole(ada)
        grown += steps.last_entry(ada).seq > before
    assert len(remember(ada, "still here")) == 1
    assert_whole(ada)
    assert_whole(bob)
    assert grown > KILLS // 2  # most were killed during an edit, not before


class Stop(Exception):
    """The failure of the test in the middle of an edit."""


PLACES = ("audit.trail.append", "audit.bulk.insert_many", "audit.bulk.update_many", "memory.writing.counters.save")


@pytest.mark.parametrize("place", PLACES)
def test_an_edit_that_fails_midway_leaves_nothing(ada: Agent, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(ada, "one", "two")
    before = steps.state(ada)

    def stop(*_: Any, **__: Any) -> None:
        raise Stop

    monkeypatch.setattr(place, stop)
    with pytest.raises(Stop):
        operations.consolidate(ada, [1, 2], "both", ME)
    monkeypatch.undo()
    assert steps.state(ada) == before
    assert_whole(ada)


@pytest.mark.sqlite
def test_all_of_many_writers_get_their_turn_on_sqlite() -> None:
    def write(place: int) -> None:
        for number in range(30):
            with transaction.atomic():
                Tenant.objects.create(slug=f"t{place}-{number}")
                time.sleep(0.001)

    at_once(*(lambda place=place: write(place) for place in range(THREADS)))
    assert Tenant.objects.count() == THREADS * 30


@pytest.mark.sqlite
def test_a_writer_on_sqlite_gives_up_after_its_timeout() -> None:
    def write() -> None:
        connection.ensure_connection()
        connection.settings_dict = connection.settings_dict | {"OPTIONS": {"timeout": 0.05}}
        with pytest.raises(OperationalError, match="locked"), transaction.atomic():
            Tenant.objects.create(slug="late")
        with pytest.raises(OperationalError, match="locked"):
            Tenant.objects.update(slug="later")

    with transaction.atomic():
        Tenant.objects.create(slug="first")
        at_once(write)
    assert list(Tenant.objects.values_list("slug", flat=True)) == ["first"]


@pytest.mark.sqlite
def test_a_writer_on_sqlite_can_free_a_cursor_of_a_thread_that_waits_for_it() -> None:
    """Inside SQLite, the waiting connection had a mutex that the garbage collector needed: both waited for 30 s."""
    held, waits, garbage = threading.Event(), threading.Event(), list[Any]()

    def wait() -> None:
        connection.ensure_connection()
        held.wait(9)
        garbage.append(connection.connection.execute("SELECT 1 UNION SELECT 2"))
        waits.set()
        assert Tenant.objects.update(slug="second") == 1

    def write() -> None:
        with transaction.atomic():
            Tenant.objects.create(slug="first")
            held.set()
            waits.wait(9)
            time.sleep(0.1)
            garbage.clear()

    at_once(write, wait)
