"""Agent keys and the one door to an agent."""

from __future__ import annotations

import hmac
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from config.keyfiles import new_key as new_secret
from config.keyring import keyring
from memory.access import authentication
from memory.agents import lifecycle
from memory.errors import AlreadyExists, Invalid, KeyRejected, NotFound
from memory.models import Agent, AgentKey
from tests import steps
from tests.conftest import OPERATOR, House
from tests.unit.test_queries import asked

pytestmark = pytest.mark.database


def test_a_key_opens_its_own_agent_and_its_secret_is_not_stored(house: House) -> None:
    assert authentication.agent_of_key(house.ada_key) == house.ada
    assert authentication.agent_of_key(house.bob_key) == house.bob
    assert re.fullmatch(r"pal_[a-z0-9]{12}_[\w-]{43}", house.ada_key)
    secret = house.ada_key.split("_", 2)[2]
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM memory_agentkey")
        assert secret not in repr(cursor.fetchall())


def altered(key: str) -> list[str]:
    form, prefix, secret = key.split("_", 2)
    return [
        "",
        "pal",
        "pal__",
        f"pat_{prefix}_{secret}",
        f"{form}_{prefix}_{secret[:-1]}",
        f"{form}_{prefix}_{secret}x",
        f"{form}_{prefix}_{secret.swapcase()}",
        f"{form}_{'z' * 12}_{secret}",
        f"{form}_{prefix}_",
        f"{form}_{prefix}_é",
        f"{form}_{prefix.upper()}_{secret}",
        f"{form}_{prefix[:-1]}\0_{secret}",
        f" {key}",
        f"{key}\n",
        f"{form}_{prefix[:-1]}²_{secret}",
        f"{form}_{prefix[:-1]}\ud800_{secret}",
    ]


def test_an_altered_key_is_rejected_without_being_quoted(house: House) -> None:
    for key in altered(house.ada_key):
        with pytest.raises(KeyRejected) as caught:
            authentication.agent_of_key(key)
        assert str(caught.value) == "The key is not valid."


def test_a_secret_under_anothers_prefix_is_rejected(house: House) -> None:
    prefix, secret = house.ada_key.split("_", 2)[1], house.bob_key.split("_", 2)[2]
    with pytest.raises(KeyRejected):
        authentication.agent_of_key(f"pal_{prefix}_{secret}")


def test_a_key_row_moved_to_another_agent_by_sql_is_worth_nothing(house: House) -> None:
    AgentKey.objects.filter(agent=house.ada).update(agent=house.bob)
    with pytest.raises(KeyRejected):
        authentication.agent_of_key(house.ada_key)


def test_a_mac_copied_into_a_row_of_another_agent_is_worth_nothing(house: House) -> None:
    mac = bytes(AgentKey.objects.get(agent=house.ada).mac)
    AgentKey.objects.create(agent=house.bob, prefix="copied000000", mac=mac)
    secret = house.ada_key.split("_", 2)[2]
    with pytest.raises(KeyRejected):
        authentication.agent_of_key(f"pal_copied000000_{secret}")


def test_a_row_made_without_the_pepper_is_worth_nothing(house: House) -> None:
    message = f"agent-key/{house.bob.pk}/forged000000/known".encode()
    for pepper in (b"", b"palimpsest", b"\0" * 32):
        AgentKey.objects.filter(prefix="forged000000").delete()
        mac = hmac.digest(pepper, message, "sha256")
        AgentKey.objects.create(agent=house.bob, prefix="forged000000", mac=mac)
        with pytest.raises(KeyRejected):
            authentication.agent_of_key("pal_forged000000_known")


