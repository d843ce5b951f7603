"""The API of claims: an exchange, a recovery code in place of a key, and what GET /agent says about them."""

import base64
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from config.keyring import keyring
from memory.agents import lifecycle
from tests.access_requests import granted
from tests.api.calling import Caller
from tests.conftest import OPERATOR, House
from tests.steps import ME, PERSON, fresh, remember

pytestmark = pytest.mark.database

EXCHANGE: dict[str, Any] = {"exchange": True}
SECRET = "3f0c9a8d5e7b41c2"  # an Idempotency-Key


@pytest.fixture(autouse=True)
def _no_earlier_requests() -> None:
    cache.clear()


def test_an_exchange_says_what_it_cleared(runtime: Caller, house: House) -> None:
    lifecycle.change(house.ada, ME, steward="stew@acme.test", refinement_prompt="Keep names.")
    before = runtime.get("agent").json
    assert (before["claimed_at"], before["claimed_by"]) == (None, "")
    number = granted(fresh(house.ada))
    answer = runtime.post("agent/keys", EXCHANGE | {"keep": ["model"]})
    assert (answer.status, answer.json["cleared"], answer.json["ended"]) == (
        201,
        ["refinement_prompt", "steward"],
        [number],
    )
    after = Caller(answer.json["key"]).get("agent").json
    assert (after["model"], after["has_steward"]) == ("builtin/dedupe", False)
    assert after["claimed_by"] == runtime.key.split("_")[1]
    assert after["claimed_at"]
    assert "recovery_code" not in Caller(answer.json["key"]).post("agent/keys", {}).json


def test_the_agent_sees_who_can_read_its_silo(runtime: Caller, house: House) -> None:
    remember(house.ada, "tea")
    lifecycle.change(fresh(house.ada), ME, refinement_prompt="Keep names.")
    lifecycle.change(fresh(house.ada), OPERATOR, system_prompt="Be brief")
    number = granted(fresh(house.ada))
    shown = runtime.get("agent").json
    assert shown["prompts"] == {
        "system_prompt": {"characters": 8, "set_by": "operator"},
        "refinement_prompt": {"characters": 11, "set_by": "agent"},
    }
    [grant] = shown["grants"]
    assert (grant["number"], grant["person"]) == (number, "pat@acme.test")
    assert (shown["vault"], shown["log"]["file"]) == (None, None)


def test_an_unknown_setting_to_keep_is_refused(runtime: Caller) -> None:
    answer = runtime.post("agent/keys", EXCHANGE | {"keep": ["model", "grants"]})
    assert (answer.status, answer.attrs) == (422, ["keep.1"])
    assert "must be one of: model, embedder, steward" in answer.json["errors"][0]["detail"]
    assert runtime.get("agent").status == 200


def test_a_recovery_code_is_exchanged_in_place_of_a_key(runtime: Caller, house: House) -> None:
    code = Caller(runtime.post("agent/keys", EXCHANGE).json["recovery_code"])
    assert (code.get("agent").status, code.post("agent/keys", {}).status) == (401, 401)
    answer = code.post("agent/keys", EXCHANGE | {"label": "new"})
    assert (answer.status, Caller(answer.json["key"]).get("agent").json["claimed_by"]) == (201, "recovery code")
    assert (code.post("agent/keys", EXCHANGE).codes, code.get("agent").codes) == (["key_rejected"], ["key_rejected"])


@pytest.mark.parametrize("sends", ["a key", "a recovery code"])
def test_an_exchange_whose_response_was_lost_is_repeated(runtime: Caller, house: House, sends: str) -> None:
    lifecycle.change(house.ada, ME, steward="stew@acme.test")
    caller = runtime
    if sends == "a recovery code":
        caller = Caller(runtime.post("agent/keys", EXCHANGE | {"keep": ["model", "steward"]}).json["recovery_code"])
    lost = caller.post("agent/keys", EXCHANGE, idempotency_key=SECRET)
    for _ in range(2):
        again = caller.post("agent/keys", EXCHANGE, idempotency_key=SECRET)
        assert (again.status, again.json) == (201, lost.json)
    assert (again.json["cleared"], len(fresh(house.ada).live_keys.split())) == (["model", "steward"], 1)
    new = Caller(again.json["key"])
    assert new.get("agent").status == 200
    assert caller.post("agent/keys", EXCHANGE, idempotency_key=SECRET).codes == ["key_rejected"]  # it was used
    code = Caller(again.json["recovery_code"])
    assert code.post("agent/keys", EXCHANGE).status == 201


