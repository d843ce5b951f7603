"""Rules of the house that no single test of a function can hold: who may import, write, read and print what."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import get_commands, load_command_class
from django.db import connection

from config.queue import TASKS
from tests.commands.calling import NAMES

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("audit", "config", "memory", "refinement")
MODULES = sorted(
    str(file.relative_to(ROOT))
    for package in PACKAGES
    for file in (ROOT / package).rglob("*.py")
    if "migrations" not in file.parts
)

# Who may do what. A new name here is a decision to be taken, not a formality.
CRYPTOGRAPHY = {"memory/silo/silo.py", "memory/silo/keys.py", "audit/heads.py"}
WRITES_MEMORIES = {"memory/writing/edits.py"}
WRITES_THE_TRAIL = {"audit/trail.py"}
OPENS_SILOS = {
    "memory/writing/edits.py",
    "memory/writing/operations.py",
    "memory/writing/duplicates.py",
    "memory/consent/granted_reads.py",  # for a person under a grant
    "memory/search/context.py",
    "memory/time_machine/trail_view.py",
    "memory/search/reading.py",
    "memory/recording/sessions.py",  # what a session's memory is made of
    "memory/recording/topics.py",  # which memory is the topic's, and what it says
    "memory/transfer/planning.py",  # keyed digests of what is found, no reading
    "memory/transfer/migration.py",  # what was stored, read back before it counts
    "memory/recording/cleanup.py",  # tags, for the agent's side
    "memory/search/cache.py",
    "memory/transfer/exporting.py",
    "memory/vault/files.py",  # by its side's standing consent: the vault's files
    "memory/vault/writer.py",
    "refinement/effects.py",
    "refinement/gc_reports.py",
    "refinement/ledger.py",
    "refinement/gc_logs.py",
    "refinement/knife.py",  # the keyed digest of a reply's name
    "refinement/session.py",
    "memory/api/base/views.py",  # keyed digests of what a caller sent, no reading
    "refinement/management/commands/demo.py",  # of its own agent, with that agent's key
}
OPENS_DATA_KEYS = {"memory/silo/silo.py", "memory/silo/checks.py"}
EXPORTS = {"memory/management/commands/export_memories.py"}
FORMATS = {  # given by those
    "memory/transfer/exporting.py",
    *(f"memory/transfer/formats/{name}.py" for name in ("jsonl", "tree", "axe", "mem0", "letta")),
}
REPORTS = {"refinement/management/commands/gc.py"}  # what a model said of a log
RETRIEVES = {  # for the agent's key
    "memory/management/commands/cleanup.py",
    "memory/management/commands/recall.py",
}
READS = {"refinement/api/agent.py", "memory/api/memories.py", "audit/api/trail.py", "memory/api/transfer.py"}
PRINTS = {"refinement/management/commands/demo.py": "rich's Console, the demo's own page"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "services", "service", "misc", "shared", "lib", "core"}


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text("utf-8"))


@cache
def imported(module: str) -> set[str]:
    """Every name a module imports, in full."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def importers(*names: str) -> set[str]:
    """The modules that import one of these names, or something of it."""
    return {
        module
        for module in MODULES
        if any(found == name or found.startswith(f"{name}.") for found in imported(module) for name in names)
    }


@cache
def calls(module: str) -> list[tuple[str, ast.Call]]:
    """(dotted name as written, node) of every call."""
    return [(ast.unparse(node.func), node) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]


def callers(*names: str) -> set[str]:
    """The modules that call one of these, however it was qualified."""
    return {
        module
        for module in MODULES
        for called, _ in calls(module)
        if any(called == name or called.endswith(f".{name}") for name in names)
    }


# --- contents -------------------------------------------------------------------------------------------------------


def test_only_the_silo_and_exported_heads_use_cryptography() -> None:
    assert importers("cryptography") == CRYPTOGRAPHY


def test_silos_are_opened_where_an_agents_own_work_is_done_and_nowhere_else() -> None:
    assert callers("Silo.for_agent") == OPENS_SILOS
    assert importers("memory.silo.keys.unwrap") | callers("keys.unwrap") == OPENS_DATA_KEYS
    makers = {module for module in MODULES for called, _ in calls(module) if called in ("Silo", "silo.Silo")}
    assert makers == set(), "a Silo is had from Silo.for_agent alone"


