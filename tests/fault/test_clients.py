"""Fifty clients at once, over gunicorn with two workers: nothing lost, nothing twice, no 5xx, and a whole trail.

They write, rewrite one memory, search, read the context, repeat themselves and refine; of one agent, and of ten.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from audit.models import AuditEntry
from memory.agents import lifecycle
from memory.models import Agent, Memory
from refinement.models import RefinementSession
from tests import steps
from tests.api.serving import Served, serving
from tests.conftest import OPERATOR
from tests.steps import problems

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

TEXTS = ("tea is hot", "milk is white", "sugar is sweet", "the kettle is red")


@pytest.fixture(scope="module")
def served(django_db_setup: None, django_db_blocker: Any) -> Iterator[Served]:
    with django_db_blocker.unblock(), serving() as service:
        yield service


@dataclass
class Client:
    """A program of its own with a key, and what it was answered."""

    number: int
    http: httpx.Client
    statuses: Counter[int] = field(default_factory=Counter)
    made: list[int] = field(default_factory=list)
    rewritten: int = 0
    counted: int = 0

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        answer = self.http.request(method, path, json=body, headers=headers)
        self.statuses[answer.status_code] += 1
        assert answer.status_code < 500, answer.status_code
        return answer

    def work(self, rounds: int) -> None:
        dice = random.Random(self.number)
        for turn in range(rounds):
            text = f"{dice.choice(TEXTS)} {self.number} {turn}"
            self.made.append(self.ask("POST", "memories", {"content": text}).raise_for_status().json()["id"])
            self.count()
            verb = dice.choice([self.search, self.context, self.tag, self.repeat])
            verb(turn)

    def count(self) -> None:
        """One more to what memory 1 says, unless somebody else came before: then again."""
        for _ in range(3):
            now = self.ask("GET", "memories/1")
            said = {"content": f"counted {int(now.json()['content'].split()[1]) + 1}"}
            answer = self.ask("PATCH", "memories/1", said, **{"If-Match": now.headers["ETag"]})
            assert answer.status_code in (200, 412)
            if answer.status_code == 200:
                self.counted += 1
                return

    def search(self, turn: int) -> None:
        found = self.ask("POST", "memories/search", {"q": f'"{self.number} 0"', "limit": 100}).json()["results"]
        assert self.made[0] in {hit["id"] for hit in found}  # its own first writing, whichever worker answers

    def context(self, turn: int) -> None:
        etag = self.ask("GET", "context?max_tokens=500").headers["ETag"]
        self.ask("GET", "context?max_tokens=500", **{"If-None-Match": etag})

    def tag(self, turn: int) -> None:
        """Without a precondition: whoever comes last is kept, and each is in the trail."""
        self.ask("PATCH", "memories/2", {"tags": [f"{self.number}-{turn}"]}).raise_for_status()
        self.rewritten += 1

    def repeat(self, turn: int) -> None:
        """The same creation twice at once, by two connections."""
        key = {"Idempotency-Key": f"{self.number}/{turn}"}
        body = {"content": f"once {self.number} {turn}"}
        with ThreadPoolExecutor(2) as pool:
            both = list(
                pool.map(
                    lambda _: httpx.post(
                        f"{self.http.base_url}memories", json=body, headers={**self.http.headers, **key}, timeout=60
                    ),
                    range(2),
                )
            )
        assert [answer.status_code for answer in both] == [201, 201]
        assert both[0].json()["id"] == both[1].json()["id"]
        self.made.append(both[0].json()["id"])

    def refine(self) -> None:
        """A session driven from here, while the others write."""
        opened = self.ask("POST", "refinement-sessions", {"driver": "runtime"})
        if opened.status_code == 409:
            return
        path = f"refinement-sessions/{opened.json()['id']}"
        self.ask("GET", f"{path}/briefing").raise_for_status()
        merge = {"ids_to_merge": [3, 4], "new_content": "sugar is sweet, the kettle is red"}
        self.ask("POST", f"{path}/tools/consolidate_memories", {"arguments": merge}).raise_for_status()
        self.ask("POST", f"{path}/tools/update_memory", {"arguments": {"id": 1, "new_content": "counted 0"}})
        for _ in range(20):
            done = self.ask("POST", f"{path}/tools/complete_refinement", {"arguments": {"summary": "Merged two."}})
            if done.json()["session_ended"]:
                return
            self.ask("GET", f"{path}/briefing")
        raise AssertionError("the session does not end")


def begun(slug: str) -> tuple[Agent, str]:
    agent, key = lifecycle.create("acme", slug, model="builtin/dedupe", actor=OPERATOR)
    steps.remember(agent, "counted 0", "tagged", "sugar is sweet", "the kettle is red")
    return agent, key


def clients(served: Served, keys: list[str]) -> list[Client]:
    return [
        Client(
            n, httpx.Client(base_url=f"{served.url}/api/v1/", headers={"Authorization": f"Bearer {key}"}, timeout=60)
        )
        for n, key in enumerate(keys)
    ]


def run(working: list[Client], rounds: int, refining: list[Client]) -> None:
    """All at once; what any of them raised is raised."""
    together = threading.Barrier(len(working) + len(refining))

    def work(client: Client) -> None:
        together.wait()
        client.work(rounds)

    def refine(client: Client) -> None:
        together.wait()
        client.refine()

    with ThreadPoolExecutor(len(working) + len(refining)) as pool:
        done = [pool.submit(work, client) for client in working] + [pool.submit(refine, client) for client in refining]
    for client in (*working, *refining):
        client.http.close()
    for each in done:
        each.result()


def whole(agent: Agent, working: list[Client], given: int = 4) -> None:
    """What these clients were told is what there is."""
    made = [number for client in working for number in client.made]
    assert len(made) == len(set(made))
    held = Memory.objects.filter(agent=agent, source="agent").values_list("number", flat=True)
    merged = RefinementSession.objects.filter(agent=agent, merged__gt=0).count()
    assert len(held) == given + len(made) + merged
    assert steps.says(agent, 1).content == f"counted {sum(client.counted for client in working)}"
    revised = AuditEntry.objects.filter(agent_id=agent.pk, operation="revised", session=None).count()
    assert revised == sum(client.counted + client.rewritten for client in working)
    assert not RefinementSession.objects.filter(agent=agent, outcome="open").exists()
    assert problems(agent) == []  # replay, counters and chain


@pytest.mark.postgresql
def test_fifty_clients_of_one_agent(served: Served) -> None:
    ada, key = begun("ada")
    everybody = clients(served, [key] * 51)
    run(everybody[:50], 2, everybody[50:])
    whole(ada, everybody[:50])
    assert RefinementSession.objects.get(agent=ada).outcome == "completed"


@pytest.mark.postgresql
def test_fifty_clients_of_ten_agents(served: Served) -> None:
    made = [begun(f"agent-{n}") for n in range(10)]
    everybody = clients(served, [key for _ in range(5) for _, key in made])
    refining = clients(served, [key for _, key in made])
    run(everybody, 1, refining)
    for place, (agent, _) in enumerate(made):
        whole(agent, everybody[place::10])
    assert RefinementSession.objects.filter(outcome="completed").count() == 10


@pytest.mark.sqlite
def test_ten_clients_of_one_file(served: Served) -> None:
    ada, key = begun("ada")
    everybody = clients(served, [key] * 11)
    run(everybody[:10], 1, everybody[10:])
    whole(ada, everybody[:10])


def test_what_another_process_wrote_is_found_by_the_next_search(served: Served) -> None:
    """This process and two workers, each with an index of its own, and each finds at once what any of them did."""
    from memory.search import reading
    from memory.search.reading import Filters

    ada, key = begun("ada")
    [client] = clients(served, [key])

    def here() -> list[int]:
        return [hit.memory.number for hit in reading.search(steps.fresh(ada), "samovar", filters=Filters())]

    def there() -> list[list[int]]:
        asked = [client.ask("POST", "memories/search", {"q": "samovar"}).json()["results"] for _ in range(6)]
        return [[hit["id"] for hit in found] for found in asked]

    assert (here(), there()) == ([], [[]] * 6)
    number = client.ask("POST", "memories", {"content": "a samovar"}).json()["id"]
    assert (here(), there()) == ([number], [[number]] * 6)
    client.ask("PATCH", f"memories/{number}", {"content": "a teapot"})
    assert (here(), there()) == ([], [[]] * 6)
    [mine] = steps.remember(ada, "another samovar")
    assert (here(), there()) == ([mine], [[mine]] * 6)
    client.ask("DELETE", f"memories/{mine}")
    assert (here(), there()) == ([], [[]] * 6)
    client.ask("POST", f"memories/{mine}/restore")
    assert (here(), there()) == ([mine], [[mine]] * 6)
    client.http.close()
