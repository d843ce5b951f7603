"""Removals over the API: requests, their preview, and the decision of the agent's side."""

from __future__ import annotations

from audit.trail import Actor
from memory.consent import removal_requests
from memory.models import Agent, Memory
from memory.writing import operations
from tests import steps
from tests.api.calling import Caller
from tests.steps import ME, fresh, problems

OWNER = Actor.person("owner@acme.test")


def ask(agent: Agent, *numbers: int) -> int:
    return removal_requests.ask_redaction(fresh(agent), numbers, OWNER, reason="request 17").number


def test_a_request_is_listed_and_previewed(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk", "sugar")
    operations.consolidate(fresh(ada), [1, 2], "tea with milk", ME)
    number = ask(ada, 1)
    [listed] = runtime.get("removal-requests").json["results"]
    asker = {"asker_kind": "person", "asked_by": "owner@acme.test", "asked_at": listed["asked_at"]}
    what = {"number": number, "removes": "memories", "memories": [1], "reason_in_their_words": "request 17"}
    assert listed == what | asker | {"state": "open", "decided_at": None, "decided_by": ""}
    request = runtime.get(f"removal-requests/{number}").json
    related = [{"id": 4, "why": "merged", "state": "active"}]
    preview = {"memories": 1, "constitutional": [], "changes": 2, "former_vaults": [], "related": related}
    assert request == listed | {"would_remove": preview}


def test_a_redaction_is_approved_once(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    operations.protect(fresh(ada), [1], OWNER)
    number = ask(ada, 1)
    assert runtime.get(f"removal-requests/{number}").json["would_remove"]["constitutional"] == [1]
    refused = runtime.post(f"removal-requests/{number}/agree", {"include_constitutional": False})
    assert (refused.status, refused.codes) == (409, ["constitutional"])
    assert Memory.objects.get(agent=ada, number=1).sealed
    done = runtime.post(f"removal-requests/{number}/agree", {"include_constitutional": True})
    assert (done.status, done.json["state"], done.json["decided_by"]) == (200, "carried_out", "agent")
    gone = runtime.get("memories/1")
    assert (gone.status, gone.codes) == (409, ["redacted"])
    assert not Memory.objects.get(agent=ada, number=1).sealed
    again = runtime.post(f"removal-requests/{number}/agree")
    assert (again.status, again.codes) == (409, ["no_request"])
    assert runtime.get(f"removal-requests/{number}").json["would_remove"] is None
    assert runtime.get("removal-requests?state=open").json["results"] == []
    assert problems(ada) == []


def test_a_declined_request_removes_nothing(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask(ada, 1)
    assert runtime.post(f"removal-requests/{number}/decline").json["state"] == "declined"
    assert runtime.post(f"removal-requests/{number}/agree").codes == ["no_request"]
    assert Memory.objects.get(agent=ada, number=1).sealed


def test_an_erasure_is_approved_once(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    number = removal_requests.ask_erasure(fresh(ada), OWNER, reason="the contract ended").number
    request = runtime.get(f"removal-requests/{number}").json
    assert (request["removes"], request["would_remove"]["memories"]) == ("silo", 2)
    assert runtime.post(f"removal-requests/{number}/agree").json["state"] == "carried_out"
    assert not fresh(ada).wrapped_key
    assert runtime.post(f"removal-requests/{number}/agree").status == 409


def test_the_runtime_decides_nothing_if_only_the_steward_may(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask(ada, 1)
    Agent.objects.filter(pk=ada.pk).update(is_steward_only=True, steward="sue@elsewhere.test")
    for decision in ("agree", "decline"):
        answer = runtime.post(f"removal-requests/{number}/{decision}")
        assert (answer.status, answer.codes) == (409, ["consent_needed"])


def test_a_request_of_another_agent_is_404(runtime: Caller, ada: Agent, bob: Agent) -> None:
    steps.remember(bob, "one", "two", "three", "four", "five", "six")
    steps.remember(ada, "tea")
    foreign = ask(bob, 1)
    for action in ("", "/agree", "/decline"):
        call = runtime.post if action else runtime.get
        assert [call(f"removal-requests/{number}{action}").status for number in (foreign, 0, 99)] == [404] * 3
        assert removal_requests.waiting(fresh(bob)), action


def test_the_list_is_paginated(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    numbers = [ask(ada, 1) for _ in range(3)]
    first = runtime.get("removal-requests?limit=2").json
    rest = runtime.get(f"removal-requests?limit=2&cursor={first['next']}").json
    pages = [[each["number"] for each in page["results"]] for page in (first, rest)]
    assert (pages, rest["next"]) == ([numbers[:2], numbers[2:]], None)