def test_memories_leave_as_text_by_the_commands_of_the_agents_side_alone() -> None:
    shows = EXPORTS | READS | RETRIEVES
    assert callers("exporting.memories") | importers("memory.transfer.exporting.record") <= shows | FORMATS
    api = {"memory/api/memories.py", "memory/api/recording.py", "refinement/api/agent.py"}
    assert callers("to_dict") == api | {"memory/transfer/exporting.py"}
    assert importers("memory.transfer.export_formats") == EXPORTS | {"memory/api/transfer.py"}
    retrieves = {"memory/management/commands/recall.py", "memory/api/recording.py"}
    assert importers("memory.recording.retrieval") == retrieves
    for module in EXPORTS | RETRIEVES:
        asks = {f"memory.management.agent_command.{name}" for name in ("agents_side", "has_agents_key")}
        assert asks & imported(module)


def test_the_api_shows_content_to_the_agents_side_alone() -> None:
    """Whatever view stands beside what reads a silo is for an agent's key."""
    reading = importers(
        "memory.search.reading",
        "memory.search.context",
        "memory.time_machine.trail_view",
        "memory.transfer.exporting.record",
        "memory.silo.silo.Read",
    )
    elsewhere = {"memory/consent/granted_reads.py", "memory/mail/letters.py"}  # under a grant; whom a steward replaced
    elsewhere |= {"memory/recording/retrieval.py", "memory/search/reading.py"}
    assert (reading | callers("exporting.memories")) - EXPORTS - RETRIEVES == READS | elsewhere | FORMATS
    for module in READS | {"memory/api/recording.py"}:
        bases = [
            ast.unparse(base) for node in tree(module).body if isinstance(node, ast.ClassDef) for base in node.bases
        ]
        assert "AgentView" in bases
        assert not {"TenantView", "View", "APIView"} & set(bases), module


def test_a_person_reads_under_a_grant_in_force_alone() -> None:
    """Each function of the one module that opens a silo for people asks for the grant before anything else."""
    for node in tree("memory/consent/granted_reads.py").body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            block = next(each for each in node.body if isinstance(each, ast.With))
            assert ast.unparse(block.body[0]) == "grant = grants.in_force(row, number, person)", node.name


def test_people_read_on_the_grants_pages_and_by_its_token_alone() -> None:
    shows = {
        "memory/admin/plain_pages/reading.py",
        "memory/management/commands/export_memories.py",
    }
    assert importers("memory.consent.granted_reads") == shows | REPORTS
    reads = callers("granted_reads.memories", "granted_reads.entry")
    assert reads == shows
    assert callers("granted_reads.gc_report") == REPORTS
    assert callers("grant_tokens.proven") == EXPORTS | REPORTS


def test_models_have_no_field_for_plain_content() -> None:
    from django.apps import apps

    plain = {"content", "text", "body", "tags", "summary", "words", "note", "query", "prompt"}
    for app in ("memory", "audit", "refinement"):
        for model in apps.get_app_config(app).get_models():
            assert not plain & {field.name for field in model._meta.get_fields()}, model


# --- writing --------------------------------------------------------------------------------------------------------

_WRITES = ("create", "bulk_create", "get_or_create", "update_or_create", "update", "bulk_update", "delete", "save")


def writers(model: str) -> set[str]:
    """Modules that write rows of a model: through its manager, or an instance they made."""
    found = set()
    for module in MODULES:
        for called, _ in calls(module):
            method = called.rsplit(".", 1)[-1]
            if method in _WRITES and f"{model}.objects" in called:
                found.add(module)
            if called == model:
                found.add(module)
    return found


def test_only_the_write_path_writes_memories() -> None:
    """Trap: other roads that edited memory wrote no audit row."""
    assert writers("Memory") == WRITES_MEMORIES


def test_rows_are_written_past_the_orm_in_a_few_places() -> None:
    assert callers("insert_many") == {"audit/trail.py", "memory/writing/edits.py"}
    assert callers("update_many") == {"memory/writing/counters.py", "memory/writing/edits.py", "memory/vault/files.py"}


@pytest.mark.parametrize("model", ["AuditEntry", "Change"])
def test_only_the_trail_writes_the_trail(model: str) -> None:
    assert writers(model) == WRITES_THE_TRAIL


