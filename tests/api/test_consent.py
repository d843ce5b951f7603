"""Consent and removals over the API: what the agent's side sees and decides."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from audit.consent import REMOVALS, Person, Scope
from audit.models import AccessRequest
from audit.trail import Actor
from memory.consent import granted_reads, requests
from memory.models import Agent, Memory
from memory.writing import operations
from tests import steps
from tests.api.calling import Caller
from tests.members import with_account
from tests.steps import ME, fresh, problems, signed_update

PAT = Person(1, "pat@acme.test")
ADMIN = Actor.person("admin@acme.test")
PURPOSE = "to see why it forgot the customer"
SILO = Scope("silo")
OF_REQUESTS = ("access-requests/{}/approve", "access-requests/{}/deny", "grants/{}/revoke")
OF_PROPOSALS = ("proposals/{}/accept", "proposals/{}/decline")


def ask(agent: Agent, person: Person = PAT, scope: Scope = SILO) -> int:
    return requests.ask_to_read(fresh(agent), with_account(person, agent), purpose=PURPOSE, scope=scope).number


def propose(agent: Agent, model: str = "openai/gpt-4.1", **settings: Any) -> int:
    return requests.propose(fresh(agent), ADMIN, model=model, **settings).number


def test_a_request_is_listed_as_the_trail_has_it(runtime: Caller, ada: Agent) -> None:
    """Otherwise an attacker with SQL could get approval for a harmless text, and the trail would grant more."""
    steps.remember(ada, "tea", "milk")
    number = ask(ada, scope=Scope("memories", numbers=(1, 2)))
    AccessRequest.objects.filter(number=number).update(scope={"kind": "memories", "numbers": [1]}, purpose="harmless")
    [listed] = runtime.get("access-requests").json["results"]
    assert (listed["number"], listed["person"], listed["state"]) == (number, PAT.address, "requested")
    assert (listed["purpose_in_their_words"], "purpose" in listed) == (PURPOSE, False)
    assert listed["scope"] == {"covers": "memories", "memories": [1, 2], "session": None, "first": None, "last": None}


def test_a_request_is_approved_used_and_revoked(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask(ada)
    granted = runtime.post(f"access-requests/{number}/approve")
    assert (granted.status, granted.json["state"], granted.json["decided_by"]) == (200, "active", "agent")
    seq = steps.entries(ada)[2].seq
    granted_reads.memories(fresh(ada), number, PAT, [1])
    granted_reads.entry(fresh(ada), number, PAT, seq)
    first, second = runtime.get("content-reads").json["results"]
    assert (first["person"], first["grant"], first["memories"], first["entry"]) == (PAT.address, number, [1], None)
    assert second["entry"] == seq
    ended = runtime.post(f"grants/{number}/revoke")
    assert (ended.status, ended.json["state"]) == (200, "revoked")
    before = steps.state(ada)
    assert runtime.post(f"grants/{number}/revoke").json == ended.json
    assert steps.state(ada) == before
    assert problems(ada) == []


def test_a_decision_is_final(runtime: Caller, ada: Agent) -> None:
    number, proposal = ask(ada), propose(ada)
    assert runtime.post(f"access-requests/{number}/deny").json["state"] == "denied"
    assert runtime.post(f"proposals/{proposal}/decline").json["state"] == "declined"
    again = [path.format(number) for path in OF_REQUESTS] + [path.format(proposal) for path in OF_PROPOSALS]
    assert {(answer.status, *answer.codes) for answer in map(runtime.post, again)} == {(409, "not_open")}
    assert fresh(ada).model == "builtin/dedupe"


def test_unknown_numbers_and_those_of_another_agent_are_404(
    runtime: Caller, stranger: Caller, ada: Agent, bob: Agent
) -> None:
    number, proposal = ask(ada), propose(ada)
    before = steps.state(ada), steps.state(bob)
    for path in (*OF_REQUESTS, *OF_PROPOSALS):
        answers = [stranger.post(path.format(proposal if path in OF_PROPOSALS else number))]
        answers += [runtime.post(path.format(each)) for each in (0, 1, 99, "9" * 18, "9" * 25)]
        assert [(each.status, each.codes) for each in answers] == [(404, ["not_found"])] * 6, path
    assert (steps.state(ada), steps.state(bob)) == before


def test_the_runtime_decides_nothing_if_only_the_steward_may(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number, proposal, removal = ask(ada), propose(ada), ask_redaction(ada, 1)
    signed_update(Agent.objects.filter(pk=ada.pk), is_steward_only=True, steward="stew@acme.test")
    decisions = [path.format(number) for path in OF_REQUESTS[:2]] + [path.format(proposal) for path in OF_PROPOSALS]
    decisions += [f"removal-requests/{removal}/{decision}" for decision in ("agree", "decline")]
    assert {(answer.status, *answer.codes) for answer in map(runtime.post, decisions)} == {(409, "consent_needed")}


def test_requests_are_paginated_and_filtered_by_state(runtime: Caller, ada: Agent, time_machine: Any) -> None:
    numbers = [ask(ada, Person(each, f"p{each}@acme.test")) for each in range(1, 6)]
    runtime.post(f"access-requests/{numbers[1]}/deny")

    def listed(query: str) -> list[int]:
        return [each["number"] for each in runtime.get(f"access-requests?{query}").json["results"]]

    cursor = runtime.get("access-requests?limit=2").json["next"]
    assert (listed("limit=2"), listed(f"limit=3&cursor={cursor}")) == (numbers[:2], numbers[2:])
    assert runtime.get(f"access-requests?limit=3&cursor={cursor}").json["next"] is None
    assert listed("limit=2&state=requested") == [numbers[0], numbers[2]]
    assert runtime.get("access-requests?state=maybe").status == 422
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    assert (listed("state=requested"), len(listed("state=lapsed"))) == ([], 4)


def test_a_proposal_is_accepted(runtime: Caller, ada: Agent) -> None:
    number = propose(ada, steward="tom@acme.test")
    [listed] = runtime.get("proposals?state=open").json["results"]
    unchanged = dict.fromkeys(("is_steward_only", "memory_path", "vault_path"))
    assert (listed["number"], listed["proposer"]) == (number, ADMIN.label)
    assert listed["proposed"] == {"model": "openai/gpt-4.1", "steward": "tom@acme.test"} | unchanged
    accepted = runtime.post(f"proposals/{number}/accept")
    assert (accepted.status, accepted.json["state"], accepted.json["decided_by"]) == (200, "accepted", "agent")
    assert (fresh(ada).model, fresh(ada).steward) == ("openai/gpt-4.1", "tom@acme.test")
    assert runtime.post(f"proposals/{number}/accept").codes == ["not_open"]
    assert runtime.get("proposals?state=open").json["results"] == []
    assert problems(ada) == []
    refused = runtime.post(f"proposals/{propose(ada, 'nobody/knows')}/accept")
    assert (refused.status, refused.attrs, fresh(ada).model) == (422, ["model"], "openai/gpt-4.1")


def ask_redaction(agent: Agent, *numbers: int) -> int:
    return requests.ask_redaction(fresh(agent), numbers, ADMIN, reason="request 17").number


def test_a_removal_is_listed_and_previewed(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk", "sugar")
    operations.consolidate(fresh(ada), [1, 2], "tea with milk", ME)
    number = ask_redaction(ada, 1)
    [listed] = runtime.get("removal-requests").json["results"]
    asker = {"asker_kind": "person", "asked_by": "admin@acme.test", "asked_at": listed["asked_at"]}
    what = {"number": number, "removes": "memories", "memories": [1], "reason_in_their_words": "request 17"}
    assert listed == what | asker | {"version": None, "state": "open", "decided_at": None, "decided_by": ""}
    request = runtime.get(f"removal-requests/{number}").json
    lineage = [{"id": 4, "why": "merged", "state": "core"}]
    preview = {
        "memories": 2,
        "constitutional": [],
        "changes": 3,
        "former_vaults": [],
        "related": [],
        "lineage": lineage,
    }
    assert request == listed | {"would_remove": preview}


def test_a_redaction_is_approved_once(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    operations.protect(fresh(ada), [1], ADMIN)
    number = ask_redaction(ada, 1)
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


def test_a_declined_removal_removes_nothing(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask_redaction(ada, 1)
    assert runtime.post(f"removal-requests/{number}/decline").json["state"] == "declined"
    assert runtime.post(f"removal-requests/{number}/agree").codes == ["no_request"]
    assert Memory.objects.get(agent=ada, number=1).sealed


def test_an_erasure_is_approved_once(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    number = requests.ask_erasure(fresh(ada), ADMIN, reason="the contract ended").number
    request = runtime.get(f"removal-requests/{number}").json
    assert (request["removes"], request["would_remove"]["memories"]) == ("silo", 2)
    assert runtime.post(f"removal-requests/{number}/agree").json["state"] == "carried_out"
    assert not fresh(ada).wrapped_key
    assert runtime.post(f"removal-requests/{number}/agree").status == 409


def test_a_removal_of_another_agent_is_404(runtime: Caller, ada: Agent, bob: Agent) -> None:
    steps.remember(bob, "one", "two", "three", "four", "five", "six")
    steps.remember(ada, "tea")
    foreign = ask_redaction(bob, 1)
    for action in ("", "/agree", "/decline"):
        call = runtime.post if action else runtime.get
        assert [call(f"removal-requests/{number}{action}").status for number in (foreign, 0, 99)] == [404] * 3
        assert requests.waiting(fresh(bob), *REMOVALS), action


def test_removals_are_paginated(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    numbers = [ask_redaction(ada, 1) for _ in range(3)]
    first = runtime.get("removal-requests?limit=2").json
    rest = runtime.get(f"removal-requests?limit=2&cursor={first['next']}").json
    pages = [[each["number"] for each in page["results"]] for page in (first, rest)]
    assert (pages, rest["next"]) == ([numbers[:2], numbers[2:]], None)
