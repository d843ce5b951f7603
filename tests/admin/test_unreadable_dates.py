"""SQL can store dates and time spans that Python does not have. No request about other rows fails, nor a sweep."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.db.models import DateField, DateTimeField, DurationField, Max
from django.utils import timezone

from audit.consent import Person
from audit.trail import Actor
from config.unreadable import NO_DATE, NO_SPAN
from memory.access import tenants
from memory.access.authentication import agent_key
from memory.consent import requests
from memory.errors import AuthorityBroken
from memory.models import Agent, DueReason
from refinement import loop, tasks
from refinement.models import Waiting
from tests.access_requests import ask
from tests.admin.conftest import Enter
from tests.admin.test_scope import agents as agents
from tests.admin.test_scope import crawl
from tests.api.calling import Caller
from tests.commands.calling import run
from tests.conftest import House, drop_guards
from tests.members import with_account
from tests.refining import change
from tests.steps import fresh, problems
from tests.tampering import sql

pytestmark = pytest.mark.database
SQLITE, POSTGRESQL = pytest.mark.sqlite, pytest.mark.postgresql
DATES_IN = {
    "sqlite": ("'x'", "''", "5", "x'ff'", "'2026-01-01T00:00:00'", "'0001-01-01 00:00:00+14:00'"),
    "postgresql": ("'infinity'", "'-infinity'", "'20000-01-01'"),
}
DATES = [pytest.param(each, marks=getattr(pytest.mark, name)) for name, values in DATES_IN.items() for each in values]
UNREADABLE_SPANS = [pytest.param("'x'", marks=SQLITE), pytest.param("'150000000 years'", marks=POSTGRESQL)]
SPANS_IN = {
    "sqlite": ("'x'", "9000000000000000000", "-9000000000000000000"),
    "postgresql": [f"'{n} years'" for n in (150_000_000, 290_000, -200_000)],
}


def spoil(values: Sequence[str], kind: type, turn: int = 0) -> int:
    """Put one of the values into each column of this kind that takes it, but not in the rows of people, who sign in."""
    drop_guards()
    spoiled = 0
    for model in apps.get_models():
        if model._meta.app_label in ("audit", "memory", "refinement") and model._meta.model_name != "person":
            for field in model._meta.concrete_fields:
                if type(field) is kind:
                    try:
                        with transaction.atomic():
                            value = values[(spoiled + turn) % len(values)]
                            sql(f"UPDATE {model._meta.db_table} SET {field.column} = {value}")
                            spoiled += 1
                    except IntegrityError:
                        pass
    return spoiled


@pytest.fixture(autouse=True)
def unchecked(db: None) -> Iterator[None]:
    if connection.vendor == "sqlite":
        sql("PRAGMA ignore_check_constraints = 1")
    yield
    if connection.vendor == "sqlite":
        sql("PRAGMA ignore_check_constraints = 0")


def test_no_page_or_list_fails(agents: House, enter: Enter) -> None:
    key, client = tenants.issue_key("acme"), enter("superuser")
    assert spoil(DATES_IN[connection.vendor], DateTimeField) > 20
    assert len(crawl(client)) > 40
    assert Caller(key).get("agents").status == 401  # it reads as revoked
    sql("UPDATE memory_tenantkey SET revoked_at = NULL")
    assert Caller(key).get("agents").status == 200
    assert Agent.objects.aggregate(last=Max("claimed_at"))["last"] == NO_DATE


@pytest.mark.parametrize("turn", [0, 1])
def test_extreme_dates_and_spans_fail_no_page_and_no_sweep(turn: int, agents: House, enter: Enter) -> None:
    client = enter("superuser")
    ask(agents.ada, with_account(Person(999, "pat@acme.test"), agents.ada))
    requests.propose(fresh(agents.ada), Actor.person("pat@acme.test"), steward="stew@acme.test")
    assert spoil(["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59'"], DateTimeField, turn) > 20
    assert spoil(SPANS_IN[connection.vendor], DurationField, turn) > 0
    assert len(crawl(client)) > 40
    tasks.sweep()


@SQLITE
def test_a_date_that_does_not_exist_fails_no_page_and_no_session(agents: House, enter: Enter) -> None:
    assert spoil(["'2026-13-45'"], DateField) > 0
    assert len(crawl(enter("superuser"))) > 40
    assert loop.refine(fresh(agents.ada), trigger="manual")


@pytest.mark.parametrize("value", UNREADABLE_SPANS)
def test_a_span_that_cannot_be_read_has_a_value(value: str, house: House) -> None:
    sql(f"UPDATE memory_agent SET refine_every = {value}")
    assert {agent.refine_every for agent in Agent.objects.all()} == {NO_SPAN}


@pytest.mark.parametrize("column", ["due_at", "quiet_until", "created_at", "last_refined_at"])
@pytest.mark.parametrize("value", DATES)
def test_a_sweep_goes_on_and_the_row_can_be_repaired(value: str, column: str, house: House) -> None:
    change(house.bob, due_at=timezone.now() - timedelta(hours=1), due_reason=DueReason.WEEKLY)
    sql(f"UPDATE memory_agent SET {column} = {value} WHERE id = {house.ada.pk}")
    tasks.sweep()
    assert Waiting.objects.filter(pk=house.bob.pk).exists()
    sql(f"UPDATE memory_agent SET {column} = {value}, steward = 'eve' WHERE id = {house.ada.pk}")
    assert f"agent: {column} of a row is not a date or time span" in {each.problem for each in problems(house.ada)}
    assert problems(house.bob) == []
    assert run("repair_authority", "acme/ada").code == 0
    assert agent_key(house.ada_key).agent == house.ada


def test_a_text_of_another_form_in_a_signed_row_fails_no_page_and_no_sweep(agents: House, enter: Enter) -> None:
    client, value = enter("superuser"), "x'ff'" if connection.vendor == "sqlite" else "'5'"
    for agent in (agents.ada, agents.bob):
        change(agent, due_at=timezone.now() - timedelta(hours=1), due_reason=DueReason.WEEKLY)
    texts = ["steward", "model", "embedder", "former_embedder", "rules", "live_keys", "claimed_by", "memory_path"]
    spoilt = [f"{name} = {value}" for name in texts]
    if connection.vendor == "sqlite":
        others = {"target_tokens": "2.5", "retention": "9e999", "audit_seq": "'x'", "redacted_seq": "x'ff'"}
        spoilt += [f"{name} = {other}" for name, other in others.items()]
    sql(f"UPDATE memory_agent SET {', '.join(spoilt)} WHERE id = {agents.ada.pk}")
    assert len(crawl(client)) > 40
    for model in (value, "'²'", f"'{'9' * 26}'"):
        sql(f"UPDATE memory_agent SET model = {model} WHERE id = {agents.ada.pk}")
        assert client.get("/readyz").status_code == 200
        tasks.sweep()
    assert Waiting.objects.filter(pk=agents.bob.pk).exists()


def test_an_equal_date_of_a_client_is_no_problem(house: House) -> None:
    key = Caller(house.ada_key)
    assert key.patch("agent", {"discard_share_lifted_until": NO_DATE.isoformat()}).status == 200
    assert Agent.objects.get(pk=house.ada.pk).discard_share_lifted_until == NO_DATE
    assert problems(house.ada) == []


@pytest.mark.parametrize("column", ["claimed_at", "keys_lifted_at", "discard_share_lifted_until"])
@pytest.mark.parametrize("value", DATES)
def test_a_signed_date_closes_the_silo_until_it_is_repaired(value: str, column: str, house: House) -> None:
    sql(f"UPDATE memory_agent SET {column} = {value} WHERE id = {house.ada.pk}")
    with pytest.raises(AuthorityBroken):
        agent_key(house.ada_key)
    assert run("repair_authority", "acme/ada").code == 0
    assert agent_key(house.ada_key).agent == house.ada
    assert problems(house.ada) == []
