"""Imports over the API. A small file is imported by the request itself. A worker imports the others as jobs.

The body of a job waits sealed in the database. The worker checks the whole file before it stores anything. It then
stores one batch after the other, each in its own transaction, so that other writers never wait long. The transaction
of a batch also counts the stored memories in the job's row. So if a worker is killed, the next worker continues with
the next memory. All batches have the same import number, and one rollback undoes them.

A tenant has one task in the queue: its end queues the tenant's next one. A task stores batches for TURN_SECONDS. So the
letters and sessions of others wait for a part of one job of each tenant at most.
"""

import io
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from itertools import accumulate, islice
from typing import Any

from django.conf import settings
from django.db import OperationalError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from audit import redactions, verify
from audit.models import AuditEntry, Operation
from audit.trail import Actor
from audit.waiting import is_lock_timeout
from config.queue import IMPORT_MEMORIES, LOCK_SECONDS, put
from memory.access.authentication import new_request, request_key, require_valid_key
from memory.errors import AlreadyUndone, Invalid, MemoryFault, NotFound
from memory.models import Agent, AgentKey, ImportBody, ImportJob
from memory.policy import switches
from memory.policy.validation import MAX_TAG, Draft
from memory.silo.silo import Silo
from memory.time_machine.selection import Undone
from memory.transfer import importing
from memory.transfer.formats import tree
from memory.transfer.importing import BATCH, CheckedFile, Imported
from memory.writing import edits, operations

SMALL_ENTRIES, SMALL_BYTES = 500, 2**20  # the largest file that a request imports
SMALL_VALUES = 30_000  # commas and lines: a file with more takes long to read, however few entries it has
MAX_ENTRIES = 20_000
BATCH_BYTES = 4_000_000  # the size of a batch; one of 16 MB held SQLite's writer for more than a second
ATTEMPTS = 3  # of the worker without progress; a file that kills each worker must not come back for ever
READ_SECONDS = 15.0  # of a processor, for a whole file; 20 MB of usual text take 5
TURN_SECONDS = 15.0  # in which a task stores batches; then others have their turn, and the next task continues
LATE = timedelta(minutes=2)  # after this time without progress, another worker continues a running job
OPEN = QUEUED, RUNNING = ("queued", "running")
DONE, FAILED = "done", "failed"
_RESULT = "import result"  # the name of its seal


class _File(io.BytesIO):
    """A file that can be read for READ_SECONDS. Other tasks wait meanwhile."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._until = time.thread_time() + READ_SECONDS

    def read(self, size: int | None = -1, /) -> bytes:
        self.require_time()
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        self.require_time()
        return super().readline(size)

    def require_time(self) -> None:
        """Raise Invalid if the file takes too long."""
        if time.thread_time() > self._until:
            raise Invalid("file", f"takes more than {READ_SECONDS:.0f} seconds to read. Split the file")


class ImportRunning(MemoryFault):
    """The agent has an import job that has not ended."""

    code = "import_running"


def check_small(body: bytes, format: str, project: str) -> CheckedFile | None:
    """Check a file that a request can import at once. Return None if the file needs a job. Raises Invalid, also for a
    file that is too large when it is unpacked."""
    size, values = len(body), body.count(b",") + body.count(b"\n")
    if format == "markdown":
        size, values = tree.unpacked_size(body, settings.API_IMPORT_BYTES)
    if max(size, len(body)) > SMALL_BYTES or values > SMALL_VALUES:
        return None
    drafts, done = _read(body, format, project, SMALL_ENTRIES)
    return None if drafts is None else CheckedFile(iter(drafts), done)


def _read(body: bytes, format: str, project: str, most: int) -> tuple[list[Draft] | None, Imported]:
    """Read a whole file. Return its memories, or None if it has more than `most` entries. Raises Invalid, also for a
    file that takes too long."""
    file = _File(body)
    found = importing.check_file(file, format, project=project, check=file.require_time)
    drafts = list(islice(found.drafts, most + 1))
    entries = len(drafts) + found.done.left_out + found.done.discarded
    return drafts if entries <= most else None, found.done


def require_none(agent: Agent) -> None:
    """Raise ImportRunning if the agent has a job that has not ended."""
    if ImportJob.objects.filter(agent_id=agent.pk, state__in=OPEN).exists():
        raise ImportRunning("Another import of this agent has not ended. Wait until its state is done or failed.")


def add(agent: Agent, key: AgentKey, body: bytes, format: str, project: str) -> int:
    """Queue a job, and return its number. It replaces the agent's last job. Raises ImportRunning, MemoryDisabled,
    Erased."""
    with edits.locked(agent) as row:
        switches.require_on(row)
        require_none(row)
        last = ImportJob.objects.filter(agent=row).first()
        number = last.number + 1 if last else 1
        now, is_first = timezone.now(), not _open_jobs().filter(agent__tenant=row.tenant_id).exists()
        ImportJob(agent=row, number=number, key=key, format=format, project=project, moved_at=now).save()
        ImportBody(agent=row, sealed=Silo.for_agent(row).seal_data(_place(row, key), number, body)).save()
        if is_first:
            _put(row.pk, number)
        return number


def _place(agent: Agent, key: AgentKey) -> str:
    """The name of the body's seal. A redaction changes it, because the file may have the redacted content."""
    return f"import body/{key.prefix}/{redactions.last(agent)}"


