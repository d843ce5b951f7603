"""Anthropic's memory stores API, as its clients see it."""

from dataclasses import dataclass
from typing import Any

import pytest

from audit.trail import Actor
from memory.access import tenants
from memory.access.authentication import agent_key, new_request
from memory.agents import lifecycle
from memory.api.stores import versions
from memory.consent import claims
from memory.models import Agent, StoreVersion
from memory.search import stores as reading
from memory.writing import operations
from tests import steps
from tests.api.calling import Answer, Caller
from tests.conftest import House
from tests.privacy.marker import MARKER
from tests.rules.recordings import off
from tests.steps import ME

pytestmark = pytest.mark.database

BETA = "agent-memory-2026-07-22, dreaming-2026-04-21"
SHA = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of "x"


@dataclass(frozen=True)
class Client:
    """A client of the memory stores API."""

    caller: Caller

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        answer = self.caller.ask(method, path, body, **{"anthropic_beta": BETA} | headers)
        assert answer.headers["request-id"].startswith("req_")
        if answer.status >= 400:
            assert set(answer.json) == {"type", "error", "request_id"}
            assert (answer.json["type"], answer.json["request_id"]) == ("error", answer.headers["request-id"])
        return answer

    def store(self, **files: str) -> str:
        """The path of a new store with these memories. "__" in a name is a slash."""
        path = f"memory_stores/{self('POST', 'memory_stores', {'name': 'notes'}).json['id']}"
        for name, content in files.items():
            body = {"path": "/" + name.replace("__", "/"), "content": content}
            assert self("POST", f"{path}/memories", body).status == 200
        return path

    def paths(self, path: str) -> list[str]:
        """The paths of all pages of a list."""
        found, page = [], ""
        while page is not None:
            answer = self("GET", f"{path}{'&' if '?' in path else '?'}limit=2{page}").json
            found += [each["path"] for each in answer["data"]]
            page = answer["next_page"] and f"&page={answer['next_page']}"
        return found


def client(key: str) -> Client:
    return Client(Caller(key, base="/v1/"))


@pytest.fixture
def ask(house: House) -> Client:
    return client(house.ada_key)


