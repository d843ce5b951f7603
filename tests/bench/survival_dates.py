"""What results say about the time of merged events, and how large the ledger is that a model reads."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import tiktoken

from memory.models import Agent, Memory
from memory.recording.retrieval import periods, retrieve
from memory.silo.silo import Read
from memory.time_machine import lineage
from refinement import ledger
from tests.bench import survival_year as year
from tests.bench.survival_year import LedgerMemory

NEAR, A_MONTH = timedelta(days=21), timedelta(days=60)


def date_questions(agent: Agent, path: Path, stored: Sequence[LedgerMemory], now: datetime) -> Iterator[bool | None]:
    """For each question that begins with "When", has a day or a month in its answer, and is about merged memories:
    whether the results with the evidence have a date within 21 days of the answer. None if no result has it."""
    rows = json.loads(path.with_name(path.name.replace("memories.jsonl", "questions.json")).read_text("utf-8"))
    merged = set(Memory.objects.of(agent).exclude(superseded_by=None).values_list("number", flat=True))
    for row in rows:
        numbers = {number for number, memory in enumerate(stored, 1) if memory.evidence & set(row["evidence"])}
        answer = [(begin, end) for begin, end in periods(str(row["answer"]), now) if end - begin < A_MONTH]
        if row["question"].startswith("When") and answer and numbers and numbers <= merged:
            found = retrieve(agent, row["question"], max_tokens=year.ROOM, now=now).reads
            holders = {read.memory.number: read for read in found}
            about = [number for number in holders if ({number} | lineage.sources(agent, [number])) & numbers]
            dates = [date for number in about for date in _dates(holders[number], now)]
            is_near = any(begin - NEAR <= date <= end + NEAR for date in dates for begin, end in answer)
            yield is_near if about else None


def _dates(read: Read, now: datetime) -> list[datetime]:
    """The dates in the text, or else the origin date. A merged memory without a date in its text has none."""
    written = [begin for begin, _ in periods(read.opened.content, now)]
    return written or ([read.memory.origin] if read.memory.origin_latest in (None, read.memory.origin) else [])


def ledger_size(agent: Agent) -> float:
    """The tokens (o200k) of the ledger, divided by those of the contents."""
    encoding, entries = tiktoken.get_encoding("o200k_base"), ledger.read(agent)
    contents = (entry.opened.content for entry in entries)
    return len(encoding.encode_ordinary(ledger.text(entries))) / sum(map(len, map(encoding.encode_ordinary, contents)))
