"""A `repr` can end up in logs and error reports, so it shows no content."""

from typing import Any

import pytest

from memory.models import Memory
from memory.policy.validation import Draft
from memory.search.holdings import Document
from memory.silo.silo import Opened
from refinement.dates import Text
from refinement.knife import Result
from refinement.ledger import Entry
from refinement.llm.base import Message, Reply, Request, ToolCall
from refinement.losses import missing
from refinement.tools import UpdateMemory
from tests.privacy.marker import MARKER

CALL = ToolCall("1", "update_memory", {"content": MARKER})
MESSAGE = Message("user", MARKER)


@pytest.mark.parametrize(
    "held",
    [
        Opened(MARKER, (MARKER,)),
        Draft(MARKER, tags=(MARKER,)),
        Entry(Memory(number=1), Opened(MARKER, ())),
        CALL,
        MESSAGE,
        Request("m", (MESSAGE,)),
        Reply(MARKER, (CALL,)),
        Result("ok", {"found": MARKER}),
        UpdateMemory(id=1, content=MARKER),
        Document(1, MARKER, (), None, "core", "technical", ""),  # type: ignore[arg-type]
        next(missing({0: Text(f'She said "{MARKER}" to Ana.', None)}, "", "english"))[1],
        Text(MARKER, None),
    ],
    ids=lambda held: type(held).__name__,
)
def test_a_repr_shows_no_content(held: Any) -> None:
    assert MARKER not in f"{held!r} {held}"
