from __future__ import annotations

import socket

import pytest
from django.conf import settings
from django.db import connection
from pytest_socket import SocketConnectBlockedError

from audit import guards
from memory.models import Agent
from tests import environment, steps


def test_keys_are_those_of_the_test_folder() -> None:
    assert settings.KEYS_DIR == environment.FOLDER / "keys"
    assert settings.SECRET_KEY


def test_the_network_beyond_this_machine_is_closed() -> None:
    with (
        socket.socket() as outside,
        pytest.warns(UserWarning, match="allowed"),
        pytest.raises(SocketConnectBlockedError),
    ):
        outside.connect(("192.0.2.1", 80))


@pytest.mark.sqlite
def test_the_database_is_a_file_in_wal_mode(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        assert cursor.fetchone() == ("wal",)
    assert str(connection.settings_dict["NAME"]).startswith(str(environment.FOLDER))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("again", [1, 2])
def test_a_transactional_test_starts_with_empty_tables_and_its_guards(ada: Agent, again: int) -> None:
    assert steps.remember(ada, "kept") == [1]
    assert Agent.objects.count() == 2
    assert guards.missing() == []


def test_both_agents_of_the_house_have_a_clean_trail(ada: Agent, bob: Agent) -> None:
    assert steps.problems(ada) == steps.problems(bob) == []