def describe(agent: Agent, number: int) -> dict[str, Any]:
    """Return the state of the agent's newest job. Raises NotFound for another number. Raises MemoryDisabled."""
    jobs = ImportJob.objects.filter(agent_id=agent.pk, number=number)
    if (found := jobs.values("state", "entry", "imported", "error", "result").first()) is None:
        raise NotFound("This import does not exist, or the agent has a newer one.")
    switches.require_on(agent)  # the figures name parts of the file
    sealed = found["result"]
    figures = json.loads(Silo.for_agent(agent).open_data(_RESULT, number, bytes(sealed))) if sealed else None
    return {"id": number} | found | {"result": figures}


def _open_jobs() -> QuerySet[ImportJob]:
    return ImportJob.objects.filter(state__in=OPEN)


def _moved_lately() -> Q:
    now = timezone.now()
    return Q(moved_at__range=(now - LATE, now))


def _waiting() -> QuerySet[ImportJob]:
    """The open jobs on which no worker works."""
    return _open_jobs().exclude(_moved_lately(), state=RUNNING)


def queue_late() -> None:
    """Queue a job of each tenant whose jobs have not moved for a while, because a worker was killed or the queue lost
    the task."""
    busy = _open_jobs().filter(_moved_lately()).values("agent__tenant")
    for tenant_id in set(_open_jobs().exclude(agent__tenant__in=busy).values_list("agent__tenant", flat=True)):
        _queue_next(tenant_id)


def _queue_next(tenant_id: int) -> None:
    """Queue the tenant's oldest job on which no worker works."""
    if job := _waiting().filter(agent__tenant=tenant_id).order_by("moved_at", "pk").first():
        ImportJob.objects.filter(pk=job.pk, state=QUEUED).update(moved_at=timezone.now())
        _put(job.pk, job.number)


def _put(agent_id: int, number: int) -> None:
    """Queue the task of a job. If Redis does not take it, `queue_late` may queue it at once."""
    job = ImportJob.objects.filter(agent_id=agent_id, number=number, state=QUEUED)
    put(IMPORT_MEMORIES, agent_id, number, lost=partial(job.update, moved_at=timezone.now() - LATE))


def carry_out(agent_id: int, number: int) -> str:
    """Carry out a part of a job. Returns its state, or "taken" if there is nothing to do. After an error that is not
    about the file or the agent, `queue_late` queues the job again."""
    mine = _waiting().filter(agent_id=agent_id, number=number)
    if not mine.update(state=RUNNING, attempts=F("attempts") + 1, moved_at=timezone.now()):
        return "taken"
    job = ImportJob.objects.select_related("agent__tenant", "key__agent").get(agent_id=agent_id)
    with new_request():
        request_key.set(job.key)  # the write path stores nothing for a revoked key
        try:
            return _run(job)
        except OperationalError as error:
            if not is_lock_timeout(error):
                raise
            _row_of(job).update(state=QUEUED, attempts=0, moved_at=timezone.now())  # others have their turn
            return QUEUED
        except MemoryFault as failure:
            field, problem = (failure.field, failure.problem) if isinstance(failure, Invalid) else (None, str(failure))
            return _end(job, FAILED, error={"code": failure.code, "detail": problem, "attr": field})
        finally:
            _queue_next(job.agent.tenant_id)


