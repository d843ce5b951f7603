"""The files and commands of the guides to deploy and operate work, and migrations keep the promises of the guides."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import ProgrammingError, connection, transaction
from django.db.migrations import AddConstraint, AddField, AlterField, DeleteModel, RemoveField, RenameField, RenameModel
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.models import NOT_PROVIDED
from django.test import Client

from config import __version__
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
GUIDE = "".join((ROOT / "docs" / "how-to" / name).read_text("utf-8") for name in ("deploy.md", "operate.md"))
# The settings of the file, with those that are commented out.
SETTINGS = dict(re.findall(r"^#?([A-Z_]+)=(.*)$", (DEPLOY / "palimpsest.env").read_text("utf-8"), re.MULTILINE))
ALERTS = yaml.safe_load((DEPLOY / "alerts.yml").read_text("utf-8"))
RULES = [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]


def test_every_command_exists_and_a_shell_can_parse_the_blocks() -> None:
    named = re.findall(r"(?:-u palimpsest palimpsest|run --rm worker|manage\.py) ([a-z_]+)", GUIDE)
    assert {*named} - {*NAMES, "check", "migrate"} == set()
    for block in re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL):
        done = subprocess.run(["/bin/sh", "-n", "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stderr


def test_the_settings_pass_the_deployment_checks(service: Installation) -> None:
    own = {"DATABASE_URL": "", "REDIS_URL": "", "VAR_DIR": str(service.folder), "KEYS_DIR": f"{service.folder}/keys"}
    variables = SETTINGS | {"METRICS_TOKEN": "any"} | own
    ran = service.manage("check", "--deploy", "--fail-level", "WARNING", "--database", "default", **variables)
    assert ran.code == 0, ran.err


def test_a_shell_and_systemd_read_the_same_settings() -> None:
    """No value has quotes, spaces or characters that either of them expands."""
    assert [value for value in SETTINGS.values() if re.search(r"""[\s"'$`\\;&|<>()]""", value)] == []


@pytest.mark.parametrize("unit", ["palimpsest-web.service", "palimpsest-worker@.service"])
def test_a_unit_gives_its_processes_enough_time_to_stop(unit: str) -> None:
    text = (UNITS / unit).read_text("utf-8")
    [seconds] = re.findall(r"^TimeoutStopSec=(\d+)$", text, re.MULTILINE)
    assert int(seconds) > int(SETTINGS["STOP_SECONDS"]) + LAST_SECONDS
    assert "\nKillMode=mixed\n" in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_the_units_are_valid(tmp_path: Path) -> None:
    for unit in UNITS.glob("palimpsest-*"):
        text = unit.read_text("utf-8").replace("/opt/palimpsest/bin/palimpsest", sys.executable)
        text = text.replace("/opt/palimpsest/bin", str(Path(sys.executable).parent))
        (tmp_path / unit.name).write_text(text)
    units = [str(path).replace("@.", "@1.") for path in sorted(tmp_path.iterdir())]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_manifests_run_the_commands_of_the_units() -> None:
    """In containers and under systemd, the same programs run, with enough time to stop."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    items = yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text("utf-8"))["items"]
    pods = {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in items if "template" in each["spec"]}
    [web], [worker] = pods["palimpsest-web"]["containers"], pods["palimpsest-worker"]["containers"]
    unit = (UNITS / "palimpsest-web.service").read_text("utf-8")
    assert compose["web"]["entrypoint"] == web["command"]
    assert f"ExecStart=/opt/palimpsest/bin/{' '.join(web['command'][:-2])}\n" in unit
    assert compose["worker"]["command"] == worker["args"] == ["worker"]
    seconds = [int(compose[name]["stop_grace_period"][:-1]) for name in ("web", "worker")]
    seconds += [pod["terminationGracePeriodSeconds"] for name, pod in pods.items() if name != "palimpsest-setup"]
    assert min(seconds) > int(SETTINGS["STOP_SECONDS"]) + LAST_SECONDS
    images = {compose[name]["image"] for name in ("web", "worker", "setup")} | {web["image"], worker["image"]}
    assert images == {f"palimpsest:{__version__}"}


def test_every_metric_and_outcome_of_the_alerts_exists(db: None, settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.METRICS_TOKEN = ["testserver"], "any"
    for _ in range(2):  # the second response counts the first request
        text = Client().get("/metrics", headers={"Authorization": "Bearer any"}).content.decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    histograms = [name for name, kind in types.items() if kind == "histogram"]
    metrics = {*types, *(f"{name}_{part}" for name in histograms for part in ("bucket", "count", "sum"))}
    assert {name for rule in RULES for name in re.findall(r"palimpsest_\w+", rule)} - metrics == set()
    outcomes = re.findall(r'outcome\W+"([^"]+)"', " ".join(RULES))
    assert outcomes
    assert {name for each in outcomes for name in each.split("|")} <= {*Outcome.values}


@pytest.fixture
def service_role(db: None) -> Iterator[None]:
    """A role that owns nothing and has the permissions of the guide. The test's transaction removes it."""
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
def test_the_role_of_the_guide_is_enough_for_the_service(service_role: None) -> None:
    ada, _ = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
    steps.remember(ada, "The team meets at 09:45 on the quay", "The team always meets at 09:45 on the quay", "a boat")
    assert loop.refine(steps.fresh(ada), trigger="manual").outcome == Outcome.COMPLETED
    rollback.roll_back(steps.fresh(ada), What("session", 1), OPERATOR)
    operations.discard(steps.fresh(ada), [3], steps.ME)
    assert steps.problems(ada) == []


