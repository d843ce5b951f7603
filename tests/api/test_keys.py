"""Which key may call which address, for each kind of key of two tenants. The schema lists the addresses."""

from contextlib import suppress

import django.forms.fields
import pytest
import rest_framework.fields
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from drf_spectacular.generators import SchemaGenerator

from memory.access import authentication, tenants
from memory.admin import agent_forms
from memory.agents import lifecycle
from memory.consent import erasure, requests
from memory.errors import KeyRejected
from memory.models import Agent, AgentKey, TenantKey
from refinement import providers
from refinement import session as sessions
from refinement.llm.base import ModelRefused
from refinement.llm.http import _reason
from refinement.llm.openai import OpenAI
from refinement.models import Outcome
from tests import refining, steps
from tests.api.calling import BASE, Caller
from tests.conftest import House, drop_guards
from tests.steps import fresh, problems
from tests.tampering import sql

PARAMETERS = {"number": "1", "seq": "1", "slug": "ada", "prefix": "000000000000"}
PARAMETERS |= {"name": "monday", "tool": "search_memories"}
EVE = {"agent": "eve", "model": "builtin/dedupe"}


def operations() -> list[tuple[str, str]]:
    """(method, path) of each operation in the schema."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    found = [(method.upper(), path) for path, item in schema["paths"].items() for method in item if method != "x"]
    assert len(found) > 25
    return sorted(found)


def address(path: str) -> str:
    for name, value in PARAMETERS.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, f"PARAMETERS has no value for the parameter in {path}"
    return path.removeprefix(BASE)


def is_tenants(path: str) -> bool:
    return path.removeprefix(BASE).split("/")[0] == "agents"


def status(key: str) -> int:
    return Caller(key).get("agent").status


@pytest.mark.parametrize(("method", "path"), operations())
def test_each_address_accepts_only_its_kind_of_key(
    method: str, path: str, house: House, acme: Caller, globex: Caller
) -> None:
    runtime, stranger = Caller(house.ada_key), Caller(house.bob_key)
    steps.remember(house.ada, "ada's tea")
    before = steps.state(house.ada)
    where = address(path)
    for key in ("", "pal_000000000000_nothing", "palt_000000000000_x", "nonsense"):
        answer = Caller(key).ask(method, where, {})
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="palimpsest"')
    wrong, right = ((runtime, stranger), acme) if is_tenants(path) else ((acme, globex), runtime)
    for caller in wrong:
        answer = caller.ask(method, where, {})
        assert (answer.status, answer.codes) == (403, ["permission_denied"])
    if is_tenants(path) and "{slug}" in path:
        answer = globex.ask(method, where, {})
        assert (answer.status, answer.codes) == (404, ["not_found"])
    assert steps.state(house.ada) == before
    assert right.ask(method, where, {}).status not in (401, 403, 405, 500)


def test_malformed_authorization_headers_are_401(house: House) -> None:
    for header in ("", "Bearer", "Bearer ", "Basic cGFs", "Token x", "Bearer pal_é_x", "Bearer " + "x" * 9_000):
        assert Caller().get("agent", authorization=header).status == 401, header


def test_a_revoked_key_is_rejected(acme: Caller, house: House) -> None:
    key = lifecycle.issue_key(house.ada, steps.ME)
    assert status(key) == 200
    lifecycle.revoke_key(house.ada, key.split("_")[1], steps.ME)
    assert (status(key), status(house.ada_key)) == (401, 200)
    assert problems(house.ada) == []
    assert acme.get("agents").status == 200
    tenants.revoke_key("acme", acme.key.split("_")[1])
    assert acme.get("agents").status == 401


def test_an_exchange_revokes_every_earlier_key(acme: Caller, house: House) -> None:
    """Otherwise somebody who still has one could read the silo."""
    spare, own = (Caller(house.ada_key).post("agent/keys", {}).json["key"] for _ in range(2))
    new = Caller(house.ada_key).post("agent/keys", {"exchange": True}).json["key"]
    assert [status(key) for key in (spare, house.ada_key, own, new)] == [401, 401, 401, 200]
    later = Caller(new).post("agent/keys", {"label": "laptop"}).json["key"]
    assert AgentKey.objects.get(label="laptop").last_used_at is None
    assert status(later) == status(new) == 200
    last = ["key_issued", "key_revoked", "claimed", "key_issued"]
    assert [entry.operation for entry in steps.entries(house.ada)][-4:] == last, "one entry ends all keys"
    answer = acme.post("agents/ada/keys", {})
    assert (answer.status, answer.codes) == (409, ["agents_side"]), "the tenant gets no new key either"
    assert problems(house.ada) == []


def test_calls_to_an_erased_silo_are_409(house: House) -> None:
    steps.remember(house.ada, "tea")
    request = requests.ask_erasure(house.ada, steps.PERSON, reason="request 17")
    erasure.erase(house.ada, request.number, steps.ME)
    runtime = Caller(house.ada_key)
    writes = [("memories", {"content": "x"}), ("agent/keys", {}), ("refinement-sessions", {})]
    answers = [*(runtime.get(path) for path in ("memories", "context", "export")), *(runtime.post(*w) for w in writes)]
    assert [(answer.status, answer.codes) for answer in answers] == [(409, ["erased"])] * 6


def test_a_tenant_issues_keys_only_until_the_first_memory(acme: Caller, house: House) -> None:
    key = acme.post("agents/ada/keys", {}).json["key"]
    Caller(key).post("memories", {"content": "tea"})
    answer = acme.post("agents/ada/keys", {})
    assert (answer.status, answer.codes) == (409, ["agents_side"])
    Caller(key).delete("memories/1")
    assert acme.post("agents/ada/keys", {}).codes == ["agents_side"]


def test_a_tenant_creates_an_agent_whose_key_appears_once(acme: Caller, globex: Caller) -> None:
    created = acme.post("agents", EVE | {"budget_tokens": 9_000})
    assert created.status == 201
    assert Caller(created.json["key"]).get("agent").json["usage"]["budget"] == 9_000
    assert [agent["agent"] for agent in acme.get("agents").json["results"]] == ["ada", "eve"]
    assert "key" not in acme.get("agents/eve").json
    assert globex.get("agents/eve").status == 404
    again = acme.post("agents", EVE)
    assert (again.status, again.codes) == (409, ["taken"])


CADENCES = ("00:59:59", "-1 00:00:00", "3652 00:00:01", "106751990 00:00:00", "999999999 00:00:00", "9" * 40, "soon")
STEWARDS = ('"s"@acme.test', "s%acme.test@evil.test", "s@b\u00fccher.example", "s@[::1]")


def test_an_invalid_agent_or_setting_is_refused(acme: Caller, runtime: Caller, house: House) -> None:
    assert acme.post("agents", {"agent": "eve"}).status == 422
    for change in ({"agent": "Eve!"}, {"target_tokens": 9_000}, {"budget_tokens": "x"}):
        assert acme.post("agents", EVE | change).status == 422, change
    for name, value, code in (
        ("model", "openai/gpt\nX: y", "model_not_configured"),
        ("model", "openai/gpt ", "model_not_configured"),
        ("model", "nobody/knows", "model_not_configured"),
        ("model", "builtin/nothing", "model_not_configured"),
        ("model", "openai/" + "x" * 194, "max_length"),
        ("language", "klingon", "invalid"),
        ("budget_tokens", 0, "min_value"),
        ("target_tokens", 0, "min_value"),
        *(("steward", address, "invalid") for address in STEWARDS),
        *(("refine_every", every, "") for every in CADENCES),
    ):
        before = steps.state(house.ada)
        of_tenant = name in ("budget_tokens", "target_tokens", "refine_every")
        created = acme.post("agents", EVE | {name: value})
        changed = acme.patch("agents/ada", {name: value}) if of_tenant else runtime.patch("agent", {name: value})
        for answer in (created, changed):
            assert (answer.status, answer.attrs) == (422, [name]), (name, value)
            assert answer.codes == [code] or not code, (name, value)
            assert value == 0 or str(value) not in answer.json["errors"][0]["detail"], (name, value)
        assert not Agent.objects.filter(slug="eve").exists(), (name, value)
        assert steps.state(house.ada) == before, (name, value)


def test_a_long_period_is_refused_before_it_is_read(acme: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MB of digits stopped all threads of a process for 2 seconds."""
    for module in (rest_framework.fields, django.forms.fields):
        monkeypatch.setattr(module, "parse_duration", lambda _: pytest.fail("it was read"))
    assert acme.patch("agents/ada", {"refine_every": f"PT{'1' * 99}S"}).attrs == ["refine_every"]
    with pytest.raises(ValidationError):
        agent_forms._Period().clean(f"PT{'1' * 99}S")


