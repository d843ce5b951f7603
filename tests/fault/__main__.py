"""`python -m tests.fault SCRIPT ARGUMENT...`: run `main` of a script of this folder in a process of its own."""

import os
import sys
from importlib import import_module

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()
import_module(f"tests.fault.{sys.argv[1]}").main(*sys.argv[2:])
