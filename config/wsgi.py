"""The web process. It refuses to start with silos it could not open or a trail left unguarded, and says so."""

from __future__ import annotations

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

_GIVES_UP = 3  # the exit code after which gunicorn stops, too, instead of trying again for ever


def _sound_application() -> WSGIHandler:
    made = get_wsgi_application()
    from config.checks import require_sound  # needs the apps that the line above loads

    require_sound()
    return made


try:
    application = _sound_application()
except ImproperlyConfigured as wrong:
    sys.stderr.write(f"Palimpsest does not start: {wrong}\n")
    sys.exit(_GIVES_UP)
except SystemExit as refused:
    sys.stderr.write(f"{refused}\n")
    sys.exit(_GIVES_UP)
