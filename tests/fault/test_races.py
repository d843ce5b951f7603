"""Races between decisions on access and proposals, rollbacks, redactions and edits: one follows the other, one decision
counts, and everyone sees which."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.consent import Person, Scope
from audit.models import AuditEntry
from audit.trail import Actor
from audit.verify import Problem
from memory import errors
from memory.access import tenants
from memory.agents import lifecycle
from memory.consent import approval, claims, granted_reads, links, redaction, requests
from memory.mail import link_letters, outbox
from memory.models import Agent, AgentKey, Letter, LetterKind, Memory
from memory.policy.validation import Draft
from memory.search import embedding as vectors
from memory.time_machine import replay
from memory.time_machine.rollback import Figures, What, roll_back
from memory.transfer import import_jobs
from memory.writing import edits, operations
from refinement import embedding
from refinement import session as sessions
from tests import refining, steps
from tests.access_requests import current_state
from tests.api.calling import Caller
from tests.conftest import House
from tests.fault.test_writers import assert_whole, at_once, outcomes
from tests.privacy.marker import MARKER
from tests.steps import ME, PERSON, fresh, remember

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

PAT, STEWARD = Person(1, "pat@else.test"), "stew@acme.test"
ADMIN = Actor.person("admin@else.test")
DECISIONS = ("access_granted", "access_denied")


@pytest.fixture
def agent(house: House, settings: Any) -> Agent:
    """An agent with a steward and a memory."""
    settings.ALLOWED_HOSTS = ["testserver"]
    remember(house.ada, f"{MARKER} tea")
    lifecycle.change(house.ada, ME, steward=STEWARD)
    return fresh(house.ada)


def request_access(agent: Agent, person: Person = PAT) -> int:
    return requests.ask_to_read(
        fresh(agent), person, purpose="to see why it forgot the customer", scope=Scope("silo")
    ).number


def press(address: str, decision: str) -> int:
    return Client(raise_request_exception=False).post(address, {"decision": decision}).status_code


def count(agent: Agent, *names: str) -> int:
    return AuditEntry.objects.filter(agent_id=agent.pk, operation__in=names).count()


def test_one_of_several_posts_decides_and_the_others_see_it(agent: Agent) -> None:
    for _ in range(5):
        number = request_access(agent)
        pages = [f"/consent/{links.make(fresh(agent), number)}" for _ in range(2)]
        before = count(agent, *DECISIONS)
        posts = [(pages[0], "approve"), (pages[0], "approve"), (pages[1], "deny"), (pages[1], "approve")]
        assert at_once(*[lambda post=post: press(*post) for post in posts]) == [303] * 4
        assert count(agent, *DECISIONS) == before + 1
        is_active = requests.find(fresh(agent), number).state == "active"
        text = "approved this" if is_active else "denied this"
        assert all(text in Client().get(page).content.decode() for page in pages)
        if is_active:
            requests.revoke(fresh(agent), number, ME)
    assert_whole(agent)


def test_the_runtime_and_a_link_decide_once(agent: Agent) -> None:
    number = request_access(agent)
    token = links.make(fresh(agent), number)
    found = outcomes(lambda: requests.deny(fresh(agent), number, ME), lambda: links.decide(token, approve=True))
    assert found.count("NotOpen") == 1
    assert count(agent, *DECISIONS) == 1
    assert_whole(agent)


def test_one_of_several_claims_counts(agent: Agent, house: House) -> None:
    exchange = Caller(house.ada_key)
    answers = at_once(*[lambda: exchange.post("agent/keys", {"exchange": True})] * 3)
    assert sorted(answer.status for answer in answers) == [201, 401, 401]
    [code] = [answer.json["recovery_code"] for answer in answers if answer.status == 201]
    found = outcomes(*[lambda: claims.recover(code)] * 3)
    assert (found, count(agent, "claimed")) == (["Claim", "KeyRejected", "KeyRejected"], 2)
    assert len(fresh(agent).live_keys.split()) == 1
    assert_whole(agent)


def test_a_link_decides_only_while_its_person_is_the_steward(agent: Agent) -> None:
    for _ in range(5):
        number, steward = request_access(agent), fresh(agent).steward
        token = links.make(fresh(agent), number)
        decided, _ = at_once(
            lambda token=token: links.decide(token, approve=False),
            lambda steward=steward: lifecycle.change(fresh(agent), ME, steward=f"new-{steward}"),
        )
        if isinstance(decided, errors.InvalidLink):
            assert requests.find(fresh(agent), number).state == "requested"
            requests.deny(fresh(agent), number, ME)
        else:
            entry = AuditEntry.objects.get(agent_id=agent.pk, operation="access_denied", detail__request=number)
            exchange = AuditEntry.objects.filter(agent_id=agent.pk, operation="agent_changed").latest("seq")
            assert (entry.actor_label, entry.seq < exchange.seq) == (steward, True)
    assert_whole(agent)


def test_a_proposal_is_decided_once(agent: Agent) -> None:
    number = requests.propose(agent, ADMIN, model="openai/gpt-4.1").number
    token = links.make(fresh(agent), number)
    found = outcomes(
        lambda: approval.approve(fresh(agent), number, ME),
        lambda: requests.deny(fresh(agent), number, ME),
        lambda: links.decide(token, approve=True),
        lambda: links.decide(token, approve=False),
    )
    assert found.count("NotOpen") == 3
    is_accepted = requests.find(fresh(agent), number).state == "accepted"
    assert fresh(agent).model == ("openai/gpt-4.1" if is_accepted else "builtin/dedupe")
    assert_whole(agent)


def test_one_of_several_concurrent_proposals_stays_open(agent: Agent) -> None:
    made = at_once(*[lambda n=n: requests.propose(fresh(agent), ADMIN, model=f"openai/gpt-{n}") for n in range(4)])
    states = sorted(requests.find(fresh(agent), each.number).state for each in made)
    assert states == ["open", "replaced", "replaced", "replaced"]
    assert_whole(agent)


def test_concurrent_requests_do_not_exceed_the_limit_of_an_agent(agent: Agent, settings: Any) -> None:
    settings.ASKS_PER_AGENT = 3
    people = [Person(each, f"p{each}@else.test") for each in range(1, 7)]
    found = outcomes(*[lambda person=person: request_access(agent, person) for person in people])
    assert found.count("TooManyRequests") == 3
    assert count(agent, "access_requested") == 3
    assert_whole(agent)


def test_an_expired_grant_that_several_see_ends_once(agent: Agent, time_machine: Any) -> None:
    number = request_access(agent)
    approval.approve(fresh(agent), number, ME)
    time_machine.move_to(timezone.now() + timedelta(hours=5))
    acts = [
        lambda: current_state(agent, number),
        lambda: granted_reads.memories(fresh(agent), number, PAT, [1]),
        lambda: requests.revoke(fresh(agent), number, ME),
    ]
    results = at_once(*acts, *acts)
    assert {getattr(each, "code", each) for each in results} <= {"expired", "not_granted", "not_open"}
    assert count(agent, "access_expired", "access_revoked", "content_read") == 1
    assert_whole(agent)


def seq(agent: Agent) -> int:
    return int(fresh(agent).audit_seq)


def request_redaction(agent: Agent, numbers: list[int]) -> int:
    return requests.ask_redaction(agent, numbers, PERSON, reason="a test").number


def test_one_of_three_rollbacks_of_an_entry_succeeds(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    operations.discard(ada, numbers, ME)
    what = What("entry", seq(ada))
    assert outcomes(*[lambda: roll_back(fresh(ada), what, PERSON)] * 3) == ["AlreadyUndone", "AlreadyUndone", "Figures"]
    assert steps.active(ada) == numbers
    assert_whole(ada)


def test_edits_during_a_rollback_are_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(200)))
    start = seq(ada)
    operations.discard(ada, numbers[:100], ME)

    def edit() -> None:
        for n in range(10):
            operations.remember(fresh(ada), [Draft(f"new {n}")], ME)

    rolled, _ = at_once(lambda: roll_back(fresh(ada), What("since_entry", start), PERSON), edit)
    assert isinstance(rolled, Figures)
    assert set(numbers) <= set(steps.active(ada))
    assert 200 + 10 - len(steps.active(ada)) == rolled.discarded
    assert_whole(ada)


def test_a_rollback_during_a_session_makes_its_next_edits_stale(ada: Agent) -> None:
    remember(ada, "tea with milk and sugar", "coffee")
    operations.revise(ada, 1, ME, content="tea with milk")
    held = refining.opened(ada)
    roll_back(fresh(ada), What("entry", seq(ada) - 1), PERSON)
    assert held.call("update_memory", id=1, content="tea & milk")["code"] == "stale_memory"
    assert steps.says(ada, 1).content == "tea with milk and sugar"
    sessions.close(held.session, "completed")
    assert_whole(ada)


def test_an_open_session_is_not_rolled_back(ada: Agent) -> None:
    refining.fill(ada, 8, 20)
    held = refining.opened(ada)
    assert held.call("delete_memory", id=1)["ok"]
    with pytest.raises(errors.SessionRunning):
        roll_back(fresh(ada), What("session", held.session.number), PERSON)
    sessions.close(held.session, "completed")
    roll_back(fresh(ada), What("session", held.session.number), PERSON)
    assert steps.active(ada) == list(range(1, 9))
    assert_whole(ada)


def test_a_check_during_writes_finds_no_problem(ada: Agent) -> None:
    """It reads trail, memories and counters as of one moment."""
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))

    def write() -> None:
        for n in range(40):
            operations.revise(fresh(ada), numbers[n], ME, content=f"another fact {n}")
            if n == 20:
                redaction.redact(fresh(ada), request_redaction(ada, numbers[50:]), ME)

    def check() -> list[Problem]:
        return [problem for _ in range(25) for problem in replay.problems_of(ada.pk)]

    assert at_once(check, check, write) == [[], [], None]


def test_one_of_three_redactions_of_a_request_succeeds(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))
    request = request_redaction(ada, numbers)
    found = outcomes(*[lambda: redaction.redact(fresh(ada), request, ME)] * 3)
    assert found == ["Figures", "RequestNotFound", "RequestNotFound"]
    assert steps.active(ada) == []
    assert_whole(ada)


def test_edits_and_rollbacks_during_a_redaction_are_before_or_after_it(ada: Agent) -> None:
    numbers = remember(ada, *(f"fact {n}" for n in range(100)))
    start = seq(ada)
    operations.discard(ada, numbers[50:], ME)
    request = request_redaction(ada, numbers[25:75])

    def edit() -> None:
        for number in range(20, 30):
            try:
                operations.revise(fresh(ada), number, ME, content=f"another fact {number}")
            except errors.Discarded:
                assert number > 25

    redact = lambda: redaction.redact(fresh(ada), request, ME)  # noqa: E731
    results = at_once(redact, lambda: roll_back(fresh(ada), What("since_entry", start), PERSON), edit)
    assert not any(isinstance(result, Exception) for result in results)
    redacted = Memory.objects.filter(agent_id=ada.pk, redacted_at__isnull=False)
    assert sorted(redacted.values_list("number", flat=True)) == numbers[25:75]
    assert not redacted.exclude(sealed=b"").exists()
    assert_whole(ada)


@pytest.mark.postgresql
def test_a_worker_waits_a_short_time_for_an_agent_that_is_locked(
    agent: Agent, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback of 200,000 memories holds the lock for a minute. Then both processes of a worker waited for it."""
    for module in (import_jobs, vectors, link_letters):
        monkeypatch.setattr(module, "LOCK_SECONDS", 1)
    key = AgentKey.objects.select_related("agent__tenant").get(agent=agent)
    import_jobs.add(agent, key, b'{"content": "milk"}\n', "jsonl", "")
    lifecycle.change(fresh(agent), ME, embedder="local/minilm")
    letter = Letter.objects.get(kind=LetterKind.LINK, number=request_access(agent))
    tasks: list[Callable[[], str]] = [
        lambda: import_jobs.carry_out(agent.pk, 1),
        lambda: embedding.embed_next(agent.pk),
        lambda: outbox._attempt(letter, {LetterKind.LINK: link_letters.send}),
    ]
    with edits.locked(fresh(agent)):
        assert [at_once(task) for task in tasks] == [["queued"], ["busy"], ["put_off"]]
    assert import_jobs.carry_out(agent.pk, 1) == "done"


@pytest.mark.postgresql
def test_a_first_key_does_not_wait_long_for_its_agent(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has locked the people of the tenant, who may also be members of another tenant."""
    monkeypatch.setattr(lifecycle, "LOCK_SECONDS", 1)
    tenant = Caller(tenants.issue_key("acme"))
    with edits.locked(agent):
        [refused] = at_once(lambda: tenant.post("agents/ada/keys"))
    assert (refused.status, "has locked this agent" in refused.json["errors"][0]["detail"]) == (503, True)
