#!/usr/bin/env python
"""Django's command line for Palimpsest."""

import atexit
import gc
import os
import sys

COLLECT_EVERY = 5_000  # new objects between garbage collections; Python's 700 slows the start by a tenth


def main() -> None:
    gc.set_threshold(COLLECT_EVERY)
    atexit.register(gc.freeze)  # skips the collection at exit, which takes another fifth of the start
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
    except ImportError:
        sys.stderr.write("error: Django is not installed: use .venv/bin/python, which 'make demo' creates\n")
        sys.exit(2)
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as wrong:
        sys.stderr.write(f"error: {wrong}\n")
        sys.exit(2)
    except DatabaseError as trouble:  # Django's own commands: migrate, check
        from config.database import advice

        sys.stderr.write(f"error: The database cannot be used ({type(trouble).__name__}): {advice(trouble)}\n")
        sys.exit(2)


if __name__ == "__main__":
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115  if the caller closed it
    try:
        main()
    except KeyboardInterrupt:  # also while modules are still being imported
        sys.stderr.write("error: interrupted\n")
        sys.exit(1)
