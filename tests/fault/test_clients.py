"""Fifty clients at once, with gunicorn and two workers: nothing is lost or doubled, no 5xx, and the trail is whole.

They write, revise one memory, search, read the context, repeat requests and refine; of one agent, and of ten.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import pytest

from audit.models import AuditEntry
from memory.agents import lifecycle
from memory.models import Agent, Memory
from memory.search import reading
from memory.search.reading import Filters
from refinement.models import RefinementSession
from tests import steps
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR

pytestmark = [pytest.mark.slow, pytest.mark.database, pytest.mark.django_db(transaction=True)]

INITIAL = ("counted 0", "tagged", "sugar is sweet", "the kettle is red")
TEXTS = ("tea is hot", "milk is white", "sugar is sweet", "the kettle is red")


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    """PostgreSQL has 100 connections, and other tests need some."""
    with django_db_blocker.unblock(), serving(WEB_THREADS="12", GUNICORN_CMD_ARGS="--threads 12") as service:
        yield service


def patiently(send: Callable[[], httpx.Response]) -> httpx.Response:
    """Send a request again while too many of this agent's requests run at the same time."""
    while (response := send()).status_code == 429:
        time.sleep(int(response.headers["Retry-After"]))
    return response


@dataclass
class Client:
    """A program with a key, and the responses that it got."""

    number: int
    http: httpx.Client
    created: list[int] = field(default_factory=list)
    tagged: int = 0
    counted: int = 0

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        response = patiently(partial(self.http.request, method, path, json=body, headers=headers))
        assert response.status_code < 500, response.status_code
        return response

    def work(self, rounds: int) -> None:
        dice = random.Random(self.number)
        for turn in range(rounds):
            text = f"{dice.choice(TEXTS)} {self.number} {turn}"
            self.created.append(self.request("POST", "memories", {"content": text}).raise_for_status().json()["id"])
            self.count()
            dice.choice([self.search, self.context, self.tag, self.repeat])(turn)

    def count(self) -> None:
        """Add 1 to the number in memory 1, and try again after a conflict."""
        for _ in range(3):
            now = self.request("GET", "memories/1")
            content = f"counted {int(now.json()['content'].split()[1]) + 1}"
            response = self.request("PATCH", "memories/1", {"content": content}, **{"If-Match": now.headers["ETag"]})
            assert response.status_code in (200, 412), response.text
            if response.status_code == 200:
                self.counted += 1
                return

    def search(self, turn: int) -> None:
        """Every worker finds the first memory of this client."""
        found = self.request("POST", "memories/search", {"q": f'"{self.number} 0"', "limit": 100}).json()["results"]
        assert self.created[0] in {hit["id"] for hit in found}

    def context(self, turn: int) -> None:
        etag = self.request("GET", "context?max_tokens=500").headers["ETag"]
        self.request("GET", "context?max_tokens=500", **{"If-None-Match": etag})

    def tag(self, turn: int) -> None:
        """Without a precondition the last write wins, and the trail has each."""
        self.request("PATCH", "memories/2", {"tags": [f"{self.number}-{turn}"]}).raise_for_status()
        self.tagged += 1

    def repeat(self, turn: int) -> None:
        """The same request twice at once, by two connections."""
        headers = {**self.http.headers, "Idempotency-Key": f"{self.number}/{turn}"}
        body, url = {"content": f"once {self.number} {turn}"}, f"{self.http.base_url}memories"
        with ThreadPoolExecutor(2) as pool:
            send = partial(httpx.post, url, json=body, headers=headers, timeout=60)
            both = list(pool.map(lambda _: patiently(send), range(2)))
        assert [response.status_code for response in both] == [201, 201], both[0].text
        assert both[0].json()["id"] == both[1].json()["id"]
        self.created.append(both[0].json()["id"])

    def refine(self) -> None:
        """Drive a session while the others write."""
        opened = self.request("POST", "refinement-sessions", {"driver": "runtime"})
        if opened.status_code == 409:
            return
        path = f"refinement-sessions/{opened.json()['id']}"
        self.request("GET", f"{path}/briefing").raise_for_status()
        merge = {"ids_to_merge": [3, 4], "new_content": "sugar is sweet, the kettle is red"}
        self.request("POST", f"{path}/tools/consolidate_memories", {"arguments": merge}).raise_for_status()
        self.request("POST", f"{path}/tools/update_memory", {"arguments": {"id": 1, "new_content": "counted 0"}})
        for _ in range(20):
            done = self.request("POST", f"{path}/tools/complete_refinement", {"arguments": {"summary": "Merged two."}})
            if done.json()["session_ended"]:
                return
            self.request("GET", f"{path}/briefing")
        raise AssertionError("the session does not end")


