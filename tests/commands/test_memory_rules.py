"""Memory rules between processes: the silo and the vault (seed 004)."""

import shutil
from pathlib import Path
from typing import Any

from tests.commands.calling import Installation

RETRY = "From now on always retry a lost connection three times."


def create_agent(service: Installation) -> Any:
    return service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe", "--vault", "ada", "--yes").json


def store(service: Installation, text: str) -> Any:
    return service.manage("remember", "store", "acme/ada", text, "--category", "technical").json


def test_no_state_is_kept_only_in_a_process(service: Installation) -> None:
    key = create_agent(service)["key"]
    file = Path(store(service, RETRY)["file"])
    record = ("record", "acme/ada", "--prompt", RETRY, "--session", "monday", "--project", "shop")
    assert service.manage("remember", *record).json["id"] == 2
    [interaction] = (service.folder / "vault").rglob("interactions/*.md")
    assert [RETRY in each.read_text() for each in (file, interaction)] == [True, True]
    recall = ("recall", "acme/ada", "lost connection", "--project", "shop")
    assert service.manage(*recall, PALIMPSEST_AGENT_KEY=key).out.count(RETRY) == 2


def test_a_restored_database_overwrites_no_newer_file(service: Installation) -> None:
    """docs/how-to/operate.md, Backup and restore: newer files of a vault are listed and kept."""
    create_agent(service)
    first = Path(store(service, "The ferry is blue.")["file"])
    data = service.folder / "data"
    shutil.copytree(data, service.folder / "backup")
    first.write_text(first.read_text().replace("blue", "red"))
    second = Path(store(service, "It leaves at 14:30.")["file"])
    shutil.rmtree(data)
    shutil.move(service.folder / "backup", data)
    expected: dict[str, list[Any]] = {
        "--check": [(None, "index"), (1, "edited"), (2, "copy")],
        "--repair": [(1, "copy"), (2, "copy")],
    }
    for option, differences in expected.items():
        found = service.manage("vault", "index", "acme/ada", option, "--json").json["differences"]
        assert [(each["id"], each["kind"]) for each in found] == differences
    assert store(service, "It has two decks.")["id"] == 2
    kept = Path(*first.parts[:-3], ".discarded", *first.parts[-3:-1], "000001-found-1.md")
    assert ("red" in kept.read_text(), "14:30" in second.read_text()) == (True, True)
