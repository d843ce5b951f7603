"""Large imports over the API, which a worker carries out."""

import gzip
import json
import re
import socket
import tarfile
import time
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ

from audit.models import AuditEntry, Operation
from config import queue
from config.queue import IMPORT_MEMORIES, SWEEP
from memory.agents import lifecycle
from memory.consent import redaction, requests
from memory.models import Agent, ImportBody, ImportJob, Memory
from memory.time_machine import rollback
from memory.transfer import import_jobs, importing
from memory.writing import edits, operations
from refinement.tasks import close_stale
from tests import queueing, steps
from tests.api.calling import NDJSON, Answer, Caller
from tests.api.test_importing import archive, put
from tests.conftest import House, drop_guards
from tests.privacy.marker import MARKER
from tests.rules.recordings import off


def lines(count: int, last: bytes = b"") -> bytes:
    return b"".join(json.dumps({"content": f"{MARKER} {n}", "x": 1}).encode() + b"\n" for n in range(count)) + last


def send(runtime: Caller, body: bytes) -> Answer:
    return runtime.post("import", raw=body, kind=NDJSON)


def test_a_job_restores_the_lineage(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches: one edit of 20,000 memories made all other writers wait. A worker continues after one that ended."""
    monkeypatch.setattr(import_jobs, "BATCH", 100)
    rows: list[Any] = [{"id": n, "content": f"tea {n}", "layer": "beneath"} for n in range(1, 251)]
    rows += [{"id": n, "content": f"milk {n}"} for n in range(251, 700)]
    rows += [{"id": 700, "content": "much tea", "sources": list(range(1, 251))}]
    link, linked = operations.link, []

    def until_killed(*call: Any) -> None:
        linked.append(len(call[1]))
        if len(linked) == 2:
            raise ConnectionError
        link(*call)

    monkeypatch.setattr(operations, "link", until_killed)
    send(runtime, b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    queueing.work()
    memories = Memory.objects.of(ada)
    assert memories.filter(superseded_by=700).count() == 100
    with time_machine.travel(timezone.now() + import_jobs.LATE * 2):
        import_jobs.queue_late()
        queueing.work()
    assert (linked, memories.filter(superseded_by=700).count()) == ([100, 100, 100, 100, 50], 250)
    assert redaction.preview(steps.fresh(ada), [1]).memories == (1, 700)
    entry = AuditEntry.objects.filter(agent_id=ada.pk, operation="imported").earliest("seq").seq
    rollback.roll_back(steps.fresh(ada), rollback.What("import", entry), steps.ME)
    assert not memories.kept().exists()


def test_a_long_import_lets_other_tasks_run(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a session waited for its model, the import of the same tenant stopped all letters for minutes."""
    monkeypatch.setattr(import_jobs, "BATCH", 200)
    monkeypatch.setattr(import_jobs, "TURN_SECONDS", -1.0)
    send(runtime, lines(501))
    queue.put(SWEEP)
    assert queueing.carry_out(queueing.take()) == ("import_memories", "queued")
    assert [name for name, _ in queueing.waiting()] == [SWEEP, IMPORT_MEMORIES]
    queueing.work()
    job = ImportJob.objects.get()
    assert (job.state, job.imported, Memory.objects.of(ada).count()) == ("done", 501, 501)
    assert AuditEntry.objects.filter(agent_id=ada.pk, detail__import=job.entry).count() == 3


def test_a_large_memory_does_not_make_all_batches_small(
    runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edits of 20,000 small memories, and of their lineage, took minutes."""
    monkeypatch.setattr(import_jobs, "BATCH_BYTES", 20_000)
    rows: list[Any] = [{"id": n, "content": "☕" * (3_000 if n < 2 else 1), "layer": "beneath"} for n in range(600)]
    rows[2]["tags"] = [f"tag {n}" for n in range(50)]
    rows += [{"id": 600, "content": "much tea", "sources": list(range(600))}]
    assert ended(runtime, b"".join(json.dumps(row).encode() + b"\n" for row in rows))["state"] == "done"
    assert Memory.objects.of(ada).filter(superseded_by__isnull=False).count() == 600
    assert AuditEntry.objects.filter(agent_id=ada.pk, operation="imported").count() == 4


def test_tokens_are_counted_before_the_lock(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "tokens", None)
    assert ended(runtime, lines(501))["result"]["tokens"] == steps.fresh(ada).core_tokens > 0


def test_ids_with_the_same_hash_are_compared_quickly(runtime: Caller, ada: Agent) -> None:
    """A dictionary of 20,000 such integers took minutes."""
    ids = [n * (2**61 - 1) for n in range(1, 3_001)]
    assert len({hash(each) for each in ids}) == 1
    done = importing.Imported(ids=[*ids, "1"], sources={3_000: [*ids, 1]})
    started = time.process_time()
    assert done.successors(range(3_001)) == dict.fromkeys(range(3_000), 3_000)
    hashed = time.process_time() - started
    started = time.process_time()
    assert len(dict.fromkeys(ids)) == 3_000
    assert hashed < (time.process_time() - started) / 2


def test_a_tenant_has_one_import_in_the_queue(house: House, runtime: Caller) -> None:
    """Sixteen imports of a tenant made the letters and sessions of all others wait for minutes."""
    made = [lifecycle.create("acme", f"e{n}", model="builtin/dedupe", actor=steps.ME) for n in range(2)]
    for caller in (runtime, *(Caller(key) for _, key in made), Caller(house.bob_key)):
        assert send(caller, lines(501)).status == 202
    tasks = [(IMPORT_MEMORIES, (agent.pk, 1)) for agent in (house.ada, house.bob)]
    assert queueing.waiting() == tasks
    import_jobs.queue_late()
    assert queueing.waiting() == tasks
    with time_machine.travel(timezone.now() + import_jobs.LATE * 2):
        import_jobs.queue_late()  # a task was lost
    assert len(queueing.waiting()) == 4
    queueing.work()
    assert set(ImportJob.objects.values_list("state", flat=True)) == {"done"}


def ended(runtime: Caller, body: bytes) -> Any:
    """The state of a job after the worker has carried it out. The body is deleted."""
    queued = send(runtime, body)
    assert (queued.status, queued.json["state"]) == (202, "queued")
    queueing.work()
    assert not ImportBody.objects.exists()
    return runtime.get(queued.headers["Location"].removeprefix("/api/v1/")).json


def test_a_large_file_is_imported_by_a_worker(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_jobs, "BATCH", 200)
    few = send(runtime, lines(2)).json
    queued = send(runtime, lines(501))
    assert (queued.status, queued.json["state"], queued.json["result"]) == (202, "queued", None)
    assert MARKER.encode() not in bytes(ImportBody.objects.get().sealed)
    assert send(runtime, lines(1)).codes == ["import_running"]
    assert queueing.work() == [("import_memories", "done")]
    state = runtime.get("import/1").json
    assert (state["state"], state["imported"], state["error"]) == ("done", 501, None)
    assert state["result"] == few | {"imported": 501, "tokens": steps.fresh(ada).core_tokens - few["tokens"]}
    assert not ImportBody.objects.exists()
    assert [entry.detail["import"] for entry in steps.entries(ada)[-3:]] == [state["entry"]] * 3
    rollback.roll_back(steps.fresh(ada), rollback.What("import", state["entry"]), steps.PERSON)
    assert len(steps.active(ada)) == 2
    assert (ended(runtime, lines(501))["id"], runtime.get("import/1").status) == (2, 404)
    assert steps.problems(ada) == []


def test_each_size_is_accepted_at_once_or_as_a_job(runtime: Caller, ada: Agent) -> None:
    assert send(runtime, lines(500)).status == 201
    for body in (lines(501), (b" " * 900_000 + b"\n") * 2, b"\n" * 60_000):
        assert ended(runtime, body)["state"] == "done"
    folder = archive(*[(f"memory/common/technical/{n}.md", b"tea %d" % n) for n in range(501)])
    assert put(runtime, "markdown", folder).status == 202
    queueing.work()
    for count, status in ((499, 201), (500, 202)):
        assert send(runtime, b'{"content": "old", "discarded_at": 1}\n' * count + lines(1)).status == status
    queueing.work()
    lines_alone = archive(("memory/common/technical/1.md", b"tea" + b"\n" * 100_000 + b"tea"))
    assert put(runtime, "markdown", lines_alone).status == 202


def test_an_invalid_file_stores_nothing(runtime: Caller, ada: Agent) -> None:
    off(ada, "technical")
    before = steps.state(ada)
    for body, code, words in (
        (lines(600, b"{}\n"), "bad_line", "is missing"),
        (lines(20_001), "invalid", "has more than 20,000 entries"),
        (lines(600, b'{"content": "a", "category": "technical"}\n'), "category_disabled", "technical"),
    ):
        state = ended(runtime, body)
        assert (state["state"], state["imported"], state["entry"], state["error"]["code"]) == ("failed", 0, None, code)
        assert words in state["error"]["detail"]
        assert steps.state(ada) == before


def huge(field: str) -> bytes:
    """An archive with one file. Its header claims a size that takes for ever to skip."""
    header = tarfile.TarInfo("a.md")
    if field == "pax":
        header.pax_headers = {"size": "99999999999999"}
    else:
        header.size = 10**13
    return gzip.compress(header.tobuf(tarfile.PAX_FORMAT if field == "pax" else tarfile.GNU_FORMAT))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("field", ["pax", "base-256"])
def test_a_size_that_an_archive_cannot_have_ends_the_import(runtime: Caller, field: str) -> None:
    answer = put(runtime, "markdown", huge(field))
    assert (answer.status, answer.attrs) == (422, ["file"])


def test_a_file_that_takes_too_long_to_read_is_refused(
    runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(runtime, lines(501)).status == 202
    monkeypatch.setattr(import_jobs, "READ_SECONDS", -1.0)
    queueing.work()
    error = runtime.get("import/1").json["error"]
    assert (error["attr"], "Split the file" in error["detail"], Memory.objects.of(ada).count()) == ("file", True, 0)


@pytest.mark.parametrize(
    ("format", "body"),
    [
        ("jsonl", b'{"content": "tea", "discarded_at": "2026-01-01T00:00:00Z"}\n'),
        ("mem0", b'{"results": [{"memory": "", "category_ids": [0, 0]}]}'),
        ("markdown", archive(("a.md", b""))),
    ],
    ids=["jsonl", "mem0", "markdown"],
)
def test_a_file_that_takes_too_long_before_its_first_memory_is_refused(
    runtime: Caller, monkeypatch: pytest.MonkeyPatch, format: str, body: bytes
) -> None:
    monkeypatch.setattr(import_jobs, "READ_SECONDS", -1.0)
    answer = put(runtime, format, body)
    assert (answer.status, "Split the file" in answer.json["errors"][0]["detail"]) == (422, True)


def redact_first(agent: Agent) -> None:
    number = Memory.objects.of(agent).earliest("number").number
    request = requests.ask_redaction(steps.fresh(agent), [number], steps.PERSON, reason="request 17")
    redaction.redact(steps.fresh(agent), request.number, steps.ME)


def test_a_redaction_ends_a_job_that_is_running(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the file may have the redacted words again."""
    monkeypatch.setattr(import_jobs, "BATCH", 200)
    store = import_jobs._store
    monkeypatch.setattr(import_jobs, "_store", lambda *call: store(*call) and redact_first(ada) is None)
    send(runtime, lines(501))
    queueing.work()
    assert (Memory.objects.of(ada).count(), ImportJob.objects.get().state) == (200, "failed")
    assert "redacted meanwhile" in runtime.get("import/1").json["error"]["detail"]


def test_a_job_that_sql_puts_back_after_a_redaction_imports_nothing(runtime: Caller, ada: Agent) -> None:
    assert send(runtime, lines(501)).status == 202
    rows = [list(model.objects.values()) for model in (ImportJob, ImportBody)]
    queueing.work()
    redact_first(ada)
    drop_guards()
    AuditEntry.objects.filter(agent_id=ada.pk, operation=Operation.REDACTED).update(operation="rolled_back")  # hidden
    kept = Memory.objects.of(ada).count()
    for model, values in zip((ImportJob, ImportBody), rows, strict=True):
        model.objects.all().delete()
        model.objects.bulk_create(model(**each) for each in values)
    with time_machine.travel(timezone.now() + import_jobs.LATE * 2):
        import_jobs.queue_late()
        queueing.work()
    assert Memory.objects.of(ada).count() == kept
    assert runtime.get("import/1").json["error"]["code"] == "seal_broken"


def test_a_body_is_bounded_when_it_is_unpacked(runtime: Caller, ada: Agent) -> None:
    zeros = (4 * gzip.compress(b"\0" * 2**26, 1))[: 2**20]
    noted = b"\x1f\x8b\x08\x10" + bytes(6) + b"n" * 100_000 + b"\0" + gzip.compress(b"")[10:]  # with a comment
    many = archive(*[(f"{n}.md", b"") for n in range(60_000)])
    for body in (zeros, many, gzip.compress(b"\0" * 2**21), 2_000 * gzip.compress(b""), noted):
        answer = put(runtime, "markdown", body)
        assert (answer.status, answer.attrs) == (422, ["file"])
        assert re.search("when it is unpacked|gzip parts|gzip headers", answer.content.decode())
    assert send(runtime, b" " * (20 * 2**20 + 1)).status == 413
    assert not ImportJob.objects.exists()


def test_a_closed_connection_ends_the_work(house: House) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    headers = {"Authorization": f"Bearer {house.ada_key}"}
    more = {"content_type": NDJSON, "headers": headers, "gunicorn.socket": ours}
    assert Client().post("/api/v1/import", lines(501), **more).status_code == 400
    ours.close()
    assert not ImportJob.objects.exists()


def test_a_revoked_key_imports_nothing_more(house: House) -> None:
    runtime = Caller(house.ada_key)
    assert send(runtime, lines(501)).status == 202
    other = Caller(runtime.post("agent/keys", {"exchange": True}).json["key"])
    queueing.work()
    assert other.get("import/1").json["error"]["code"] == "key_rejected"
    assert MARKER not in "".join(steps.exported(house.ada))


def test_a_rollback_between_two_batches_ends_the_job(
    runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def roll_back(_: float) -> None:
        row = steps.fresh(ada)
        rollback.roll_back(row, rollback.What("import", row.audit_seq), steps.PERSON)

    monkeypatch.setattr(import_jobs, "BATCH", 400)
    monkeypatch.setattr(import_jobs.time, "sleep", roll_back)
    state = ended(runtime, lines(501))
    assert (state["state"], state["imported"], state["error"]["code"]) == ("failed", 400, "already_undone")
    assert steps.active(ada) == []


def test_a_job_that_kills_each_worker_is_given_up(runtime: Caller, ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: Any) -> None:
        raise SystemExit

    send(runtime, lines(501))
    OrmQ.objects.all().delete()  # the queue loses the task
    monkeypatch.setattr(import_jobs, "_read", die)
    with time_machine.travel(timezone.now(), tick=False) as clock:
        for _ in range(import_jobs.ATTEMPTS):
            clock.shift(timedelta(minutes=3))
            import_jobs.queue_late()
            with pytest.raises(SystemExit):
                queueing.work()
            assert import_jobs.carry_out(ada.pk, 1) == "taken"  # a worker seems to work on it
        clock.shift(timedelta(minutes=3))
        close_stale()
        assert ("import_memories", "failed") in queueing.work()
    assert "the worker ended 3 times" in runtime.get("import/1").json["error"]["detail"]
