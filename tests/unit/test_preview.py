"""The dry run of a refinement: figures, without a model call and without a change."""

from typing import Any

import pytest

from memory.errors import MemoryDisabled
from memory.models import Agent
from refinement import ledger
from refinement.session import preview
from tests.refining import change, fill, filler, protected, untouched
from tests.steps import fresh, remember


def test_the_preview_changes_nothing_and_opens_no_model(ada: Agent, settings: Any) -> None:
    fill(ada, 10, 100)
    protected(ada, 1)
    remember(ada, *[filler(50, "same")] * 3)
    change(ada, model="nobody/nothing")
    with untouched(ada):
        figures = preview(fresh(ada))
    sizes = {"tokens": 1_150, "target": 5_000, "budget": 8_000, "floor": 788, "batches": 1}
    limits = {"max_changes": 100, "max_steps": 100}
    counts = {"due": None, "memories": 13, "constitutional": 1, "duplicates": 2}
    assert figures.items() >= (counts | sizes | limits).items()
    settings.BATCH_TOKENS = 300
    figures = preview(fresh(ada))
    assert figures["batches"] > 3
    assert figures["ledger_tokens"] > 1_000


def test_while_memory_is_off_nothing_is_read(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(ada, 2, 20)
    change(ada, memory_enabled=False)
    monkeypatch.delattr(ledger, "read")
    with pytest.raises(MemoryDisabled):
        preview(fresh(ada))
