"""Recovery codes, the steward's code, and the suspension of keys."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db.models.signals import post_init
from django.utils import timezone

from audit.models import AuditEntry
from memory.access.authentication import either_key, is_key_of, prefix_of
from memory.admin.agent_actions import LiftSuspension
from memory.agents import lifecycle, repair
from memory.consent import claims
from memory.errors import AgentConsentRequired, AuthorityBroken, KeyRejected, KeySuspended, NotOpen
from memory.mail import letters
from memory.models import Agent, AgentKey
from tests.access_requests import STEWARD
from tests.claiming import claim
from tests.conftest import OPERATOR, House, drop_guards
from tests.queueing import work
from tests.steps import ME, PERSON, entries, fresh, last_entry, problems

pytestmark = pytest.mark.database

SUE = "sue@acme.test"


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


def test_ended_keys_are_not_read(house: House) -> None:
    for _ in range(20):
        lifecycle.revoke_key(fresh(house.ada), prefix_of(lifecycle.issue_key(fresh(house.ada), ME)), ME)
    read: list[Any] = []
    note = lambda **_: read.append(1)  # noqa: E731
    post_init.connect(note, sender=AgentKey)
    lifecycle.issue_key(fresh(house.ada), ME)
    post_init.disconnect(note, sender=AgentKey)
    assert len(read) == 3, "the new row before and after it is stored, and the first key"


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


def test_a_suspension_is_lifted_a_few_times_a_day(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steward gets a letter with a code each time, also above the daily limit of letters."""
    monkeypatch.setattr(lifecycle, "MOST_LIFTS", 3)
    for _ in range(3):
        lifecycle.suspend_keys(fresh(house.ada), PERSON)
        lifecycle.lift_suspension(fresh(house.ada), PERSON)
    lifecycle.suspend_keys(fresh(house.ada), PERSON)
    with pytest.raises(NotOpen, match="3 times"):
        lifecycle.lift_suspension(fresh(house.ada), PERSON)


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


def test_the_entry_of_a_letter_is_read_from_the_trail_that_was_checked(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two queries, SQL could show another entry: one that lifts the suspension, and is not their own act."""
    lifecycle.change(house.ada, OPERATOR, steward=PERSON.label)
    suspend(house.ada, lift=True)
    lifecycle.change(fresh(house.ada), OPERATOR, model="builtin/archive")
    assert steward_codes() == []
    entry = last_entry(house.ada)
    rows = AuditEntry.objects.filter(agent_id=house.ada.pk, seq=entry.seq)
    drop_guards()
    rows.update(detail={"changed": {"keys_lifted_at": "x"}})
    check = letters._setting_changes

    def late(*of: Any) -> Any:
        rows.update(detail=entry.detail)
        return check(*of)

    monkeypatch.setattr(letters, "_setting_changes", late)
    assert letters.send(house.ada.pk, entry.seq, letters.BEFORE) == "sent"
    assert "palr_" not in mail.outbox[0].body


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
