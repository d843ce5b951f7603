"""Whether a vault agrees with its silo."""

from collections.abc import Collection
from pathlib import Path

from memory.markdown import sections
from memory.models import Agent, Kind, Memory, Source, VaultFile
from memory.silo.silo import Silo
from memory.vault import rendering
from memory.vault.layout import Line


def differences(agent: Agent, closed: Collection[str] = (), edited: Collection[int] = ()) -> list[str]:
    """How the files of memories differ from the silo, except closed categories and memories that a person edited."""
    silo, vault, found = Silo.for_agent(agent), Path(agent.vault_path), []
    rows = {row.number: row for row in VaultFile.objects.filter(agent_id=agent.pk)}
    index = "".join(path.read_text() for path in vault.rglob("index.md"))
    for memory in Memory.objects.filter(agent_id=agent.pk).exclude(source=Source.SYSTEM):
        row, name = rows.get(memory.number), f"memory {memory.number}"
        if memory.category in closed or memory.number in edited:
            continue
        if memory.layer not in Kind.values:
            if row is not None and row.state != VaultFile.State.SET_ASIDE:
                found.append(f"{name} is {memory.layer}, its file is not")
            continue
        path = vault / Line.open(silo, row).path if row else None
        if path is None or not path.exists():
            found.append(f"{name} has no file")
            continue
        file, opened = rendering.read_file(path.read_bytes()), silo.open(memory)
        if path.name not in index:
            found.append(f"{name} is not in the index")
        if file is not None and file.sealed is not None:
            is_same = silo.open_sealed(memory.number, file.sealed) == opened
        else:
            expected, blocks = sections.split(opened.content, memory.category), rendering.blocks(path.read_text())
            is_same = file is not None and {each: blocks.get(each) for each in expected} == expected
        if not is_same:
            found.append(f"{name} differs from its file")
    return found
