"""Agent keys, lookup by label, and the creation and settings of agents."""

import base64
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
from memory.consent import claims
from memory.errors import AlreadyExists, Invalid, KeyRejected, NotFound
from memory.models import Agent, AgentKey
from tests.conftest import OPERATOR, House
from tests.steps import ME, entries, fresh, refused, signed_update
from tests.unit.test_queries import asked

pytestmark = pytest.mark.database


def is_rejected(key: str) -> bool:
    with pytest.raises(KeyRejected) as caught:
        authentication.agent_key(key)
    return str(caught.value) == "The key is not valid."


def test_a_key_opens_its_own_agent_and_its_secret_is_not_stored(house: House) -> None:
    assert authentication.agent_key(house.ada_key).agent == house.ada
    assert authentication.agent_key(house.bob_key).agent == house.bob
    assert re.fullmatch(r"pal_[a-z0-9]{12}_[\w-]{43}", house.ada_key)
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM memory_agentkey")
        assert house.ada_key.split("_", 2)[2] not in repr(cursor.fetchall())


def test_an_altered_key_is_rejected_and_not_quoted(house: House) -> None:
    form, prefix, secret = house.ada_key.split("_", 2)
    keys = ["", "pal", "pal__", f" {house.ada_key}", f"{house.ada_key}\n", f"pat_{prefix}_{secret}"]
    secrets = ["", "é", secret[:-1], f"{secret}x", secret.swapcase(), house.bob_key.split("_", 2)[2]]
    prefixes = ["z" * 12, prefix.upper(), f"{prefix[:-1]}\0", f"{prefix[:-1]}²", f"{prefix[:-1]}\ud800"]
    keys += [f"{form}_{prefix}_{other}" for other in secrets] + [f"{form}_{other}_{secret}" for other in prefixes]
    assert all(is_rejected(key) for key in keys)


def test_a_key_row_copied_moved_or_forged_by_sql_opens_nothing(house: House) -> None:
    mac, secret = bytes(AgentKey.objects.get(agent=house.ada).mac), house.ada_key.split("_", 2)[2]
    AgentKey.objects.create(agent=house.bob, prefix="copied000000", mac=mac)
    assert is_rejected(f"pal_copied000000_{secret}")
    AgentKey.objects.filter(agent=house.ada).update(agent=house.bob)
    assert is_rejected(house.ada_key)
    message = f"agent-key/{house.bob.pk}/forged000000/known".encode()
    for pepper in (b"", b"palimpsest", b"\0" * 32):
        AgentKey.objects.filter(prefix="forged000000").delete()
        mac = hmac.digest(pepper, message, "sha256")
        AgentKey.objects.create(agent=house.bob, prefix="forged000000", mac=mac)
        assert is_rejected("pal_forged000000_known")


