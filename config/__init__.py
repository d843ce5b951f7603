"""What all parts of the service share, and the processes that run it."""

import os
import sys
from pathlib import Path

__version__ = "1.0.0"  # pyproject.toml reads it
IN_CHECKOUT = (Path(__file__).parents[1] / "manage.py").exists()  # else: in an installed wheel
PROGRAM = "manage.py" if IN_CHECKOUT else "palimpsest"  # in messages


def typed() -> str:
    """What a person types in this folder, before the name of a command."""
    return f"{os.path.relpath(sys.executable)} {PROGRAM}" if IN_CHECKOUT else PROGRAM
