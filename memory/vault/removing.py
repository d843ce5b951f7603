"""Remove every file of erased or redacted memories from the vault. Copies of these files are removed, too. Files that
people created for other purposes stay."""

import codecs
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from django.db.models import QuerySet

from audit.models import AuditEntry, Operation
from memory.errors import FileFault
from memory.models import Agent, Memory, VaultFile
from memory.vault import layout
from memory.vault.disk import NEW, Disk

# Prefixes that editors add to a file's name for backups and unsaved changes.
_BEFORE = r"(?:\.~lock\.|\.#|~\$|[.#~])?"
_NUMBERED = re.compile(rf"{_BEFORE}(\d{{6,}})(?![^\W_])")
_NAMED = re.compile(rf"{_BEFORE}(.+?)(?:-found-\d+)?\.md(?![^\W_])")  # an editor's suffix may follow
_NUMBER_IN = re.compile(r"(?<!\d)(\d{6,})-")
_METADATA = re.compile(r"^[ \t>]*## Metadata[ \t]*$", re.MULTILINE)
_ID = re.compile(r"^[ \t>]*- \*\*(?:Memory|Interaction|Topic) ID\*\*: *(\d{1,18})[ \t]*$", re.MULTILINE)
_UTF_16 = (
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"#\0", "utf-16-le"),
    (b"\0#", "utf-16-be"),
)

Paths = Mapping[int, PurePosixPath | None]


def remove(disk: Disk, paths: Paths) -> None:
    """Remove every file of these memories. `paths` maps each memory's number to the known path of its file, or to None.

    A file belongs to a memory if one of these rules is true. The file is at the memory's path, or was moved from this
    path to .discarded/. The file's name begins with the memory's number, or contains the name of the memory's file,
    such as `000003-tea`. The file's metadata has the number of the memory. Text that an editor adds to a name is
    ignored. Temporary files of killed writers are removed, too. If a file cannot be removed, the other files are still
    removed. Then FileFault is raised.
    """
    stems = {path.stem: path for path in paths.values() if path is not None}

    def is_of_them(path: PurePosixPath) -> bool:
        is_named = path.name.startswith(NEW) or _number_of(path) in paths or _was_at(path, stems)
        # An unreadable file may be a copy of a memory's file. The error makes a later sync retry the removal.
        return is_named or _has_name_of(path, paths) or _number_inside(disk, path) in paths

    _remove_each(disk, is_of_them, [place for path in stems.values() for place in layout.everywhere(path)])


def remove_all(disk: Disk, agent: Agent) -> None:
    """Remove every file of the agent's memories and every index page. Other files stay. If a file cannot be removed,
    the other files are still removed. Then FileFault is raised."""

    def is_of_agent(path: PurePosixPath) -> bool:
        # The name of a person's file may begin with a date. A date is higher than the memories' numbers.
        is_called_so = 0 < _number_of(path) < agent.next_number
        return path.name.startswith(NEW) or is_called_so or _is_own(disk, path)

    _remove_each(disk, is_of_agent)
    for folder in sorted((folder for folder, _ in disk.folders([])), reverse=True):
        with suppress(OSError):  # not empty
            if folder != disk.path:
                folder.rmdir()


def _remove_each(disk: Disk, is_to_go: Callable[[PurePosixPath], bool], known: Collection[PurePosixPath] = ()) -> None:
    """Remove the known files, also in a folder that `files` leaves out, and all other files that are to go."""
    faults: list[FileFault] = []
    for path in (*known, *disk.files(faults)):
        try:
            if path in known or is_to_go(path):
                disk.remove(path)
        except FileFault as fault:
            faults.append(fault)
    if faults:
        raise faults[0]


def pending(agent: Agent) -> QuerySet[VaultFile]:
    """Return the rows of redacted memories whose files are not removed yet."""
    redacted = Memory.objects.of(agent).filter(redacted_at__isnull=False).values("number")
    return VaultFile.objects.filter(agent_id=agent.pk, number__in=redacted)


def former_paths(agent: Agent) -> tuple[str, ...]:
    """Return the agent's earlier vault folders. The service does not compare or clean these folders."""
    operations = (Operation.AGENT_CREATED, Operation.AGENT_CHANGED)
    changes = AuditEntry.objects.filter(agent_id=agent.pk, operation__in=operations)
    details = changes.order_by("seq").values_list("detail", flat=True)
    paths = dict.fromkeys(detail.get("vault_path") or detail.get("changed", {}).get("vault_path") for detail in details)
    return tuple(path for path in paths if path and path != agent.vault_path)


def _number_of(path: PurePosixPath) -> int:
    """Return the memory's number at the beginning of a file's name, or 0."""
    named = _NUMBERED.match(path.name)
    return int(named[1]) if named is not None and named[1] == f"{int(named[1]):06}" else 0


def _was_at(path: PurePosixPath, stems: Mapping[str, PurePosixPath]) -> bool:
    """Return whether a file is at one of these paths, is an editor's copy of such a file, or was moved from such a path
    to .discarded/."""
    named = _NAMED.match(path.name)
    known = stems.get(named[1]) if named is not None else None
    return known is not None and path.parent in {each.parent for each in layout.everywhere(known)}


def _has_name_of(path: PurePosixPath, paths: Paths) -> bool:
    """Return whether a file's name contains the name of one memory's file. This is often true for a copy, such as
    `old-000003-tea.md`."""
    known = (paths.get(int(number)) for number in _NUMBER_IN.findall(path.name))
    return any(each is not None and each.stem in path.name for each in known)


def _is_own(disk: Disk, path: PurePosixPath) -> bool:
    with suppress(FileFault):  # not readable by this process
        return _number_inside(disk, path) is not None or layout.is_page(path, disk.read(path) or b"")
    return False


def _number_inside(disk: Disk, path: PurePosixPath) -> int | None:
    """Return the memory's number in a file's metadata, or None. The file can have any encoding, and the metadata can be
    quoted text. Raises FileFault."""
    data = disk.read(path)
    if data is None:
        return None
    encoding = next((encoding for begun, encoding in _UTF_16 if data.startswith(begun)), "utf-8")
    text = re.sub(r"\r\n?", "\n", data.decode(encoding, "replace"))
    begun = _METADATA.search(text)
    named = _ID.search(text, begun.end()) if begun is not None else None
    return int(named[1]) if named is not None else None
