"""Which modules may import, write, read, print and log what."""

import ast
import subprocess
import sys
from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from django.apps import apps
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


def modules(folders: dict[str, str]) -> set[str]:
    """The paths of modules, from their names by folder."""
    return {f"{folder}/{name}.py" for folder, names in folders.items() for name in names.split()}


# To add a module to one of these sets is a decision about the design.
# "planning", "knife" and "views" compute keyed digests only. "granted_reads" reads for a person under a grant.
OPENS_SILOS = modules(
    {
        "memory/agents": "prompts",
        "memory/writing": "edits operations duplicates stores",
        "memory/consent": "granted_reads redaction",
        "memory/search": "context reading cache embedding stores",
        "memory/time_machine": "trail_view rollback",
        "memory/recording": "sessions topics cleanup",
        "memory/transfer": "planning migration exporting import_jobs",
        "memory/vault": "files writer",
        "memory/api/base": "views",
        "refinement": "dreams effects gc_reports ledger gc_logs knife session",
        "refinement/management/commands": "demo",
    }
)
EXPORTS = {"memory/management/commands/export_memories.py"}
FORMATS = modules({"memory/transfer": "exporting", "memory/transfer/formats": "jsonl tree axe mem0 letta"})
REPORTS = {"refinement/management/commands/gc.py"}
RECALL = "memory/management/commands/recall.py"
RETRIEVES = {"memory/management/commands/cleanup.py", RECALL}
READS = {"refinement/api/agent.py", "memory/api/memories.py", "audit/api/trail.py", "memory/api/transfer.py"}
GRANT_READS = {"memory/admin/plain_pages/reading.py", "memory/management/commands/export_memories.py"}


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
    """The modules that import one of these names, or something below it."""
    return {
        module
        for module in MODULES
        if any(found == name or found.startswith(f"{name}.") for found in imported(module) for name in names)
    }


@cache
def calls(module: str) -> list[tuple[str, ast.Call]]:
    """(dotted name as written, node) of every call."""
    return [(ast.unparse(node.func), node) for node in ast.walk(tree(module)) if isinstance(node, ast.Call)]


def all_calls() -> Iterator[tuple[str, str, ast.Call]]:
    return ((module, name, node) for module in MODULES for name, node in calls(module))


def callers(*names: str) -> set[str]:
    """The modules that call one of these, with any qualifier."""
    return {
        module for module, called, _ in all_calls() for name in names if called == name or called.endswith(f".{name}")
    }


def test_only_listed_modules_open_silos() -> None:
    assert callers("Silo.for_agent") == OPENS_SILOS
    unwraps = importers("memory.silo.keys.unwrap") | callers("keys.unwrap")
    assert unwraps == {"memory/silo/silo.py", "memory/silo/checks.py"}
    assert {module for module, called, _ in all_calls() if called in ("Silo", "silo.Silo")} == set()


def test_only_commands_and_api_of_the_agents_side_export_content() -> None:
    exporters = callers("exporting.memories") | importers("memory.transfer.exporting.record")
    assert exporters <= EXPORTS | READS | RETRIEVES | FORMATS
    api = {"memory/api/memories.py", "refinement/api/agent.py"}
    assert callers("to_dict") == api | {"memory/transfer/exporting.py"}
    assert importers("memory.transfer.export_formats") == EXPORTS | {"memory/api/transfer.py"}
    assert importers("memory.recording.retrieval") == {RECALL, "memory/api/recording.py"}
    for module in EXPORTS | RETRIEVES:
        checks = {f"memory.management.agent_command.{name}" for name in ("agents_side", "has_agents_key")}
        assert checks & imported(module)