def test_only_the_same_request_gets_the_response_to_an_exchange_again(
    runtime: Caller, house: House, time_machine: Any
) -> None:
    runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET)
    other = Caller(f"{runtime.key[:-1]}{'x' if runtime.key[-1] != 'x' else 'y'}")
    for caller, body, secret in (
        (runtime, EXCHANGE, f"{SECRET}0"),
        (runtime, EXCHANGE | {"keep": ["model"]}, SECRET),
        (runtime, {}, SECRET),
        (other, EXCHANGE, SECRET),
    ):
        answer = caller.post("agent/keys", body, idempotency_key=secret)
        assert (answer.status, answer.codes) == (401, ["key_rejected"])
    time_machine.move_to(timezone.now() + timedelta(days=1, minutes=1))
    assert runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET).status == 401


def test_a_new_pepper_does_not_prevent_a_repeated_exchange(runtime: Caller, house: House, settings: Any) -> None:
    old = base64.b64encode(keyring().pepper[0].secret).decode()
    lost = runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET).json
    settings.PEPPER_KEY = f"{base64.b64encode(bytes(32)).decode()},{old}"
    assert runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET).json == lost
    assert Caller(lost["recovery_code"]).post("agent/keys", EXCHANGE).status == 201


def test_a_second_claim_ends_what_the_first_one_could_repeat(runtime: Caller, house: House) -> None:
    first = runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET).json
    assert Caller(first["recovery_code"]).post("agent/keys", EXCHANGE).status == 201
    assert runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET).status == 401


def test_the_idempotency_key_of_an_exchange_must_be_long(runtime: Caller, house: House) -> None:
    for text in ("1", "x" * 15, "x" * 201):
        answer = runtime.post("agent/keys", EXCHANGE, idempotency_key=text)
        assert (answer.status, answer.attrs) == (422, ["Idempotency-Key"])
    assert runtime.get("agent").json["claimed_at"] is None


def test_repeated_exchanges_are_throttled_by_the_clients_address(house: House, settings: Any) -> None:
    wrong = Caller(f"pal_{'0' * 12}_{'0' * 43}")
    limit = settings.AXES_FAILURE_LIMIT
    answers = [wrong.post("agent/keys", EXCHANGE, idempotency_key=SECRET).status for _ in range(limit + 1)]
    assert answers == [401] * limit + [429]


def test_wrong_codes_are_throttled_by_the_clients_address(runtime: Caller, house: House, settings: Any) -> None:
    wrong = [Caller(f"palr_{number}_{'0' * 64}") for number in range(1, settings.AXES_FAILURE_LIMIT + 2)]
    answers = [caller.post("agent/keys", EXCHANGE).status for caller in wrong]
    assert answers == [401] * settings.AXES_FAILURE_LIMIT + [429]
    assert runtime.post("agent/keys", EXCHANGE).status == 201


def test_a_tenants_program_suspends_keys_but_does_not_end_the_last_one(
    runtime: Caller, acme: Caller, globex: Caller, house: House
) -> None:
    prefix = runtime.key.split("_")[1]
    answer = acme.delete(f"agents/ada/keys/{prefix}")
    assert (answer.status, answer.codes) == (409, ["agents_side"])
    assert globex.post("agents/ada/keys/suspend").status == 404
    assert acme.post("agents/ada/keys/suspend").json["keys_suspended"] is True
    again = runtime.post("agent/keys", EXCHANGE, idempotency_key=SECRET)
    for answer in (runtime.get("agent"), runtime.post("agent/keys", EXCHANGE), again):
        assert (answer.status, answer.codes) == (401, ["key_suspended"])
    lifecycle.lift_suspension(fresh(house.ada), PERSON)
    assert runtime.get("agent").codes == runtime.post("agent/keys", {}).codes == ["key_suspended"]
    new = Caller(runtime.post("agent/keys", EXCHANGE).json["key"])
    assert new.get("agent").json["keys_suspended"] is False


def test_a_server_session_needs_a_model(runtime: Caller) -> None:
    new = Caller(runtime.post("agent/keys", EXCHANGE).json["key"])
    answer = new.post("refinement-sessions", {"driver": "server"})
    assert (answer.status, answer.codes, answer.attrs) == (422, ["model_not_configured"], ["model"])
    assert new.patch("agent", {"model": "builtin/dedupe"}).json["model"] == "builtin/dedupe"
    assert new.post("refinement-sessions", {"driver": "server"}).status == 202