FORBIDDEN = (
    "DELETE FROM memory_memory",
    "DELETE FROM audit_auditentry",
    "DELETE FROM memory_agent",
    "UPDATE audit_auditentry SET at = now()",
    "UPDATE audit_change SET number = 7",
    "TRUNCATE audit_change",
    "ALTER TABLE audit_change DISABLE TRIGGER ALL",
    "DROP TRIGGER audit_change_no_update ON audit_change",
    "CREATE TABLE of_its_own (id int)",
    "CREATE TEMPORARY TABLE memory_agent (id int)",
    "CREATE FUNCTION public.of_its_own() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SET session_replication_role = replica",
    "DELETE FROM django_migrations",
)


@pytest.mark.postgresql
def test_the_role_of_the_guide_cannot_do_more(service_role: None) -> None:
    for statement in FORBIDDEN:
        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"), transaction.atomic():
            connection.cursor().execute(statement)


APPS = ("audit", "memory", "refinement")
INCOMPATIBLE = RemoveField | RenameField | RenameModel | DeleteModel | AlterField | AddConstraint

# Migrations that look incompatible, and why they are not, or that the changelog says that the service must stop.
REVIEWED = {
    (app, name): "nothing was released before it, so no installation has its tables without it"
    for app in ("audit", "memory")
    for name in ("0002_layers", "0003_stores")
} | {("refinement", "0003_dreams"): "nothing was released before it, so no installation has its tables without it"}
REVIEWED |= dict.fromkeys(
    (("memory", "0007_turns"), ("refinement", "0005_turns")), "what it removes was never released"
)


def is_compatible(operation: Operation) -> bool:
    """Whether code without this migration reads and writes as before."""
    if isinstance(operation, AddField):
        return bool(operation.field.null or operation.field.db_default is not NOT_PROVIDED)
    return not isinstance(operation, INCOMPATIBLE)


def test_every_migration_is_compatible_or_reviewed() -> None:
    graph = MigrationLoader(None).graph
    later = {node for node in graph.nodes if node[0] in APPS} - {(app, "0001_initial") for app in APPS}
    incompatible = {node for node in later if not all(map(is_compatible, graph.nodes[node].operations))}
    assert incompatible == set(REVIEWED)