def test_every_api_view_that_reads_content_needs_an_agent_key() -> None:
    reading = importers(
        "memory.search.reading",
        "memory.search.context",
        "memory.time_machine.trail_view",
        "memory.transfer.exporting.record",
        "memory.silo.silo.Read",
    )
    other_uses = {"memory/consent/granted_reads.py", "memory/mail/letters.py"}  # under a grant; the earlier steward
    other_uses |= {"memory/agents/repair.py"}  # for the agent's own model
    other_uses |= {"memory/recording/retrieval.py", "memory/search/reading.py"}
    assert (reading | callers("exporting.memories")) - EXPORTS - RETRIEVES == READS | other_uses | FORMATS
    for module in READS | {"memory/api/recording.py"}:
        classes = [node for node in tree(module).body if isinstance(node, ast.ClassDef)]
        bases = {ast.unparse(base) for node in classes for base in node.bases}
        assert "AgentView" in bases
        assert not {"TenantView", "View", "APIView"} & bases, module


def test_a_person_reads_only_under_a_grant_in_force() -> None:
    for node in tree("memory/consent/granted_reads.py").body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            block = next(each for each in node.body if isinstance(each, ast.With))
            assert ast.unparse(block.items[0]) == "grants.in_force(agent, number, person) as (row, grant)", node.name
    assert importers("memory.consent.granted_reads") == GRANT_READS | REPORTS
    assert callers("granted_reads.memories", "granted_reads.entry") == GRANT_READS
    assert (callers("granted_reads.gc_report"), callers("grants.prove_token")) == (REPORTS, EXPORTS | REPORTS)


def test_models_have_no_field_for_plain_content() -> None:
    plain = {"content", "text", "body", "tags", "summary", "words", "note", "query", "prompt"}
    for app in ("memory", "audit", "refinement"):
        for model in apps.get_app_config(app).get_models():
            assert not plain & {field.name for field in model._meta.get_fields()}, model


_WRITES = ("create", "bulk_create", "get_or_create", "update_or_create", "update", "bulk_update", "delete", "save")


@pytest.mark.parametrize(
    ("model", "module"),
    [("Memory", "memory/writing/edits.py"), ("AuditEntry", "audit/trail.py"), ("Change", "audit/trail.py")],
)
def test_one_module_writes_rows_of_each_kept_model(model: str, module: str) -> None:
    """Trap: another write path that edits memory writes no audit row."""
    writers = {
        writer
        for writer, called, _ in all_calls()
        if called == model or (called.rsplit(".", 1)[-1] in _WRITES and f"{model}.objects" in called)
    }
    assert writers == {module}


# The columns that decide who can read or manage. Their rows are signed, which `queryset.update()` does not do.
AUTHORITY = {
    *("tenant", "steward", "is_steward_only", "model", "memory_path", "vault_path", "rules", "memory_enabled"),
    *("retention", "target_tokens", "discard_share_lifted_until", "role", "is_superuser", "is_active", "email"),
}


def test_no_code_updates_authority_columns_without_their_row() -> None:
    for module, called, node in all_calls():
        if called.endswith((".update", ".bulk_update")):
            named = {word.arg for word in node.keywords}
            named |= {each.value for part in node.args for each in ast.walk(part) if isinstance(each, ast.Constant)}
            if None in named and any(f"{model}.objects" in called for model in ("Agent", "Membership", "Person")):
                named = AUTHORITY  # `**values` may name any column
            if module == "memory/agents/repair.py":
                continue  # it signs the row
            is_erased = "wrapped_key=b''" in called  # nobody can read an erased silo
            assert is_erased or not AUTHORITY & named, f"{module}: {ast.unparse(node)}"


RUNS_SQL = {"memory/silo/checks.py", "refinement/monitoring/health.py"}
RUNS_SQL |= modules({"audit": "disk guards waiting bulk"})
BEGINS_EDITS = {"memory/time_machine/rollback.py", "refinement/session.py"}
BEGINS_EDITS |= modules(
    {"memory/writing": "operations duplicates stores", "memory/agents": "lifecycle repair rule_changes"}
)
BEGINS_EDITS |= modules({"memory/consent": "claims granted_reads erasure requests redaction"})


