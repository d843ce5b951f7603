"""Install an embedder that runs on this machine."""

import importlib.util
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task
from config.commandline.progress import progress
from refinement.llm import downloads


class Command(Task):
    help = (
        "Install a model for search by meaning into EMBEDDERS_DIR. Each file must have the pinned SHA-256. You can "
        "also put a folder with model.onnx and tokenizer.json there yourself."
    )
    needs_sound_database = False

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
        install = actions.add_parser("install", help="download a model, unless it is installed")
        known = sorted(downloads.KNOWN)
        options: dict[str, Any] = {"choices": known, "help": f"one of: {', '.join(known)}"}
        install.add_argument("name", metavar="NAME", type=lambda name: name.removeprefix("local/"), **options)

    def run(self, *, name: str, **_: Any) -> None:
        folder = downloads.install(name, lambda what, total: progress(what, unit="MB", total=total))
        if importlib.util.find_spec("onnxruntime") is None:
            self.stderr.write("Local embedders need more packages: pip install 'palimpsest[local]'.")
        self.stdout.write(f"local/{name} is installed in {folder}. An agent's side sets it: PATCH /api/v1/agent.")