def test_a_cadence_may_be_one_hour_to_ten_years(acme: Caller, house: House) -> None:
    for every in ("01:00:00", "3652 00:00:00"):
        assert acme.patch("agents/ada", {"refine_every": every}).status == 200
        session = refining.opened(house.ada).session
        assert sessions.close(session, Outcome.COMPLETED).outcome == Outcome.COMPLETED


def test_a_tenant_changes_only_its_settings(acme: Caller, house: House) -> None:
    changed = acme.patch("agents/ada", {"budget_tokens": 6_000, "refine_every": None, "paused": True, "max_steps": 5})
    assert (changed.status, changed.json["usage"]["budget"], changed.json["paused"]) == (200, 6_000, True)
    assert steps.last_entry(house.ada).detail["changed"]["budget_tokens"] == 6_000
    of_agent = ("model", "steward", "language", "retention", "refinement_prompt", "is_steward_only")
    for name in (*of_agent, "discard_share_lifted_until", "memory_enabled"):
        assert acme.patch("agents/ada", {name: "x"}).codes == ["unknown_field"]
    assert acme.patch("agents/ada", {"target_tokens": 7_000}).status == 422
    assert problems(house.ada) == []


def test_only_true_and_false_are_booleans(acme: Caller, house: House) -> None:
    for value in ("yes", "true", "", 1, 0, 1.0, "on", None, []):
        assert acme.patch("agents/ada", {"paused": value}).status == 422, value
    for is_paused in (True, False):
        assert acme.patch("agents/ada", {"paused": is_paused}).status == 200
        assert fresh(house.ada).paused is is_paused