@pytest.mark.parametrize(
    ("names", "files"),
    [
        (["insert_many"], {"audit/trail.py", "memory/writing/edits.py"}),
        (["update_many"], {"memory/writing/counters.py", "memory/writing/edits.py", "memory/vault/files.py"}),
        (["trail.append"], {"memory/writing/edits.py"}),
        (["cursor.execute", "raw", "RawSQL", "extra"], RUNS_SQL),
        (["edits.begin"], BEGINS_EDITS),
    ],
)
def test_only_listed_modules_write_rows_and_sql(names: list[str], files: set[str]) -> None:
    assert callers(*names) == files


# The parts of each app that talk to the outside. Everything else is domain.
INTERFACES = ("api", "admin", "management", "monitoring", "admin_site")
ALLOWED_OF_CONFIG = {"config.errors", "config.keyring", "config.keyfiles", "config.queue", "config.wording"}
ALLOWED_OF_CONFIG |= {
    "config.at_once",
    "config.deadlines",
    "config.unreadable",
    "config",
}  # its PROGRAM, the program's name in messages


def test_the_domain_imports_only_listed_modules_of_config() -> None:
    for module in MODULES:
        if module.startswith("config/") or module.split("/")[1].removesuffix(".py") in INTERFACES:
            continue
        own = {name.rsplit(".", 1)[0] for name in imported(module) if name.startswith("config.")}
        assert own <= ALLOWED_OF_CONFIG | ({"config.checks"} if module.endswith("/checks.py") else set()), module


def test_the_trail_never_holds_a_content_key() -> None:
    attributes = {
        node.attr
        for module in MODULES
        if module.startswith("audit/")
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value) == "keyring()"
    }
    assert attributes == {"audit", "heads"}


def test_the_network_the_console_and_tests_are_imported_only_where_listed() -> None:
    network = importers("httpx", "httpcore", "requests", "urllib.request", "socket", "smtplib")
    listening = {"config/gunicorn.py", "config/management/commands/serve.py"}  # they make no connection
    assert listening <= network
    assert {str(Path(module).parent) for module in network - listening} == {
        "memory/mail",
        "refinement/llm",
        "refinement/mcp",
        "refinement/notices",
    }
    assert {module for module, called, _ in all_calls() if called in ("print", "pprint")} == set()
    consoles = {"config/commandline/progress.py", "refinement/management/commands/demo.py"}
    assert importers("rich.console") == consoles
    assert importers("tests", "pytest", "hypothesis") == set()


NAMED_IN_LOGS = {
    *("agent", "session", "outcome", "exc_info", "operation", "seq", "number", "error", "code"),
    *("attempt", "wait_seconds", "reason", "provider", "failures", "tenant"),
}


def test_log_lines_have_a_fixed_text_and_name_only_ids_numbers_and_codes() -> None:
    for module, called, node in all_calls():
        if called.startswith(("log.", "logger.")):
            assert len(node.args) == 1, f"{module}: {ast.unparse(node)}"
            assert isinstance(node.args[0], ast.Constant), f"{module}: {ast.unparse(node)}"
        if called.startswith("log."):
            assert {str(word.arg) for word in node.keywords} <= NAMED_IN_LOGS, f"{module}: {ast.unparse(node)}"
    for module, called, _ in all_calls():
        if called.startswith("logging."):
            assert called == "logging.getLogger" or called.endswith(").setLevel"), module
    writes = {"debug", "info", "warning", "error", "exception", "critical", "log"}
    for module in importers("logging"):
        loud = [called for called, _ in calls(module) if called.rsplit(".", 1)[-1] in writes and "getLogger" in called]
        assert loud == [], module


def test_only_the_queue_module_queues_tasks_and_only_workers_run_them() -> None:
    queues = {"config/queue.py", "config/apps.py", "config/pool.py", "config/management/commands/worker.py"}
    assert (importers("django_q"), importers("pickle", "picklefield")) == (queues, set())
    for module in ("memory/tasks.py", "refinement/tasks.py"):
        dotted = module.removesuffix(".py").replace("/", ".")
        functions = [node for node in tree(module).body if isinstance(node, ast.FunctionDef)]
        assert {f"{dotted}.{function.name}" for function in functions} <= TASKS
        assert all([ast.unparse(each) for each in function.decorator_list] == ["task"] for function in functions)
        assert importers(dotted) == set()


