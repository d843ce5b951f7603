"""Writes again from the silo what differs in a vault. A file that somebody changed is moved aside first, and kept."""

from __future__ import annotations

from dataclasses import dataclass

from memory.access.authentication import require_valid_key
from memory.models import Agent, VaultFile
from memory.policy import settings_document, switches
from memory.vault import comparing, writer
from memory.vault.comparing import COPY, INDEX, Difference, Progress
from memory.vault.disk import NEW
from memory.vault.files import Files


@dataclass(frozen=True, slots=True)
class Repaired:
    """How many differences were repaired, how many lines the index pages have, what is left, how many files are not the
    vault's, and which files were moved aside: from where to where."""

    repaired: int
    indexed: int
    left: tuple[Difference, ...]
    unknown: int
    aside: tuple[tuple[str, str], ...]

    @property
    def is_done(self) -> bool:
        return not any(each.kind != COPY and (each.number or each.kind == INDEX) for each in self.left)


def repair(agent: Agent, *, progress: Progress = lambda _: None) -> Repaired:
    """Make the vault say what the silo says. Copies that people made stay; so does what cannot be written. Raises
    MemoryDisabled, FileFault, VaultBusy."""
    switches.require_on(agent)
    with writer.opened(agent) as disk:
        require_valid_key()  # it may have ended, or memory been switched off, while the lock was waited for
        row = Agent.objects.select_related("tenant").get(pk=agent.pk)
        switches.require_on(row)
        for path in list(disk.files()):
            if path.name.startswith(NEW):  # left by a killed writer
                disk.remove(path)
        found = comparing.all_of(Files(row, disk), progress).differences
        differing = [each.number for each in found if each.number and each.kind != COPY]
        VaultFile.objects.filter(agent_id=row.pk, number__among=differing).update(rules_version="")
        writer.begin_anew(row)
        with writer.faults_noted(row.pk):
            writer.bring_held(row, disk)
        indexed = Files(row, disk).rebuild()
        left = comparing.all_of(Files(row, disk))
        aside = tuple((str(path), str(kept)) for path, kept in disk.put_aside)
        return Repaired(len(set(found) - set(left.differences)), indexed, tuple(left.differences), left.unknown, aside)


def older(agent: Agent) -> int:
    """How many files were written under another version of the rules. `repair` writes them again."""
    version = settings_document.value(switches.rules_of(agent), "version")
    rows = VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE)
    return rows.exclude(rules_version=version).count()