def test_keys_are_compared_in_constant_time_known_or_not(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(authentication.hmac, "compare_digest", compare)
    authentication.agent_of_key(house.ada_key)
    with pytest.raises(KeyRejected):
        authentication.agent_of_key(f"pal_{'z' * 12}_x")
    assert compared == [(32, 32)] * 2


def test_a_key_made_under_an_older_pepper_still_opens(house: House, settings: Settings) -> None:
    import base64

    old = base64.b64encode(keyring().pepper[0].secret).decode()
    settings.PEPPER_KEY = f"{new_secret()},{old}"
    assert authentication.agent_of_key(house.ada_key) == house.ada
    settings.PEPPER_KEY = new_secret()
    with pytest.raises(KeyRejected):
        authentication.agent_of_key(house.ada_key)


def last_used(agent: Agent) -> datetime | None:
    return AgentKey.objects.get(agent=agent).last_used_at


def test_last_use_is_noted_at_most_once_a_minute(house: House, time_machine: Any) -> None:
    with pytest.raises(KeyRejected):
        authentication.agent_of_key(house.ada_key + "x")
    assert last_used(house.ada) is None
    start = datetime(2030, 1, 1, tzinfo=UTC)
    noted = []
    for second in (0, 30, 60, 61, 90):
        time_machine.move_to(start.replace(minute=second // 60, second=second % 60), tick=False)
        authentication.agent_of_key(house.ada_key)
        noted.append((last_used(house.ada) - start).seconds)
    assert noted == [0, 0, 0, 61, 61]
    assert last_used(house.bob) is None


def test_a_key_costs_one_query_and_a_note_of_its_use(house: House) -> None:
    key = "SELECT memory_agentkey"  # with its agent and tenant
    assert asked(lambda: authentication.agent_of_key(house.ada_key).label) == [key, "UPDATE memory_agentkey"]
    assert asked(lambda: authentication.agent_of_key(house.ada_key).label) == [key]  # within the minute


def test_an_agent_is_found_by_its_label_and_a_missing_one_looks_like_another_tenants(house: House) -> None:
    assert authentication.agent_named("acme/ada") == house.ada
    for label in ("acme/bob", "globex/ada", "acme/ADA", "acme/ada/", "nobody/nothing", "acme/ada "):
        with pytest.raises(NotFound, match="does not exist"):
            authentication.agent_named(label)
    for label in ("", "ada", "/", "acme/", "/ada"):
        with pytest.raises(Invalid, match="TENANT/AGENT"):
            authentication.agent_named(label)


# Making agents


def test_a_new_agent_has_a_trail_a_data_key_and_a_date(ada: Agent, bob: Agent) -> None:
    from audit.models import AuditEntry

    made = AuditEntry.objects.filter(agent_id=ada.pk).order_by("seq").values_list("operation", "detail")
    prefix = AgentKey.objects.get(agent=ada).prefix
    assert list(made) == [
        ("agent_created", {"model": "builtin/dedupe", "has_steward": False}),
        ("key_issued", {"prefix": prefix, "handed_out": True}),
    ]
    assert bytes(ada.wrapped_key)
    assert bytes(ada.wrapped_key) != bytes(bob.wrapped_key)
    assert ada.due_at is not None
    agent, _ = lifecycle.create("acme", "idle", model="x/y", actor=OPERATOR, refine_every=None)
    assert steps.fresh(agent).due_at is None


def test_a_taken_name_is_refused_and_another_tenants_is_free(house: House) -> None:
    with pytest.raises(AlreadyExists):
        lifecycle.create("acme", "ada", model="x/y", actor=OPERATOR)
    agent, _ = lifecycle.create("globex", "ada", model="x/y", actor=OPERATOR)
    assert agent.label == "globex/ada"


def test_a_bad_value_names_its_field_and_makes_nothing(house: House) -> None:
    for values, field in (
        ({"slug": "Ada"}, "agent"),
        ({"slug": "a/b"}, "agent"),
        ({"slug": ""}, "agent"),
        ({"slug": "x" * 65}, "agent"),
        ({"slug": "ada\n"}, "agent"),
        ({"tenant_slug": "Ac me"}, "tenant"),
        ({"steward": "nobody"}, "steward"),
        ({"budget_tokens": -1}, "budget_tokens"),
        ({"model": ""}, "model"),
    ):
        with pytest.raises(Invalid) as caught:
            lifecycle.create(**{"tenant_slug": "acme", "slug": "eve", "model": "x/y", "actor": OPERATOR} | values)
        assert caught.value.field == field
        assert Agent.objects.count() == 2


def test_with_the_first_exchange_a_steward_named_before_is_none(house: House) -> None:
    """Who made the agent, or had its first key, may have named themselves."""
    lifecycle.change(house.ada, OPERATOR, steward="maker@acme.test", is_steward_only=True)
    key = lifecycle.exchange_key(authentication.agent_key(house.ada_key), steps.ME)
    ada = steps.fresh(house.ada)
    assert (ada.steward, ada.is_steward_only) == ("", False)
    lifecycle.change(ada, steps.ME, steward="stew@acme.test")
    lifecycle.exchange_key(authentication.agent_key(key), steps.ME)
    assert steps.fresh(house.ada).steward == "stew@acme.test", "its own side named them"
    assert steps.problems(house.ada) == []
