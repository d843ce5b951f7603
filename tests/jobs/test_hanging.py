"""A model server that takes calls and never answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs import inside
from tests.jobs.ending import is_clean, refine_all
from tests.jobs.fleet import Fleet, new_fleet
from tests.jobs.scripted import SlowModel
from tests.model_server import ModelServer, Slow

pytestmark = pytest.mark.postgresql
SECONDS = 2


@pytest.fixture
def fleet(given: None, model_server: ModelServer, tmp_path: Path) -> Iterator[Fleet]:
    asks = {"OPENAI_BASE_URL": model_server.openai_url, "MODEL_CALL_SECONDS": str(SECONDS)}
    with new_fleet(tmp_path, **asks) as made:
        yield made


def test_calls_are_given_up_the_provider_is_left_alone_and_later_all_are_refined(
    fleet: Fleet, model: SlowModel, model_server: ModelServer
) -> None:
    model_server.script = Slow(600)
    fleet.do(inside.furnish, 6)
    fleet.start()
    fleet.do(inside.look_round)
    fleet.until(lambda: "openai" in fleet.do(inside.left_alone) and not fleet.do(inside.standing)["open"])
    ended = fleet.do(inside.sessions)
    assert {(session["outcome"], session["reason"]) for session in ended} == {("failed", "model_unavailable")}
    assert max((session["closed_at"] - session["opened_at"]).total_seconds() for session in ended) < SECONDS + 2
    assert fleet.do(inside.standing)["due"] == 6 - len(ended) > 0
    model_server.script = model
    refine_all(fleet)
    assert is_clean(fleet)
