"""`python -m tests.deploy_check`: Django's checks with production settings, and a check for missing migrations.

It runs in processes and a folder of its own, with new keys. It does not touch the checkout.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PRODUCTION = {
    "DEBUG": "false",
    "ALLOWED_HOSTS": "memory.example.org",
    "SECURE_SSL_REDIRECT": "true",
    "SECURE_HSTS_SECONDS": "31536000",
    "SECURE_COOKIES": "true",
}
REMOVED = {"DATABASE_URL", "REDIS_URL", "SECRET_KEY", "SILO_KEYS", "AUDIT_KEY", "PEPPER_KEY", "HEADS_KEY"}
COMMANDS = (
    "create_keys",
    "migrate --verbosity 0",
    "check --deploy --fail-level WARNING --database default",
    "makemigrations --check --dry-run",
)


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        env = {name: value for name, value in os.environ.items() if name not in REMOVED}
        env |= PRODUCTION | {"VAR_DIR": folder, "KEYS_DIR": f"{folder}/keys"}
        for command in COMMANDS:
            done = subprocess.run([sys.executable, "manage.py", *command.split()], cwd=root, env=env, check=False)
            if done.returncode:
                print(f"failed: manage.py {command}", file=sys.stderr)
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
