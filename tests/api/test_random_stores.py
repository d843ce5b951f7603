"""Random requests to the paths of memory stores, dreams and sessions never fail, and leave a valid trail.

The suite draws a few. `STORES_SECONDS=600` draws new ones for ten minutes.
"""

import os
import time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.test_stores import BETA, client
from tests.conftest import House
from tests.rules.recordings import talk
from tests.steps import problems

SECONDS = int(os.environ.get("STORES_SECONDS", "0"))
pytestmark = [pytest.mark.database, pytest.mark.timeout(SECONDS + 120)]

SHA = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of "x"
STORES, MEMORIES = ("memstore_1", "memstore_2", "memstore_99"), ("mem_1", "mem_2", "mem_3", "mem_99")
WORDS = (
    "",
    "x",
    "/a",
    "/a/b",
    "/b/",
    "full",
    "basic",
    "page_1",
    "created",
    "create_new",
    "update_existing",
    "sessions",
)
WORDS += (
    "memory_store",
    "content_sha256",
    SHA,
    "0" * 64,
    "s1",
    "builtin/dedupe",
    "pending",
    "1",
    "2026-01-01T00:00:00Z",
)
TEXTS = st.sampled_from([*WORDS, *STORES, *MEMORIES]) | st.text(st.characters(codec="utf-8"), max_size=20)
FIELDS = ("name", "description", "metadata", "path", "content", "precondition", "type", "content_sha256", "inputs")
FIELDS += ("model", "instructions", "output_behavior", "memory_store_id", "session_ids", "id", "speed")
PARAMETERS = ("limit", "page", "view", "depth", "path_prefix", "memory_id", "operation", "session_id", "api_key_id")
PARAMETERS += ("created_at[gte]", "created_at[lt]", "statuses[]", "include_archived", "expected_content_sha256", "beta")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner, max_size=4),
    max_leaves=8,
)
GOOD = st.one_of(
    st.fixed_dictionaries({"name": TEXTS}),
    st.fixed_dictionaries({"path": st.sampled_from(["/a", "/a/b", "/b", "/c/d"]), "content": TEXTS}),
    st.fixed_dictionaries({"content": TEXTS}),
)
IDS = st.tuples(
    st.sampled_from(STORES) | TEXTS,
    st.sampled_from(MEMORIES) | TEXTS,
    st.sampled_from(["memver_4_1", "memver_5_1"]) | TEXTS,
)
PATHS = (
    *("memory_stores", "memory_stores/{0}", "memory_stores/{0}/archive", "memory_stores/{0}/memories"),
    *("memory_stores/{0}/memories/{1}", "memory_stores/{0}/memory_versions", "memory_stores/{0}/memory_versions/{2}"),
    *("memory_stores/{0}/memory_versions/{2}/redact", "dreams", "dreams/drm_1", "dreams/drm_1/cancel"),
    *("dreams/drm_1/archive", "dreams/{1}", "sessions/s1", "sessions/{1}"),
)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, str, Any]:
    path = draw(st.sampled_from(PATHS)).format(*(quote(each, safe="") or "x" for each in draw(IDS)))
    query = draw(st.dictionaries(st.sampled_from(PARAMETERS), TEXTS, max_size=3))
    wanted = "&".join(f"{quote(name)}={quote(value)}" for name, value in query.items())
    method = draw(st.sampled_from(["GET", "POST", "POST", "DELETE", "PATCH", "PUT"]))
    return method, f"{path}?{wanted}", draw(VALUES | GOOD) if method in ("POST", "PATCH") else None


def attempts(house: House) -> None:
    own, other = client(house.ada_key), client(house.bob_key)

    @settings(max_examples=200 if SECONDS else 40)
    @given(made=st.lists(requests(), min_size=1, max_size=8))
    def with_random_requests(made: list[tuple[str, str, Any]]) -> None:
        for method, path, body in made:
            for each in (own, other):
                answer = each.caller.ask(method, path, body, anthropic_beta=BETA)
                assert answer.status < 500, (method, path, body, answer.content)
                assert each is own or b"adas" not in answer.content

    with_random_requests()


def test_random_requests_never_fail(house: House, settings: Any) -> None:
    settings.API_RATE = 10**9
    talk(house.ada, session="s1")
    ask = client(house.ada_key)
    for _ in range(2):
        ask.store(a__b="adas", b="adas x")
    started, rounds = time.monotonic(), 0
    while not rounds or time.monotonic() - started < SECONDS:
        attempts(house)
        rounds += 1
    assert problems(house.ada) == problems(house.bob) == []
