"""Workers that make vectors, killed at any statement or commit: every memory gets one vector. KILLS=200 for more."""

import os

import pytest

from tests.commands.calling import Installation
from tests.fault.killing import run_script

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "12"))


def test_vectors_are_complete_after_a_kill(service: Installation) -> None:
    figures = run_script("killing_vectors", service, KILLS, os.environ.get("SEED", "1"))
    assert figures["points"] > 20
    assert figures["problems"] == []
