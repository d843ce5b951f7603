"""Create the service's keys."""

from pathlib import Path
from typing import Any

from django import db
from django.conf import settings
from django.core.management.base import CommandParser

from config.commandline import Task
from config.database import advice
from config.errors import FAILED, USAGE
from config.keyfiles import NAMES, create_key_file, prepend_key, read_key_file
from config.keyring import keyring
from memory.models import Agent

_VARIABLES = {"silo": "SILO_KEYS", "audit": "AUDIT_KEY", "pepper": "PEPPER_KEY"}  # of the keys that agents depend on


class Command(Task):
    needs_sound_database = False  # this command creates the keys that the check needs
    help = (
        "Create the keys that are missing in KEYS_DIR: Django's secret key, the key that wraps the data keys of silos, "
        "the audit trail's key, the pepper of API keys, and the key that signs audit heads. Existing keys are never "
        "replaced. Back up this folder, but not together with the database. Without these keys, no silo can be opened."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        add = (
            "add a new key-encryption key in front of the others; then run rotate_silo_keys. Running processes read "
            "the key from the file. If a process has SILO_KEYS, first add the key there and restart the process"
        )
        parser.add_argument("--add-silo-key", action="store_true", help=add)

    def run(self, *, add_silo_key: bool, **options: Any) -> None:
        folder = Path(settings.KEYS_DIR)
        if add_silo_key:
            self.require_sound_database()  # the keys must belong to this database
        if add_silo_key and settings.SILO_KEYS:
            self.fail("SILO_KEYS is set, so the silo file is not read: put a new key first in SILO_KEYS", USAGE)
        try:
            self._make(folder, add_silo_key)
        except OSError as failure:
            self.fail(f"cannot write the keys to {folder} ({failure.filename or folder}: {failure.strerror})", FAILED)

    def _make(self, folder: Path, add_silo_key: bool) -> None:
        missing = [name for name in NAMES if not read_key_file(folder, name)]
        lost = [name for name in missing if name in _VARIABLES and not getattr(settings, _VARIABLES[name])]
        if lost and self._agents_exist(lost, may_be_new=len(missing) == len(NAMES)):
            where = f"their {', '.join(lost)} key is not in {folder}, or the file is empty"
            self.fail(f"This database already has agents, and {where}. Restore the keys from the backup.", FAILED)
        for name in missing:
            if create_key_file(folder, name):
                self.say(f"made {folder / name}")
            elif not read_key_file(folder, name):  # no other process created it either
                self.fail(f"{folder / name} has no readable key: remove the file, or restore it", FAILED)
        keyring()  # raises KeysMissing if an existing key is invalid
        if add_silo_key:
            prepend_key(folder, "silo")
            keyring(again=True)
            self.say(
                "added a new silo key. If a process has SILO_KEYS in its environment, add the key there and restart "
                "the process. Other processes read the key from the file. Then run 'manage.py rotate_silo_keys'."
            )

    def _agents_exist(self, lost: list[str], *, may_be_new: bool) -> bool:
        """Return whether the database has agents. A missing table means that there are no agents. On the first run, a
        missing SQLite file means the same. If the database does not answer, the command fails."""
        try:
            return Agent._meta.db_table in db.connection.introspection.table_names() and Agent.objects.exists()
        except db.Error as error:
            has_no_file = db.connection.vendor == "sqlite" and not Path(db.connection.settings_dict["NAME"]).exists()
            if not (may_be_new and has_no_file):
                why = f"So no {', '.join(lost)} key was created: if the database has agents, new keys lock them out."
                self.fail(f"The database cannot be used: {advice(error)} {why}", FAILED)
            return False
