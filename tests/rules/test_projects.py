"""Which project one is in, by what was said, the git remote, and the folder (seed 004, "Project Identification")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Invalid
from memory.policy import settings_document
from memory.policy.names import checked_project
from memory.policy.projects import Surroundings, identify, of_directory, of_remote

EVERYTHING = Surroundings("said", "git@github.com:acme/site.git", "/work/folder")


def test_what_goes_before_what() -> None:
    rows = [
        (EVERYTHING, "said"),
        (Surroundings("", "git@github.com:acme/site.git", "/work/folder"), "github.com/acme/site"),
        (Surroundings("", "", "/work/folder"), "folder"),
        (Surroundings("", "/srv/git/site.git", "/work/folder"), "folder"),
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


def test_the_method_is_a_setting() -> None:
    def by(method: str) -> str:
        given = {"memory_rules": {"project_support": {"project_identification_method": method}}}
        return identify(
            Surroundings("", "git@github.com:acme/site.git", "/work/folder"), settings_document.checked(given)
        )

    assert by("directory_name") == "folder"
    assert by("git_remote") == "github.com/acme/site"


def test_it_is_not_guessed_where_that_is_switched_off() -> None:
    rules = settings_document.checked({"memory_rules": {"project_support": {"auto_detect_projects": False}}})
    assert identify(Surroundings("", "git@github.com:acme/site.git", "/work/folder"), rules) == "default-project"
    assert identify(EVERYTHING, rules) == "said"


@pytest.mark.parametrize("said", ["../up", "a b", "x" * 101, "zażółć"])
def test_an_id_that_was_said_and_is_none_is_refused(said: str) -> None:
    with pytest.raises(Invalid):
        identify(Surroundings(said))
    with pytest.raises(Invalid):
        identify(Surroundings(), {"memory_rules": {"project_support": {"project_id": said}}})


TOKEN = "ghp_" + "a1B2c3D4" * 4 + "wxyz"


@pytest.mark.parametrize("name", [TOKEN, f"acme/{TOKEN}"])
def test_an_id_that_is_a_secret_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        identify(Surroundings(name))
    assert "project" in str(refused.value)
    assert name[-8:] not in str(refused.value)


def test_an_id_that_speaks_of_secrets_is_one() -> None:
    for name in ("token-service", "acme/secret-santa", "550e8400-e29b-41d4-a716"):
        assert identify(Surroundings(name)) == name


def test_no_folder_called_by_a_secret_names_a_project() -> None:
    assert identify(Surroundings(directory=f"/work/{TOKEN}")) == "default-project"


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


def test_folders_in_other_scripts_are_told_apart() -> None:
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
