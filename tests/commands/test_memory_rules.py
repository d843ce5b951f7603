"""Memory rules between processes: what one stores, another finds, in its silo and as a file (seed 004)."""

from __future__ import annotations

from pathlib import Path

from tests.commands.calling import Installation

SAID = "From now on always retry a lost connection three times."


def test_nothing_is_kept_in_a_process_alone(service: Installation) -> None:
    made = service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe", "--vault", "ada").json
    key = {"PALIMPSEST_AGENT_KEY": made["key"]}
    file = Path(service.manage("memory_rules", "store", "acme/ada", SAID, "--category", "technical").json["file"])
    recorded = ("record", "acme/ada", "--prompt", SAID, "--session", "monday", "--project", "shop")
    assert service.manage("memory_rules", *recorded).json["id"] == 2
    assert SAID in file.read_text()
    [interaction] = (service.folder / "vault").rglob("interactions/*.md")
    assert SAID in interaction.read_text()
    found = service.manage("memory_rules", "retrieve", "acme/ada", "lost connection", "--project", "shop", **key)
    assert found.out.count(SAID) == 2