def test_the_runtime_changes_only_the_agents_settings(runtime: Caller, house: House) -> None:
    changed = runtime.patch(
        "agent", {"refinement_prompt": "Keep names.", "retention": "0.80", "steward": "s@acme.test"}
    )
    assert (changed.status, changed.json["retention"], changed.json["has_steward"]) == (200, "0.80", True)
    assert steps.last_entry(house.ada).detail["changed"]["refinement_prompt"] == {"characters": 11}
    assert runtime.patch("agent", {"refinement_prompt": "Keep names."}).json["audit_seq"] == changed.json["audit_seq"]
    for name in ("budget_tokens", "paused", "memory_enabled", "slug", "wrapped_key"):
        assert runtime.patch("agent", {name: 1}).codes == ["unknown_field"]
    for invalid in ({"retention": "0.4"}, {"model": "none"}, {"steward": "x"}):
        assert runtime.patch("agent", invalid).status == 422
    assert problems(house.ada) == []


def test_the_runtime_sees_whether_its_model_exists_but_not_an_error_of_the_operator(
    runtime: Caller, house: House
) -> None:
    for status, problem in ((401, ""), (404, "The server has no such model.")):
        refusal = ModelRefused(f"The server answered {status}: {_reason(status, OpenAI)}.", status=status)
        providers.refuse(house.ada.model, refusal)
        assert runtime.get("agent").json["model_problem"] == problem
    refining.change(house.ada, model="openai/other")
    assert runtime.get("agent").json["model_problem"] == ""
    refining.change(house.ada, model="other")
    assert runtime.get("agent").json["model_problem"].startswith("Write a model as provider/name.")


def test_a_key_row_inserted_by_sql_is_rejected(house: House) -> None:
    TenantKey.objects.create(tenant=house.ada.tenant, prefix="0" * 12, mac=b"x" * 32)
    assert Caller("palt_" + "0" * 12 + "_secret").get("agents").status == 401
    with pytest.raises(KeyRejected):
        authentication.agent_key(tenants.issue_key("acme"))


@pytest.mark.sqlite
@pytest.mark.parametrize("column", [each.column for each in Agent._meta.concrete_fields if not each.is_relation])
def test_a_value_of_a_wrong_type_fails_no_request_of_a_tenant(column: str, acme: Caller) -> None:
    drop_guards()
    for value in ("'x'", "x'ff'", "7.5", "9e999"):
        with suppress(IntegrityError), transaction.atomic():
            sql(f"UPDATE memory_agent SET {column} = {value}")
        for path in ("agents", "agents/ada"):
            answer = acme.get(path)
            assert answer.status in (200, 404), (path, value)
