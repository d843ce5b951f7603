"""create_agent, create_keys and create_superuser: the results, and refusals that create nothing."""

import base64
import os
import pty
import re
import select
import sqlite3
import stat
import subprocess
import time
from base64 import b32decode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connections
from django_otp.oath import TOTP

from audit.models import AuditEntry
from config.keyfiles import NAMES, new_key
from memory.access import authentication
from memory.models import Agent, AgentKey, Tenant
from tests import steps
from tests.commands.calling import MANAGE, ROOT, Installation, Ran, failed, run
from tests.conftest import House


def create_agent(label: str = "acme/ada", *more: str, model: str = "builtin/dedupe") -> Ran:
    return run("create_agent", label, "--model", model, *more)


def test_the_key_of_an_agent_is_printed_once_as_json_and_not_stored(db: None) -> None:
    ran = create_agent()
    key = ran.json["key"]
    assert re.fullmatch(r"pal_[a-z0-9]{12}_[A-Za-z0-9_-]{43}", key)
    assert (ran.code, ran.out.lstrip()) == (0, f'{{"tenant": "acme", "agent": "ada", "key": "{key}"}}\n')
    assert authentication.agent_key(key).agent.label == "acme/ada"
    stored = repr(list(AgentKey.objects.values()) + list(AuditEntry.objects.values()))
    assert (key in ran.err, key.split("_", 2)[2] in stored) == (False, False)
    assert [e.operation for e in AuditEntry.objects.order_by("seq")] == ["agent_created", "key_issued"]
    assert steps.problems(Agent.objects.get()) == []


def test_an_existing_agent_is_refused_and_not_changed(house: House) -> None:
    before = steps.state(house.ada)
    failed(create_agent(), 1, "acme/ada already exists")
    assert steps.state(house.ada) == before
    assert AgentKey.objects.filter(agent=house.ada).count() == 1


def test_settings_of_a_new_agent_are_stored(db: None) -> None:
    create_agent("acme/ada", "--steward", "sue@acme.test", "--budget", "900", "--target", "500", "--memory-off")
    agent = Agent.objects.get()
    assert (agent.steward, agent.budget_tokens, agent.target_tokens) == ("sue@acme.test", 900, 500)
    assert agent.memory_enabled is False


def test_a_bad_label_model_or_setting_is_a_usage_error_and_creates_nothing(db: None) -> None:
    labels = ["acme", "/ada", "", "Acme/ada", "acme/a da", "acme/a/b", "acme/a-", "acme/ädа", "acme/a\n", "../x"]
    for label in (*labels, "acme/" + "x" * 65):
        failed(create_agent(label), 2, "error:")
    for model in ("openai", "/x", "", "palm/x"):
        failed(create_agent(model=model), 2, "error:")
    for model in ("builtin/nope", "openai/a\x1b[2J", " openai/gpt", "openai/" + "x" * 194):
        failed(create_agent(model=model), 2, "error: model:")
    settings = [("steward", "not-an-address"), ("target", "9000"), *(("budget", n) for n in ("many", "0", str(2**31)))]
    for option, value in settings:
        failed(create_agent("acme/ada", f"--{option}", value), 2, option)
    assert not Tenant.objects.exists()
    assert create_agent(f"{'t' * 64}/{'a' * 64}").code == 0


def test_the_target_follows_a_smaller_budget(db: None) -> None:
    for number, (budget, target) in enumerate([(100, 63), (1, 1), (2_147_483_647, 5_000)]):
        assert create_agent(f"acme/ada{number}", "--budget", str(budget)).code == 0
        assert Agent.objects.get(slug=f"ada{number}").target_tokens == target


