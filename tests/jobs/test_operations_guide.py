"""The settings, units, alerts and roles that docs/how-to/operate.md gives away work with the service."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import ProgrammingError, connection, transaction
from django.test import Client

from config.pool import LAST_SECONDS
from memory.agents import lifecycle
from memory.time_machine import rollback
from memory.time_machine.rollback import What
from memory.writing import operations
from refinement import loop
from refinement.models import Outcome
from tests import steps
from tests.commands.calling import NAMES, ROOT, Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import service as service
from tests.conftest import OPERATOR

pytestmark = pytest.mark.database

DEPLOY = ROOT / "deploy"
UNITS = DEPLOY / "systemd"
GUIDE = (ROOT / "docs" / "how-to" / "operate.md").read_text("utf-8")


def settings_of(file: Path) -> dict[str, str]:
    """What a file of settings says, the lines that are ready to be used included."""
    found = re.findall(r"^#?([A-Z_]+)=(.*)$", file.read_text("utf-8"), re.MULTILINE)
    return dict(found)


SETTINGS = settings_of(UNITS / "palimpsest.env")


# The commands


def test_the_commands_of_the_trial_work(service: Installation) -> None:
    trial = re.findall(r"^\.venv/bin/python manage\.py (.+)$", GUIDE, re.MULTILINE)
    assert len(trial) == 3
    for command in trial:
        ran = service.manage(*shlex.split(command))
        assert ran.code == 0, ran.err


def test_every_command_exists() -> None:
    named = re.findall(r"(?:-u palimpsest palimpsest|manage\.py) ([a-z_]+)", GUIDE)
    assert {*named} - {*NAMES, "check", "migrate"} == set()


def test_a_shell_can_read_the_blocks() -> None:
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL):
        done = subprocess.run(["/bin/sh", "-n", "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stderr


# The files it gives away


def test_the_settings_pass_the_checks_of_a_deployment(service: Installation) -> None:
    here = {"DATABASE_URL": "", "REDIS_URL": "", "VAR_DIR": str(service.folder), "KEYS_DIR": f"{service.folder}/keys"}
    given = SETTINGS | {"METRICS_TOKEN": "any"} | here
    ran = service.manage("check", "--deploy", "--fail-level", "WARNING", "--database", "default", **given)
    assert ran.code == 0, ran.err


def test_a_shell_and_systemd_read_the_same_settings() -> None:
    """Neither sees quotes, blanks or anything to be expanded."""
    assert [value for value in SETTINGS.values() if re.search(r"""[\s"'$`\\;&|<>()]""", value)] == []


@pytest.mark.parametrize("unit", ["palimpsest-web.service", "palimpsest-worker@.service"])
def test_a_unit_leaves_its_processes_the_time_they_take(unit: str) -> None:
    written = (UNITS / unit).read_text("utf-8")
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", written, re.MULTILINE)
    assert int(seconds) > int(SETTINGS["STOP_SECONDS"]) + LAST_SECONDS
    assert "\nKillMode=mixed\n" in written


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_the_units_are_well_formed(tmp_path: Path) -> None:
    for unit in UNITS.glob("palimpsest-*"):
        here = unit.read_text("utf-8").replace("/opt/palimpsest/.venv/bin", str(Path(sys.executable).parent))
        (tmp_path / unit.name).write_text(here)
    units = [str(path).replace("@.", "@1.") for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Alerts

RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))["groups"] for rule in group["rules"]
]


@pytest.fixture
def told(db: None, settings: Any) -> str:
    settings.ALLOWED_HOSTS, settings.METRICS_TOKEN = ["testserver"], "any"
    for _ in range(2):  # the second time with the first in it
        answer = Client().get("/metrics", headers={"Authorization": "Bearer any"})
    return answer.content.decode()


def samples(told: str) -> set[str]:
    """The names a rule can ask for."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", told, re.MULTILINE))
    parts = {f"{name}{part}" for name, kind in kinds.items() if kind == "histogram" for part in _PARTS}
    return {*kinds, *parts}


_PARTS = ("_bucket", "_count", "_sum")


def test_every_figure_a_rule_asks_for_is_told(told: str) -> None:
    asked = {name for rule in RULES for name in re.findall(r"palimpsest_\w+", rule["expr"])}
    assert asked - samples(told) == set()
    outcomes = re.findall(r'outcome\W+"([^"]+)"', " ".join(rule["expr"] for rule in RULES))
    assert outcomes
    assert {name for each in outcomes for name in each.split("|")} <= {*Outcome.values}


# The roles


@pytest.fixture
def as_the_service(db: None) -> Iterator[None]:
    """Under a role that owns nothing, with the rights the guide gives; gone with the test's transaction."""
    if connection.vendor != "postgresql":
        pytest.skip("about PostgreSQL's roles")
    grants = (UNITS / "grants.sql").read_text("utf-8").replace("palimpsest", "palimpsest_tried")
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE palimpsest_tried")
        cursor.execute(re.sub(r"^(BEGIN|COMMIT);$", "", grants, flags=re.MULTILINE))
        cursor.execute("SET ROLE palimpsest_tried")
        yield
        cursor.execute("RESET ROLE")


@pytest.mark.postgresql
def test_the_role_that_owns_nothing_does_all_the_service_does(as_the_service: None) -> None:
    ada, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
    steps.remember(ada, "The team meets at 09:45 on the quay", "The team always meets at 09:45 on the quay", "a boat")
    assert loop.refine(steps.fresh(ada), trigger="manual").outcome == Outcome.COMPLETED
    rollback.roll_back(steps.fresh(ada), What.session(1), OPERATOR)
    operations.discard(steps.fresh(ada), [3], steps.ME)
    assert steps.problems(ada) == []


REFUSED = (
    "DELETE FROM memory_memory",
    "DELETE FROM audit_auditentry",
    "DELETE FROM memory_agent",
    "UPDATE audit_auditentry SET at = now()",
    "UPDATE audit_change SET number = 7",
    "TRUNCATE audit_change",
    "ALTER TABLE audit_change DISABLE TRIGGER ALL",
    "DROP TRIGGER audit_change_no_update ON audit_change",
    "CREATE TABLE of_its_own (id int)",
    "CREATE FUNCTION public.of_its_own() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SET session_replication_role = replica",
    "DELETE FROM django_migrations",
)


@pytest.mark.postgresql
def test_the_role_that_owns_nothing_is_refused_the_rest(as_the_service: None) -> None:
    for statement in REFUSED:
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"), transaction.atomic():
            connection.cursor().execute(statement)
