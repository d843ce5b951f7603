"""Rows and queries name their agent, so that a service can shard by agent (docs/internals/scaling.md)."""

import re
from datetime import UTC, datetime

import pytest
from django.apps import apps
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from audit.bulk import update_many
from memory.models import Agent, CleanupDecision, Memory
from memory.search import context
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from refinement import session as sessions
from refinement.llm.base import Usage
from refinement.models import Outcome, SessionStep
from tests.refining import fill, filler, opened
from tests.steps import PERSON, fresh, remember, row

pytestmark = pytest.mark.database

BY_AGENT = {
    "memory_memory", "memory_creation", "audit_auditentry", "audit_change", "audit_accessrequest",
    "refinement_refinementsession", "refinement_dream", "refinement_sessionstep", "refinement_gcreport",
    "memory_vault", "memory_vaultfile", "memory_recall", "memory_recordedsession", "memory_cleanupdecision",
    "memory_historyanalysis", "memory_importedpiece", "memory_importjob", "memory_importbody",
    "memory_store", "memory_storeversion", "memory_vector", "memory_embedding",
}  # fmt: skip
# Found by a prefix before the agent is known, or compared over all agents.
GLOBAL = {"memory_agentkey", "audit_consentlink", "refinement_waiting", "refinement_overbudget", "memory_letter"}
BY_TENANT = {"memory_agent"}  # its label is unique in its tenant
MODELS: list[type[models.Model]] = [
    model
    for model in apps.get_models(include_auto_created=True)
    if model._meta.app_label in ("audit", "memory", "refinement")
]


def names_agent(model: type[models.Model]) -> bool:
    return "agent_id" in {field.attname for field in model._meta.concrete_fields}


def test_tables_that_refer_to_an_agents_rows_name_the_agent() -> None:
    assert {model._meta.db_table for model in MODELS if names_agent(model)} == BY_AGENT | GLOBAL
    for model in MODELS:
        targets = {f.related_model._meta.db_table for f in model._meta.concrete_fields if f.is_relation}
        assert names_agent(model) or not targets & (BY_AGENT | BY_TENANT), model


@pytest.mark.parametrize("table", sorted(BY_AGENT))
def test_unique_keys_include_the_agent(table: str) -> None:
    """Except `id`, to which nothing outside refers. The key of a vault is its agent."""
    [model] = [model for model in MODELS if model._meta.db_table == table]
    fields = {field.name: field.attname for field in model._meta.concrete_fields}
    assert not model._meta.unique_together
    assert [f.name for f in model._meta.concrete_fields if f.unique] in (["id"], ["agent"])
    for constraint in model._meta.constraints:
        if isinstance(constraint, models.UniqueConstraint):
            assert "agent_id" in {fields.get(name, name) for name in constraint.fields}, constraint


def without_agent(statements: list[str]) -> list[str]:
    """The statements that read or change an agent's rows and do not name the agent."""
    found = []
    for sql in statements:
        tables = set(re.findall(r'(?:FROM|UPDATE|JOIN) "(\w+)"', sql))
        if tables & BY_AGENT and '"agent_id"' not in sql[sql.find("WHERE") :]:
            found.append(sql[sql.find("FROM") :][:300])
    return found


def test_the_queries_of_edits_a_session_and_a_rollback_name_the_agent(ada: Agent) -> None:
    with CaptureQueriesContext(connection) as queries:
        one, *others, last = fill(ada, 6, 100)
        operations.revise(fresh(ada), one, PERSON, content="Said in other words.")
        held = opened(ada, target_tokens=200)
        held.knife.begin_step()
        answers = [
            held.call("search_memories", query="other words"),
            held.call("update_memory", id=one, content="Said again."),
            held.call("consolidate_memories", ids_to_merge=others[:3], new_content=filler(90)),
            held.call("demote_memory", id=last),
        ]
        sessions.count_model_calls(held.session, Usage(1, 1, 1), 1, 1)
        sessions.close(held.session, Outcome.COMPLETED)
        context.read(fresh(ada))
        roll_back(fresh(ada), What("session", held.session.number), PERSON)
    assert [answer["ok"] for answer in answers] == [True] * 4
    statements = [query["sql"] for query in queries.captured_queries]
    changed = {table for sql in statements for table in re.findall(r'UPDATE "(\w+)"', sql)}
    assert {"memory_memory", "refinement_refinementsession"} <= changed
    assert without_agent(statements) == []
    assert [step.agent_id for step in SessionStep.objects.all()] == [ada.pk] * 4


def test_a_bulk_update_changes_only_rows_of_the_named_agent(ada: Agent, bob: Agent) -> None:
    [number] = remember(ada, "tea")
    memory = row(ada, number)
    memory.agent_id, memory.project = bob.pk, "tern"
    update_many([memory], ["project"])
    update_many([memory, Memory(pk=10**6, agent_id=bob.pk, project="tern")], ["project"])
    assert row(ada, number).project == ""


MOMENT = datetime(2026, 2, 1, 9, 30, 0, 123456, tzinfo=UTC)


def rows(agent: Agent) -> list[Memory]:
    return list(Memory.objects.of(agent).order_by("number"))


def test_each_row_gets_its_own_values_of_every_type(ada: Agent) -> None:
    remember(ada, "one", "two", "three")
    memories = rows(ada)
    for place, memory in enumerate(memories):
        memory.project = "p" * place * 40 + "'\"%s\\é"
        memory.sealed = bytes(range(place, 256))
        memory.constitutional = place == 1
        memory.superseded_by = 2**62 + place if place == 2 else None
        memory.discarded_at = None if place == 1 else MOMENT
    fields = ("project", "sealed", "constitutional", "superseded_by", "discarded_at")
    update_many(memories, fields)
    for written, memory in zip(rows(ada), memories, strict=True):
        assert bytes(written.sealed) == memory.sealed
        for name in set(fields) - {"sealed"}:
            assert getattr(written, name) == getattr(memory, name)


def test_other_fields_and_rows_do_not_change(ada: Agent) -> None:
    remember(ada, "one", "two")
    one, two = rows(ada)
    one.project, one.category = "tern", "technical"
    with CaptureQueriesContext(connection) as queries:
        update_many([one], ["project"])
        update_many([], ["project"])
    assert len(queries) == 1
    assert [(row.project, row.category) for row in rows(ada)] == [("tern", two.category), (two.project, two.category)]
    with pytest.raises(ValueError, match="without an id"):
        update_many([Memory(agent=ada, number=1)], ["project"])


def test_thousands_of_rows_are_updated(ada: Agent) -> None:
    CleanupDecision.objects.bulk_create(
        [CleanupDecision(agent=ada, number=n, category="personal", is_kept=True, at=MOMENT) for n in range(12_000)]
    )
    decisions = CleanupDecision.objects.order_by("number")
    changed = list(decisions)
    for decision in changed:
        decision.category = f"c{decision.number}"
    update_many(changed, ["category"])
    assert list(decisions.values_list("category", flat=True)) == [f"c{n}" for n in range(12_000)]
