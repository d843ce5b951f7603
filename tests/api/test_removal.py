"""Removals over the API: what was asked, what it would remove, and the agent's side's yes or no."""

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


def test_what_is_asked_is_listed_and_shown_with_what_goes_and_what_is_left(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk", "sugar")
    operations.consolidate(fresh(ada), [1, 2], "tea with milk", ME)
    number = ask(ada, 1)
    [asked] = runtime.get("removal-requests").json["results"]
    assert asked == {
        "number": number,
        "removes": "memories",
        "memories": [1],
        "reason_in_their_words": "request 17",
        "asker_kind": "person",
        "asked_by": "owner@acme.test",
        "state": "open",
        "asked_at": asked["asked_at"],
        "decided_at": None,
        "decided_by": "",
    }
    shown = runtime.get(f"removal-requests/{number}").json
    assert shown.pop("would_remove") == {
        "memories": 1,
        "constitutional": [],
        "changes": 2,
        "former_vaults": [],
        "related": [{"id": 4, "why": "merged", "state": "active"}],
    }
    assert shown == asked


def test_it_is_agreed_to_once(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    number = ask(ada, 1)
    done = runtime.post(f"removal-requests/{number}/agree")
    assert (done.status, done.json["state"], done.json["decided_by"]) == (200, "carried_out", "agent")
    gone = runtime.get("memories/1")
    assert (gone.status, gone.codes) == (409, ["redacted"])
    assert not Memory.objects.get(agent=ada, number=1).sealed
    again = runtime.post(f"removal-requests/{number}/agree")
    assert (again.status, again.codes) == (409, ["no_request"])
    assert runtime.get(f"removal-requests/{number}").json["would_remove"] is None
    assert runtime.get("removal-requests?state=open").json["results"] == []
    assert problems(ada) == []


def test_constitutional_memories_have_to_be_meant(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    operations.protect(fresh(ada), [1], OWNER)
    number = ask(ada, 1)
    assert runtime.get(f"removal-requests/{number}").json["would_remove"]["constitutional"] == [1]
    refused = runtime.post(f"removal-requests/{number}/agree", {"include_constitutional": False})
    assert (refused.status, refused.codes) == (409, ["constitutional"])
    assert Memory.objects.get(agent=ada, number=1).sealed
    assert runtime.post(f"removal-requests/{number}/agree", {"include_constitutional": True}).status == 200


def test_it_is_declined(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask(ada, 1)
    assert runtime.post(f"removal-requests/{number}/decline").json["state"] == "declined"
    assert runtime.post(f"removal-requests/{number}/agree").codes == ["no_request"]
    assert Memory.objects.get(agent=ada, number=1).sealed


def test_an_erasure_is_agreed_to(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    number = removal_requests.ask_erasure(fresh(ada), OWNER, reason="the contract ended").number
    shown = runtime.get(f"removal-requests/{number}").json
    assert (shown["removes"], shown["would_remove"]["memories"]) == ("silo", 2)
    assert runtime.post(f"removal-requests/{number}/agree").json["state"] == "carried_out"
    assert not fresh(ada).wrapped_key
    assert runtime.post(f"removal-requests/{number}/agree").status == 409


def test_where_the_steward_alone_consents_the_runtime_does_not(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask(ada, 1)
    Agent.objects.filter(pk=ada.pk).update(is_steward_only=True, steward="sue@elsewhere.test")
    for deed in ("agree", "decline"):
        answer = runtime.post(f"removal-requests/{number}/{deed}")
        assert (answer.status, answer.codes) == (409, ["consent_needed"])


def test_what_is_no_request_of_this_agent_is_not_there(runtime: Caller, ada: Agent, bob: Agent) -> None:
    for deed in ("", "/agree", "/decline"):
        steps.remember(bob, "one", "two", "three", "four", "five", "six")
        theirs = ask(bob, 1)
        steps.remember(ada, "tea")
        call = runtime.post if deed else runtime.get
        for number in (theirs, 0, 99):
            assert call(f"removal-requests/{number}{deed}").status == 404, deed
        assert removal_requests.waiting(fresh(bob)), deed


def test_pages_of_the_list(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    numbers = [ask(ada, 1) for _ in range(3)]
    first = runtime.get("removal-requests?limit=2").json
    assert [each["number"] for each in first["results"]] == numbers[:2]
    rest = runtime.get(f"removal-requests?limit=2&cursor={first['next']}").json
    assert ([each["number"] for each in rest["results"]], rest["next"]) == (numbers[2:], None)
