"""The project of an operation: from the request, the settings, the git remote or the folder (seed 004)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.models import Agent, Memory, RecordedSession
from memory.policy import settings_document, validation
from memory.policy.projects import identify, of_directory, of_remote
from memory.policy.validation import checked_project
from memory.recording import retrieval, sessions
from memory.writing import operations
from tests.api.calling import Caller
from tests.commands.calling import run
from tests.conftest import House
from tests.rules.recordings import of_category, talk
from tests.steps import ME, fresh, remember

REMOTE = "git@github.com:acme/site.git"
ALL = ("override", REMOTE, "/srv/folder")
FOUND = ("", REMOTE, "/srv/folder")
TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6"


def support(**values: Any) -> dict[str, Any]:
    return {"memory_rules": {"project_support": values}}


def test_the_order_of_suggestions() -> None:
    rows: list[tuple[tuple[str, str, str], dict[str, Any], str]] = [
        (ALL, {}, "override"),
        (FOUND, {}, "github.com/acme/site"),
        (("", "", "/srv/folder"), {}, "folder"),
        (("", "/srv/git/site.git", "/srv/folder"), {}, "folder"),
        (("", "", "/"), {}, "default-project"),
        (("", "", ""), {}, "default-project"),
        (ALL, {"project_id": "set"}, "override"),
        ((" ", REMOTE, "/srv/folder"), {"project_id": "set"}, "set"),
        (FOUND, {"project_identification_method": "directory_name"}, "folder"),
        (FOUND, {"project_identification_method": "git_remote"}, "github.com/acme/site"),
        (FOUND, {"auto_detect_projects": False}, "default-project"),
        (ALL, {"auto_detect_projects": False}, "override"),
    ]
    found = [identify(settings_document.checked(support(**rules)), *where) for where, rules, _ in rows]
    assert found == [project for _, _, project in rows]


def test_an_invalid_project_or_a_secret_is_refused() -> None:
    for project in ("../up", "a b", "x" * 101, "zażółć", TOKEN, f"acme/{TOKEN}"):
        for override, rules in ((project, {}), ("", support(project_id=project))):
            with pytest.raises(Invalid) as refused:
                identify(rules, override, "", "")
            assert ("project" in str(refused.value).lower(), TOKEN[-8:] in str(refused.value)) == (True, False)
    with pytest.raises(Invalid, match="project_id"):
        settings_document.checked(support(project_id=5))
    assert identify({}, "", "", f"/srv/{TOKEN}") == "default-project"
    for name in ("token-service", "acme/secret-santa", "550e8400-e29b-41d4-a716"):
        assert identify({}, name, "", "") == name


def test_the_id_of_a_remote() -> None:
    rows = {
        "https://github.com/acme/site.git": "github.com/acme/site",
        "https://x-access-token:ghp_abc@github.com:8443/acme/site.git": "github.com/acme/site",
        "ssh://git@github.com:2222/acme/site.git": "github.com/acme/site",
        REMOTE: "github.com/acme/site",
        "https://dev.azure.com/acme/My%20Project/_git/site": "dev.azure.com/acme/My-Project/_git/site",
        "file:///srv/git/site.git": "",
        "C:\\work\\site": "",
        "https://[::1/x": "",
        "https://github.com/../../etc": "github.com/etc",
    }
    assert {remote: of_remote(remote) for remote in rows} == rows


def test_the_id_of_a_folder() -> None:
    rows = {"/srv/site": "site", "/srv/My Site": "My-Site", "/srv/.dotfiles": "dotfiles", "": ""}
    assert {folder: of_directory(folder) for folder in rows} == rows
    assert of_directory("/srv/сайт") != of_directory("/srv/блог")
    assert of_directory("/srv/сайт").startswith("project-")


@given(st.text(max_size=200), st.text(max_size=200))
def test_every_remote_and_folder_has_a_valid_id(remote: str, directory: str) -> None:
    for found in (of_remote(remote), of_remote(f"https://{remote}"), of_directory(directory)):
        assert checked_project(found) == found
    assert identify({}, "", remote, directory)


@given(st.text("abc123!$%", min_size=1), st.text("abc123!$%", min_size=1))
def test_the_id_of_a_remote_has_no_credentials(user: str, secret: str) -> None:
    assert of_remote(f"https://{user}:{secret}@github.com/acme/site.git") == "github.com/acme/site"


def test_no_interface_accepts_a_secret_as_a_project(house: House, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    ask, memory = Caller(house.ada_key), {"content": "x", "project": TOKEN}
    line = json.dumps(memory).encode() + b"\n"
    for response in (
        ask.post("memories", memory),
        ask.post("memories/batch", {"memories": [memory]}),
        ask.post("recordings", {"prompt": "x", "requested": True, "project": TOKEN}),
    ):
        assert (response.status, response.codes, TOKEN.encode() in response.content) == (422, ["invalid"], False)
    assert TOKEN.encode() not in ask.post("import", raw=line, kind="application/x-ndjson").content
    ran = run("import_memories", "acme/ada", "-", stdin=line)
    assert (Memory.objects.count(), TOKEN in ran.out + ran.err) == (0, False)
    ran = run("rules", "settings", "acme/ada", settings_document.PROJECT_ID, TOKEN)
    assert (ran.code, TOKEN in ran.err, fresh(house.ada).rules) == (2, False, "")


def test_stored_memories_of_a_project_that_is_a_secret_stay_usable(ada: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions accepted such a project."""
    with monkeypatch.context() as earlier:
        earlier.setattr(validation, "looks_secret", lambda _: False)
        remember(ada, "tea at four", "tea at five", category="contextual", project=TOKEN)
    talk(ada, session="monday", project="site")
    RecordedSession.objects.update(project=TOKEN)
    Memory.objects.filter(category="user_interaction").update(project=TOKEN)
    assert {each.memory.number for each in retrieval.retrieve(fresh(ada), "tea", project=TOKEN).reads} == {1, 2}
    assert operations.consolidate(fresh(ada), [1, 2], "tea at four and five", ME).memories[0].project == TOKEN
    assert sessions.end_session(fresh(ada), "monday", ME) is not None
    assert [memory.project for memory in of_category(ada, "session")] == [TOKEN]
