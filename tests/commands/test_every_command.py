"""Behaviour that every command shares: keys, errors, missing triggers, closed outputs (40-api, Commands)."""

import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, connections

from audit.models import AuditEntry
from config import keyfiles
from memory.models import Agent
from memory.silo import keys
from memory.silo.silo import forget_unwrapped
from tests.commands.calling import NAMES, Installation, failed, run
from tests.conftest import House
from tests.privacy import logbook
from tests.privacy.marker import unique

# Valid arguments of each command that has some.
ARGUMENTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cleanup", "export_memories", "gc", "refine", "repair_authority", "verify_audit"), ("acme/ada",)),
    "confirm_trail": ("acme/ada", "1"),
    "create_agent": ("acme/new", "--model", "builtin/dedupe"),
    "create_superuser": ("root@acme.test",),
    "create_tenant_key": ("acme",),
    "erase_agent": ("acme/ada", "--reason", "request 17", "--yes"),
    "import_memories": ("acme/ada", "-"),
    "log_run": ("acme/ada", "--task", "tea", "--result", "brewed"),
    "redact": ("acme/ada", "1", "--reason", "request 17", "--yes"),
    "rollback": ("acme/ada", "--to-entry", "0"),
    "memory_rules": ("status", "acme/ada"),
    "project": ("detect", "acme/ada"),
    "recall": ("acme/ada", "tea"),
    "remember": ("store", "acme/ada", "tea"),
    "rules": ("status", "acme/ada"),
    "vault": ("index", "acme/ada"),
}
USES_KEYS = sorted({*NAMES} - {"create_keys", "createsuperuser", "demo", "embedder"})
AGENT_FIRST = [name for name, arguments in ARGUMENTS.items() if arguments[0] == "acme/ada" and name != "gc"]
WRITES = ("create_agent", "import_memories", "log_run", "refine", "rollback", "rotate_silo_keys")
MEMORY = b'{"content": "x"}'


def run_valid(name: str, *more: str) -> Any:
    return run(name, *ARGUMENTS.get(name, ()), *more, stdin=MEMORY)


@pytest.fixture
def agent_key(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's key is in the environment."""
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)


@pytest.mark.parametrize("name", AGENT_FIRST)
def test_unknown_options_and_labels_are_usage_errors(name: str, agent_key: None) -> None:
    failed(run_valid(name, "--no-such-option"), 2, "--no-such-option")
    for label in ("acme", "acme/", "/ada", "", "/", "acme/nobody", "nobody/ada", "globex/ada"):
        failed(run(name, label, *ARGUMENTS[name][1:]), 2, "error:")


def test_a_missing_or_bad_key_is_reported_and_not_quoted(agent_key: None, settings: Any, tmp_path: Path) -> None:
    folder, settings.KEYS_DIR = settings.KEYS_DIR, tmp_path / "nothing-here"
    forget_unwrapped()
    for name in USES_KEYS:
        assert failed(run_valid(name), 2, "create_keys").count("key is missing") == 1, name
    settings.KEYS_DIR, settings.SILO_KEYS = folder, "c2VjcmV0LXNlY3JldA=="
    for name in USES_KEYS:
        assert settings.SILO_KEYS not in failed(run_valid(name), 2, "32 bytes of base64"), name


def test_with_a_wrong_silo_key_a_command_names_the_key_it_needs(agent_key: None, house: House, settings: Any) -> None:
    settings.SILO_KEYS = keyfiles.new_key()
    forget_unwrapped()
    for name in ("import_memories", "export_memories", "log_run", "refine", "rotate_silo_keys"):
        failed(run_valid(name), 2, keys.wrapping_key_id(bytes(house.ada.wrapped_key)), "backup")
    assert run("verify_audit", "--all").code == 0, "it decrypts nothing"


def raise_error(error: BaseException) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error from ValueError(str(error))

    return function


