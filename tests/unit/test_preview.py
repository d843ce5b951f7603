"""The dry run: figures, no call, no change."""

from __future__ import annotations

import pytest

from memory.errors import MemoryDisabled
from memory.models import Agent
from refinement import ledger
from refinement.dry_run import preview
from tests.refining import change, fill, filler, protected, untouched
from tests.steps import fresh, remember


def test_it_tells_where_the_agent_stands(ada: Agent) -> None:
    fill(ada, 10, 100)
    protected(ada, 1)
    remember(ada, *[filler(50, "same")] * 3)
    told = preview(fresh(ada))
    assert (
        told
        | {
            "due": None,
            "tokens": 1_150,
            "target": 5_000,
            "budget": 8_000,
            "floor": 788,
            "memories": 13,
            "constitutional": 1,
            "duplicates": 2,
            "batches": 1,
            "max_changes": 100,
            "max_steps": 30,
        }
        == told
    )


def test_it_tells_the_size_of_the_ledger_in_its_batches(ada: Agent, settings: object) -> None:
    fill(ada, 10, 100)
    settings.BATCH_TOKENS = 300  # type: ignore[attr-defined]
    told = preview(fresh(ada))
    assert told["batches"] == 4
    assert told["ledger_tokens"] > 1_000


def test_it_changes_nothing_and_opens_no_model(ada: Agent) -> None:
    change(ada, model="nobody/nothing")
    remember(ada, *[filler(50, "same")] * 3, filler(20, "other"))
    with untouched(ada):
        assert preview(fresh(ada))["memories"] == 4


def test_with_memory_off_nothing_is_read(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ada, 2, 20)
    change(ada, memory_enabled=False)
    monkeypatch.delattr(ledger, "read")
    with pytest.raises(MemoryDisabled):
        preview(fresh(ada))
