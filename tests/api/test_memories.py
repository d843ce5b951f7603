"""Memories: stored, read, revised, discarded, restored, found."""

import io
import tarfile
from typing import Any

from memory.agents import rule_changes
from memory.models import Agent, Creation
from memory.transfer.export_formats import EXPORTS
from memory.writing import operations
from tests import steps
from tests.api.calling import NDJSON, Caller
from tests.steps import ME, problems, remember, signed_update

KEYS = {"id", "kind", "category", "scope", "project", "tags", "origin", "created_at", "tokens", "constitutional"}
KEYS |= {"content", "layer", "origin_latest", "discarded_at", "superseded_by", "version", "path"}


def test_a_stored_memory_can_be_read(runtime: Caller, ada: Agent) -> None:
    body = {"content": " Tea is hot ", "tags": [" drinks", "drinks"], "project": "kitchen"}
    stored = runtime.post("memories", body | {"origin": "2026-01-02T03:04:05+02:00"})
    assert (stored.status, set(stored.json)) == (201, KEYS | {"file", "no_file"})
    assert (stored.json["origin"], stored.json["tags"]) == ("2026-01-02T01:04:05Z", ["drinks"])
    read = runtime.get("memories/1")
    assert (read.status, read.json | {"file": None, "no_file": stored.json["no_file"]}) == (200, stored.json)
    assert read.headers["ETag"] == stored.headers["ETag"] == f'"{stored.json["version"]}"'
    assert problems(ada) == []
    entry = steps.last_entry(ada)
    assert (entry.actor_kind, len(entry.actor_label)) == ("agent", 12)


def test_a_batch_is_stored_whole_or_not_at_all(runtime: Caller, ada: Agent) -> None:
    stored = runtime.post("memories/batch", {"memories": [{"content": f"fact {n}"} for n in range(3)]})
    assert (stored.status, stored.ids) == (201, [1, 2, 3])
    before = steps.state(ada)
    refused = runtime.post("memories/batch", {"memories": [{"content": "fine"}, {"content": " "}]})
    assert (refused.status, steps.state(ada)) == (422, before)


def test_a_list_is_paginated(runtime: Caller, ada: Agent) -> None:
    remember(ada, *(f"fact {n}" for n in range(7)))
    seen, cursor = [], "0"
    while cursor is not None:
        page = runtime.get(f"memories?limit=3&cursor={cursor}")
        seen += page.ids
        cursor = page.json["next"]
    assert seen == list(range(1, 8))


def test_a_list_is_filtered(runtime: Caller, ada: Agent) -> None:
    remember(ada, "a", project="site")
    remember(ada, "b", kind="journal")
    remember(ada, "c")
    steps.protect(ada, 3)
    operations.discard(ada, [1], ME)
    for query, ids in {
        "": [2, 3],
        "kind=journal": [2],
        "constitutional=true": [3],
        "constitutional=false": [2],
        "discarded=true": [1],
        "discarded=true&project=site": [1],
        "since=2200-01-01T00:00:00Z": [],
        "until=2200-01-01T00:00:00Z": [2, 3],
    }.items():
        assert runtime.get(f"memories?{query}").ids == ids, query


def test_an_edit_needs_the_current_version(runtime: Caller, ada: Agent) -> None:
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


def test_the_forms_of_if_match(runtime: Caller) -> None:
    assert runtime.post("memories", {"content": "tea"}).json["version"] == 3
    for etag in ('"4"', "x", '"-1"', '"99999999999999999999999"', "3, 4"):
        assert runtime.patch("memories/1", {"tags": ["x"]}, if_match=etag).status == 412, etag
    for version, etag in enumerate(("*", "", 'W/"{}"', '"{}"'), 3):
        answer = runtime.patch("memories/1", {"tags": [str(version)]}, if_match=etag.format(version))
        assert answer.status == 200, etag


def test_a_constitutional_memory_cannot_be_edited(runtime: Caller, ada: Agent) -> None:
    remember(ada, "tea")
    steps.protect(ada, 1)
    for answer in (runtime.patch("memories/1", {"content": "x"}), runtime.delete("memories/1")):
        assert (answer.status, answer.codes) == (409, ["constitutional"])