def error(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["type"]


def test_a_store_has_the_fields_of_the_api(ask: Client) -> None:
    made = ask("POST", "memory_stores", {"name": "n", "description": "d", "metadata": {"a": "b"}}).json
    assert {**made, "created_at": 0, "updated_at": 0} == {
        "id": "memstore_1", "type": "memory_store", "name": "n", "description": "d", "metadata": {"a": "b"},
        "created_at": 0, "updated_at": 0, "archived_at": None,
    }  # fmt: skip
    changed = ask("POST", "memory_stores/memstore_1", {"description": "", "metadata": {"a": None, "c": "d"}}).json
    assert (changed["name"], changed["description"], changed["metadata"]) == ("n", "", {"c": "d"})
    assert ask("GET", "memory_stores/memstore_1?beta=true").json == changed
    archived = ask("POST", "memory_stores/memstore_1/archive").json
    assert archived["archived_at"] is not None
    assert ask("POST", "memory_stores/memstore_1/archive", {}).json == archived
    assert error(ask("POST", "memory_stores/memstore_1", {"name": "x"})) == (400, "invalid_request_error")
    assert ask("DELETE", "memory_stores/memstore_1").json == {"id": "memstore_1", "type": "memory_store_deleted"}
    assert error(ask("GET", "memory_stores/memstore_1")) == (404, "not_found_error")


def test_stores_are_listed_newest_first(ask: Client) -> None:
    for name in "abcde":
        ask("POST", "memory_stores", {"name": name})
    ask("POST", "memory_stores/memstore_5/archive")
    names, page = "", ""
    while page is not None:
        answer = ask("GET", f"memory_stores?limit=2{page}").json
        names += "".join(each["name"] for each in answer["data"])
        page = answer["next_page"] and f"&page={answer['next_page']}"
    assert names == "dcba"
    for query, count in (
        ("include_archived=true", 5),
        ("created_at%5Bgte%5D=2030-01-01T00:00:00Z", 0),
        ("created_at[lte]=2030-01-01T00:00:00Z", 4),
    ):
        assert len(ask("GET", f"memory_stores?{query}").json["data"]) == count


def test_a_memory_has_the_fields_of_the_api(ask: Client) -> None:
    store = ask.store()
    made = ask("POST", f"{store}/memories", {"path": "/a/é", "content": "x"}).json
    assert {**made, "created_at": 0, "updated_at": 0, "memory_version_id": 0} == {
        "id": "mem_1", "type": "memory", "memory_store_id": "memstore_1", "path": "/a/é", "content": None,
        "content_size_bytes": 1, "content_sha256": SHA, "memory_version_id": 0, "created_at": 0, "updated_at": 0,
    }  # fmt: skip
    assert ask("GET", f"{store}/memories/mem_1").json == made | {"content": "x"}
    assert ask("GET", f"{store}/memories/mem_1?view=basic").json == made
    changed = ask("POST", f"{store}/memories/mem_1?view=full", {"content": "xx", "path": None}).json
    assert (changed["content"], changed["content_size_bytes"], changed["path"]) == ("xx", 2, "/a/é")
    assert changed["memory_version_id"] != made["memory_version_id"]
    assert ask("PATCH", f"{store}/memories/mem_1", {"path": "/b"}).json["id"] == "mem_1"
    assert ask("DELETE", f"{store}/memories/mem_1").json == {"id": "mem_1", "type": "memory_deleted"}
    assert error(ask("GET", f"{store}/memories/mem_1")) == (404, "not_found_error")


def test_a_steward_is_asked_and_people_and_the_service_are_actors(ask: Client, ada: Agent) -> None:
    store = ask.store(a="x")
    ask("POST", f"{store}/memories/mem_1", {"content": "y"})
    for actor in (steps.PERSON, Actor.system("s")):
        operations.discard(steps.fresh(ada), [1], actor)
        operations.restore(steps.fresh(ada), [1], actor)
    found = ask("GET", f"{store}/memory_versions").json["data"]
    kinds = ["service_account_actor"] * 2 + ["user_actor"] * 2 + ["api_actor"] * 2
    assert [each["created_by"]["type"] for each in found] == kinds
    lifecycle.change(steps.fresh(ada), ME, steward="steward@acme.test")
    answer = ask("POST", f"{store}/memory_versions/{found[-1]['id']}/redact")
    assert error(answer) == (403, "permission_error")


def test_a_key_that_has_ended_meanwhile_gets_no_path(
    ask: Client, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path_of = ask.store(a="tea"), reading.path_of

    def after_an_exchange(*given: Any) -> str:
        with new_request():
            claims.exchange(agent_key(house.ada_key), ME)
        return path_of(*given)

    monkeypatch.setattr(reading, "path_of", after_an_exchange)
    taken = ask("POST", f"{store}/memories", {"path": "/a", "content": "x"})
    assert error(taken) == (401, "authentication_error")
    assert "conflicting_path" not in taken.json["error"]


def test_a_redaction_shows_no_version_from_after_the_keys_end(
    ask: Client, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, find, calls = ask.store(a="tea"), versions.OneVersion.row, list[str]()

    def after_an_exchange(view: Any, version: str) -> StoreVersion:
        calls.append(version)
        if len(calls) == 1:
            with new_request():
                claims.exchange(agent_key(house.ada_key), ME)
        StoreVersion.objects.update(redaction=1 if len(calls) == 1 else None)  # by SQL
        return find(view, version)

    monkeypatch.setattr(versions.OneVersion, "row", after_an_exchange)
    version = StoreVersion.objects.get()
    answer = ask("POST", f"{store}/memory_versions/memver_{version.seq}_{version.number}/redact?view=full")
    assert error(answer) == (401, "authentication_error")


def test_conflicts_say_what_is_in_the_way_and_are_not_repeated(ask: Client) -> None:
    store = ask.store(a="x", b="y")
    taken = ask("POST", f"{store}/memories", {"path": "/a/c", "content": ""})
    assert error(taken) == (409, "memory_path_conflict_error")
    assert taken.json["error"]["conflicting_memory_id"] == "mem_1"
    assert taken.json["error"]["conflicting_path"] == "/a"
    wrong = {"precondition": {"type": "content_sha256", "content_sha256": "0" * 64}}
    for answer in (
        ask("POST", f"{store}/memories/mem_1", {"content": "z"} | wrong),
        ask("DELETE", f"{store}/memories/mem_1?expected_content_sha256={'0' * 64}"),
    ):
        assert error(answer) == (409, "memory_precondition_failed_error")
        assert answer.headers["x-should-retry"] == "false"
    for same in ({"content": "x", "path": "/a"}, {}, {"content": None}):
        assert ask("POST", f"{store}/memories/mem_1", same | wrong).status == 200
    assert len(ask("GET", f"{store}/memory_versions").json["data"]) == 2
    assert ask("DELETE", f"{store}/memories/mem_1?expected_content_sha256={SHA}").status == 200


def test_lists_have_prefixes_depths_and_pages(ask: Client) -> None:
    store = ask.store(a__1="", a__2__3="", a__2__4="", b="", c__5="")
    for query, found in (
        ("", ["/a/1", "/a/2/3", "/a/2/4", "/b", "/c/5"]),
        ("?path_prefix=/a/", ["/a/1", "/a/2/3", "/a/2/4"]),
        ("?path_prefix=/a/2/&depth=1", ["/a/2/3", "/a/2/4"]),
        ("?depth=1", ["/a/", "/b", "/c/"]),
        ("?path_prefix=/a/&depth=1", ["/a/1", "/a/2/"]),
        ("?path_prefix=/x/", []),
    ):
        assert sorted(ask.paths(f"{store}/memories{query}")) == found, query
    assert {each["type"] for each in ask("GET", f"{store}/memories?depth=1").json["data"]} == {
        "memory",
        "memory_prefix",
    }
    assert ask("GET", f"{store}/memories?view=full&limit=100").json["data"][0]["content"] == ""


def test_a_page_with_content_has_at_most_20_items(ask: Client) -> None:
    store = ask.store(**{f"n{n}": "x" for n in range(22)})
    for path, most in (("memories?limit=100", 22), ("memories?view=full&limit=100", 20), ("memories", 20)):
        assert len(ask("GET", f"{store}/{path}").json["data"]) == most
    assert len(ask("GET", f"{store}/memory_versions?view=full&limit=100").json["data"]) == 20


def test_versions_have_the_fields_of_the_api(ask: Client, house: House) -> None:
    store = ask.store(a="x")
    ask("POST", f"{store}/memories/mem_1", {"content": "xx"})
    ask("DELETE", f"{store}/memories/mem_1")
    versions = ask("GET", f"{store}/memory_versions?view=full&memory_id=mem_1").json["data"]
    assert [each["operation"] for each in versions] == ["deleted", "modified", "created"]
    assert [each["content"] for each in versions] == [None, "xx", "x"]
    assert [each["content_sha256"] is None for each in versions] == [True, False, False]
    prefix = house.ada_key.split("_")[1]
    assert versions[0] | {"id": 0, "created_at": 0} == {
        "id": 0, "type": "memory_version", "memory_store_id": "memstore_1", "memory_id": "mem_1",
        "operation": "deleted", "created_at": 0, "path": "/a", "content": None, "content_sha256": None,
        "created_by": {"type": "api_actor", "api_key_id": f"apikey_{prefix}"},
        "content_size_bytes": None, "redacted_at": None, "redacted_by": None,
    }  # fmt: skip
    for query, count in (
        ("operation=modified", 1), (f"api_key_id=apikey_{prefix}", 3), ("api_key_id=apikey_x", 0),
        ("session_id=sesn_1", 0), ("service_account_id=svac_x", 0), ("memory_id=mem_9", 0),
        ("created_at[gte]=2030-01-01T00:00:00Z", 0),
    ):  # fmt: skip
        assert len(ask("GET", f"{store}/memory_versions?{query}").json["data"]) == count, query
    assert len(ask.paths(f"{store}/memory_versions")) == 3
    redacted = ask("POST", f"{store}/memory_versions/{versions[2]['id']}/redact").json
    assert (redacted["content"], redacted["path"], redacted["redacted_by"]["type"]) == (None, None, "api_actor")
    assert ask("GET", f"{store}/memory_versions/{versions[2]['id']}").json == redacted
    assert ask("POST", f"{store}/memory_versions/{versions[2]['id']}/redact", {}).json == redacted


def test_the_newest_version_is_not_redacted(ask: Client) -> None:
    store = ask.store(a="x")
    version = ask("GET", f"{store}/memories/mem_1").json["memory_version_id"]
    assert error(ask("POST", f"{store}/memory_versions/{version}/redact")) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"anthropic_beta": "managed-agents-2026-04-01"}, 200),
        ({"anthropic_beta": f"computer-use-2024-10-22, {BETA}"}, 200),
        ({"anthropic_beta": f"managed-agents-2026-04-01,{BETA}"}, 400),
        ({"anthropic_beta": "computer-use-2024-10-22"}, 400),
        ({"anthropic_beta": ""}, 400),
        ({"anthropic_workspace_id": "wrkspc_acme"}, 200),
        ({"anthropic_workspace_id": "wrkspc_globex"}, 403),
    ],
)
def test_headers_are_checked(ask: Client, headers: dict[str, str], status: int) -> None:
    assert ask("GET", "memory_stores", **headers).status == status