@pytest.fixture
def folder(db: None, settings: Any, tmp_path: Path) -> Path:
    settings.KEYS_DIR = tmp_path / "var" / "keys"
    return Path(settings.KEYS_DIR)


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def write_new_keys(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (folder / name).write_text(new_key())


def test_each_key_has_a_file_that_only_its_owner_can_read(folder: Path) -> None:
    ran = run("create_keys")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.splitlines() == [f"made {folder / name}" for name in NAMES]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    secrets = {name: base64.b64decode(text, validate=False) for name, text in contents(folder).items()}
    assert {name: len(secret) for name, secret in secrets.items()} == dict.fromkeys(NAMES, 32) | {"django": 48}
    assert len(set(secrets.values())) == len(NAMES)
    assert not any(text.strip() in ran.err for text in contents(folder).values())


def test_only_missing_keys_are_created(folder: Path) -> None:
    run("create_keys")
    before = contents(folder)
    ran = run("create_keys")
    assert (ran.code, ran.out, ran.err, contents(folder)) == (0, "", "", before)
    (folder / "heads").unlink()
    assert run("create_keys").err == f"made {folder / 'heads'}\n"
    after = contents(folder)
    assert after.pop("heads") != before.pop("heads")
    assert after == before


def test_a_lost_key_that_agents_need_is_named_and_not_replaced(house: House, folder: Path, settings: Any) -> None:
    for name in ("silo", "audit", "pepper"):
        write_new_keys(folder)
        (folder / name).unlink()
        failed(run("create_keys"), 1, f"their {name} key is not in")
        assert not (folder / name).exists()
    for variable in ("SILO_KEYS", "PEPPER_KEY"):
        setattr(settings, variable, base64.b64encode(bytes(32)).decode())
    (folder / "audit").unlink()
    assert "silo" not in failed(run("create_keys"), 1, "their audit key is not in").split(str(folder))[0]


def test_a_file_without_a_readable_key_is_reported_and_kept(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "silo").touch()
    failed(run("create_keys"), 1, str(folder / "silo"), "has no readable key")
    (folder / "silo").unlink()
    (folder / "pepper").write_text("c2VjcmV0")
    failed(run("create_keys"), 2, "pepper key is not 32 bytes of base64", "PEPPER_KEY")
    assert (folder / "pepper").read_text() == "c2VjcmV0"
    for name in NAMES:
        (folder / name).write_bytes(b"\xff\xfe\x00secret")
    failed(run("verify_audit", "--all"), 2, "32 bytes of base64")


def test_an_added_silo_key_precedes_the_existing_ones(folder: Path) -> None:
    run("create_keys")
    before = contents(folder)
    (folder / ".silo.new").write_text("half a k")  # left by a crash
    ran = run("create_keys", "--add-silo-key")
    assert (ran.code, ran.out, "rotate_silo_keys" in ran.err) == (0, "", True)
    after = contents(folder)
    newest, *older = after.pop("silo").split()
    assert older == before.pop("silo").split()
    assert newest not in older
    assert after == before
    assert stat.S_IMODE((folder / "silo").stat().st_mode) == 0o600


def test_no_silo_key_is_added_to_a_file_with_other_keys_than_the_service(
    house: House, folder: Path, settings: Any
) -> None:
    write_new_keys(folder)
    failed(run("create_keys", "--add-silo-key"), 2, "not in the keyring")
    assert len((folder / "silo").read_text().split()) == 1
    (folder / "silo").unlink()
    settings.SILO_KEYS = base64.b64encode(bytes(32)).decode()
    failed(run("create_keys", "--add-silo-key"), 2, "SILO_KEYS")
    assert not (folder / "silo").exists()


def test_no_key_is_created_if_the_database_does_not_answer(folder: Path) -> None:
    down = mock.Mock(side_effect=OperationalError("connection refused"))
    with mock.patch.object(type(connections["default"]), "cursor", down):
        failed(run("create_keys"), 1, "The database cannot be used", "new keys lock them out")
    assert not folder.exists()


def test_keys_are_created_if_there_is_no_database_yet(tmp_path: Path) -> None:
    ran = Installation(tmp_path).manage("create_keys", DATABASE_URL=f"sqlite:///{tmp_path}/later/db.sqlite3")
    assert (ran.code, len(ran.err.splitlines())) == (0, len(NAMES))


def test_a_folder_in_place_of_a_key_file_is_reported(service: Installation) -> None:
    silo = service.folder / "keys" / "silo"
    silo.unlink()
    silo.mkdir()
    failed(service.manage("create_keys"), 1, str(silo), "Is a directory")
    failed(service.manage("verify_audit", "--all"), 2, "silo key cannot be read")


PASSWORD = "a good long passphrase"
CODE = "The six digits it shows now:"


class Terminal:
    """Waits for a prompt, then types."""

    def __init__(self, service: Installation, *arguments: str) -> None:
        self._fd, end = pty.openpty()
        self.output = ""
        command = [*MANAGE, "create_superuser", *arguments]
        streams: Any = {"stdin": end, "stdout": end, "stderr": end}
        self.process = subprocess.Popen(command, cwd=ROOT, env=service.environment, start_new_session=True, **streams)
        os.close(end)

    def wait_for(self, text: str, seconds: float = 40) -> None:
        until = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < until, self.output
            if select.select([self._fd], [], [], 0.5)[0]:
                try:
                    self.output += os.read(self._fd, 65_536).decode("utf-8", "replace")
                except OSError:
                    assert text in self.output, self.output

    def answer(self, prompt: str, text: str) -> None:
        self.wait_for(prompt)
        self.output = self.output.partition(prompt)[2]
        os.write(self._fd, text.encode() + b"\n")

    def exit_code(self) -> int:
        code = self.process.wait(40)
        os.close(self._fd)
        return code


def emails(service: Installation) -> list[str]:
    [database] = service.folder.rglob("*.sqlite3")
    with closing(sqlite3.connect(database)) as client:
        return [email for (email,) in client.execute("SELECT email FROM memory_person")]


@pytest.fixture
def terminal(service: Installation) -> Callable[..., Terminal]:
    return lambda *arguments: Terminal(service, *arguments)


def test_a_superuser_sets_a_password_and_a_second_factor(terminal: Any, service: Installation) -> None:
    person = terminal("Root@Acme.test")
    person.answer("Password", "short")
    person.answer("Once more:", "short")
    person.wait_for("too short")
    person.answer("Password", PASSWORD)
    person.answer("Once more:", "another thing")
    person.answer("Password", PASSWORD)
    person.answer("Once more:", PASSWORD)
    person.wait_for(CODE)
    assert "otpauth://totp/Palimpsest%3Aroot%40acme.test?secret=" in person.output
    assert "█" in person.output or "▀" in person.output, "there is a QR code"
    [secret] = re.findall(r"secret=([A-Z2-7]+)", person.output)
    person.answer(CODE, f"{TOTP(b32decode(secret)).token():06d}")
    person.wait_for("root@acme.test can sign in at /admin/ now.")
    assert (person.exit_code(), emails(service)) == (0, ["root@acme.test"])


def test_after_three_wrong_codes_nobody_is_created(terminal: Any, service: Installation) -> None:
    person = terminal("root@acme.test")
    person.answer("Password", PASSWORD)
    person.answer("Once more:", PASSWORD)
    for _ in range(3):
        person.answer(CODE, "000000")
    person.wait_for("Nothing was changed.")
    assert (person.exit_code(), emails(service)) == (2, [])


def test_without_a_terminal_or_with_djangos_command_nobody_is_created(service: Installation) -> None:
    failed(service.manage("create_superuser", "root@acme.test"), 2, "needs a terminal")
    ran = service.manage("createsuperuser", "--noinput", "--email", "root@acme.test")
    error = failed(ran, 2)
    assert error == "error: use 'manage.py create_superuser EMAIL', which also sets up a second factor"
    assert emails(service) == []
