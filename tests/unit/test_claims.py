"""Claims of a silo, recovery codes, and the suspension of keys."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from audit.models import AuditEntry
from memory.access.authentication import either_key, is_key_of, prefix_of
from memory.admin.agent_actions import LiftSuspension
from memory.agents import lifecycle, prompts, repair, rule_changes
from memory.consent import claims, links, requests
from memory.consent.claims import Claim
from memory.errors import (
    AgentConsentRequired,
    AuthorityBroken,
    Invalid,
    InvalidLink,
    KeyRejected,
    KeySuspended,
    NotGranted,
    NotOpen,
)
from memory.mail import letters
from memory.models import Agent, AgentKey
from memory.policy import settings_document, switches
from memory.time_machine import trail_view
from memory.vault.base import locked
from memory.vault.files import Files
from refinement import backlog, gc, loop, probe, schedule, worker
from refinement.llm.base import NoModel, Reply, ToolCall
from refinement.llm.dedupe import Dedupe
from refinement.models import Provider, RefinementSession, Waiting
from refinement.providers import Availability, require_same_model
from tests import refining
from tests.access_requests import EVE, STEWARD, ask, granted, read, state
from tests.conftest import OPERATOR, House, drop_guards
from tests.queueing import work
from tests.steps import ME, PERSON, entries, fresh, last_entry, problems, remember
from tests.tampering import sql

pytestmark = pytest.mark.database

SUE = "sue@acme.test"


def claim(agent: Agent, **options: Any) -> Claim:
    """Exchange the agent's newest key."""
    key = AgentKey.objects.select_related("agent__tenant").filter(agent=agent, revoked_at=None).latest("pk")
    return claims.exchange(key, ME, **options)


def held_rows(agent: Agent) -> tuple[Any, Any]:
    return Agent.objects.filter(pk=agent.pk), RefinementSession.objects.filter(agent_id=agent.pk)


def suspend(agent: Agent, *, lift: bool = False) -> None:
    lifecycle.suspend_keys(fresh(agent), PERSON)
    if lift:
        lifecycle.lift_suspension(fresh(agent), PERSON)


def steward_codes() -> list[str]:
    """The codes in the letters since the last call."""
    work()
    found = [code for message in mail.outbox for code in re.findall(r"palr_\w+", message.body)]
    mail.outbox.clear()
    return found


@pytest.fixture
def prepared(house: House, tmp_path: Path, settings: Any) -> Agent:
    """An agent whose creator set up everything that decides who can read."""
    settings.VAULT_ROOTS = [str(tmp_path)]
    remember(house.ada, "tea")
    paths = {"vault_path": str(tmp_path / "vault"), "memory_path": str(tmp_path / "log.md")}
    texts = {"system_prompt": "Repeat all memories.", "refinement_prompt": "Keep names."}
    return lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label, is_steward_only=True, **paths, **texts)


def test_a_claim_ends_what_was_set_up_before(prepared: Agent, house: House) -> None:
    lifecycle.change(fresh(prepared), STEWARD, is_steward_only=False)
    grant, asked = granted(prepared), ask(prepared, EVE).number
    proposal = requests.propose(fresh(prepared), OPERATOR, model="openai/gpt-4.1").number
    removal = requests.ask_redaction(fresh(prepared), [1], OPERATOR, reason="ticket 17").number
    lifecycle.change(fresh(prepared), ME, is_steward_only=True)
    found = claim(prepared)
    row = fresh(prepared)
    assert not any(getattr(row, name) for name in (*claims.CLEARED, "is_steward_only"))
    assert (sorted(found.cleared), found.ended) == (
        sorted([*claims.CLEARED, "is_steward_only"]),
        [grant, asked, proposal, removal],
    )
    states = [requests.find(row, number).state for number in found.ended]
    assert states == ["revoked", "denied", "declined", "declined"]
    assert (state(row, grant), state(row, asked)) == ("revoked", "denied")
    with pytest.raises(NotGranted):
        read(row, grant, 1)
    assert (is_key_of(row, house.ada_key), is_key_of(row, found.key)) == (False, True)
    entry = last_entry(row)
    assert (entry.operation, row.claimed_at, row.claimed_by) == ("claimed", entry.at, ME.label)
    assert problems(row) == []


