"""Memory rules between processes: what one stores, another finds, in its silo and as a file (seed 004)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.commands.calling import Installation

SAID = "From now on always retry a lost connection three times."


def test_nothing_is_kept_in_a_process_alone(service: Installation) -> None:
    made = service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe", "--vault", "ada").json
    key = {"PALIMPSEST_AGENT_KEY": made["key"]}
    file = service.manage("remember", "store", "acme/ada", SAID, "--category", "technical").json["file"]
    assert file, "no file is confirmed"
    recorded = ("record", "acme/ada", "--prompt", SAID, "--session", "monday", "--project", "shop")
    assert service.manage("remember", *recorded).json["id"] == 2
    assert SAID in Path(file).read_text()
    [interaction] = (service.folder / "vault").rglob("interactions/*.md")
    assert SAID in interaction.read_text()
    found = service.manage("recall", "acme/ada", "lost connection", "--project", "shop", **key)
    assert found.out.count(SAID) == 2


def test_a_restored_database_overwrites_no_newer_file(service: Installation) -> None:
    """docs/how-to/operate.md, Backup and restore: what is newer in a vault is listed, and kept."""
    service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe", "--vault", "ada")

    def stored(text: str) -> Any:
        return service.manage("remember", "store", "acme/ada", text, "--category", "technical").json

    first = Path(stored("The ferry is blue.")["file"])
    data = service.folder / "data"
    shutil.copytree(data, service.folder / "backup")
    first.write_text(first.read_text().replace("blue", "red"))
    second = Path(stored("It leaves at 14:30.")["file"])
    shutil.rmtree(data)
    shutil.move(service.folder / "backup", data)
    listed: dict[str, list[Any]] = {
        "--check": [(None, "index"), (1, "edited"), (2, "copy")],
        "--repair": [(1, "copy"), (2, "copy")],
    }
    for deed, wanted in listed.items():
        told = service.manage("vault", "index", "acme/ada", deed, "--json").json["differences"]
        assert [(each["id"], each["kind"]) for each in told] == wanted
    assert stored("It has two decks.")["id"] == 2
    kept = Path(*first.parts[:-3], ".discarded", *first.parts[-3:-1], "000001-found-1.md")
    assert ("red" in kept.read_text(), "14:30" in second.read_text()) == (True, True)
