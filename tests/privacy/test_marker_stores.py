"""Every path of the memory stores API with marked names, paths and contents: only the agent's own side receives the
marker."""

import hashlib
from typing import Any

import pytest
from django.utils import timezone

from memory.access import tenants
from memory.models import RecordedSession
from memory.search import cache
from tests.api.test_stores import Client, client
from tests.conftest import House
from tests.privacy.marker import unique
from tests.privacy.watch import FAULTS, Watch, failing, kept

pytestmark = pytest.mark.database


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9


def requests(mark: str) -> list[tuple[str, str, Any]]:
    """Requests to a new agent, in an order in which each has an effect."""
    store, about = "memory_stores/memstore_1", {"name": mark, "description": mark, "metadata": {mark: mark}}
    inputs = [{"type": "memory_store", "memory_store_id": "memstore_1"}, {"type": "sessions", "session_ids": ["s1"]}]
    dream = {"inputs": inputs, "model": "builtin/dedupe"}
    return [
        ("POST", "memory_stores", about),
        ("POST", store, {"name": f"{mark} 2", "metadata": {"a": mark}}),
        ("GET", "memory_stores", None),
        ("POST", f"{store}/memories", {"path": f"/{mark}/a", "content": mark}),
        ("POST", f"{store}/memories", {"path": f"/{mark}", "content": mark}),
        ("POST", f"{store}/memories/mem_1", {"path": f"/{mark}/b", "content": f"{mark} 2"}),
        ("POST", f"{store}/memories/mem_1", {"path": mark, "content": f"{mark}\0"}),
        ("GET", f"{store}/memories?depth=1", None),
        ("GET", f"{store}/memories?path_prefix=/x/&view=full", None),
        ("GET", f"{store}/memories/mem_1", None),
        ("GET", f"{store}/memory_versions?view=full", None),
        ("POST", "dreams", dream | {"instructions": mark}),
        ("POST", "dreams", dream | {"instructions": mark, "model": mark}),
        ("POST", "dreams", dream | {"inputs": [{"type": mark, mark: mark}]}),
        ("GET", "dreams?include_archived=true", None),
        ("GET", "dreams/drm_1", None),
        ("GET", "sessions/s1", None),
        ("POST", "dreams/drm_1/cancel", None),
        ("POST", "dreams/drm_1/archive", None),
        ("POST", f"{store}/memory_versions/memver_5_1/redact", None),
        ("DELETE", f"{store}/memories/mem_1?expected_content_sha256={'0' * 64}", None),
        ("DELETE", f"{store}/memories/mem_1", None),
        ("POST", f"{store}/archive", None),
        ("DELETE", store, None),
    ]


@pytest.fixture
def house(house: House) -> House:
    RecordedSession(agent=house.ada, name="s1", began_at=timezone.now(), last_at=timezone.now()).save()
    return house


def test_no_request_leaks(watch: Watch, house: House) -> None:
    own, others = client(house.ada_key), [client(key) for key in (house.bob_key, "", tenants.issue_key("acme"))]
    for method, path, body in requests(watch.marker):
        assert own(method, path, body).status < 500
        for other in others:
            if method == "GET" or "memories" in path or "dreams" in path:
                watch.response(other(method, path, body))
    for raw in (f'{{"{watch.marker}": 1}}', f'{{"{watch.marker}'):
        watch.response(own.caller.ask("POST", "memory_stores", raw=raw.encode(), anthropic_beta=watch.marker))


def test_no_hash_of_a_content_is_stored(house: House) -> None:
    """With the hash, somebody could test a guess of the content."""
    own, mark = client(house.ada_key), unique()
    for method, path, body in requests(mark)[:6]:
        own(method, path, body)
    hashes = [hashlib.sha256(text.encode()) for text in (mark, f"{mark} 2")]
    assert own("GET", "memory_stores/memstore_1/memories/mem_1").json["content_sha256"] == hashes[1].hexdigest()
    for where, data in kept():
        for each in hashes:
            assert each.hexdigest().encode() not in data.lower(), where
            assert each.digest() not in data, where


@pytest.mark.parametrize("fault", FAULTS)
def test_no_request_leaks_in_a_fault(fault: str, watch: Watch, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    own: Client = client(house.ada_key)
    for method, path, body in requests(watch.marker)[:6]:
        own(method, path, body)
    own("POST", "dreams", requests(watch.marker)[11][2])
    failures = 0
    with failing(fault, monkeypatch):
        for method, path, body in requests(watch.marker):
            cache.forget()
            answer = own(method, path, body)
            failures += watch.response(answer).status >= 500 if answer.status >= 400 else 0
    assert failures
