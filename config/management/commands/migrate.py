"""Django's migrate, which puts right what the database is found wrong in, and so does not ask it first."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate


class Command(migrate.Command):
    def check(self, *args: Any, **options: Any) -> None:
        """The checks that ask no database: a missing trigger is no reason not to put it back."""
        super().check(*args, **options | {"databases": None})