def _run(job: ImportJob) -> str:
    require_valid_key()
    if job.attempts > ATTEMPTS:
        raise Invalid("file", f"was given up, because the worker ended {ATTEMPTS} times. Split the file")
    with edits.locked(job.agent, seconds=LOCK_SECONDS):  # first, because it takes long to read the file
        silo = Silo.for_agent(job.agent)
    sealed, redacted = ImportBody.objects.get(agent=job.agent).sealed, redactions.last(job.agent)
    body = silo.open_data(_place(job.agent, job.key), job.number, bytes(sealed))
    drafts, done = _read(body, job.format, job.project, MAX_ENTRIES)
    if drafts is None:
        raise Invalid("file", f"has more than {MAX_ENTRIES:,} entries. Nothing was imported. Split the file")
    done.require_no_cycle()
    switches.require_open(job.agent, {draft.category for draft in drafts})
    until = time.monotonic() + TURN_SECONDS
    for place in _batches([_size(draft) for draft in drafts], job.imported):
        if not _store(job, drafts[place], redacted):
            return "taken"
        if time.monotonic() > until:
            _row_of(job).update(state=QUEUED)
            return QUEUED
        time.sleep(edits.PAUSE)
    _link(job, done, drafts)
    done.imported, done.tokens = len(drafts), sum(draft.tokens or 0 for draft in drafts)
    figures = json.dumps(done.figures(job.format)).encode()
    return _end(job, DONE, result=silo.seal_data(_RESULT, job.number, figures))


def _store(job: ImportJob, batch: list[Draft], redacted: int) -> bool:
    """Store a batch. Return False if another worker continues the job. Raises AlreadyUndone if somebody rolled back an
    earlier batch. Raises Invalid if there is a later redaction than `redacted`."""
    with edits.locked(job.agent, seconds=LOCK_SECONDS) as row:
        if redactions.last(row) != redacted:
            raise Invalid(
                "file", "was not imported to its end, because content was redacted meanwhile. Import the rest again"
            )
        if job.entry and Undone.of(row).by(job.entry):
            raise AlreadyUndone("The import was rolled back before it ended. The rest was not imported.")
        job.entry = job.entry or row.audit_seq + 1
        imported = job.imported + len(batch)
        mine = _row_of(job).filter(imported=job.imported)
        if not mine.update(entry=job.entry, imported=imported, attempts=0, moved_at=timezone.now()):
            return False
        actor, detail = Actor.agent(job.key.prefix), {"import": job.entry}
        operations.remember(row, batch, actor, operation=Operation.IMPORTED, detail=detail)
    job.imported = imported
    return True


def _link(job: ImportJob, done: Imported, drafts: list[Draft]) -> None:
    """Restore the lineage in batches, when all memories are stored. If this is repeated, memories that have their
    successors do not change. Raises AlreadyUndone."""
    if job.entry is None or not done.sources:
        return
    entries = AuditEntry.objects.filter(agent_id=job.agent_id, seq__gte=job.entry, detail__import=job.entry)
    seqs = entries.filter(operation=Operation.IMPORTED).order_by("seq").values_list("seq", flat=True)
    found = [each for seq in seqs for each in verify.intact_changes(job.agent_id, seq, keep=lambda row: not row.before)]
    made = [change.number for change in found]
    if len(made) != job.imported:
        raise Invalid("file", "was imported, but without its lineage: the trail was changed. Run verify_audit")
    sizes = {number: _size(draft) for number, draft in zip(made, drafts, strict=True)}
    links = list(done.successors(made).items())
    for place in _batches([sizes[number] for number, _ in links]):
        with edits.locked(job.agent, seconds=LOCK_SECONDS) as row:
            if Undone.of(row).by(job.entry):
                raise AlreadyUndone("The import was rolled back before it ended. Its lineage was not restored.")
            _row_of(job).update(moved_at=timezone.now())
            operations.link(row, dict(links[place]), Actor.agent(job.key.prefix), {"import": job.entry})
        time.sleep(edits.PAUSE)


def _size(draft: Draft) -> int:
    """Return the bytes of a memory. Each tag counts as a long one, because short tags take as much time."""
    return len(draft.content.encode(errors="replace")) + 4 * MAX_TAG * len(draft.tags)


def _batches(sizes: list[int], start: int = 0) -> Iterator[slice]:
    """Yield the places of batches with at most BATCH memories and BATCH_BYTES bytes."""
    while start < len(sizes):
        sums = accumulate(sizes[start : start + BATCH])
        end = start + max(sum(each <= BATCH_BYTES for each in sums), 1)
        yield slice(start, end)
        start = end


def _end(job: ImportJob, state: str, **values: Any) -> str:
    """End the job and delete its body, unless another worker has ended it."""
    with transaction.atomic():
        if _row_of(job).update(state=state, **values):
            ImportBody.objects.filter(agent=job.agent).delete()
    return state


def _row_of(job: ImportJob) -> QuerySet[ImportJob]:
    return ImportJob.objects.filter(agent=job.agent, number=job.number, state=RUNNING)
