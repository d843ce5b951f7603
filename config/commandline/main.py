"""The command line: the program `palimpsest` of an installed wheel, and `manage.py` of a checkout."""

import atexit
import gc
import os
import re
import shutil
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.core.management import ManagementUtility, get_commands, load_command_class
from django.db import DatabaseError

from config import PROGRAM, __version__
from config.database import advice
from config.environment import data_folder

COLLECT_EVERY = 5_000  # new objects between garbage collections; Python's 700 slows the start by a tenth
APPS = {"audit", "config", "memory", "refinement"}
REPLACED = {"createsuperuser", "memory_rules"}  # by newer commands
COMPLETION = Path(__file__).with_name("completion.sh")
ALSO = f"""
'{PROGRAM} completion bash' prints a script for the completion of commands and options. 'zsh' works, too.
'{PROGRAM} help --commands' also lists Django's commands."""


class Utility(ManagementUtility):
    """Django's command line. `help` lists only Palimpsest's own commands, each with the first words of its help."""

    def main_help_text(self, commands_only: bool = False) -> str:
        if commands_only:
            return super().main_help_text(commands_only)
        lines = [f"Palimpsest {__version__}. '{PROGRAM} COMMAND --help' explains a command.", ""]
        for name, app in sorted(get_commands().items()):
            if app in APPS and name not in REPLACED:
                purpose = re.split(r"[.,:] | \(", load_command_class(str(app), name).help)[0]
                lines.append(f"  {name:<18} {purpose.rstrip('.')}")
        return "\n".join([*lines, ALSO])


def main() -> None:
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115  if the caller closed it
    gc.set_threshold(COLLECT_EVERY)
    atexit.register(gc.freeze)  # skips the collection at exit, which takes another fifth of the start
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"  # not those of another project in the same terminal
    try:
        _run(sys.argv[1:])
    except KeyboardInterrupt:  # also while modules are still being imported
        _fail("interrupted", 1)
    except ImproperlyConfigured as wrong:
        _fail(str(wrong), 2)
    except DatabaseError as trouble:  # Django's own commands: migrate, check
        _fail(f"The database cannot be used ({type(trouble).__name__}): {advice(trouble)}", 2)


def _run(arguments: list[str]) -> None:
    if arguments in (["--version"], ["version"]):
        sys.stdout.write(f"{__version__}\n")
    elif arguments[:1] == ["completion"]:
        sys.stdout.write(COMPLETION.read_text("utf-8"))
    else:
        if arguments[:1] == ["demo"]:
            _use_demo_folder(is_new=arguments == ["demo"])
        Utility([PROGRAM, *arguments]).execute()


def _use_demo_folder(*, is_new: bool) -> None:
    """Give the command `demo` its own folder, keys and database. Without options, the command begins with none."""
    folder = data_folder() / "demo"
    if is_new:
        shutil.rmtree(folder, ignore_errors=True)
    os.environ |= {"VAR_DIR": str(folder), "KEYS_DIR": "", "DATABASE_URL": "", "REDIS_URL": ""}


def _fail(message: str, code: int) -> None:
    sys.stderr.write(f"error: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