def test_sql_written_by_hand_stays_in_a_few_places() -> None:
    allowed = {
        "audit/disk.py",
        "audit/guards.py",
        "audit/consistency.py",
        "audit/waiting.py",
        "audit/bulk.py",
        "memory/silo/checks.py",
        "refinement/monitoring/health.py",
    }
    assert callers("cursor.execute", "raw", "RawSQL", "extra") == allowed


def test_the_trail_is_appended_to_by_the_write_path_alone() -> None:
    assert callers("trail.append") == {"memory/writing/edits.py"}


def test_edits_are_begun_by_the_verbs_and_by_what_ends_in_an_entry_of_its_own() -> None:
    assert callers("edits.begin") == {
        "memory/writing/operations.py",
        "memory/agents/lifecycle.py",  # made, given a key
        "memory/consent/grants.py",
        "memory/consent/granted_reads.py",  # read
        "memory/writing/duplicates.py",
        "memory/consent/erasure.py",
        "memory/consent/steps.py",
        "memory/consent/redaction.py",
        "memory/agents/rule_changes.py",  # changed by a person
        "memory/time_machine/rollback.py",
        "refinement/session.py",  # opened, closed
    }


# --- layers ---------------------------------------------------------------------------------------------------------

# Parts of each app that talk to the outside. Everything else is domain.
INTERFACES = ("api", "admin", "management", "monitoring", "admin_site")
ALLOWED_OF_CONFIG = {"config.errors", "config.keyring", "config.keyfiles", "config.queue", "config.wording"}


def is_interface(module: str) -> bool:
    return module.split("/")[1].removesuffix(".py") in INTERFACES


DOMAIN = [module for module in MODULES if not module.startswith("config/") and not is_interface(module)]


def test_the_domain_knows_errors_keys_the_queue_and_how_to_register_checks_of_config() -> None:
    for module in DOMAIN:
        own = {name.rsplit(".", 1)[0] for name in imported(module) if name.startswith("config.")}
        assert own <= ALLOWED_OF_CONFIG | ({"config.checks"} if module.endswith("/checks.py") else set()), module


def test_the_trail_never_holds_a_content_key() -> None:
    trail = [module for module in MODULES if module.startswith("audit/")]
    attributes = {
        node.attr
        for module in trail
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value) == "keyring()"
    }
    assert attributes == {"audit", "heads"}


def test_nothing_of_the_product_imports_its_tests() -> None:
    assert importers("tests", "pytest", "hypothesis") == set()


def test_the_network_is_reached_by_the_model_adapters_alone() -> None:
    network = importers("httpx", "httpcore", "requests", "urllib.request", "socket", "smtplib")
    listening = {"config/gunicorn.py", "config/management/commands/serve.py"}  # they connect to nobody
    assert listening <= network
    network -= listening
    assert {str(Path(module).parent) for module in network} == {"refinement/llm"}


# --- saying ---------------------------------------------------------------------------------------------------------


def test_nothing_prints() -> None:
    assert {module for module in MODULES for called, _ in calls(module) if called in ("print", "pprint")} == set()
    console = importers("rich.console") - {"config/commandline/progress.py"}
    assert console == set(PRINTS)


def test_log_lines_have_a_fixed_text_and_values_by_name() -> None:
    """Nothing is put into an event's text: content cannot ride along in it."""
    for module in MODULES:
        for called, node in calls(module):
            if called.startswith(("log.", "logger.")):
                assert len(node.args) == 1, f"{module}: {ast.unparse(node)}"
                assert isinstance(node.args[0], ast.Constant), f"{module}: {ast.unparse(node)}"


NAMED_IN_LOGS = {"agent", "session", "outcome", "exc_info", "operation", "seq", "number", "error", "code"} | {
    "attempt",
    "wait_seconds",
    "reason",
    "provider",
    "failures",
}


def test_log_lines_name_ids_numbers_and_codes_alone() -> None:
    for module in MODULES:
        for called, node in calls(module):
            if called.startswith("log."):
                assert {str(word.arg) for word in node.keywords} <= NAMED_IN_LOGS, f"{module}: {ast.unparse(node)}"


