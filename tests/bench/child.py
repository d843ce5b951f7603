"""One bench on one database, in a process of its own: python -m tests.bench.child NAME [--quick]

Started by `python -m tests.bench`, which sets DATABASE_URL, KEYS_DIR and VAR_DIR.
"""

from __future__ import annotations

import importlib
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


def main() -> None:
    import django

    django.setup()
    from django.core.management import call_command
    from django.db import connection

    from tests.bench.figures import line

    call_command("migrate", verbosity=0)
    bench = importlib.import_module(f"tests.bench.{sys.argv[1]}_bench")
    for figure in bench.run(connection.vendor, quick="--quick" in sys.argv):
        print(line(figure), flush=True)


if __name__ == "__main__":
    main()
