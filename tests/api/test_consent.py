"""The agent's side of consent over the API: what is asked, decided, read and proposed, and by whom not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from audit.consent import Person, Scope
from audit.trail import Actor
from memory.agents import lifecycle
from memory.consent import granted_reads, grants, proposals
from memory.models import Agent
from tests import steps
from tests.api.calling import Caller
from tests.steps import ME, fresh, problems

PAT = Person(1, "pat@acme.test")
ADMIN = Actor.person("admin@acme.test")
PURPOSE = "to see why it forgot the customer"


def ask(agent: Agent, person: Person = PAT, scope: Scope = Scope("silo")) -> int:  # noqa: B008  frozen
    return grants.ask(fresh(agent), person, purpose=PURPOSE, scope=scope).number


def propose(agent: Agent, **settings: Any) -> int:
    return proposals.propose(fresh(agent), ADMIN, **settings).number


def test_what_is_asked_is_listed_with_the_purpose_as_a_persons_words(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea", "milk")
    number = ask(ada, scope=Scope("memories", numbers=(1, 2)))
    [asked] = runtime.get("access-requests").json["results"]
    assert (asked["number"], asked["person"], asked["state"]) == (number, PAT.address, "requested")
    assert asked["purpose_in_their_words"] == PURPOSE
    assert asked["scope"] == {"covers": "memories", "memories": [1, 2], "session": None, "first": None, "last": None}
    assert "purpose" not in asked


def test_a_request_is_approved_read_and_revoked(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    number = ask(ada)
    granted = runtime.post(f"access-requests/{number}/approve")
    assert (granted.status, granted.json["state"], granted.json["decided_by"]) == (200, "active", "agent")
    granted_reads.memories(fresh(ada), number, PAT, [1])
    granted_reads.entry(fresh(ada), number, PAT, steps.entries(ada)[2].seq)
    first, second = runtime.get("content-reads").json["results"]
    assert (first["person"], first["grant"], first["memories"], first["entry"]) == (PAT.address, number, [1], None)
    assert second["entry"] == steps.entries(ada)[2].seq
    ended = runtime.post(f"grants/{number}/revoke")
    assert (ended.status, ended.json["state"]) == (200, "revoked")
    before = steps.state(ada)
    assert runtime.post(f"grants/{number}/revoke").json == ended.json
    assert steps.state(ada) == before
    assert problems(ada) == []


OF_REQUESTS = ("access-requests/{}/approve", "access-requests/{}/deny", "grants/{}/revoke")
OF_PROPOSALS = ("proposals/{}/accept", "proposals/{}/decline")


def test_what_is_decided_is_not_decided_again(runtime: Caller, ada: Agent) -> None:
    number, proposed = ask(ada), propose(ada, model="openai/gpt-4.1")
    assert runtime.post(f"access-requests/{number}/deny").json["state"] == "denied"
    assert runtime.post(f"proposals/{proposed}/decline").json["state"] == "declined"
    again = [deed.format(number) for deed in OF_REQUESTS] + [deed.format(proposed) for deed in OF_PROPOSALS]
    assert {(answer.status, *answer.codes) for answer in map(runtime.post, again)} == {(409, "not_open")}
    assert fresh(ada).model == "builtin/dedupe"


def test_unknown_and_anothers_look_alike(runtime: Caller, stranger: Caller, ada: Agent, bob: Agent) -> None:
    number, proposed = ask(ada), propose(ada, model="openai/gpt-4.1")
    before = steps.state(ada), steps.state(bob)
    for deed in (*OF_REQUESTS, *OF_PROPOSALS):
        answers = [stranger.post(deed.format(proposed if deed in OF_PROPOSALS else number))]
        answers += [runtime.post(deed.format(each)) for each in (0, 1, 99, "9" * 18, "9" * 25)]
        assert [(each.status, each.codes) for each in answers] == [(404, ["not_found"])] * 6, deed
    assert (steps.state(ada), steps.state(bob)) == before


def test_where_the_steward_alone_decides_the_runtime_is_told_so(runtime: Caller, ada: Agent) -> None:
    lifecycle.change(ada, ME, steward="stew@acme.test", is_steward_only=True)
    number, proposed = ask(ada), propose(ada, model="openai/gpt-4.1")
    decisions = [deed.format(number) for deed in OF_REQUESTS[:2]] + [deed.format(proposed) for deed in OF_PROPOSALS]
    assert {(answer.status, *answer.codes) for answer in map(runtime.post, decisions)} == {(409, "consent_needed")}


def test_lists_go_on_at_next_and_by_state(runtime: Caller, ada: Agent, time_machine: Any) -> None:
    numbers = [ask(ada, Person(each, f"p{each}@acme.test")) for each in range(1, 6)]
    runtime.post(f"access-requests/{numbers[1]}/deny")
    page = runtime.get("access-requests?limit=2").json
    assert [each["number"] for each in page["results"]] == numbers[:2]
    rest = runtime.get(f"access-requests?limit=3&cursor={page['next']}").json
    assert ([each["number"] for each in rest["results"]], rest["next"]) == (numbers[2:], None)
    some = runtime.get("access-requests?limit=2&state=requested").json
    assert [each["number"] for each in some["results"]] == [numbers[0], numbers[2]]
    assert runtime.get("access-requests?state=maybe").status == 422
    time_machine.move_to(timezone.now() + timedelta(hours=72))
    assert runtime.get("access-requests?state=requested").json["results"] == []
    assert len(runtime.get("access-requests?state=lapsed").json["results"]) == 4


def test_a_row_altered_by_sql_is_not_what_the_runtime_decides_about(runtime: Caller, ada: Agent) -> None:
    """Else it would approve something harmless, and the trail would grant the rest."""
    from audit.models import AccessRequest

    number = ask(ada)
    AccessRequest.objects.filter(number=number).update(scope={"kind": "memories", "numbers": [1]}, purpose="harmless")
    [asked] = runtime.get("access-requests").json["results"]
    assert (asked["scope"]["covers"], asked["purpose_in_their_words"]) == ("silo", PURPOSE)


def test_a_proposal_is_accepted(runtime: Caller, ada: Agent) -> None:
    number = propose(ada, model="openai/gpt-4.1", steward="tom@acme.test")
    [shown] = runtime.get("proposals?state=open").json["results"]
    assert (shown["number"], shown["proposer"]) == (number, ADMIN.label)
    assert shown["proposed"] == {"model": "openai/gpt-4.1", "steward": "tom@acme.test"} | dict.fromkeys(
        ("is_steward_only", "memory_path", "vault_path")
    )
    done = runtime.post(f"proposals/{number}/accept")
    assert (done.status, done.json["state"], done.json["decided_by"]) == (200, "accepted", "agent")
    assert (fresh(ada).model, fresh(ada).steward) == ("openai/gpt-4.1", "tom@acme.test")
    assert runtime.post(f"proposals/{number}/accept").codes == ["not_open"]
    assert runtime.get("proposals?state=open").json["results"] == []
    assert problems(ada) == []


def test_a_model_there_is_none_of_is_not_accepted(runtime: Caller, ada: Agent) -> None:
    number = propose(ada, model="nobody/knows")
    answer = runtime.post(f"proposals/{number}/accept")
    assert (answer.status, answer.attrs) == (422, ["model"])
    assert fresh(ada).model == "builtin/dedupe"
