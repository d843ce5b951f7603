"""Make the service's keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.db import Error as DatabaseTrouble
from django.db import connection

from config.commandline import Task
from config.errors import FAILED, USAGE
from config.keyfiles import NAMES, create_key_file, prepend_key, read_key_file
from config.keyring import keyring, read_again
from memory.models import Agent


class Command(Task):
    needs_sound_database = False  # it makes what is missing
    help = (
        "Make the keys that are missing under KEYS_DIR: Django's own, the key that wraps every silo's key, the audit "
        "trail's, the pepper of API keys and the one that signs audit heads. Existing keys are never replaced. "
        "Back this folder up apart from the database: without it no silo opens."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add = (
            "put a new key-encryption key before the present ones; then run rotate_silo_keys. Running processes find "
            "it in the silo file; those with SILO_KEYS in their environment need it there, and a restart, first"
        )
        parser.add_argument("--add-silo-key", action="store_true", help=add)

    def run(self, *, add_silo_key: bool, **options: Any) -> None:
        folder = Path(settings.KEYS_DIR)
        if add_silo_key:
            self.require_sound_database()  # or the key of another installation would get a new one before it
        if add_silo_key and settings.SILO_KEYS:
            self.fail("SILO_KEYS is set, and the silo file is not read: put a new key before the others there", USAGE)
        try:
            self._make(folder, add_silo_key)
        except OSError as failure:
            where = failure.filename or folder
            self.fail(f"the keys cannot be kept in {folder} ({where}: {failure.strerror})", FAILED)

    def _make(self, folder: Path, add_silo_key: bool) -> None:
        missing = [name for name in NAMES if not read_key_file(folder, name)]
        lost = [name for name in missing if name in ("silo", "audit", "pepper") and not _given(name)]
        if lost and self._agents_exist(lost, may_be_new=len(missing) == len(NAMES)):
            self.fail(
                f"This database already has agents, and their {', '.join(lost)} key is not in {folder}. New keys would "
                "not open them. Put the keys of its backup there instead.",
                FAILED,
            )
        for name in missing:
            if create_key_file(folder, name):
                self.say(f"made {folder / name}")
            elif not read_key_file(folder, name):  # not made meanwhile by somebody else, either
                self.fail(
                    f"{folder / name} is there and holds no key that can be read: remove it, or restore it", FAILED
                )
        keyring()  # says which of those that were there is none
        if add_silo_key:
            prepend_key(folder, "silo")
            read_again()
            self.say(
                "added a new silo key; now run 'manage.py rotate_silo_keys' (first restart, with the new key, "
                "processes that have SILO_KEYS in their environment; others find it in the file)"
            )

    def _agents_exist(self, lost: list[str], *, may_be_new: bool) -> bool:
        """Nothing but a missing table, or a first run's missing SQLite file, shows that there are none."""
        try:
            return Agent._meta.db_table in connection.introspection.table_names() and Agent.objects.exists()
        except DatabaseTrouble:
            if not (may_be_new and _no_file_yet()):
                self.fail(
                    "the database cannot be asked whether agents exist, which new keys would lock out, so no "
                    f"{', '.join(lost)} key is made: bring the database up first, and see that DATABASE_URL is right",
                    FAILED,
                )
            return False


def _given(name: str) -> bool:
    variable = {"silo": "SILO_KEYS", "audit": "AUDIT_KEY", "pepper": "PEPPER_KEY"}[name]
    return bool(getattr(settings, variable))


def _no_file_yet() -> bool:
    return connection.vendor == "sqlite" and not Path(connection.settings_dict["NAME"]).exists()
