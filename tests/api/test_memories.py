"""Memories: remembered, read, revised, discarded, restored, found."""

from __future__ import annotations

import io
import tarfile

from memory.agents import rule_changes
from memory.models import Agent, Creation
from memory.transfer.export_formats import EXPORTS
from memory.writing import operations
from tests import steps
from tests.api.calling import Caller
from tests.steps import ME, problems, remember

KEYS = {"id", "kind", "category", "scope", "project", "tags", "origin", "created_at", "tokens", "constitutional"}
KEYS |= {"content", "discarded_at", "superseded_by", "version"}


def test_what_is_remembered_is_read_back(runtime: Caller, ada: Agent) -> None:
    body = {"content": " Tea is hot ", "tags": [" drinks", "drinks"], "project": "kitchen"}
    body["origin"] = "2026-01-02T03:04:05+02:00"
    made = runtime.post("memories", body)
    assert (made.status, set(made.json)) == (201, KEYS | {"file", "no_file"})
    assert (made.json["origin"], made.json["tags"]) == ("2026-01-02T01:04:05Z", ["drinks"])
    read = runtime.get("memories/1")
    assert (read.status, read.json | {"file": None, "no_file": made.json["no_file"]}) == (200, made.json)
    assert read.headers["ETag"] == made.headers["ETag"] == f'"{made.json["version"]}"'
    assert problems(ada) == []
    entry = steps.last_entry(ada)
    assert (entry.actor_kind, len(entry.actor_label)) == ("agent", 12)


def test_many_are_remembered_in_one_entry_or_none(runtime: Caller, ada: Agent) -> None:
    made = runtime.post("memories/batch", {"memories": [{"content": f"fact {n}"} for n in range(3)]})
    assert (made.status, [m["id"] for m in made.json["results"]]) == (201, [1, 2, 3])
    before = steps.state(ada)
    bad = runtime.post("memories/batch", {"memories": [{"content": "fine"}, {"content": " "}]})
    assert (bad.status, steps.state(ada)) == (422, before)


def test_a_list_goes_on_page_by_page(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, *(f"fact {n}" for n in range(7)))
    seen, cursor = [], "0"
    while cursor is not None:
        page = runtime.get(f"memories?limit=3&cursor={cursor}").json
        seen += [memory["id"] for memory in page["results"]]
        cursor = page["next"]
    assert seen == list(range(1, 8))


def test_a_list_is_filtered(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "a", project="site")
    steps.remember(ada, "b", kind="journal")
    steps.remember(ada, "c")
    steps.protect(ada, 3)
    operations.discard(ada, [1], ME)

    def numbers(query: str) -> list[int]:
        return [memory["id"] for memory in runtime.get(f"memories?{query}").json["results"]]

    assert numbers("") == [2, 3]
    assert numbers("kind=journal") == [2]
    assert numbers("constitutional=true") == [3]
    assert numbers("constitutional=false") == [2]
    assert numbers("discarded=true") == [1]
    assert numbers("discarded=true&project=site") == [1]
    assert numbers("since=2200-01-01T00:00:00Z") == []
    assert numbers("until=2200-01-01T00:00:00Z") == [2, 3]


def test_a_memory_is_revised_at_the_version_it_was_read(runtime: Caller, ada: Agent) -> None:
    etag = runtime.post("memories", {"content": "tea"}).headers["ETag"]
    revised = runtime.patch("memories/1", {"content": "green tea"}, if_match=etag)
    assert (revised.status, revised.json["content"]) == (200, "green tea")
    late = runtime.patch("memories/1", {"content": "black tea"}, if_match=etag)
    assert (late.status, late.codes) == (412, ["changed_meanwhile"])
    assert runtime.delete("memories/1", if_match=etag).status == 412
    assert runtime.delete("memories/1", if_match=revised.headers["ETag"]).status == 204
    assert runtime.get("memories/1").json["discarded_at"]
    assert runtime.patch("memories/1", {"content": "x"}).codes == ["discarded"]
    assert runtime.post("memories/1/restore").json["discarded_at"] is None
    assert problems(ada) == []


def test_a_precondition(runtime: Caller) -> None:
    assert runtime.post("memories", {"content": "tea"}).json["version"] == 3
    for given in ('"4"', "x", '"-1"', '"99999999999999999999999"', "3, 4"):
        assert runtime.patch("memories/1", {"tags": ["x"]}, if_match=given).status == 412, given
    for version, given in enumerate(("*", "", 'W/"{}"', '"{}"'), 3):
        assert runtime.patch("memories/1", {"tags": [str(version)]}, if_match=given.format(version)).status == 200, (
            given
        )


