"""What people get without configuration: the list of commands, completion, folders, a new service, the demo's admin."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, build_opener

import pytest

from config import __version__, environment
from memory.silo.silo import forget_unwrapped
from tests.commands.calling import NAMES, ROOT, Installation, failed, run
from tests.commands.serving import Serve

pytestmark = pytest.mark.slow


def test_one_version_is_shown_everywhere(service: Installation) -> None:
    assert service.manage("--version").out == service.manage("refine", "--version").out == f"{__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["hatch"]["version"]["path"] == "config/__init__.py"
    assert re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)[0] == __version__


def test_help_lists_our_commands_in_a_few_words(service: Installation) -> None:
    assert service.execute(sys.executable, "manage.py").out == service.manage("help").out
    rows = dict(re.findall(r"^  (\w+) +(.+)$", service.manage("help").out, re.M))
    assert sorted(rows) == sorted({*NAMES} - {"createsuperuser", "memory_rules"})
    assert (max(map(len, rows.values())) < 80, rows["serve"]) == (True, "Run the service")
    assert "dbshell" in service.manage("help", "--commands", DJANGO_SETTINGS_MODULE="mysite.settings").out


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_and_options(service: Installation, shell: str, tmp_path: Path) -> None:
    script = service.manage("completion", shell).out
    if shutil.which(shell) is None:
        assert "CI" not in os.environ, f"{shell} is missing"
        pytest.skip(f"needs {shell}")
    program = tmp_path / "palimpsest"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT}/manage.py "$@"\n')
    program.chmod(0o755)
    (tmp_path / "script").write_text(script)
    for words, expected in (("verify_au", "verify_audit"), ("refine --dry", "--dry-run")):
        complete = f"COMP_WORDS=({program} {words}); COMP_CWORD={len(words.split())}; _palimpsest {program}"
        line = f'. {tmp_path}/script; {complete}; echo "${{COMPREPLY[@]}}"'
        ran = subprocess.run([shell, "-c", line], env=service.environment, capture_output=True, text=True, check=True)
        assert ran.stdout.split() == [expected]


def test_an_installed_wheel_keeps_data_in_a_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAR_DIR")
    assert environment.data_folder() == ROOT / "var"
    monkeypatch.setattr(environment, "IN_CHECKOUT", False)
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert environment.data_folder() == Path("/home/ann/.local/share/palimpsest")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert environment.data_folder() == Path("/data/palimpsest")
    monkeypatch.setenv("VAR_DIR", "/srv")
    assert environment.data_folder() == Path("/srv")


def test_a_message_names_the_program_that_people_run(
    db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.KEYS_DIR = tmp_path
    forget_unwrapped()
    for name in ("manage.py", "palimpsest"):
        for module in ("config.commandline", "config.keyring"):
            monkeypatch.setattr(f"{module}.PROGRAM", name)
        failed(run("verify_audit", "--all"), 2, f"'{name} create_keys'")
        assert f"and '{name} worker' separately." in " ".join(run("serve", "--help").out.split())


def test_serve_sets_up_a_new_service_in_any_folder(serve: Serve, tmp_path: Path) -> None:
    for name in ("config", "memory"):  # packages of a person's own project
        (tmp_path / "project" / name).mkdir(parents=True)
        (tmp_path / "project" / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    new = Installation(tmp_path / "new")
    new.folder.mkdir()
    serving = serve(new, tmp_path / "project")
    assert f"The data is in {new.folder}, and the keys are in {new.folder}/keys." in serving.log.read_text()
    serving.refine(serving.create_agent(), "completed")
    assert serving.stop() == 0
    (new.folder / "keys" / "silo").unlink()
    ran = new.manage("serve")
    assert (ran.code, "silo key is missing" in ran.err) == (2, True), "a service with data gets no new keys"


def test_the_superuser_of_the_demo_signs_in(serve: Serve, tmp_path: Path) -> None:
    demo = Installation(tmp_path)
    printed = dict(re.findall(r"^  (start|address|password) +(.+)$", demo.manage("demo").out, re.M))
    assert f"VAR_DIR={tmp_path}/demo " in printed["start"]
    serving = serve(Installation(tmp_path / "demo"))
    browser, site = build_opener(HTTPCookieProcessor(CookieJar())), f"http://{serving.address}/admin/"
    [token] = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.open(f"{site}login/").read().decode())
    form = {"username": printed["address"], "password": printed["password"], "csrfmiddlewaretoken": token}
    form["code"] = demo.manage("demo", "--code").out.strip()
    page = browser.open(f"{site}login/?next=/admin/", urlencode(form).encode())
    assert page.url == site
    text = page.read().decode()
    assert ("demo/ada" in text or "1 agent" in text, f"Palimpsest {__version__}</footer>" in text) == (True, True)