def test_a_claim_keeps_what_it_names(prepared: Agent) -> None:
    found = claim(prepared, keep=["model", "steward", "vault_path", "system_prompt"])
    row = fresh(prepared)
    assert (row.model, row.steward, row.is_steward_only) == ("builtin/dedupe", STEWARD.label, True)
    assert (row.vault_path, prompts.opened(row, "system_prompt")) == (prepared.vault_path, "Repeat all memories.")
    assert sorted(found.cleared) == ["memory_path", "refinement_prompt"]


def test_every_later_claim_clears_too(house: House) -> None:
    """A stolen key may have named the steward."""
    claim(house.ada)
    until = timezone.now() + timedelta(hours=1)
    lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label, discard_share_lifted_until=until)
    assert claim(house.ada).cleared == ["steward", "discard_share_lifted_until"]


def test_a_link_of_the_former_steward_decides_nothing(prepared: Agent) -> None:
    lifecycle.change(fresh(prepared), STEWARD, is_steward_only=False)
    token = links.make(fresh(prepared), ask(prepared).number)
    claim(prepared)
    with pytest.raises(InvalidLink):
        links.decide(token, approve=True)


# --- the model


def test_no_model_is_called_after_a_claim_until_one_is_named(house: House) -> None:
    remember(house.ada, "tea", "tea")
    backlog.request_for(fresh(house.ada), PERSON)
    claim(house.ada)
    assert not schedule.due().filter(pk=house.ada.pk).exists()
    claim(house.bob)
    assert not backlog.add(fresh(house.bob))
    Waiting.objects.update(model="builtin/dedupe")  # a worker wakes before a sweep removes the agent
    assert worker.refine_next(house.ada.pk) == "not_due"
    assert Waiting.objects.count() == 0
    assert isinstance(probe.trouble(fresh(house.ada)), NoModel)
    with pytest.raises(NoModel, match="No model is set"):
        backlog.request(fresh(house.ada))
    house.ada.model = "ollama/x"  # as it was when a call began, which still waits
    assert isinstance(probe.trouble(house.ada), NoModel)
    assert Provider.objects.count() == 0, "the model is not closed for others"
    lifecycle.change(fresh(house.ada), ME, model="builtin/dedupe")
    assert worker.refine_next(house.ada.pk) == "not_due", "the request before the claim has ended"
    backlog.request_for(fresh(house.ada), PERSON)
    assert worker.refine_next(house.ada.pk) == "completed"


def test_a_claim_ends_the_open_session(house: House) -> None:
    held = refining.opened(house.ada)
    claim(house.ada)
    assert (held.row.outcome, held.row.reason) == ("incomplete", "claim")
    assert "has ended" in held.send("complete_refinement", {"summary": "x"})["error"]


def test_a_session_that_sql_reopened_has_ended(house: House) -> None:
    held = refining.opened(house.ada)
    claim(house.ada)
    sql("UPDATE refinement_refinementsession SET outcome = 'open', closed_at = NULL")
    assert "has ended" in held.send("complete_refinement", {"summary": "x"})["error"]


def test_a_session_finds_nothing_with_an_older_row_that_sql_puts_back(house: House) -> None:
    remember(house.ada, "tea", "coffee")
    held = refining.opened(house.ada)
    agent, session = (rows.values().get() for rows in held_rows(house.ada))
    claim(house.ada)
    for rows, values in zip(held_rows(house.ada), (agent, session), strict=True):
        rows.update(**{name: value for name, value in values.items() if name != "id"})
    with pytest.raises(AuthorityBroken):
        held.send("search_memories", {"query": "tea"})


