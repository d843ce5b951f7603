"""Who may ask what: every address, by each kind of key, of either tenant. Derived from the schema, so that none is
forgotten."""

from __future__ import annotations

import pytest
from drf_spectacular.generators import SchemaGenerator

from memory.access import authentication, tenants
from memory.agents import lifecycle
from memory.consent import erasure, removal_requests
from memory.errors import KeyRejected
from memory.models import Agent, AgentKey, TenantKey
from refinement import session as sessions
from refinement.models import Outcome
from tests import refining, steps
from tests.api.calling import BASE, Caller
from tests.conftest import House
from tests.steps import problems

OF_TENANTS = {"agents"}
SAMPLES = {
    "number": "1",
    "seq": "1",
    "slug": "ada",
    "prefix": "000000000000",
    "name": "monday",
    "tool": "search_memories",
}


def operations() -> list[tuple[str, str]]:
    """(method, path) of everything the schema tells of."""
    schema = SchemaGenerator().get_schema(request=None, public=True)
    found = [(method.upper(), path) for path, ways in schema["paths"].items() for method in ways if method != "x"]
    assert len(found) > 25
    return sorted(found)


def address(path: str) -> str:
    for name, value in SAMPLES.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, f"a value for the new parameter in {path} belongs in SAMPLES"
    return path.removeprefix(BASE)


def is_tenants(path: str) -> bool:
    return path.removeprefix(BASE).split("/")[0] in OF_TENANTS


@pytest.mark.parametrize(("method", "path"), operations())
def test_each_address_by_each_kind_of_key(method: str, path: str, house: House, acme: Caller, globex: Caller) -> None:
    runtime, stranger, nobody = Caller(house.ada_key), Caller(house.bob_key), Caller()
    steps.remember(house.ada, "ada's tea")
    before = steps.state(house.ada)
    where = address(path)
    for caller in (nobody, Caller("pal_000000000000_nothing"), Caller("palt_000000000000_x"), Caller("nonsense")):
        answer = caller.ask(method, where, {})
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="palimpsest"')
    wrong, right = ((runtime, stranger), (acme,)) if is_tenants(path) else ((acme, globex), (runtime,))
    for caller in wrong:
        answer = caller.ask(method, where, {})
        assert (answer.status, answer.codes) == (403, ["permission_denied"])
    if is_tenants(path) and "{slug}" in path:
        answer = globex.ask(method, where, {})
        assert (answer.status, answer.codes) == (404, ["not_found"])
    assert steps.state(house.ada) == before
    for caller in right:
        assert caller.ask(method, where, {}).status not in (401, 403, 405, 500)


def test_what_is_no_key(house: House) -> None:
    for given in ("", "Bearer", "Bearer ", "Basic cGFs", "Token x", "Bearer pal_é_x", "Bearer " + "x" * 9_000):
        assert Caller().get("agent", authorization=given).status == 401, given


def test_a_revoked_key_opens_nothing(house: House) -> None:
    key = lifecycle.issue_key(house.ada, steps.ME)
    assert Caller(key).get("agent").status == 200
    lifecycle.revoke_key(house.ada, key.split("_")[1], steps.ME)
    assert Caller(key).get("agent").status == 401
    assert Caller(house.ada_key).get("agent").status == 200
    assert problems(house.ada) == []


def test_a_key_is_exchanged(house: House) -> None:
    fresh = Caller(house.ada_key).post("agent/keys", {"exchange": True}).json["key"]
    assert Caller(house.ada_key).get("agent").status == 401
    assert Caller(fresh).get("agent").json["agent"] == "ada"
    another = Caller(fresh).post("agent/keys", {"label": "laptop"})
    assert another.status == 201
    assert Caller(fresh).get("agent").status == 200
    assert AgentKey.objects.get(label="laptop").last_used_at is None
    operations = [entry.operation for entry in steps.entries(house.ada)]
    assert operations[-3:] == ["key_issued", "key_revoked", "key_issued"]
    assert problems(house.ada) == []