def test_a_key_may_be_in_either_header(house: House) -> None:
    nobody = client("")
    assert nobody("GET", "memory_stores", x_api_key=house.ada_key).status == 200
    assert error(nobody("GET", "memory_stores", x_api_key="x")) == (401, "authentication_error")
    assert error(nobody("GET", "memory_stores")) == (401, "authentication_error")


BAD: list[tuple[str, str, Any]] = [
    ("POST", "memory_stores", {}),
    ("POST", "memory_stores", {"name": ""}),
    ("POST", "memory_stores", {"name": "x", "colour": 1}),
    ("POST", "memory_stores", {"name": "x", "metadata": {"a": 1}}),
    ("POST", "{}/memories", {"path": "/a"}),
    ("POST", "{}/memories", {"path": "a", "content": ""}),
    ("POST", "{}/memories", {"path": "/b", "content": "x" * 102_401}),
    ("POST", "{}/memories/mem_1", {"content": "x", "precondition": {"type": "etag"}}),
    ("DELETE", "{}/memories/mem_1?expected_content_sha256=abc", None),
    ("GET", "{}/memories?depth=2", None),
    ("GET", "{}/memories?path_prefix=/a", None),
    ("GET", "{}/memories?limit=0", None),
    ("GET", "{}/memories?limit=101", None),
    ("GET", "{}/memories?page=page", None),
    ("GET", "{}/memories?page=page_x", None),
    ("GET", "{}/memories?depth=1&page=page_1", None),
    ("GET", "{}/memories?view=all", None),
    ("GET", "{}/memory_versions?operation=x", None),
    ("GET", "{}/memory_versions?page=page_1", None),
    ("GET", "memory_stores?page=page_x", None),
    ("PUT", "memory_stores", None),
]