def test_a_failing_database_is_reported_without_a_traceback(agent_key: None, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = unique()
    down = raise_error(OperationalError(f"no such table, near {marker}"))
    others = {"serve", "mcp"}  # serve: the processes that it starts use the database; mcp: the client gets an error
    for name in set(USES_KEYS) - others:
        with monkeypatch.context() as patch:
            patch.setattr(type(connections["default"]), "cursor", down)
            patch.setattr(type(connections["default"]), "chunked_cursor", down)
            ran = run_valid(name)
        failed(ran, 2, "database")
        assert marker not in ran.err, name


ERRORS: dict[str, tuple[Callable[[str], BaseException], str]] = {
    "an unexpected error": (KeyError, "KeyError"),
    "a refusal of the database": (
        lambda marker: IntegrityError(f"DETAIL: Failing row contains ({marker})."),
        "The database refused a statement (IntegrityError)",
    ),
    "Ctrl-C": (KeyboardInterrupt, "interrupted"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_reported_without_its_text(name: str, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    error, words = ERRORS[name]
    marker = unique()
    monkeypatch.setattr("audit.verify.missing_guards", raise_error(error(marker)))
    with logbook.kept() as log:
        ran = run("verify_audit", "--all")
    failed(ran, 1, words)
    assert marker not in ran.err + log.text
    assert ("test_every_command.py" in log.text) == (name != "Ctrl-C")


@pytest.mark.parametrize("problem", ["trigger", "audit key"])
def test_nothing_is_written_without_a_trigger_or_the_audit_key(problem: str, house: House, settings: Any) -> None:
    words = {"trigger": ("audit_change_no_update", "migrate"), "audit key": ("audit entry", "backup")}[problem]
    if problem == "trigger":
        on = " ON audit_change" if connection.vendor == "postgresql" else ""
        with connection.cursor() as cursor:
            cursor.execute(f"DROP TRIGGER audit_change_no_update{on}")
    else:
        settings.AUDIT_KEY = keyfiles.new_key()
    before = AuditEntry.objects.count()
    for name in WRITES:
        failed(run_valid(name), 2, *words)
    assert AuditEntry.objects.count() == before


def test_migrate_restores_a_missing_trigger(service: Installation) -> None:
    with closing(sqlite3.connect(service.folder / "data" / "palimpsest.sqlite3")) as database:
        database.execute("DROP TRIGGER audit_change_no_update")
        database.commit()
    create_agent = ("create_agent", *ARGUMENTS["create_agent"])
    failed(service.manage(*create_agent), 2, "manage.py migrate")
    assert service.manage("migrate", "--verbosity", "0").code == 0
    assert service.manage(*create_agent).code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a device that is always full")
def test_a_result_that_cannot_be_written_out_is_an_error_and_nothing_is_stored(service: Installation) -> None:
    """Otherwise an agent's key would be lost, and an import would be repeated."""
    create = "$manage create_agent acme/ada --model builtin/dedupe"
    assert service.shell(f"{create} > /dev/full").code == 1
    created = service.shell(create)
    assert created.code == 0, created
    memories = service.folder / "memories"
    memories.write_text('{"content": "drinks tea"}')
    assert service.shell(f"$manage import_memories acme/ada {memories}").code == 0
    assert service.shell(f"$manage import_memories acme/ada {memories} > /dev/full").code == 1
    report = service.manage("verify_audit", "--all", "--json").json
    assert (report["valid"], report["entries"]) == (True, 3)  # the agent, its key and the first import
    ran = service.shell("$manage export_memories acme/ada > /dev/full", PALIMPSEST_AGENT_KEY=created.json["key"])
    assert (ran.code, ran.err) == (1, "error: Input or output failed (No space left on device).\n")
    ran = service.shell("$manage import_memories acme/ada - <&-")
    assert (ran.code, ran.err) == (2, "error: file: standard input is closed\n")


def test_a_closed_output_is_not_a_traceback(service: Installation) -> None:
    for closed, code, error in ((">&-", 1, "error: standard output is closed\n"), (">&- 2>&-", 1, ""), ("2>&-", 0, "")):
        ran = service.shell(f"$manage verify_audit --all {closed}")
        assert (ran.code, ran.err) == (code, error)


def test_a_name_that_was_written_by_sql_cannot_control_the_terminal(house: House) -> None:
    Agent.objects.filter(pk=house.ada.pk).update(slug="x\033[31m\nacme/eve entry 0: whole")
    out = run("verify_audit", "--all").out
    assert "\033" not in out
    assert not any(line.startswith("acme/eve") for line in out.splitlines())


def test_a_database_or_queue_that_cannot_be_used_is_reported_in_one_line(service: Installation) -> None:
    file = service.folder / "text"
    file.write_text("This is no database. " * 100)
    with socket.socket() as bound:  # it does not listen, and no other process can get its port
        bound.bind(("127.0.0.1", 0))
        down = f"postgres://u:s3cret@127.0.0.1:{bound.getsockname()[1]}/x"
        for command, url, words in (
            (["migrate"], f"sqlite:///{file}", "DATABASE_URL is right"),
            (["migrate"], down, "the server does not answer"),
            (["verify_audit", "--all"], down, "the server does not answer"),
            (["verify_audit", "--all"], "postgres://u:s3cret@unknown.invalid/x", "the host name in DATABASE_URL"),
        ):
            ran = service.manage(*command, DATABASE_URL=url)
            assert ran.code == 2
            line = ran.err.splitlines()[-1]
            assert (line.startswith("error: The database cannot be used"), words in line) == (True, True)
            assert "Traceback" not in ran.err  # Python 3.13 has a warning about Django's unused connection
            assert "s3cret" not in ran.err