def test_what_others_handed_out_ends_when_the_runtime_makes_the_silo_its_own(acme: Caller, house: House) -> None:
    """Else the tenant, who may have kept a key, could read it."""
    spare = acme.post("agents/ada/keys", {}).json["key"]
    own = Caller(house.ada_key).post("agent/keys", {}).json["key"]
    fresh = Caller(house.ada_key).post("agent/keys", {"exchange": True}).json["key"]
    assert [Caller(key).get("agent").status for key in (spare, house.ada_key, own, fresh)] == [401, 401, 401, 200]
    later = Caller(fresh).post("agent/keys", {}).json["key"]
    assert Caller(later).get("agent").status == Caller(fresh).get("agent").status == 200
    assert problems(house.ada) == []


def test_a_tenant_is_given_no_key_to_a_silo_that_a_runtime_made_its_own(acme: Caller, house: House) -> None:
    """Else it had one when the silo is filled, a moment later."""
    Caller(house.ada_key).post("agent/keys", {"exchange": True})
    answer = acme.post("agents/ada/keys", {})
    assert (answer.status, answer.codes) == (409, ["agents_side"])


def test_an_erased_silo_is_told_as_such(house: House) -> None:
    steps.remember(house.ada, "tea")
    asked = removal_requests.ask_erasure(house.ada, steps.PERSON, reason="asked")
    erasure.erase(house.ada, asked.number, steps.ME)
    runtime = Caller(house.ada_key)
    for answer in (
        runtime.get("memories"),
        runtime.post("memories", {"content": "x"}),
        runtime.post("agent/keys", {}),
        runtime.post("refinement-sessions", {}),
        runtime.get("context"),
        runtime.get("export"),
    ):
        assert (answer.status, answer.codes) == (409, ["erased"])


def test_a_tenant_hands_out_a_key_only_while_nothing_is_remembered(acme: Caller, house: House) -> None:
    key = acme.post("agents/ada/keys", {}).json["key"]
    Caller(key).post("memories", {"content": "tea"})
    answer = acme.post("agents/ada/keys", {})
    assert (answer.status, answer.codes) == (409, ["agents_side"])
    Caller(key).delete("memories/1")
    assert acme.post("agents/ada/keys", {}).codes == ["agents_side"]


def test_a_tenant_ends_keys(acme: Caller, house: House) -> None:
    prefix = house.ada_key.split("_")[1]
    assert acme.delete(f"agents/ada/keys/{prefix}").status == 204
    assert acme.delete(f"agents/ada/keys/{prefix}").status == 204
    assert acme.delete(f"agents/ada/keys/{house.bob_key.split('_')[1]}").status == 404
    assert Caller(house.ada_key).get("agent").status == 401


def test_a_tenant_makes_an_agent_whose_key_is_shown_once(acme: Caller, globex: Caller) -> None:
    made = acme.post("agents", {"agent": "eve", "model": "builtin/dedupe", "budget_tokens": 9_000})
    assert made.status == 201
    assert Caller(made.json["key"]).get("agent").json["usage"]["budget"] == 9_000
    assert [agent["agent"] for agent in acme.get("agents").json["results"]] == ["ada", "eve"]
    assert "key" not in acme.get("agents/eve").json
    assert globex.get("agents/eve").status == 404
    taken = acme.post("agents", {"agent": "eve", "model": "builtin/dedupe"})
    assert (taken.status, taken.codes) == (409, ["taken"])


def test_an_agent_that_cannot_be(acme: Caller) -> None:
    for body in (
        {"agent": "Eve!", "model": "builtin/dedupe"},
        {"agent": "eve", "model": "builtin/dedupe", "target_tokens": 9_000},
        {"agent": "eve", "model": "builtin/dedupe", "budget_tokens": "many"},
        {"agent": "eve"},
    ):
        assert acme.post("agents", body).status == 422, body
        assert not Agent.objects.filter(slug="eve").exists(), body


CADENCES = ["00:59:59", "-1 00:00:00", "3652 00:00:01", "106751990 00:00:00", "999999999 00:00:00", "9" * 40, "soon"]


