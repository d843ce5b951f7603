#!/usr/bin/env python
"""Palimpsest's command line in a checkout."""

import sys

try:
    from config.commandline.main import main
except ModuleNotFoundError as missing:
    sys.stderr.write(f"error: {missing.name} is not installed: use .venv/bin/python, which 'make demo' creates\n")
    sys.exit(2)
except KeyboardInterrupt:
    sys.stderr.write("error: interrupted\n")
    sys.exit(1)

if __name__ == "__main__":
    main()
