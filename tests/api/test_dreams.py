"""Dreams and sessions, as Anthropic's clients see them."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory.access import tenants
from memory.agents import lifecycle
from memory.models import Agent
from refinement import worker
from refinement.models import Dream
from tests.api.calling import Answer
from tests.api.test_stores import Client, client, error
from tests.conftest import House
from tests.rules.recordings import off, talk
from tests.steps import ME, fresh

pytestmark = pytest.mark.database


@pytest.fixture
def ask(house: House) -> Client:
    ask = client(house.ada_key)
    ask.store(a="Ana has a green boat in Cork.", b="Ana has a green boat in Cork!")
    talk(house.ada, session="s1")
    lifecycle.change(fresh(house.ada), ME, model="builtin/dedupe", retention="0.5")
    return ask


def body(**more: Any) -> dict[str, Any]:
    store = {"type": "memory_store", "memory_store_id": "memstore_1"}
    return {"inputs": [store, {"type": "sessions", "session_ids": ["s1"]}], "model": "dedupe"} | more


IN_PLACE = {"type": "update_existing", "memory_store_id": "memstore_1"}


def test_a_dream_of_a_new_store(ask: Client, ada: Agent) -> None:
    made = ask("POST", "dreams", body(instructions="Merge boats.")).json
    assert {name: made[name] for name in ("id", "type", "status", "outputs", "session_id", "ended_at", "error")} == {
        "id": "drm_1", "type": "dream", "status": "pending", "outputs": [], "session_id": None, "ended_at": None,
        "error": None,
    }  # fmt: skip
    assert (made["model"], made["output_behavior"]) == (
        {"id": "builtin/dedupe", "speed": "standard"},
        {"type": "create_new"},
    )
    assert made["inputs"] == [body()["inputs"][0], {"type": "sessions", "session_ids": ["sesn_s1"]}]
    assert made["instructions"] == "Merge boats."
    worker.refine_next(ada.pk)
    done = ask("GET", "dreams/drm_1").json
    assert (done["status"], done["outputs"]) == (
        "completed",
        [{"type": "memory_store", "memory_store_id": "memstore_2"}],
    )
    assert set(done["usage"].values()) == {0}
    assert len(ask("GET", "memory_stores/memstore_2/memories").json["data"]) == 1
    assert len(ask("GET", "memory_stores/memstore_1/memories").json["data"]) == 2
    [newest, *_] = ask("GET", f"memory_stores/memstore_2/memory_versions?session_id={done['session_id']}").json["data"]
    assert newest["created_by"] == {"type": "session_actor", "session_id": done["session_id"]}
    assert ask("GET", f"sessions/{done['session_id']}").json["status"] == "terminated"


def test_a_dream_changes_the_store_in_place(ask: Client, ada: Agent) -> None:
    made = ask(
        "POST", "dreams", body(output_behavior=IN_PLACE, model={"id": "builtin/dedupe", "speed": "standard"})
    ).json
    assert made["output_behavior"] == IN_PLACE
    worker.refine_next(ada.pk)
    assert ask("GET", "dreams/drm_1").json["outputs"] == [{"type": "memory_store", "memory_store_id": "memstore_1"}]
    assert len(ask("GET", "memory_stores/memstore_1/memories").json["data"]) == 1


def test_many_sessions_are_found_in_one_query(ask: Client, house: House) -> None:
    """A hundred of 25,000 sessions took a second, under the agent's lock."""
    for n in range(2, 12):
        talk(house.ada, session=f"s{n}")
    counts = []
    for number, last in ((1, 3), (2, 12)):
        ids = [f"s{n}" for n in range(1, last)]
        with CaptureQueriesContext(connection) as captured:
            made = ask("POST", "dreams", body(inputs=[body()["inputs"][0], {"type": "sessions", "session_ids": ids}]))
        assert made.json["inputs"][1]["session_ids"] == [f"sesn_{each}" for each in ids]
        counts.append(len(captured))
        ask("POST", f"dreams/drm_{number}/cancel")
    assert counts[1] <= counts[0]


def test_lists_cancellation_and_archive(ask: Client) -> None:
    for number in (1, 2, 3):
        assert ask("POST", "dreams", body()).status == 200
        assert error(ask("POST", "dreams", body())) == (409, "conflict_error")
        assert error(ask("POST", f"dreams/drm_{number}/archive")) == (400, "invalid_request_error")
        assert ask("POST", f"dreams/drm_{number}/cancel").json["status"] == "canceled"
    first = ask("GET", "dreams?limit=2").json
    assert [each["id"] for each in first["data"]] == ["drm_3", "drm_2"]
    assert [each["id"] for each in ask("GET", f"dreams?page={first['next_page']}").json["data"]] == ["drm_1"]
    assert (
        ask("POST", "dreams/drm_2/archive").json["archived_at"]
        == ask("POST", "dreams/drm_2/archive").json["archived_at"]
    )
    assert ids(ask("GET", "dreams")) == ["drm_3", "drm_1"]
    assert ids(ask("GET", "dreams?include_archived=true")) == ["drm_3", "drm_2", "drm_1"]
    assert ids(ask("GET", "dreams?statuses[]=canceled&statuses[]=failed")) == ["drm_3", "drm_1"]
    assert ids(ask("GET", "dreams?statuses[]=completed")) == []
    assert ids(ask("GET", "dreams?created_at[gt]=2100-01-01T00:00:00Z")) == []
    Dream.objects.filter(number=1).update(status="completed")
    assert error(ask("POST", "dreams/drm_1/cancel")) == (400, "invalid_request_error")


