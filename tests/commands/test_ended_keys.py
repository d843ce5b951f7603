"""A command that shows content checks the agent's key again after it has read."""

from pathlib import Path
from typing import Any

import pytest

from memory.access.authentication import new_request, prefix_of
from memory.agents import lifecycle
from memory.management.commands import vault
from memory.recording import retrieval
from memory.silo.silo import Opened
from memory.transfer import exporting
from tests import steps
from tests.commands.calling import failed, run
from tests.conftest import House
from tests.steps import ME

PLACES = {
    ("recall", "acme/ada", "tea"): (retrieval, "retrieve"),
    ("export_memories", "acme/ada"): (exporting, "memories"),
    ("vault", "show", "acme/ada", "FILE"): (vault, "open_file"),
}


@pytest.mark.parametrize("arguments", PLACES, ids=[arguments[0] for arguments in PLACES])
def test_a_command_whose_key_ends_meanwhile_shows_nothing(
    arguments: tuple[str, ...], house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.remember(house.ada, "Ann drinks tea", category="technical")
    (tmp_path / "a.md").write_text("Ann drinks tea")
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    lifecycle.issue_key(house.ada, ME)
    module, name = PLACES[arguments]
    real = getattr(module, name)

    def late(*args: Any, **options: Any) -> Any:
        with new_request():
            lifecycle.revoke_key(steps.fresh(house.ada), prefix_of(house.ada_key), ME)
        return Opened("Ann drinks tea", ()) if module is vault else real(*args, **options)

    monkeypatch.setattr(module, name, late)
    with new_request():
        ran = run(*(str(tmp_path / "a.md") if each == "FILE" else each for each in arguments))
    assert "tea" not in failed(ran, 2)
    assert "key" in ran.err
