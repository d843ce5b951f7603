"""Which project one is in, by what was said, the git remote, and the folder (seed 004, "Project Identification")."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.models import Agent, Memory, RecordedSession
from memory.policy import settings_document, validation
from memory.policy.projects import Surroundings, identify, of_directory, of_remote
from memory.policy.validation import checked_project
from memory.recording import retrieval, sessions
from memory.writing import operations
from tests.api.calling import Answer, Caller
from tests.commands.calling import run
from tests.conftest import House
from tests.rules.talking import of_category, talk
from tests.steps import ME, fresh, remember

EVERYTHING = Surroundings("said", "git@github.com:acme/site.git", "/srv/folder")


def test_what_goes_before_what() -> None:
    rows = [
        (EVERYTHING, "said"),
        (Surroundings("", "git@github.com:acme/site.git", "/srv/folder"), "github.com/acme/site"),
        (Surroundings("", "", "/srv/folder"), "folder"),
        (Surroundings("", "/srv/git/site.git", "/srv/folder"), "folder"),
        (Surroundings(directory="/"), "default-project"),
        (Surroundings(), "default-project"),
    ]
    assert [row for row in rows if identify(row[0]) != row[1]] == []


def test_one_that_is_set_goes_before_what_is_found() -> None:
    rules = settings_document.with_value({}, settings_document.PROJECT_ID, "set")
    assert rules == {"memory_rules": {"project_support": {"project_id": "set"}}}
    assert identify(EVERYTHING, rules) == "said"
    assert identify(Surroundings(" ", EVERYTHING.remote, EVERYTHING.directory), rules) == "set"
    with pytest.raises(Invalid, match="project_id"):
        settings_document.checked({"memory_rules": {"project_support": {"project_id": 5}}})


def test_how_it_is_found_is_a_setting() -> None:
    found = Surroundings("", "git@github.com:acme/site.git", "/srv/folder")
    rows = [
        ({"project_identification_method": "directory_name"}, "folder"),
        ({"project_identification_method": "git_remote"}, "github.com/acme/site"),
        ({"auto_detect_projects": False}, "default-project"),
    ]
    for changed, project in rows:
        rules = settings_document.checked({"memory_rules": {"project_support": changed}})
        assert (identify(found, rules), identify(EVERYTHING, rules)) == (project, "said")


def test_an_id_that_was_said_and_is_none_is_refused() -> None:
    for said in ("../up", "a b", "x" * 101, "zażółć"):
        with pytest.raises(Invalid):
            identify(Surroundings(said))
        with pytest.raises(Invalid):
            identify(Surroundings(), {"memory_rules": {"project_support": {"project_id": said}}})


TOKEN = "ghp_" + "a1B2c3D4" * 4 + "wxyz"


def test_an_id_that_is_a_secret_is_refused_and_not_repeated() -> None:
    for name in (TOKEN, f"acme/{TOKEN}"):
        with pytest.raises(Invalid) as refused:
            identify(Surroundings(name))
        assert "project" in str(refused.value)
        assert name[-8:] not in str(refused.value)
    assert identify(Surroundings(directory=f"/work/{TOKEN}")) == "default-project"
    for name in ("token-service", "acme/secret-santa", "550e8400-e29b-41d4-a716"):  # which speak of secrets
        assert identify(Surroundings(name)) == name


def test_the_id_of_a_remote() -> None:
    rows = [
        ("https://github.com/acme/site.git", "github.com/acme/site"),
        ("https://x-access-token:ghp_abc@github.com:8443/acme/site.git", "github.com/acme/site"),
        ("ssh://git@github.com:2222/acme/site.git", "github.com/acme/site"),
        ("git@github.com:acme/site.git", "github.com/acme/site"),
        ("https://dev.azure.com/acme/My%20Project/_git/site", "dev.azure.com/acme/My-Project/_git/site"),
        ("file:///srv/git/site.git", ""),
        ("C:\\work\\site", ""),
        ("https://[::1/x", ""),
        ("https://github.com/../../etc", "github.com/etc"),
    ]
    assert [row for row in rows if of_remote(row[0]) != row[1]] == []


def test_the_id_of_a_folder() -> None:
    rows = [
        ("/work/site", "site"),
        ("/work/My Site", "My-Site"),
        ("/work/.dotfiles", "dotfiles"),
        ("", ""),
    ]
    assert [row for row in rows if of_directory(row[0]) != row[1]] == []
    assert of_directory("/work/сайт") != of_directory("/work/блог")
    assert of_directory("/work/сайт").startswith("project-")


@given(st.text(max_size=200), st.text(max_size=200))
def test_an_id_that_was_found_is_one(remote: str, directory: str) -> None:
    for found in (of_remote(remote), of_remote(f"https://{remote}"), of_directory(directory)):
        assert checked_project(found) == found
    assert identify(Surroundings(remote=remote, directory=directory))


@given(st.text("abc123!$%", min_size=1), st.text("abc123!$%", min_size=1))
def test_no_credential_of_a_remote_is_in_an_id(user: str, secret: str) -> None:
    assert of_remote(f"https://{user}:{secret}@github.com/acme/site.git") == "github.com/acme/site"


# --- what looks like a secret is no project's name; what is there already is not refused


TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6"
LINE = json.dumps({"content": "x", "project": TOKEN}).encode() + b"\n"

API: dict[str, Callable[[Caller], Answer]] = {
    "memory": lambda ask: ask.post("memories", {"content": "x", "project": TOKEN}),
    "batch": lambda ask: ask.post("memories/batch", {"memories": [{"content": "x", "project": TOKEN}]}),
    "recording": lambda ask: ask.post("recordings", {"prompt": "x", "requested": True, "project": TOKEN}),
}


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]


def test_no_secret_is_a_projects_name(house: House) -> None:
    for road in API.values():
        answer = road(Caller(house.ada_key))
        assert (answer.status, answer.codes, TOKEN.encode() in answer.content) == (422, ["invalid"], False)
    answer = Caller(house.ada_key).post("import", raw=LINE, kind="application/x-ndjson")
    ran = run("import_memories", "acme/ada", "-", stdin=LINE)
    assert (Memory.objects.count(), TOKEN.encode() in answer.content, TOKEN in ran.out + ran.err) == (0, False, False)
    ran = run("rules", "settings", "acme/ada", settings_document.PROJECT_ID, TOKEN)
    assert (ran.code, TOKEN in ran.err, fresh(house.ada).rules) == (2, False, "")


def test_what_is_there_already_is_found_merged_and_ended(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of before this was asked for: two memories of a project that is called by a token, and a talk in it."""
    with monkeypatch.context() as before:
        before.setattr(validation, "looks_secret", lambda _: False)
        remember(ada, "tea at four", "tea at five", category="contextual", project=TOKEN)
    talk(ada, session="monday", project="site")
    RecordedSession.objects.update(project=TOKEN)
    Memory.objects.filter(category="user_interaction").update(project=TOKEN)
    assert {each.memory.number for each in retrieval.retrieve(fresh(ada), "tea", project=TOKEN).reads} == {1, 2}
    assert operations.consolidate(fresh(ada), [1, 2], "tea at four and five", ME).memories[0].project == TOKEN
    assert sessions.end_session(fresh(ada), "monday", ME) is not None
    assert [memory.project for memory in of_category(ada, "session")] == [TOKEN]


def test_detectors_are_loaded_for_names_alone() -> None:
    """They take a sixth of a second, and most memories name no project."""
    code = "\n".join(
        (
            "import django, sys; django.setup()",
            "from memory.policy.validation import Draft",
            "Draft('tea', tags=['a', 'topic:b']).checked()",
            "assert 'memory.masking.scanner' not in sys.modules and 'detect_secrets' not in sys.modules",
            "Draft('tea', project='site').checked()",
            "assert 'memory.masking.scanner' in sys.modules",
        )
    )
    subprocess.run([sys.executable, "-c", code], check=True)