def test_only_listed_modules_catch_every_exception() -> None:
    broad = {
        module
        for module in MODULES
        for node in ast.walk(tree(module))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    }
    assert broad <= {
        "config/deadlines.py",  # gives it to the calling thread
        "config/queue.py",  # otherwise the queue stores and logs the error's text
        "refinement/worker.py",  # sets a retry and raises again
        "config/commandline/__init__.py",  # otherwise Python prints the error's text
        "memory/search/cache.py",  # releases its lock and raises again
        "memory/vault/writer.py",  # the edit is committed: it stores the error's type and tries again
        "memory/recording/automatic.py",  # logs the type of error of one agent, and goes on with the next
        "memory/policy/tokens.py",  # any error of tiktoken's download
        "memory/git_history/repository.py",  # dulwich raises errors of any class for a damaged repository
        "refinement/mcp/api.py",  # gives it to the API's handler of errors
        "memory/api/stores/wire.py",  # also gives it to this handler
        "refinement/llm/local.py",  # ONNX Runtime and tokenizers raise errors without a common class
        "refinement/loop.py",  # closes the session and raises again
        "refinement/session.py",  # logs the type of error of one stale session, and closes the next
    }


def test_no_module_is_longer_than_400_lines() -> None:
    length = {module: (ROOT / module).read_text("utf-8").count("\n") for module in MODULES}
    assert {module: lines for module, lines in length.items() if lines > 400} == {}


def test_a_short_comment_of_a_template_ends_on_its_line() -> None:
    """Otherwise Django shows it on the page."""
    templates = (ROOT / "templates").rglob("*.html")
    lines = [line for file in templates for line in file.read_text("utf-8").splitlines()]
    assert [line for line in lines if line.count("{#") != line.count("#}")] == []


def arguments_of(parser: ArgumentParser) -> Iterator[Action]:
    """The arguments of a command and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for inner in action.choices.values():
                yield from arguments_of(inner)
        else:
            yield action


def test_every_command_and_argument_has_help() -> None:
    for name in NAMES:
        command = load_command_class(get_commands()[name], name)
        parser = command.create_parser("manage.py", name)
        assert len(command.help) > 20
        assert [action.dest for action in arguments_of(parser) if not action.help] == []


@pytest.mark.sqlite
def test_sqlite_is_set_up_for_many_writers_and_no_traces(db: None) -> None:
    """Trap (10-architecture): without IMMEDIATE 445 of 480 concurrent edits failed as locked."""
    options = settings.DATABASES["default"]["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert options["timeout"] >= 20
    expected = {"journal_mode": "wal", "synchronous": 2, "recursive_triggers": 1, "secure_delete": 1, "foreign_keys": 1}
    with connection.cursor() as cursor:
        assert {name: cursor.execute(f"PRAGMA {name}").fetchone()[0] for name in expected} == expected


def test_a_refused_request_commits_nothing() -> None:
    """Trap (70-style): ATOMIC_REQUESTS commits the partial write of a refused request."""
    assert settings.DATABASES["default"].get("ATOMIC_REQUESTS") is False
    assert settings.DATABASES["default"].get("AUTOCOMMIT", True) is True


@pytest.mark.postgresql
def test_postgresql_reads_committed_rows_and_syncs_commits(db: None) -> None:
    with connection.cursor() as cursor:
        assert cursor.execute("SHOW transaction_isolation").fetchone() == ("read committed",)
        assert cursor.execute("SHOW synchronous_commit").fetchone()[0] in ("on", "remote_apply")


def test_importing_the_domain_loads_no_model_library() -> None:
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings'; django.setup();"
        "import memory.writing.operations, memory.silo.silo, refinement.knife;"
        "sys.exit(', '.join({'tiktoken', 'requests', 'numpy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
