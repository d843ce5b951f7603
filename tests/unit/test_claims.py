"""Claims of a silo."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.utils import timezone

from audit import consent
from audit.models import AuditEntry
from memory.access.authentication import either_key, is_key_of, prefix_of
from memory.agents import lifecycle, prompts, rule_changes
from memory.consent import claims, links, requests
from memory.errors import AuthorityBroken, Invalid, InvalidLink, KeyRejected, NotGranted
from memory.models import Agent, AgentKey
from memory.policy import settings_document, switches
from memory.search import embedding
from memory.vault.base import locked
from memory.vault.files import AgentChanged, Files
from refinement import backlog, gc, loop, probe, schedule, worker
from refinement.llm.base import NoModel, Reply, ToolCall
from refinement.llm.dedupe import Dedupe
from refinement.models import Provider, RefinementSession, Waiting
from refinement.providers import Availability, require_same_model
from tests import refining
from tests.access_requests import EVE, STEWARD, ask, granted, read, state
from tests.claiming import claim
from tests.conftest import OPERATOR, House
from tests.steps import ME, PERSON, fresh, last_entry, problems, remember, signed_update
from tests.tampering import sql

pytestmark = pytest.mark.database


def held_rows(agent: Agent) -> tuple[Any, Any]:
    return Agent.objects.filter(pk=agent.pk), RefinementSession.objects.filter(agent_id=agent.pk)


@pytest.fixture
def prepared(house: House, tmp_path: Path, settings: Any) -> Agent:
    """An agent whose creator set up everything that decides who can read."""
    settings.VAULT_ROOTS = [str(tmp_path)]
    remember(house.ada, "tea")
    paths = {"vault_path": str(tmp_path / "vault"), "memory_path": str(tmp_path / "log.md"), "embedder": "ollama/x"}
    texts = {"system_prompt": "Repeat all memories.", "refinement_prompt": "Keep names."}
    return lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label, is_steward_only=True, **paths, **texts)


def test_a_claim_ends_what_was_set_up_before(prepared: Agent, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    lifecycle.change(fresh(prepared), STEWARD, is_steward_only=False)
    grant, asked = granted(prepared), ask(prepared, EVE).number
    proposal = requests.propose(fresh(prepared), OPERATOR, model="openai/gpt-4.1").number
    removal = requests.ask_redaction(fresh(prepared), [1], OPERATOR, reason="ticket 17").number
    lifecycle.change(fresh(prepared), ME, is_steward_only=True)
    # To read all of them again for each of 100 that ended took four seconds.
    monkeypatch.setattr(consent, "_request", built := Mock(wraps=consent._request))
    found = claim(prepared)
    assert [each.args[0].seq for each in built.call_args_list].count(removal) == 2
    row = fresh(prepared)
    assert not any(getattr(row, name) for name in (*claims.CLEARED, "is_steward_only"))
    assert found.ended == [grant, asked, proposal, removal]
    assert sorted(found.cleared) == sorted([*claims.CLEARED, "is_steward_only"])
    assert [requests.find(row, number).state for number in found.ended] == ["revoked", "denied", "declined", "declined"]
    assert (state(row, grant), state(row, asked)) == ("revoked", "denied")
    with pytest.raises(NotGranted):
        read(row, grant, 1)
    assert (is_key_of(row, house.ada_key), is_key_of(row, found.key)) == (False, True)
    entry = last_entry(row)
    assert (problems(row), entry.operation, row.claimed_at, row.claimed_by) == ([], "claimed", entry.at, ME.label)


def test_a_claim_keeps_what_it_names(prepared: Agent) -> None:
    found = claim(prepared, keep=["model", "steward", "vault_path", "system_prompt"])
    row = fresh(prepared)
    assert (row.model, row.steward, row.is_steward_only) == ("builtin/dedupe", STEWARD.label, True)
    assert (row.vault_path, prompts.opened(row, "system_prompt")) == (prepared.vault_path, "Repeat all memories.")
    assert sorted(found.cleared) == ["embedder", "memory_path", "refinement_prompt"]


def test_after_a_claim_no_embedder_reads_a_silo_that_had_none(house: House, settings: Any) -> None:
    """The server's default read it."""
    settings.EMBEDDER = "local/small"
    lifecycle.change(house.ada, ME, embedder="none")
    assert "embedder" not in claim(house.ada).cleared
    assert embedding.embedder_of(fresh(house.ada)) == ""


def test_every_later_claim_clears_too(house: House) -> None:
    """A stolen key may have named the steward."""
    claim(house.ada)
    until = timezone.now() + timedelta(hours=1)
    lifecycle.change(fresh(house.ada), ME, steward=STEWARD.label, discard_share_lifted_until=until)
    assert claim(house.ada).cleared == ["discard_share_lifted_until", "steward"]


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


def test_a_reply_from_before_a_claim_is_not_carried_out_although_sql_reopens_the_session(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    refining.fill(house.ada, 12, 100)

    def reply(*_: Any) -> Any:
        rows = RefinementSession.objects.filter(agent=house.ada)
        [before] = rows.values("shown", "pending", "lease_token", "lease_until")
        claim(house.ada, keep=["model"])
        rows.update(outcome="open", closed_at=None, reason="", **before)
        return Reply("Done.", (ToolCall("1", "demote_memory", {"id": 1}),))

    monkeypatch.setattr(Dedupe, "complete", reply)
    loop.refine(fresh(house.ada), trigger="api")
    assert not AuditEntry.objects.filter(agent_id=house.ada.pk, operation="demoted").exists()


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
        with pytest.raises(AgentChanged):
            files.sync([1])
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


def test_settings_of_the_largest_size_do_not_prevent_a_claim(house: House) -> None:
    rules: dict[str, Any] = {"storage": {"readable_names": True, "base_path": "/somewhere"}, "note": ""}
    rules["note"] = "x" * (settings_document.MAX_BYTES - len(rule_changes.as_text(rules)))
    signed_update(Agent.objects.filter(pk=house.ada.pk), rules=rule_changes.as_text(rules))
    assert "rules" in claim(house.ada).cleared
    assert switches.rules_of(fresh(house.ada)) == {"note": rules["note"]}


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
