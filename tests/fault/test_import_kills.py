"""Workers of an import killed at any statement or commit: no memory is lost or doubled. KILLS=200 for more."""

import os

import pytest

from tests.commands.calling import Installation
from tests.fault.killing import run_script

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "12"))


def test_an_import_whose_workers_are_killed_is_completed_once(service: Installation) -> None:
    figures = run_script("killing_imports", service, KILLS, os.environ.get("SEED", "1"))
    assert figures["points"] > 20
    assert figures["problems"] == []