def create(slug: str) -> tuple[Agent, str]:
    agent, key = lifecycle.create("acme", slug, model="builtin/dedupe", actor=OPERATOR)
    steps.remember(agent, *INITIAL)
    return agent, key


def clients(served: Served, keys: list[str]) -> list[Client]:
    def connect(key: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=f"{served.url}/api/v1/", headers=headers, timeout=60)

    return [Client(n, connect(key)) for n, key in enumerate(keys)]


def run(writing: list[Client], rounds: int, refining: list[Client]) -> None:
    """Start all clients at one moment, and raise what one of them raises."""
    together = threading.Barrier(len(writing) + len(refining))

    def act(client: Client) -> None:
        together.wait()
        client.refine() if client in refining else client.work(rounds)

    with ThreadPoolExecutor(len(writing) + len(refining)) as pool:
        done = [pool.submit(act, client) for client in (*writing, *refining)]
    for client in (*writing, *refining):
        client.http.close()
    for each in done:
        each.result()


def assert_consistent(agent: Agent, writing: list[Client]) -> None:
    """The database has exactly what the responses to these clients said."""
    created = [number for client in writing for number in client.created]
    assert len(created) == len(set(created))
    stored = Memory.objects.filter(agent=agent, source="agent").count()
    merged = RefinementSession.objects.filter(agent=agent, merged__gt=0).count()
    assert stored == len(INITIAL) + len(created) + merged
    assert steps.says(agent, 1).content == f"counted {sum(client.counted for client in writing)}"
    revised = AuditEntry.objects.filter(agent_id=agent.pk, operation="revised", session=None).count()
    assert revised == sum(client.counted + client.tagged for client in writing)
    assert not RefinementSession.objects.filter(agent=agent, outcome="open").exists()
    assert steps.problems(agent) == []


@pytest.mark.parametrize(
    ("count", "rounds"),
    [pytest.param(50, 2, marks=pytest.mark.postgresql), pytest.param(10, 1, marks=pytest.mark.sqlite)],
)
def test_many_clients_of_one_agent(served: Served, count: int, rounds: int) -> None:
    ada, key = create("ada")
    everyone = clients(served, [key] * (count + 1))
    run(everyone[:count], rounds, everyone[count:])
    assert_consistent(ada, everyone[:count])
    assert RefinementSession.objects.get(agent=ada).outcome == "completed"


@pytest.mark.postgresql
def test_fifty_clients_of_ten_agents(served: Served) -> None:
    agents = [create(f"agent-{n}") for n in range(10)]
    writing = clients(served, [key for _ in range(5) for _, key in agents])
    run(writing, 1, clients(served, [key for _, key in agents]))
    for place, (agent, _) in enumerate(agents):
        assert_consistent(agent, writing[place::10])
    assert RefinementSession.objects.filter(outcome="completed").count() == 10


def test_every_process_finds_at_once_what_another_process_wrote(served: Served) -> None:
    """This process and two workers have an index each."""
    ada, key = create("ada")
    [client] = clients(served, [key])

    def assert_found(*numbers: int) -> None:
        here = [hit.memory.number for hit in reading.search(steps.fresh(ada), "samovar", filters=Filters())]
        responses = [client.request("POST", "memories/search", {"q": "samovar"}).json()["results"] for _ in range(6)]
        assert [here, *([hit["id"] for hit in found] for found in responses)] == [list(numbers)] * 7

    assert_found()
    number = client.request("POST", "memories", {"content": "a samovar"}).json()["id"]
    assert_found(number)
    client.request("PATCH", f"memories/{number}", {"content": "a teapot"})
    assert_found()
    [mine] = steps.remember(ada, "another samovar")
    assert_found(mine)
    client.request("DELETE", f"memories/{mine}")
    assert_found()
    client.request("POST", f"memories/{mine}/restore")
    assert_found(mine)
    client.http.close()