def test_known_and_unknown_keys_are_compared_in_constant_time(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("config.keyring.hmac.compare_digest", compare)
    authentication.agent_key(house.ada_key)
    assert is_rejected(f"pal_{'z' * 12}_x")
    assert compared == [(32, 32)] * 3  # and the signature of the agent's row


def test_a_key_made_under_an_older_pepper_still_opens(house: House, settings: Settings) -> None:
    old = base64.b64encode(keyring().pepper[0].secret).decode()
    settings.PEPPER_KEY = f"{new_secret()},{old}"
    assert authentication.agent_key(house.ada_key).agent == house.ada
    settings.PEPPER_KEY = new_secret()
    assert is_rejected(house.ada_key)


def test_the_last_use_is_stored_at_most_once_a_minute(house: House, time_machine: Any) -> None:
    def last_used(agent: Agent) -> datetime | None:
        return AgentKey.objects.get(agent=agent).last_used_at

    assert is_rejected(house.ada_key + "x")
    assert last_used(house.ada) is None
    start = datetime(2030, 1, 1, tzinfo=UTC)
    stored = []
    for second in (0, 30, 60, 61, 90):
        time_machine.move_to(start.replace(minute=second // 60, second=second % 60), tick=False)
        authentication.agent_key(house.ada_key)
        stored.append((last_used(house.ada) - start).seconds)
    assert stored == [0, 0, 0, 61, 61]
    assert last_used(house.bob) is None


def test_a_key_costs_two_queries_and_once_a_minute_an_update(house: House) -> None:
    key = ["SELECT memory_agentkey", "SELECT audit_auditentry"]  # with its agent and tenant; that no entry is later
    assert asked(lambda: authentication.agent_key(house.ada_key).agent.label) == [*key, "UPDATE memory_agentkey"]
    assert asked(lambda: authentication.agent_key(house.ada_key).agent.label) == key


def test_an_agent_is_found_by_its_exact_label(house: House) -> None:
    assert authentication.agent_named("acme/ada") == house.ada
    for label in ("acme/bob", "globex/ada", "acme/ADA", "acme/ada/", "nobody/nothing", "acme/ada "):
        with pytest.raises(NotFound, match="does not exist"):
            authentication.agent_named(label)
    for label in ("", "ada", "/", "acme/", "/ada"):
        with pytest.raises(Invalid, match="TENANT/AGENT"):
            authentication.agent_named(label)


def test_a_new_agent_has_a_trail_a_data_key_and_a_due_date(ada: Agent, bob: Agent) -> None:
    prefix = AgentKey.objects.get(agent=ada).prefix
    assert [(entry.operation, entry.detail) for entry in entries(ada)] == [
        ("agent_created", {"model": "builtin/dedupe", "has_steward": False}),
        ("key_issued", {"prefix": prefix}),
    ]
    assert bytes(ada.wrapped_key)
    assert bytes(ada.wrapped_key) != bytes(bob.wrapped_key)
    assert ada.due_at is not None
    agent, _ = lifecycle.create("acme", "idle", model="x/y", actor=OPERATOR, refine_every=None)
    assert fresh(agent).due_at is None


def test_a_name_is_unique_in_its_tenant(house: House) -> None:
    with pytest.raises(AlreadyExists):
        lifecycle.create("acme", "ada", model="x/y", actor=OPERATOR)
    agent, _ = lifecycle.create("globex", "ada", model="x/y", actor=OPERATOR)
    assert agent.label == "globex/ada"


SETTINGS = [{"language": "klingon"}, {"language": ""}, {"budget_tokens": 0, "target_tokens": 0}, {"target_tokens": 0}]


def test_a_wrong_value_names_its_field_and_creates_and_changes_nothing(house: House) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({"slug": slug}, "agent") for slug in ("Ada", "a/b", "", "x" * 65, "ada\n")
    ]
    rows += [({"tenant_slug": "Ac me"}, "tenant"), ({"steward": "nobody"}, "steward"), ({"model": ""}, "model")]
    rows += [({"budget_tokens": -1}, "budget_tokens"), *((values, next(iter(values))) for values in SETTINGS)]
    for values, field in rows:
        with pytest.raises(Invalid) as caught:
            lifecycle.create(**{"tenant_slug": "acme", "slug": "eve", "model": "x/y", "actor": OPERATOR} | values)
        assert (caught.value.field, Agent.objects.count()) == (field, 2)
    for setting in SETTINGS:
        for act in (lifecycle.check, lambda agent, **values: lifecycle.change(agent, ME, **values)):
            with refused(house.ada, Invalid) as caught:
                act(fresh(house.ada), **setting)
            assert caught.value.field == next(iter(setting))


def test_a_wrong_stored_setting_does_not_block_other_changes(ada: Agent) -> None:
    signed_update(
        Agent.objects.filter(pk=ada.pk), language="klingon", budget_tokens=0, target_tokens=0, steward="s@acme.test"
    )
    lifecycle.change(fresh(ada), OPERATOR, paused=True)
    assert claims.exchange(AgentKey.objects.get(agent=ada), ME)
    assert (fresh(ada).paused, fresh(ada).steward, fresh(ada).language) == (True, "", "klingon")
