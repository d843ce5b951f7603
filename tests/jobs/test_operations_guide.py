"""docs/operations.md and the files it gives away, held against what the service is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands, load_command_class
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
from tests.commands.calling import ROOT, Installation
from tests.commands.conftest import _made as _made
from tests.commands.conftest import service as service
from tests.conftest import OPERATOR

DOCS = ROOT / "docs"
GUIDE = (DOCS / "operations.md").read_text("utf-8")
UNITS = DOCS / "systemd"
SHELL = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)


def settings_of(file: Path) -> dict[str, str]:
    """What a file of settings says, the lines that are ready to be used included."""
    found = re.findall(r"^#?([A-Z_]+)=(.*)$", file.read_text("utf-8"), re.MULTILINE)
    return dict(found)


SETTINGS = settings_of(UNITS / "palimpsest.env")


# The guide


@pytest.mark.parametrize("block", SHELL)
def test_a_block_of_commands_is_shell(block: str) -> None:
    assert subprocess.run(["/bin/sh", "-n"], input=block.encode(), check=False).returncode == 0


def named_commands() -> set[tuple[str, str]]:
    """The commands it names, each with an option, or none."""
    calls = re.findall(r"(?:manage\.py|-u palimpsest palimpsest) ([a-z_]+)([^\n`|>;&]*)", GUIDE)
    quoted = re.findall(r"`((?:create|rotate|verify|import|export)_[a-z_]+|refine)((?: [^`]*)?)`", GUIDE)
    options = [(name, re.findall(r" (--[a-z-]+)", rest) or [""]) for name, rest in calls + quoted]
    return {(name, option) for name, each in options for option in each}


@pytest.mark.parametrize(("name", "option"), sorted(named_commands()))
def test_a_command_that_is_named_is_there(name: str, option: str) -> None:
    parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    assert option in parser.format_help()


def test_it_names_the_commands_one_needs() -> None:
    assert {"create_keys", "migrate", "audit_heads", "verify_audit", "rotate_silo_keys", "check"} <= {
        name for name, _ in named_commands()
    }


# Of other programs, of the shell, and of what stands for something
_NOT_OURS = {"PASSWORD", "RELEASE", "COMMAND", "FILE", "PALIMPSEST_DIR", "ON_ERROR_STOP"}


@pytest.mark.parametrize("name", sorted(set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", GUIDE)) - _NOT_OURS))
def test_a_variable_that_is_named_is_one(name: str) -> None:
    assert re.search(rf'"{name}"', (ROOT / "config" / "settings.py").read_text("utf-8"))


def test_each_setting_is_explained() -> None:
    [table] = re.findall(r"## Settings for production\n(.*?)\n## ", GUIDE, re.DOTALL)
    assert [name for name in SETTINGS if f"`{name}`" not in table] == []


@pytest.mark.parametrize("file", sorted(set(re.findall(r"(?:docs/systemd/|tests/jobs/)[\w@.-]+\w", GUIDE))))
def test_a_file_that_is_named_is_there(file: str) -> None:
    assert (ROOT / file).exists()


def lines_of_the_log() -> list[str]:
    [table] = re.findall(r"\| `event` \|.*?\n\n", GUIDE, re.DOTALL)
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)[1:]
    return [line.removeprefix("… ") for cell in cells for line in re.findall(r"`([^`]+)`", cell)]


@pytest.mark.parametrize("line", lines_of_the_log())
def test_a_line_of_the_log_that_is_named_is_written(line: str) -> None:
    sources = (path.read_text("utf-8") for app in _PACKAGES for path in (ROOT / app).rglob("*.py"))
    assert line in _OF_OTHERS or any(f'"{line}"' in source or f'{line}"' in source for source in sources)


_OF_OTHERS = {"HTTP 503", "readyz"}  # put together by config/logs.py
_PACKAGES = ("audit", "memory", "refinement", "config")


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
    rule for group in yaml.safe_load((DOCS / "alerts.yml").read_text("utf-8"))["groups"] for rule in group["rules"]
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_rule_is_well_formed(rule: dict[str, Any]) -> None:
    assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert all(rule["expr"].count(left) == rule["expr"].count(right) for left, right in ("()", "{}", "[]"))


def test_no_rule_is_called_as_another() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)


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


def test_the_outcomes_that_rules_ask_for_are_some() -> None:
    asked = re.findall(r'outcome\W+"([^"]+)"', " ".join(rule["expr"] for rule in RULES))
    assert {name for each in asked for name in each.split("|")} <= {*Outcome.values}
    assert asked


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
@pytest.mark.parametrize("statement", REFUSED)
def test_the_role_that_owns_nothing_is_refused_the_rest(as_the_service: None, statement: str) -> None:
    with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"), transaction.atomic():
        connection.cursor().execute(statement)
