"""Replaces Django's command. That command creates people without a second factor, who cannot sign in."""

import sys
from typing import Any, NoReturn

from django.contrib.auth.management.commands import createsuperuser

from config import PROGRAM
from config.errors import USAGE


class Command(createsuperuser.Command):
    help = f"Do not use this. Use '{PROGRAM} create_superuser EMAIL', which also sets up a second factor."
    requires_migrations_checks, requires_system_checks = False, ()

    def handle(self, *args: Any, **options: Any) -> NoReturn:
        self.stderr.write(f"error: use '{PROGRAM} create_superuser EMAIL', which also sets up a second factor")
        sys.exit(USAGE)