def test_pairs_are_counted_before_they_are_checked(ask: Client) -> None:
    """200,000 wrong pairs took half a minute."""
    wrong = ask("POST", "memory_stores", {"name": "x", "metadata": dict.fromkeys(map(str, range(33)), 1)})
    assert "must have at most 16 pairs" in wrong.json["error"]["message"]


@pytest.mark.parametrize(("method", "path", "body"), BAD)
def test_a_bad_request_is_refused(ask: Client, method: str, path: str, body: Any) -> None:
    assert error(ask(method, path.format(ask.store(a="x")), body)) == (400, "invalid_request_error")


ROUTES = [
    ("GET", "{}"), ("POST", "{}"), ("DELETE", "{}"), ("POST", "{}/archive"), ("POST", "{}/memories"),
    ("GET", "{}/memories"), ("GET", "{}/memories/mem_1"), ("POST", "{}/memories/mem_1"),
    ("DELETE", "{}/memories/mem_1"), ("GET", "{}/memory_versions"), ("GET", "{}/memory_versions/memver_{seq}_1"),
    ("POST", "{}/memory_versions/memver_{seq}_1/redact"),
]  # fmt: skip


def test_another_agent_finds_nothing(ask: Client, house: House, ada: Agent) -> None:
    store = ask.store(a=MARKER)
    other = client(house.bob_key)
    before = steps.state(ada)
    for method, path in ROUTES:
        path = path.format(store, seq=steps.last_entry(ada).seq)
        body = {"name": "x", "path": "/b", "content": "x"} if path.endswith("memories") else {"name": "x"}
        body = {"content": "x"} if path.endswith("mem_1") else body if method == "POST" else None
        answer = other(method, path, body)
        assert answer.status in (400, 404), (method, path)
        assert MARKER.encode() not in answer.content
    assert other("GET", "memory_stores").json["data"] == []
    assert steps.state(ada) == before


