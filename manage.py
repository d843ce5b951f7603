#!/usr/bin/env python
"""Django's command line for Palimpsest."""

import atexit
import gc
import os
import sys

COLLECT_EVERY = 5_000  # new objects; with Python's 700 a tenth of a command's start goes into finding nothing


def main() -> None:
    gc.set_threshold(COLLECT_EVERY)
    atexit.register(gc.freeze)  # nor is everything looked through once more when it ends: another fifth of a start
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
    except ImportError:
        sys.stderr.write("error: Django is not installed: use .venv/bin/python, which 'make demo' sets up\n")
        sys.exit(2)
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as wrong:
        sys.stderr.write(f"error: {wrong}\n")
        sys.exit(2)
    except DatabaseError as trouble:  # Django's own commands: migrate, check
        advice = "is it up, is DATABASE_URL right, and can VAR_DIR be written to?"
        sys.stderr.write(f"error: The database cannot be used ({type(trouble).__name__}): {advice}\n")
        sys.exit(2)


if __name__ == "__main__":
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115  closed by the caller, and many write to it
    try:
        main()
    except KeyboardInterrupt:  # also while modules are still being imported
        sys.stderr.write("error: interrupted\n")
        sys.exit(1)