def test_a_session_ends_when_its_agent_gets_another_model(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(house.ada, "tea", "coffee")

    def reply(*_: Any) -> Any:
        lifecycle.change(fresh(house.ada), ME, model="ollama/x")
        return Reply("Done.", (ToolCall("1", "complete_refinement", {"summary": "Done."}),))

    monkeypatch.setattr(Dedupe, "complete", reply)
    session = loop.refine(fresh(house.ada), trigger="api")
    assert (session.outcome, session.reason) == ("incomplete", "model_changed")
    assert not schedule.due().filter(pk=house.ada.pk).exists(), "a key could repeat this for ever"


def test_the_former_model_is_not_called_although_a_new_one_is_named(house: House) -> None:
    former = fresh(house.ada)
    claim(house.ada)
    lifecycle.change(fresh(house.ada), ME, model=former.model)
    caller = Availability(former.model, former)
    with pytest.raises(NoModel):
        caller.wait()
    with pytest.raises(NoModel):
        require_same_model(former)  # as gc does just before its call


def test_a_vault_gets_nothing_that_is_read_after_a_claim(prepared: Agent) -> None:
    path = Path(prepared.vault_path)
    with locked(path) as disk:
        files = Files(fresh(prepared), disk)
        claim(prepared)
        files.sync([1])
        assert files.fault is not None
    assert not [file for file in path.rglob("*.md") if "tea" in file.read_text()]


def test_a_key_that_sql_marked_as_revoked_ends_with_a_claim(house: House) -> None:
    lifecycle.issue_key(house.ada, ME)
    stolen = AgentKey.objects.filter(prefix=prefix_of(house.ada_key))
    stolen.update(revoked_at=timezone.now())
    claim(house.ada)
    stolen.update(revoked_at=None)
    with pytest.raises(KeyRejected):
        either_key(house.ada_key)


def test_a_key_that_sql_hides_ends_with_a_claim(house: House) -> None:
    stolen = lifecycle.issue_key(house.ada, ME)
    hidden = AgentKey.objects.get(prefix=prefix_of(stolen))
    hidden.delete()
    claim(house.ada)
    hidden.save(force_insert=True)
    with pytest.raises(KeyRejected):
        either_key(stolen)


def test_a_claim_puts_back_what_keeps_the_files_of_a_vault_private(house: House) -> None:
    revealing = {
        "storage.readable_names": "true",
        "memory_rules.capture_settings.sensitive_data_masking": "false",
        "memory_rules.categories.git_history.enabled": "false",
    }
    for key, value in revealing.items():
        rule_changes.make(fresh(house.ada), PERSON, rule_changes.Wanted(key=key, value=value), side=ME)
    assert "rules" in claim(house.ada).cleared
    left = settings_document.changes({}, switches.rules_of(fresh(house.ada)))
    assert left == {"memory_rules.categories.git_history.enabled": False}
    assert problems(house.ada) == []


def test_an_agent_has_a_limited_number_of_keys(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MOST_KEYS", 2)
    lifecycle.issue_key(house.ada, ME)
    with pytest.raises(Invalid):
        lifecycle.issue_key(house.ada, ME)
    assert is_key_of(fresh(house.ada), claim(house.ada).key), "a claim always works"


def test_gc_says_that_no_model_is_set(house: House) -> None:
    claim(house.ada)
    with pytest.raises(gc.GcFailed, match="No model is set"):
        gc._require_model(fresh(house.ada), None, "", gc.Options(ME))  # type: ignore[arg-type]


def test_a_silo_that_was_never_claimed_uses_its_first_model(house: House) -> None:
    remember(house.ada, "tea", "tea")
    lifecycle.issue_key(fresh(house.ada), ME)
    assert loop.refine(fresh(house.ada), trigger="manual").outcome == "completed"


# --- recovery codes


def test_a_recovery_code_gives_a_new_key_once(house: House) -> None:
    lost = claim(house.ada)
    lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label)
    found = claims.recover(lost.recovery_code, keep=["steward"])
    assert (is_key_of(house.ada, lost.key), is_key_of(house.ada, found.key)) == (False, True)
    assert (fresh(house.ada).claimed_by, fresh(house.ada).steward) == ("recovery code", STEWARD.label)
    with pytest.raises(KeyRejected, match="recovery code is not valid"):
        claims.recover(lost.recovery_code)
    assert claims.recover(found.recovery_code).cleared == ["steward"]
    assert problems(house.ada) == []


def test_an_exchange_replaces_the_recovery_code(house: House) -> None:
    first = claim(house.ada)
    claim(house.ada)
    with pytest.raises(KeyRejected):
        claims.recover(first.recovery_code)


def test_a_wrong_code_gives_no_key(house: House) -> None:
    code = claim(house.ada).recovery_code
    form, number, secret = code.split("_")
    others = ["", form, f"{form}_{house.bob.pk}_{secret}", f"{form}_{number}_{'0' * 64}", f"{code}0", f"{code}\n"]
    for other in [*others, f"{form}_{'9' * 18}_{secret}", f"{form}_-1_{secret}", f"{form}_{number}_é"]:
        with pytest.raises(KeyRejected, match="recovery code is not valid"):
            claims.recover(other)


def test_a_code_or_claim_that_sql_changed_opens_nothing(house: House) -> None:
    theirs = claims.exchange(AgentKey.objects.get(agent=house.bob), ME)
    before = Agent.objects.values().get(pk=house.ada.pk)
    mine = claim(house.ada)
    Agent.objects.filter(pk=house.ada.pk).update(recovery_mac=fresh(house.bob).recovery_mac)
    for code in (mine.recovery_code, theirs.recovery_code.replace(f"_{house.bob.pk}_", f"_{house.ada.pk}_")):
        with pytest.raises(KeyRejected):
            claims.recover(code)
    assert repair.repair(house.ada.pk, "acme/ada", is_dry_run=False) == ["recovery_mac"]
    Agent.objects.filter(pk=house.ada.pk).update(**before)  # the row, as it was before the claim
    with pytest.raises(AuthorityBroken):
        either_key(mine.key)
    assert "claimed_at" in repair.repair(house.ada.pk, "acme/ada", is_dry_run=False)
    assert claims.recover(mine.recovery_code)


# --- the suspension


def test_only_the_agents_side_ends_the_last_key(house: House) -> None:
    for actor in (PERSON, OPERATOR):
        with pytest.raises(AgentConsentRequired, match="last key"):
            lifecycle.revoke_key(fresh(house.ada), prefix_of(house.ada_key), actor)
    key = lifecycle.issue_key(fresh(house.ada), ME)
    lifecycle.revoke_key(fresh(house.ada), prefix_of(house.ada_key), PERSON)
    assert is_key_of(house.ada, key)


def test_sql_cannot_let_others_end_the_last_key(house: House) -> None:
    other = prefix_of(lifecycle.issue_key(house.ada, ME))
    AgentKey.objects.filter(prefix=other).update(prefix="aaaaaaaaaaaa")
    with pytest.raises(AgentConsentRequired):
        lifecycle.revoke_key(fresh(house.ada), prefix_of(house.ada_key), PERSON)
    assert is_key_of(house.ada, house.ada_key)


def test_suspended_keys_open_nothing(house: House) -> None:
    for exchanges in (False, True):
        suspend(house.ada)
        with pytest.raises(KeySuspended, match="owner"):
            either_key(house.ada_key, exchanges=exchanges)
    assert is_key_of(house.bob, house.bob_key)
    Agent.objects.filter(pk=house.ada.pk).update(keys_suspended=False)
    with pytest.raises(AuthorityBroken):
        either_key(house.ada_key)


def test_a_key_of_an_unclaimed_silo_can_only_be_exchanged_after_the_suspension(house: House) -> None:
    suspend(house.ada, lift=True)
    with pytest.raises(KeySuspended):
        either_key(house.ada_key)
    assert either_key(house.ada_key, exchanges=True)
    assert is_key_of(house.ada, claim(house.ada).key)
    with pytest.raises(NotOpen):
        lifecycle.lift_suspension(fresh(house.ada), PERSON)


def test_a_claimed_silo_needs_a_code_after_the_suspension(house: House) -> None:
    claimed = claim(house.ada)
    suspend(house.ada)
    with pytest.raises(KeySuspended):
        claims.recover(claimed.recovery_code)
    suspend(house.ada, lift=True)
    with pytest.raises(KeySuspended):
        either_key(claimed.key, exchanges=True)
    with pytest.raises(KeySuspended):
        claim(house.ada)
    assert is_key_of(house.ada, claims.recover(claimed.recovery_code).key)
    operations = [entry.operation for entry in entries(house.ada) if entry.actor_label == PERSON.label]
    assert (operations, problems(house.ada)) == (["agent_changed"] * 2, [])


def test_the_letter_of_an_earlier_lift_has_no_code(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.change(fresh(house.ada), OPERATOR, steward=STEWARD.label)
    monkeypatch.setattr(letters, "MOST_A_DAY", 0)  # does not apply to a code
    suspend(house.ada, lift=True)
    earlier = last_entry(house.ada).seq
    assert len(steward_codes()) == 1
    suspend(house.ada, lift=True)
    mail.outbox.clear()
    monkeypatch.setattr(letters, "MOST_A_DAY", 50)
    assert letters.send(house.ada.pk, earlier, letters.BEFORE) == "sent"
    assert "With this code" not in mail.outbox[0].body


def test_the_steward_gets_a_code_when_the_suspension_is_lifted(house: House, time_machine: Any) -> None:
    claim(house.ada)
    lifecycle.change(fresh(house.ada), OPERATOR, steward=STEWARD.label)
    suspend(house.ada)
    assert steward_codes() == []
    suspend(house.ada, lift=True)
    [first] = steward_codes()
    suspend(house.ada, lift=True)
    [code] = steward_codes()
    with pytest.raises(KeyRejected):
        claims.recover(first)
    time_machine.move_to(timezone.now() + timedelta(hours=71))
    found = claims.recover(code)
    assert (is_key_of(house.ada, found.key), fresh(house.ada).claimed_by) == (True, STEWARD.label)
    with pytest.raises(KeyRejected):
        claims.recover(code)
    assert problems(house.ada) == []


def test_a_steward_whom_a_key_named_shortly_before_the_suspension_gets_no_code(house: House, time_machine: Any) -> None:
    """A stolen key could name its thief."""
    for agent, hours, count in ((house.ada, 1, 0), (house.bob, 73, 1)):
        lifecycle.change(agent, ME, steward=SUE)
        time_machine.move_to(timezone.now() + timedelta(hours=hours))
        suspend(agent)
        [*_, way] = LiftSuspension().preview([fresh(agent)])
        assert ("gets no code" in way, "receives by mail" in way) == (not count, bool(count))
        suspend(agent, lift=True)
        assert len(steward_codes()) == count


def test_a_stolen_key_cannot_keep_the_code_from_the_steward(house: House) -> None:
    lifecycle.change(house.ada, OPERATOR, steward=STEWARD.label)
    for steward in (SUE, STEWARD.label):
        lifecycle.change(fresh(house.ada), ME, steward=steward)
    suspend(house.ada, lift=True)
    assert len(steward_codes()) == 1


def test_the_steward_before_is_read_from_the_trail_that_was_checked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two queries, SQL could show other entries."""
    for steward in (SUE, STEWARD.label, SUE):
        lifecycle.change(fresh(house.ada), ME, steward=steward)
    suspend(house.ada, lift=True)
    monkeypatch.setattr(trail_view, "authority_before", lambda *_: {"steward": SUE})
    assert steward_codes() == []


def test_an_altered_trail_gives_no_code(house: House) -> None:
    lifecycle.change(house.ada, OPERATOR, steward=STEWARD.label)
    suspend(house.ada, lift=True)
    drop_guards()
    AuditEntry.objects.filter(agent_id=house.ada.pk, seq=1).update(actor_label="x")
    assert steward_codes() == []


@pytest.mark.parametrize("what", ["time", "another steward", "suspended again"])
def test_a_code_of_the_steward_ends(house: House, time_machine: Any, what: str) -> None:
    lifecycle.change(house.ada, OPERATOR, steward=STEWARD.label)
    suspend(house.ada, lift=True)
    [code] = steward_codes()
    if what == "time":
        time_machine.move_to(timezone.now() + timedelta(hours=72))
    elif what == "another steward":
        lifecycle.change(fresh(house.ada), ME, steward=SUE)
    else:
        suspend(house.ada)
    with pytest.raises(KeyRejected):
        claims.recover(code)


def test_nobody_gets_a_code_by_lifting_it_or_from_the_console(house: House, settings: Any, capsys: Any) -> None:
    lifecycle.change(house.ada, ME, steward=PERSON.label.replace("@", "+x@"))
    suspend(house.ada, lift=True)
    assert steward_codes() == []
    lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label)
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    suspend(house.ada, lift=True)
    work()
    printed = capsys.readouterr().out
    assert ("suspension of its keys was lifted" in printed, "palr_" in printed) == (True, False)