def test_a_tenants_key_sees_stores_without_words(ask: Client) -> None:
    ask("POST", "memory_stores", {"name": MARKER, "description": MARKER})
    program = client(tenants.issue_key("acme"))
    answer = program("GET", "memory_stores")
    [store] = answer.json["data"]
    assert (store["id"], store["name"], store["metadata"]) == ("memstore_1", "", {"agent": "acme/ada"})
    assert MARKER.encode() not in answer.content
    assert client(tenants.issue_key("globex"))("GET", "memory_stores").json["data"] == []
    assert error(program("POST", "memory_stores", {"name": "x"})) == (403, "permission_error")
    assert error(program("GET", "memory_stores/memstore_1/memories?view=full")) == (403, "permission_error")


def test_what_is_switched_off_is_a_conflict(ask: Client, ada: Agent) -> None:
    store = ask.store(a="x")
    off(ada, "behavioral")
    for method, path, body in (
        ("GET", "memories/mem_1", None),
        ("GET", "memories", None),
        ("POST", "memories", {"path": "/b", "content": ""}),
    ):
        assert error(ask(method, f"{store}/{path}", body)) == (409, "conflict_error")


def test_versions_of_a_category_that_is_off_are_not_shown(ask: Client, ada: Agent) -> None:
    store = ask.store(a="tea")
    off(ada, "behavioral")
    [version] = StoreVersion.objects.all()
    for path in ("memory_versions", f"memory_versions/memver_{version.seq}_1"):
        assert error(ask("GET", f"{store}/{path}?view=full")) == (409, "conflict_error")


def test_unknown_paths_and_ids_are_not_found(ask: Client) -> None:
    store = ask.store()
    for path in (
        "x", "memory_stores/memory_store_id", "memory_stores/memstore_", "memory_stores/memstore_99999999999999999999",
        f"{store}/memories/mem_x", f"{store}/memories/1", f"{store}/memory_versions/memver_1",
        f"{store}/memory_versions/memver_1_1",
    ):  # fmt: skip
        assert error(ask("GET", path)) == (404, "not_found_error"), path
