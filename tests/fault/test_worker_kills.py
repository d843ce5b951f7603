"""Workers killed at any statement or commit: an import stores each memory once, and every memory gets one vector.
KILLS=200 for more."""

import os

import pytest

from tests.commands.calling import Installation
from tests.fault.killing import run_script

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "12"))


@pytest.mark.parametrize("script", ["killing_imports", "killing_vectors"])
def test_the_work_of_killed_workers_is_completed_once(script: str, service: Installation) -> None:
    figures = run_script(script, service, KILLS, os.environ.get("SEED", "1"))
    assert figures["points"] > 20
    assert figures["problems"] == []
