"""Import memories from JSON Lines, or from files of other systems."""

from typing import Any

from django.core.management.base import CommandParser
from django.db import transaction

from audit.trail import Actor
from config.commandline import Task
from config.commandline.progress import progress
from config.wording import several
from memory.access.authentication import agent_named
from memory.transfer import importing
from memory.transfer.formats import jsonl

_FORMATS = "; ".join(f"{name}: {each.what}" for name, each in importing.IMPORTS.items())


class Command(Task):
    help = (
        "Import memories from JSON Lines: one object per line, with 'content' and optionally 'created_at' or 'origin' "
        "(ISO 8601), 'tags', 'kind', 'category', 'project'. An invalid line stops the import: nothing is stored, and "
        "the error has the line number. In other formats, parts that are not memories are left out, and a warning says "
        "why. An import never sets the constitutional mark. A warning says how many memories had this mark."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", metavar="TENANT/AGENT", help="whose memory it is, such as acme/ada")
        parser.add_argument("file", metavar="FILE", help="a file, or - for standard input; at most 256 MB from a pipe")
        parser.add_argument("--format", choices=list(importing.IMPORTS), default="jsonl", help=_FORMATS)
        project = "the project of memories that have none in the file; default: default-project"
        parser.add_argument("--project", metavar="ID", default="", help=project)
        parser.add_argument("--json", action="store_true", help='print {"imported": …, "tokens": …}')

    def run(self, *, agent: str, file: str, **options: Any) -> None:
        target = agent_named(agent)
        with jsonl.opened(file) as opened:
            found = importing.check_file(opened, options["format"], project=options["project"])
            # Print before the commit. If this fails, nothing is stored, so a second run does not store memories twice.
            with transaction.atomic():
                with progress("importing", unit="memories") as advance:
                    done = found.store(target, Actor.operator("import_memories"), advance)
                if options["json"]:
                    figures = {"imported": done.imported, "tokens": done.tokens}
                    if options["format"] != "jsonl":
                        figures |= {"constitutional": done.constitutional, "left_out": done.left_out}
                    self.result(figures)
                else:
                    memories = several(done.imported, "memory", "memories")
                    self.tell(f"imported {memories}, {several(done.tokens, 'token')}")
                self.stdout.flush()
        for warning in done.warnings():
            self.say(f"warning: {warning}")