def test_a_setting_that_cannot_be_is_refused_by_its_field(acme: Caller, runtime: Caller, house: House) -> None:
    for name, value, code in (
        ("model", "openai/gpt\nX: y", "model_not_configured"),
        ("model", "openai/gpt ", "model_not_configured"),
        ("model", "nobody/knows", "model_not_configured"),
        ("model", "builtin/nothing", "model_not_configured"),
        ("model", "openai/" + "x" * 194, "max_length"),
        ("language", "klingon", "invalid"),
        ("budget_tokens", 0, "min_value"),
        ("target_tokens", 0, "min_value"),
        ("steward", '"s"@acme.test', "invalid"),
        ("steward", "s%acme.test@evil.test", "invalid"),
        ("steward", "s@b\u00fccher.example", "invalid"),
        ("steward", "s@[::1]", "invalid"),
        *(("refine_every", every, "") for every in CADENCES),
    ):
        before = steps.state(house.ada)
        of_tenant = name in ("budget_tokens", "target_tokens", "refine_every")
        made = acme.post("agents", {"agent": "eve", "model": "builtin/dedupe"} | {name: value})
        changed = acme.patch("agents/ada", {name: value}) if of_tenant else runtime.patch("agent", {name: value})
        for answer in (made, changed):
            assert (answer.status, answer.attrs) == (422, [name]), (name, value)
            assert answer.codes == [code] or not code, (name, value)
            assert value == 0 or str(value) not in answer.json["errors"][0]["detail"], (name, value)
        assert not Agent.objects.filter(slug="eve").exists(), (name, value)
        assert steps.state(house.ada) == before, (name, value)


def test_an_unknown_language_is_answered_with_those_there_are(runtime: Caller) -> None:
    assert "german" in runtime.patch("agent", {"language": "klingon"}).json["errors"][0]["detail"]
    assert runtime.patch("agent", {"language": "other"}).json["language"] == "other"


@pytest.mark.parametrize("every", ["01:00:00", "3652 00:00:00"])
def test_from_one_hour_to_ten_years_a_cadence_is_taken(acme: Caller, house: House, every: str) -> None:
    assert acme.patch("agents/ada", {"refine_every": every}).status == 200
    held = refining.opened(house.ada)
    assert sessions.close(held.session, Outcome.COMPLETED).outcome == Outcome.COMPLETED


def test_a_tenant_sets_what_is_its_to_set(acme: Caller, house: House) -> None:
    changed = acme.patch("agents/ada", {"budget_tokens": 6_000, "refine_every": None, "paused": True, "max_steps": 5})
    assert (changed.status, changed.json["usage"]["budget"], changed.json["paused"]) == (200, 6_000, True)
    assert steps.last_entry(house.ada).detail["changed"]["budget_tokens"] == 6_000
    voice = ("model", "steward", "language", "retention", "refinement_prompt", "is_steward_only")
    voice += ("discard_share_lifted_until",)
    for theirs in (*voice, "memory_enabled"):
        assert acme.patch("agents/ada", {theirs: "x"}).codes == ["unknown_field"]
    assert acme.patch("agents/ada", {"target_tokens": 7_000}).status == 422
    assert problems(house.ada) == []


def test_the_agents_side_sets_its_voice(runtime: Caller, house: House) -> None:
    wanted = {"refinement_prompt": "Keep names.", "retention": "0.80", "steward": "s@acme.test"}
    changed = runtime.patch("agent", wanted)
    assert (changed.status, changed.json["retention"], changed.json["has_steward"]) == (200, "0.80", True)
    told = steps.last_entry(house.ada).detail["changed"]
    assert told["refinement_prompt"] == {"characters": 11}
    for theirs in ("budget_tokens", "paused", "memory_enabled", "slug", "wrapped_key"):
        assert runtime.patch("agent", {theirs: 1}).codes == ["unknown_field"]
    for wrong in ({"retention": "0.4"}, {"model": "none"}, {"steward": "x"}):
        assert runtime.patch("agent", wrong).status == 422
    assert problems(house.ada) == []


def test_a_key_row_put_in_by_sql_is_worth_nothing(house: House) -> None:
    TenantKey.objects.create(tenant=house.ada.tenant, prefix="0" * 12, mac=b"x" * 32)
    assert Caller("palt_" + "0" * 12 + "_secret").get("agents").status == 401
    with pytest.raises(KeyRejected):
        authentication.agent_key(tenants.issue_key("acme"))


def test_a_tenants_key_is_revoked(acme: Caller) -> None:
    assert acme.get("agents").status == 200
    tenants.revoke_key("acme", acme.key.split("_")[1])
    assert acme.get("agents").status == 401