def ids(answer: Answer) -> list[str]:
    return [each["id"] for each in answer.json["data"]]


STORE = body()["inputs"][0]
BAD: list[Any] = [
    {},
    body(inputs=[STORE]),
    body(inputs=[STORE, STORE]),
    body(inputs=[STORE, {"type": "sessions", "session_ids": []}]),
    body(inputs=[STORE, {"type": "sessions", "session_ids": ["s1", "s1"]}]),
    body(inputs=[STORE, {"type": "sessions", "session_ids": ["unknown"]}]),
    body(inputs=[STORE, {"type": "sessions", "memory_store_id": "x"}]),
    body(model="openai/gpt"),
    body(model={"id": "dedupe", "speed": "fast"}),
    body(model=1),
    body(instructions="x" * 4_097),
    body(instructions=""),
    body(output_behavior={"type": "update_existing", "memory_store_id": "memstore_2"}),
    body(output_behavior={"type": "create_new", "memory_store_id": "memstore_1"}),
    body(output_behavior={"type": "x"}),
]


@pytest.mark.parametrize("wrong", BAD, ids=range(len(BAD)))
def test_a_bad_dream_is_refused(ask: Client, wrong: Any) -> None:
    assert error(ask("POST", "dreams", wrong)) == (400, "invalid_request_error")
    assert not Dream.objects.exists()


def test_unknown_ids_and_headers(ask: Client) -> None:
    other = [STORE | {"memory_store_id": "memstore_9"}, body()["inputs"][1]]
    assert error(ask("POST", "dreams", body(inputs=other))) == (404, "not_found_error")
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/archive")):
        assert error(ask(method, f"dreams/drm_1{path}")) == (404, "not_found_error")
        assert error(ask(method, f"dreams/x{path}")) == (404, "not_found_error")
    assert error(ask("GET", "sessions/unknown")) == (404, "not_found_error")
    for headers in ({"anthropic_beta": ""}, {"anthropic_beta": "agent-memory-2026-07-22"}):
        assert error(ask("GET", "dreams", **headers)) == (400, "invalid_request_error")


def test_no_other_key_reads_or_changes_dreams_and_sessions(ask: Client, house: House) -> None:
    ask("POST", "dreams", body())
    requests = [("POST", "dreams", body()), ("GET", "dreams/drm_1", None), ("GET", "sessions/s1", None)]
    requests += [("POST", f"dreams/drm_1/{verb}", None) for verb in ("cancel", "archive")]
    for key, status in ((house.bob_key, 404), (tenants.issue_key("acme"), 403), ("", 401)):
        other = client(key)
        if key == house.bob_key:
            assert other("GET", "dreams").json["data"] == []
        else:
            assert other("GET", "dreams").status == status
        for method, path, sent in requests:
            expected = (400, 404) if (path, status) == ("dreams", 404) else (status,)
            assert other(method, path, sent).status in expected
    assert [each.status for each in Dream.objects.all()] == ["pending"]


def test_a_session_shows_the_stores(ask: Client, ada: Agent) -> None:
    for name in ("Ana's notes!", "Ana's notes!", "日記"):
        ask("POST", "memory_stores", {"name": name, "description": "d"})
    ask("POST", "memory_stores/memstore_2/archive")
    session = ask("GET", "sessions/sesn_s1").json
    assert (session["type"], session["id"], session["status"]) == ("session", "sesn_s1", "running")
    assert session["agent"]["name"] == "ada"
    assert [(each["memory_store_id"], each["mount_path"], each["access"]) for each in session["resources"]] == [
        ("memstore_4", "/mnt/memory/memstore_4", "read_write"),
        ("memstore_3", "/mnt/memory/ana-s-notes", "read_write"),
        ("memstore_2", "/mnt/memory/memstore_2", "read_only"),
        ("memstore_1", "/mnt/memory/notes", "read_write"),
    ]
    assert session["resources"][0] | {"instructions": None} == session["resources"][0]
    for _ in range(6):
        ask("POST", "memory_stores", {"name": "x"})
    assert len(ask("GET", "sessions/s1").json["resources"]) == 8


def test_what_is_switched_off_is_a_conflict(ask: Client, ada: Agent) -> None:
    off(ada, "behavioral")
    ask("POST", "dreams", body())
    worker.refine_next(ada.pk)
    assert ask("GET", "dreams/drm_1").json["status"] == "completed"
    assert ask("GET", "memory_stores/memstore_2/memories").json["data"] == []  # nothing was copied