def test_a_search_finds_words_phrases_and_tags(runtime: Caller, ada: Agent) -> None:
    remember(ada, "Tea with milk", "Coffee with sugar", "Tea with lemon", tags=("drinks",))
    found = runtime.post("memories/search", {"q": 'tea -milk "with lemon" tag:drinks'})
    assert (found.status, found.ids, set(found.json["results"][0])) == (200, [3], KEYS | {"score", "superseded"})
    assert runtime.post("memories/search", {"limit": 2}).ids == [1, 2]
    assert runtime.post("memories/search", {"q": "tea", "tags": ["none"]}).json == {
        "results": [],
        "searched_since": None,
        "by_meaning": False,
    }
    for query in ('"', "-", "tag:", '"""', "( AND *", "\\", "%_'; DROP", "NEAR(", "a" * 2_000, "é́ 日本語"):
        assert runtime.post("memories/search", {"q": query}).status == 200, query


def test_while_memory_is_off_nothing_is_stored_or_read(runtime: Caller, ada: Agent) -> None:
    assert runtime.post("memories", {"content": "tea"}, idempotency_key="k1").status == 201
    signed_update(Agent.objects.filter(pk=ada.pk), memory_enabled=False)
    before = steps.state(ada)
    bodies: dict[str, Any] = {
        "memories": {"content": "x"},
        "memories/search": {"q": "tea"},
        "retrieve": {"query": "tea"},
        "cleanup": {"discard": [1]},
        "runs": {"task": "Brew", "result": "tea"},
        "refinement-sessions": {},
    }
    answers = [runtime.post("memories", {"content": "tea"}, idempotency_key="k1")]
    answers += [runtime.get(path) for path in ("memories", "memories/1", "context", "cleanup")]
    answers += [runtime.post(path, body) for path, body in bodies.items()]
    for answer in (*answers, runtime.post("import", raw=b'{"content": "x"}\n', kind=NDJSON)):
        assert (answer.status, answer.codes, answer.json["prompt"]) == (409, ["memory_disabled"], rule_changes.QUESTION)
    assert b'"tea"' in runtime.get("export").content  # 60-memory-rules: an export stays possible
    assert steps.state(ada) == before


def test_an_idempotency_key_stores_once(runtime: Caller, stranger: Caller, ada: Agent) -> None:
    assert runtime.post("memories", {"content": " "}, idempotency_key="k1").status == 422, "does not use up the key"
    first = runtime.post("memories", {"content": "tea"}, idempotency_key="k1")
    again = runtime.post("memories", {"content": "tea"}, idempotency_key="k1")
    assert (first.status, again.status, again.json) == (201, 201, first.json)
    assert runtime.post("memories", {"content": "tea"}, idempotency_key="k2").json["id"] == 2
    assert runtime.post("memories", {"content": "milk"}, idempotency_key="k1").codes == ["idempotency_key_reused"]
    assert steps.active(ada) == [1, 2]
    assert stranger.post("memories", {"content": "milk"}, idempotency_key="k1").json["id"] == 1, "another agent's key"


def test_an_idempotency_key_lasts_a_day_and_stores_no_text(runtime: Caller, ada: Agent) -> None:
    runtime.post("memories", {"content": "marmalade"}, idempotency_key="jam")
    [stored] = Creation.objects.values_list()
    assert "marmalade" not in repr(stored)
    assert "jam" not in repr(stored)
    Creation.objects.update(at="2020-01-01T00:00:00Z")
    assert runtime.post("memories", {"content": "marmalade"}, idempotency_key="jam").json["id"] == 2


def test_a_request_deletes_only_a_few_expired_idempotency_keys(runtime: Caller, ada: Agent) -> None:
    """Many of them would keep other writers waiting. The key of a row that is left over can be used again."""
    runtime.post("memories", {"content": "tea"}, idempotency_key="k1")
    at = Creation.objects.get().at
    Creation.objects.bulk_create(Creation(agent=ada, key=b"%d" % n, fingerprint=b"f", at=at) for n in range(99))
    Creation.objects.update(at="2020-01-01T00:00:00Z")
    for sent, left in ((1, 80), (2, 61)):
        assert runtime.post("memories", {"content": "tea"}, idempotency_key=f"k{sent}").json["id"] == sent + 1
        assert left <= Creation.objects.count() < left + 2


def test_memories_are_exported_in_each_format(runtime: Caller, ada: Agent) -> None:
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


def test_a_secret_is_refused_as_the_name_of_a_credential(runtime: Caller, ada: Agent) -> None:
    token = "ghp_" + "a1B2" * 9
    body = {"content": token, "category": "credentials", "tags": [f"service:{token}"]}
    refused = runtime.post("memories", body)
    assert (refused.status, token.encode() in refused.content) == (422, False)
    stored = runtime.post("memories", body | {"tags": ["service:GitHub"]})
    assert stored.status == 201
    again = runtime.patch("memories/1", {"tags": [f"service:{token}"]}, if_match=stored.headers["ETag"])
    assert again.status == 422