def test_tasks_are_queued_by_the_one_door_and_run_by_the_workers_alone() -> None:
    """Which lets numbers through, and nothing else; what a task function raises never leaves it."""
    doors = {"config/queue.py", "config/apps.py", "config/pool.py", "config/management/commands/worker.py"}
    assert importers("django_q") == doors
    assert importers("pickle", "picklefield") == set()
    for module in ("memory/tasks.py", "refinement/tasks.py"):
        functions = [node for node in tree(module).body if isinstance(node, ast.FunctionDef)]
        names = {f"{module.removesuffix('.py').replace('/', '.')}.{function.name}" for function in functions}
        assert names <= TASKS
        assert all([ast.unparse(each) for each in function.decorator_list] == ["task"] for function in functions)
        assert importers(module.removesuffix(".py").replace("/", ".")) == set()


def test_the_standard_librarys_logging_is_used_to_quieten_alone() -> None:
    for module in MODULES:
        for called, _ in calls(module):
            if called.startswith("logging."):
                assert called == "logging.getLogger" or called.endswith(").setLevel"), module
    said = {"debug", "info", "warning", "error", "exception", "critical", "log"}
    for module in importers("logging"):
        loud = [called for called, _ in calls(module) if called.rsplit(".", 1)[-1] in said and "getLogger" in called]
        assert loud == [], module


def test_no_error_is_swallowed_whole() -> None:
    """`except Exception` translates at an edge of the program, and each place says why."""
    broad = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    }
    assert broad <= {
        "config/queue.py",  # the last place before the queue keeps and logs it, text and all
        "refinement/worker.py",  # puts the agent off and raises again
        "config/commandline/__init__.py",  # the last place before Python prints it, text and all
        "memory/search/cache.py",  # gives its lock back and raises again
        "memory/vault/writer.py",  # the edit that it follows is committed: kept by type, and tried again
        "memory/policy/tokens.py",  # whatever tiktoken's download met
        "memory/git_history/repository.py",  # a damaged repository raises errors of any class in dulwich
        "refinement/loop.py",  # closes the session and raises again
        "refinement/session.py",  # logs by type what kept one stale session open, and closes the next
    }


# --- the house ------------------------------------------------------------------------------------------------------


def test_rooms_are_named_for_what_happens_in_them() -> None:
    """70-style: `store.py`, `consent.py`; not `utils.py`, `helpers.py`."""
    names = {part.removesuffix(".py") for module in MODULES for part in Path(module).parts}
    assert names & VAGUE == set()


def test_no_module_outgrows_a_page() -> None:
    """70-style: past 400 lines a module becomes a folder."""
    length = {module: (ROOT / module).read_text("utf-8").count("\n") for module in MODULES}
    assert {module: lines for module, lines in length.items() if lines > 400} == {}


def test_every_command_explains_itself() -> None:
    for name in NAMES:
        command = load_command_class(get_commands()[name], name)
        parser = command.create_parser("manage.py", name)
        assert len(command.help) > 20
        own = [action for action in parser._actions if action.dest not in command.base_stealth_options]
        assert all(action.help or action.metavar or action.option_strings for action in own)


def test_every_module_says_what_it_is_for() -> None:
    exempt = ("__init__.py", "apps.py", "create_keys.py")
    silent = [module for module in MODULES if not ast.get_docstring(tree(module)) and not module.endswith(exempt)]
    assert silent == []


@pytest.mark.sqlite
def test_sqlite_is_set_up_for_many_writers_and_no_traces(db: None) -> None:
    """Trap (10-architecture): without IMMEDIATE 445 of 480 concurrent edits failed as locked."""
    options = settings.DATABASES["default"]["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] >= 20
    expected = {"journal_mode": "wal", "synchronous": 2, "recursive_triggers": 1, "secure_delete": 1, "foreign_keys": 1}
    assert {name: _pragma(name) for name in expected} == expected


def _pragma(name: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA {name}")
        return cursor.fetchone()[0]


def test_transactions_belong_to_the_write_path() -> None:
    """Trap (70-style): ATOMIC_REQUESTS commits the partial write of a refused request."""
    assert settings.DATABASES["default"].get("ATOMIC_REQUESTS") is False
    assert settings.DATABASES["default"].get("AUTOCOMMIT", True) is True


@pytest.mark.postgresql
def test_postgresql_reads_what_is_committed(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        assert cursor.fetchone() == ("read committed",)
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone()[0] in ("on", "remote_apply")


def test_importing_the_domain_needs_no_model_library_and_no_network() -> None:
    """What a web process or a command does not use is not loaded: tiktoken brings requests with it."""
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings'; django.setup();"
        "import memory.writing.operations, memory.silo.silo, refinement.knife;"
        "sys.exit(', '.join({'tiktoken', 'requests', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
