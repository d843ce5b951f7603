"""What holds for every command (40-api, Commands)."""

from __future__ import annotations

import socket
import sqlite3
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

AGENT = (
    "create_agent",
    "erase_agent",
    "export_memories",
    "import_memories",
    "log_run",
    "redact",
    "refine",
    "rollback",
    "verify_audit",
)
ACTIONS = {
    "cleanup": ("acme/ada",),
    "memory_rules": ("status", "acme/ada"),
    "project": ("detect", "acme/ada"),
    "recall": ("acme/ada", "tea"),
    "remember": ("store", "acme/ada", "tea"),
    "rules": ("status", "acme/ada"),
    "vault": ("index", "acme/ada"),
}
READS_SILOS = {
    "import_memories": ("acme/ada", "-"),
    "export_memories": ("acme/ada",),
    "log_run": ("acme/ada", "--task", "tea", "--result", "brewed"),
    "refine": ("acme/ada",),
    "rotate_silo_keys": (),
}


@pytest.fixture
def agent_key(house: House, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PALIMPSEST_AGENT_KEY", house.ada_key)
    return house.ada_key


@pytest.fixture
def no_keys(house: House, settings: Any, tmp_path: Path) -> None:
    settings.KEYS_DIR = tmp_path / "nothing-here"
    forget_unwrapped()


@pytest.fixture
def another_silo_key(house: House, settings: Any) -> None:
    settings.SILO_KEYS = keyfiles.new_key()
    forget_unwrapped()


def arguments(name: str) -> tuple[str, ...]:
    more = {
        "import_memories": ("-",),
        "log_run": ("--task", "tea", "--result", "brewed"),
        "create_agent": ("--model", "builtin/dedupe"),
        "verify_audit": (),
        "redact": ("1", "--reason", "asked", "--yes"),
        "erase_agent": ("--reason", "asked", "--yes"),
        "rollback": ("--to-entry", "0"),
    }
    if name == "gc":
        return ("acme/ada",)
    if name in ACTIONS:
        return ACTIONS[name]
    if name == "create_superuser":
        return ("root@acme.test",)
    if name == "create_tenant_key":
        return ("acme",)
    return (("acme/new" if name == "create_agent" else "acme/ada"), *more.get(name, ())) if name in AGENT else ()


LABELS = ("acme", "acme/", "/ada", "", "/", "acme/nobody", "nobody/ada", "globex/ada")


@pytest.mark.parametrize("name", [n for n in AGENT if n != "create_agent"])
def test_unknown_options_and_labels_are_usage_errors(name: str, house: House, agent_key: str) -> None:
    failed(run(name, *arguments(name), "--no-such-option"), 2, "--no-such-option")
    for label in LABELS:
        failed(run(name, label, *arguments(name)[1:]), 2, "error:")


def test_gc_calls_an_unknown_option_a_failure() -> None:
    """As seed 001 has it."""
    failed(run("gc", *arguments("gc"), "--no-such-option"), 1, "--no-such-option")


OPENS_KEYS = sorted({*NAMES} - {"create_keys", "createsuperuser", "demo"})


def test_without_keys_every_command_says_how_to_make_them(no_keys: None, agent_key: str) -> None:
    for name in OPENS_KEYS:
        line = failed(run(name, *arguments(name)), 2, "create_keys")
        assert line.count("key is missing") == 1, name


def test_a_key_of_the_wrong_size_is_told_without_being_shown(house: House, settings: Any) -> None:
    settings.SILO_KEYS = "c2VjcmV0LXNlY3JldA=="
    for name in OPENS_KEYS:
        line = failed(run(name, *arguments(name)), 2, "32 bytes of base64")
        assert settings.SILO_KEYS not in line, name


@pytest.mark.parametrize("name", READS_SILOS)
def test_under_a_wrong_silo_key_a_command_says_which_key_it_needs(
    name: str, agent_key: str, house: House, another_silo_key: None
) -> None:
    ran = run(name, *READS_SILOS[name], stdin=b'{"content": "x"}')
    failed(ran, 2, keys.wrapping_key_id(bytes(house.ada.wrapped_key)), "backup")


def test_verify_audit_opens_nothing_and_so_needs_no_silo_key(house: House, another_silo_key: None) -> None:
    assert run("verify_audit", "--all").code == 0


def test_a_database_that_fails_is_told_without_a_traceback(
    house: House, agent_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = unique()

    def down(*_: Any, **__: Any) -> Any:
        raise OperationalError(f"no such table, near {marker}")

    for name in set(OPENS_KEYS) - {"serve"}:  # serve: what it starts asks
        with monkeypatch.context() as patch:
            patch.setattr(type(connections["default"]), "cursor", down)
            patch.setattr(type(connections["default"]), "chunked_cursor", down)
            ran = run(name, *arguments(name))
        failed(ran, 2, "database")
        assert marker not in ran.err, name


def test_an_unforeseen_error_is_told_by_its_place_and_never_by_its_text(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = unique()

    def breaks(*_: Any, **__: Any) -> int:
        raise KeyError(marker) from ValueError(marker)

    monkeypatch.setattr("audit.verify.missing_guards", breaks)
    with logbook.kept() as log:
        ran = run("verify_audit", "--all")
    failed(ran, 1, "KeyError")
    assert "test_every_command.py" in log.text
    assert marker not in ran.err + log.text


def test_a_database_that_refuses_is_told_by_kind_and_place(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = unique()

    def refuses(*_: Any, **__: Any) -> int:
        raise IntegrityError(f"DETAIL: Failing row contains ({marker}).")

    monkeypatch.setattr("audit.verify.missing_guards", refuses)
    ran = run("verify_audit", "--all")
    failed(ran, 1, "The database refused a statement (IntegrityError)")
    assert marker not in ran.err


def test_ctrl_c_is_no_traceback(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("audit.verify.missing_guards", interrupted)
    failed(run("verify_audit", "--all"), 1, "interrupted")


# --- a database that is not sound ---------------------------------------------------------------------------------


WRITES = {
    "create_agent": ("acme/new", "--model", "builtin/dedupe"),
    "import_memories": ("acme/ada", "-"),
    "log_run": ("acme/ada", "--task", "tea", "--result", "brewed"),
    "refine": ("acme/ada",),
    "rollback": ("acme/ada", "--to-entry", "0"),
    "rotate_silo_keys": (),
}


def test_nothing_is_written_under_an_audit_key_that_the_trail_was_not_begun_with(house: House, settings: Any) -> None:
    settings.AUDIT_KEY = keyfiles.new_key()
    before = AuditEntry.objects.count()
    for name, more in WRITES.items():
        failed(run(name, *more, stdin=b'{"content": "x"}'), 2, "audit entry", "backup")
    assert AuditEntry.objects.count() == before


def test_nothing_is_written_while_a_trigger_is_missing(house: House) -> None:
    on = " ON audit_change" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TRIGGER audit_change_no_update{on}")
    before = AuditEntry.objects.count()
    for name, more in WRITES.items():
        failed(run(name, *more, stdin=b'{"content": "x"}'), 2, "audit_change_no_update", "migrate")
    assert AuditEntry.objects.count() == before


# --- a shell's ways to lose input and output ------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is Linux's")
def test_what_cannot_be_written_out_is_told_and_not_done(service: Installation) -> None:
    """No agent is made whose key was not shown. An import that was not told would be run again."""
    making = "$manage create_agent acme/ada --model builtin/dedupe"
    full = "error: Input or output failed (No space left on device).\n"
    assert service.shell(f"{making} > /dev/full").code == 1
    made = service.shell(making)
    assert made.code == 0, made
    memories = service.folder / "memories"
    memories.write_text('{"content": "drinks tea"}')
    importing = f"$manage import_memories acme/ada {memories}"
    assert service.shell(importing).code == 0
    assert service.shell(f"{importing} > /dev/full").code == 1
    told = service.manage("verify_audit", "--all", "--json").json
    assert (told["valid"], told["entries"]) == (True, 3)  # made, keyed, and the first import
    ran = service.shell(f"PALIMPSEST_AGENT_KEY={made.json['key']} $manage export_memories acme/ada > /dev/full")
    assert (ran.code, ran.err) == (1, full)
    ran = service.shell("$manage import_memories acme/ada - <&-")
    assert (ran.code, ran.err) == (2, "error: file: standard input is closed\n")


def test_closed_outputs_are_no_fault_of_the_program(service: Installation) -> None:
    for closed in (">&-", ">&- 2>&-", "2>&-"):
        ran = service.shell(f"$manage verify_audit --all {closed}")
        assert ran.code == (0 if closed == "2>&-" else 1)
        assert ran.err == ("error: standard output is closed\n" if closed == ">&-" else "")


def test_a_name_that_sql_made_gives_a_terminal_no_orders(house: House) -> None:
    Agent.objects.filter(pk=house.ada.pk).update(slug="x\033[31m\nacme/eve entry 0: whole")
    out = run("verify_audit", "--all").out
    assert "\033" not in out
    assert not any(line.startswith("acme/eve") for line in out.splitlines())


def test_migrate_puts_a_missing_trigger_back(service: Installation) -> None:
    """Its checks do not ask for what it is there to put right."""
    with closing(sqlite3.connect(service.folder / "data" / "palimpsest.sqlite3")) as database:
        database.execute("DROP TRIGGER audit_change_no_update")
        database.commit()
    failed(service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe"), 2, "manage.py migrate")
    assert service.manage("migrate", "--verbosity", "0").code == 0
    assert service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe").code == 0


def test_a_database_that_cannot_be_used_is_told_in_a_line(service: Installation) -> None:
    file = service.folder / "text"
    file.write_text("This is no database. " * 100)
    with socket.socket() as nobody:  # bound and not listening: nobody else gets the port, and nobody answers
        nobody.bind(("127.0.0.1", 0))
        down = f"postgres://u:s3cret@127.0.0.1:{nobody.getsockname()[1]}/x"
        for command, url in (
            (["migrate"], f"sqlite:///{file}"),
            (["migrate"], down),
            (["verify_audit", "--all"], down),
        ):
            ran = service.manage(*command, DATABASE_URL=url)
            assert ran.code == 2
            assert ran.err.splitlines()[-1].startswith("error: The database cannot be used")
            assert "Traceback" not in ran.err  # Python 3.13 has a warning about Django's unused connection
            assert "s3cret" not in ran.err


def test_a_worker_without_its_redis_is_told_so(service: Installation) -> None:
    failed(service.manage("worker", REDIS_URL="redis://127.0.0.1:1/0"), 2, "error: The queue cannot be reached")