def test_a_constitutional_memory_is_left_alone(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    steps.protect(ada, 1)
    for answer in (runtime.patch("memories/1", {"content": "x"}), runtime.delete("memories/1")):
        assert (answer.status, answer.codes) == (409, ["constitutional"])


def test_words_find_memories(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "Tea with milk", "Coffee with sugar", "Tea with lemon", tags=("drinks",))
    found = runtime.post("memories/search", {"q": 'tea -milk "with lemon" tag:drinks'})
    assert (found.status, [hit["id"] for hit in found.json["results"]]) == (200, [3])
    assert set(found.json["results"][0]) == KEYS | {"score"}
    assert [hit["id"] for hit in runtime.post("memories/search", {"limit": 2}).json["results"]] == [1, 2]
    assert runtime.post("memories/search", {"q": "tea", "tags": ["none"]}).json == {"results": []}


def test_no_query_is_refused_for_what_it_says(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    for query in ('"', "-", "tag:", '"""', "( AND *", "\\", "%_'; DROP", "NEAR(", "a" * 2_000, "é́ 日本語"):
        assert runtime.post("memories/search", {"q": query}).status == 200, query


def test_while_memory_is_off_nothing_is_written_or_read(runtime: Caller, ada: Agent) -> None:
    steps.remember(ada, "tea")
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    before = steps.state(ada)
    for method, path, body in (
        ("POST", "memories", {"content": "x"}),
        ("GET", "memories", None),
        ("GET", "memories/1", None),
        ("GET", "context", None),
        ("POST", "memories/search", {"q": "tea"}),
        ("POST", "retrieve", {"query": "tea"}),
        ("GET", "cleanup", None),
        ("POST", "cleanup", {"discard": [1]}),
        ("POST", "runs", {"task": "Brew", "result": "tea"}),
        ("POST", "refinement-sessions", {}),
    ):
        answer = runtime.ask(method, path, body)
        assert (answer.status, answer.codes) == (409, ["memory_disabled"])
        assert answer.json["prompt"] == rule_changes.QUESTION
    lines = runtime.post("import", raw=b'{"content": "x"}\n', kind="application/x-ndjson")
    assert (lines.status, lines.codes) == (409, ["memory_disabled"])
    assert b'"tea"' in runtime.get("export").content  # 60-memory-rules: what there is can be taken away
    assert steps.state(ada) == before


def test_a_repeat_reads_nothing_back_while_memory_is_off(runtime: Caller, ada: Agent) -> None:
    assert runtime.post("memories", {"content": "tea"}, idempotency_key="k1").status == 201
    Agent.objects.filter(pk=ada.pk).update(memory_enabled=False)
    again = runtime.post("memories", {"content": "tea"}, idempotency_key="k1")
    assert (again.status, again.codes) == (409, ["memory_disabled"])


# --- once


def test_a_repeat_under_one_idempotency_key_makes_nothing_new(runtime: Caller, stranger: Caller, ada: Agent) -> None:
    assert runtime.post("memories", {"content": " "}, idempotency_key="k1").status == 422, "and can be tried again"
    first = runtime.post("memories", {"content": "tea"}, idempotency_key="k1")
    again = runtime.post("memories", {"content": "tea"}, idempotency_key="k1")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert runtime.post("memories", {"content": "tea"}, idempotency_key="k2").json["id"] == 2
    assert runtime.post("memories", {"content": "milk"}, idempotency_key="k1").codes == ["idempotency_key_reused"]
    assert steps.active(ada) == [1, 2]
    assert stranger.post("memories", {"content": "milk"}, idempotency_key="k1").json["id"] == 1, "another's is another"


def test_what_is_kept_of_a_creation_is_no_body_and_lasts_a_day(runtime: Caller, ada: Agent) -> None:
    runtime.post("memories", {"content": "marmalade"}, idempotency_key="jam")
    [kept] = Creation.objects.values_list()
    assert "marmalade" not in repr(kept)
    assert "jam" not in repr(kept)
    Creation.objects.update(at="2020-01-01T00:00:00Z")
    assert runtime.post("memories", {"content": "marmalade"}, idempotency_key="jam").json["id"] == 2


def test_memories_leave_in_each_format(runtime: Caller, ada: Agent) -> None:
    remember(ada, "tea at four", tags=("drinks",), project="acme/shop")
    for name, each in EXPORTS.items():
        answer = runtime.get(f"export?format={name}")
        assert (answer.status, answer.headers["Content-Type"]) == (200, each.media_type)
        assert answer.headers["Content-Disposition"] == f'attachment; filename="ada{each.ending}"'
        data = answer.content
        if name == "markdown":
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                data = b"".join(archive.extractfile(file).read() for file in archive)  # type: ignore[union-attr]
        assert b"tea at four" in data
    assert runtime.get("export?format=mem0&discarded=true").codes == ["invalid"]
    assert b"must be one of: jsonl, markdown" in runtime.get("export?format=toml").content


def test_a_credential_is_not_called_by_a_secret(runtime: Caller, ada: Agent) -> None:
    token = "ghp_" + "a1B2" * 9
    body = {"content": token, "category": "credentials", "tags": [f"service:{token}"]}
    refused = runtime.post("memories", body)
    assert (refused.status, token.encode() in refused.content) == (422, False)
    made = runtime.post("memories", body | {"tags": ["service:GitHub"]})
    assert made.status == 201
    version = {"if_match": made.headers["ETag"]}
    assert runtime.patch("memories/1", {"tags": [f"service:{token}"]}, **version).status == 422
