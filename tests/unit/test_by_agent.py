"""What is an agent's says so, in its row and in what is asked for it: rows could lie by agent on many servers, each
asked for its own (docs/internals/scaling.md, sharding by agent)."""

from __future__ import annotations

import re

import pytest
from django.apps import apps
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from audit import bulk
from memory.models import Agent, Memory
from memory.search import context
from memory.time_machine.rollback import What, roll_back
from memory.writing import operations
from refinement import session as sessions
from refinement.llm.base import Usage
from refinement.models import Outcome, SessionStep
from tests.refining import fill, filler, opened
from tests.steps import PERSON, fresh, remember, row

pytestmark = pytest.mark.database

OURS = ("audit", "memory", "refinement")
BY_AGENT = {
    "memory_memory", "memory_creation", "audit_auditentry", "audit_change", "audit_accessrequest",
    "refinement_refinementsession", "refinement_sessionstep", "refinement_gcreport",
    "memory_vault", "memory_vaultfile", "memory_recall", "memory_recordedsession", "memory_cleanupdecision",
    "memory_historyanalysis", "memory_importedpiece",
}  # fmt: skip
# Found by a prefix before the agent is known, or compared over all agents: copies on every server, or one for all.
OTHERWISE = {"memory_agentkey", "audit_consentlink", "refinement_waiting"}
# … and what docs/internals/scaling.md says of the agent's label, which is unique among its tenant's.
BY_TENANT = {"memory_agent"}


def of_ours() -> list[type[models.Model]]:
    return [model for model in apps.get_models(include_auto_created=True) if model._meta.app_label in OURS]


def names_agent(model: type[models.Model]) -> bool:
    return "agent_id" in {field.attname for field in model._meta.concrete_fields}


def test_what_names_an_agent_is_known() -> None:
    assert {model._meta.db_table for model in of_ours() if names_agent(model)} == BY_AGENT | OTHERWISE


def test_what_refers_to_an_agents_rows_is_an_agents_too() -> None:
    for model in of_ours():
        targets = {f.related_model._meta.db_table for f in model._meta.concrete_fields if f.is_relation}
        if targets & (BY_AGENT | BY_TENANT):
            assert names_agent(model), model


@pytest.mark.parametrize("table", sorted(BY_AGENT))
def test_unique_keys_hold_the_agent(table: str) -> None:
    """But for `id`, to which nothing outside refers by itself; a vault's key is its agent."""
    [model] = [model for model in of_ours() if model._meta.db_table == table]
    fields = {field.name: field.attname for field in model._meta.concrete_fields}
    assert not model._meta.unique_together
    assert [f.name for f in model._meta.concrete_fields if f.unique] in (["id"], ["agent"])
    for constraint in model._meta.constraints:
        if isinstance(constraint, models.UniqueConstraint):
            assert "agent_id" in {fields.get(name, name) for name in constraint.fields}, constraint


def rows_asked_without_agent(statements: list[str]) -> list[str]:
    """Those that look for an agent's rows, or change them, and do not say whose they are."""
    found = []
    for sql in statements:
        tables = set(re.findall(r'(?:FROM|UPDATE|JOIN) "(\w+)"', sql))
        if tables & BY_AGENT and '"agent_id"' not in sql[sql.find("WHERE") :]:
            found.append(sql[sql.find("FROM") :][:300])
    return found


def test_the_write_path_and_a_session_ask_for_rows_of_their_agent(ada: Agent) -> None:
    with CaptureQueriesContext(connection) as asked:
        one, *others, last = fill(ada, 6, 100)
        operations.revise(fresh(ada), one, PERSON, content="Said in other words.")
        held = opened(ada, target_tokens=200)
        held.knife.begin_step()
        answers = [
            held.call("search_memories", query="other words"),
            held.call("update_memory", id=one, content="Said again."),
            held.call("consolidate_memories", ids_to_merge=others[:3], new_content=filler(90)),
            held.call("delete_memory", id=last),
        ]
        sessions.count_model_calls(held.session, Usage(1, 1, 1), 1, 1)
        sessions.close(held.session, Outcome.COMPLETED)
        context.read(fresh(ada))
        roll_back(fresh(ada), What.session(held.session.number), PERSON)
    assert [answer["ok"] for answer in answers] == [True] * 4
    statements = [query["sql"] for query in asked.captured_queries]
    changed = {table for sql in statements for table in re.findall(r'UPDATE "(\w+)"', sql)}
    assert {"memory_memory", "refinement_refinementsession"} <= changed
    assert rows_asked_without_agent(statements) == []
    assert [step.agent_id for step in SessionStep.objects.all()] == [ada.pk] * 4


def test_a_row_is_changed_for_its_own_agent_alone(ada: Agent, bob: Agent) -> None:
    [number] = remember(ada, "tea")
    memory = row(ada, number)
    memory.agent_id, memory.project = bob.pk, "tern"
    bulk.update_many([memory], ["project"])
    bulk.update_many([memory, Memory(pk=10**6, agent_id=bob.pk, project="tern")], ["project"])
    assert row(ada, number).project == ""
