"""Give an agent's side its memories; or a person those that a grant covers."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import IO, Any, cast

from django.core.management.base import CommandParser

from config.commandline import Task
from memory.access.authentication import agent_named, is_key_of
from memory.consent import grant_scope, grant_tokens, granted_reads
from memory.errors import Invalid, KeyRejected
from memory.models import Agent
from memory.search.reading import Read
from memory.transfer import exporting
from memory.transfer.export_formats import EXPORTS, writer
from memory.transfer.exporting import NotHeld

_FORMATS = "; ".join(f"{name}: {each.what}" for name, each in EXPORTS.items())


class Command(Task):
    help = (
        "Print an agent's active memories as JSON Lines, in order of id, or in another format. This shows content, so "
        "it needs the agent's own key in PALIMPSEST_AGENT_KEY, or the token of a grant in force: in PALIMPSEST_GRANT, "
        "so that it stands in no list of processes, or as --grant. By a grant, what it covers is printed, and each "
        "read is recorded. What a format has no place for is told on standard error, with the number of memories."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT")
        parser.add_argument("--with-discarded", action="store_true", help="discarded memories too (jsonl alone)")
        parser.add_argument("--format", choices=list(EXPORTS), default="jsonl", help=_FORMATS)
        parser.add_argument(
            "--to", metavar="PATH", help="a new file, which its owner alone may read; for markdown a new folder"
        )
        parser.add_argument("--grant", metavar="TOKEN", help="of the grant's page; by it is read, whatever key is set")

    def run(self, *, agent: str, with_discarded: bool, grant: str | None, **options: Any) -> int | None:
        target, to = agent_named(agent), options["to"]
        write = writer(options["format"], with_discarded=with_discarded)
        if options["format"] == "markdown" and to is None:
            raise Invalid("to", "names the new folder that the files are written to")
        token = os.environ.get("PALIMPSEST_GRANT") or None if grant is None else grant
        read = self._as_agent if token is None else self._under_grant
        noted = NotHeld()
        with closing(read(target, token or "", with_discarded=with_discarded)) as memories:
            written = write(target, memories, noted)
            if to is None:
                for piece in written:
                    self.stdout.write(piece.decode(), ending="")
            elif options["format"] == "markdown":
                _into_folder(Path(to), written)
            else:
                _into_file(Path(to), written)
        for warning in noted.warnings():
            self.say(f"warning: {warning}")
        return None

    def _as_agent(self, agent: Agent, _: str, *, with_discarded: bool) -> Generator[Read, None, None]:
        if not is_key_of(agent, os.environ.get("PALIMPSEST_AGENT_KEY", "")):
            raise KeyRejected(
                "Memories are shown to their agent, or under a grant: set PALIMPSEST_AGENT_KEY to its valid key, or "
                "PALIMPSEST_GRANT to the token of a grant in force."
            )
        return exporting.memories(agent, with_discarded=with_discarded)

    def _under_grant(self, agent: Agent, token: str, *, with_discarded: bool) -> Generator[Read, None, None]:
        """Page by page, each recorded, as long as the grant is in force."""
        grant, person = grant_tokens.proven(agent, token)
        if grant.scope.kind not in grant_scope.OF_MEMORIES:
            raise Invalid("grant", "covers what entries of the trail did, and no memories: read it on the grant's page")
        rows = grant_scope.memories(agent, grant.scope).filter(redacted_at__isnull=True)
        if not with_discarded:
            rows = rows.filter(discarded_at__isnull=True)
        numbers = list(rows.values_list("number", flat=True))
        for start in range(0, len(numbers), granted_reads.MOST):
            page = numbers[start : start + granted_reads.MOST]
            yield from granted_reads.memories(agent, grant.number, person, page)


def _into_file(path: Path, pieces: Iterator[bytes]) -> None:
    """A file of its owner's alone, there once it is whole."""
    with _made(path) as folder:
        file = folder / "export"
        file.touch(0o600)
        with file.open("wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(out.fileno())
        os.link(file, path)  # not where something came to be meanwhile


def _into_folder(path: Path, pieces: Iterator[bytes]) -> None:
    """A folder of its owner's alone, there once it is whole: what the archive holds."""
    with _made(path) as folder, tarfile.open(fileobj=cast(IO[bytes], _Pieces(pieces)), mode="r|gz") as archive:
        (folder / "export").mkdir(0o700)
        archive.extractall(folder / "export", filter="data")
        (folder / "export").rename(path)


@contextmanager
def _made(path: Path) -> Iterator[Path]:
    """A folder beside the path, to be filled and taken away again. Raises Invalid."""
    if os.path.lexists(path):
        raise Invalid("to", "is there already: name a path where nothing is")
    try:
        folder = Path(mkdtemp(prefix=".palimpsest-", dir=path.parent))
    except OSError as failure:
        raise Invalid("to", f"cannot be made ({failure.strerror})") from None
    try:
        yield folder
    except OSError as failure:
        raise Invalid("to", f"cannot be written ({failure.strerror})") from None
    finally:
        rmtree(folder, ignore_errors=True)


class _Pieces(io.RawIOBase):
    """Bytes that come in pieces, read as a file is."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._left) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._left += piece
        taken, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return taken
