"""Export an agent's memories, for the agent's side or for a person with a grant."""

import os
import tarfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access.authentication import agent_named
from memory.consent import granted_reads, grants
from memory.errors import Invalid, KeyRejected
from memory.management.agent_command import KEY, has_agents_key
from memory.models import Agent
from memory.silo.silo import Read
from memory.transfer import exporting
from memory.transfer.export_formats import EXPORTS, HELP, writer


class Command(Task):
    help = (
        "Print an agent's active memories in order of id, as JSON Lines or in another format. The output has content, "
        f"so set {KEY} to the agent's key, or PALIMPSEST_GRANT to the token of an active grant (other users can see "
        "--grant in the list of processes). With a grant, the command prints the memories that the grant covers, and "
        "each reading is recorded. A warning says what the format cannot store."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="whose memory it is, such as acme/ada")
        parser.add_argument("--with-discarded", action="store_true", help="also discarded memories (jsonl only)")
        parser.add_argument("--with-beneath", action="store_true", help="also memories beneath; jsonl always has them")
        parser.add_argument("--format", choices=list(EXPORTS), default="jsonl", help=HELP)
        to = "write a new file that only its owner can read; for markdown, a new folder"
        parser.add_argument("--to", metavar="PATH", help=to)
        parser.add_argument("--grant", metavar="TOKEN", help="the token on the grant's page; used instead of the key")

    def run(self, *, agent: str, with_discarded: bool, with_beneath: bool, grant: str | None, **options: Any) -> None:
        target, to = agent_named(agent), options["to"]
        write = writer(options["format"], with_discarded=with_discarded)
        if options["format"] == "markdown" and to is None:
            raise Invalid("to", "is required for markdown: the path of a new folder for the files")
        token = os.environ.get("PALIMPSEST_GRANT") or None if grant is None else grant
        read = self._as_agent if token is None else self._under_grant
        noted = exporting.Losses()
        which = {"with_discarded": with_discarded, "with_beneath": with_beneath or options["format"] == "jsonl"}
        with closing(read(target, token or "", **which)) as memories:
            written = write(target, memories, noted)
            if to is None:
                for piece in written:
                    self.stdout.write(piece.decode(), ending="")
            elif options["format"] == "markdown":
                _into_folder(Path(to), written)
            else:
                _into_file(Path(to), written)
        for warning in exporting.counted(noted):
            self.say(f"warning: {warning}")

    def _as_agent(self, agent: Agent, _: str, **which: bool) -> Generator[Read, None, None]:
        _require_key(agent)
        with closing(exporting.memories(agent, **which)) as memories:
            first = list(islice(memories, 1))  # this reads one state of the silo
            _require_key(agent)  # the key may have ended meanwhile
            yield from chain(first, memories)

    def _under_grant(
        self, agent: Agent, token: str, *, with_discarded: bool, with_beneath: bool
    ) -> Generator[Read, None, None]:
        """Read the memories page by page. The grant must be valid for each page. Each reading is recorded."""
        grant, person = grants.prove_token(agent, token)
        if grant.scope.kind not in grants.OF_MEMORIES:
            raise Invalid("grant", "covers entries of the trail, not memories: open the grant's page instead")
        rows = grants.readable_memories(agent, grant.scope).filter(redacted_at__isnull=True)
        if not with_discarded:
            rows = rows.kept() if with_beneath else rows.active()
        numbers = list(rows.values_list("number", flat=True))
        for start in range(0, len(numbers), granted_reads.MAX_READ):
            page = numbers[start : start + granted_reads.MAX_READ]
            yield from granted_reads.memories(agent, grant.number, person, page)


def _require_key(agent: Agent) -> None:
    if not has_agents_key(agent):
        needed = f"set {KEY} to its key, or PALIMPSEST_GRANT to the token of an active grant"
        raise KeyRejected(f"Only the agent, or a person with a grant, can read memories: {needed}.")


def _into_file(path: Path, pieces: Iterator[bytes]) -> None:
    """Write a file that only its owner can read. The path does not exist before the file is complete."""
    with _beside(path) as folder:
        _write(folder / "export", pieces)
        os.link(folder / "export", path)  # fails if the path exists now


def _into_folder(path: Path, pieces: Iterator[bytes]) -> None:
    """Unpack an archive into a folder that only its owner can read. The path does not exist before the folder is
    complete."""
    with _beside(path) as folder:
        _write(folder / "archive", pieces)
        (folder / "export").mkdir(0o700)
        with tarfile.open(folder / "archive") as archive:
            archive.extractall(folder / "export", filter="data")
        (folder / "export").rename(path)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Create a temporary folder next to the path, and remove the folder afterwards. Raises Invalid."""
    if os.path.lexists(path):
        raise Invalid("to", "exists already: choose a path that does not exist")
    try:
        with TemporaryDirectory(prefix=".palimpsest-", dir=path.parent) as folder:
            yield Path(folder)
    except OSError as failure:
        raise Invalid("to", f"cannot be written ({failure.strerror})") from None


def _write(file: Path, pieces: Iterator[bytes]) -> None:
    file.touch(0o600)
    with file.open("wb") as out:
        out.writelines(pieces)
        out.flush()
        os.fsync(out.fileno())
