"""Variables that make no sense: one line that names them, and nothing of a secret."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import environment
from tests.commands.calling import ROOT, Installation, failed

BAD_DATABASES = (
    "garbage",
    "mysql://u:s3cret@h/db",
    "postgres://u:s3cret@h:port/db",
    "postgres://u:s3cret@h:99999/db",
    "postgres://u:s3cret@h",
    "postgres://u:s3cret@[::1/db",
    "://u:s3cret@h/db",
    "sqlite://s3cret/db",
)


@pytest.mark.parametrize("url", BAD_DATABASES)
def test_a_bad_database_is_told_without_its_password(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(ImproperlyConfigured, match=r"^DATABASE_URL must be postgres://") as caught:
        environment.database("DATABASE_URL", tmp_path / "db")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgres://u:p%23w@h:5433/db", "db"),
        ("postgresql:///db", "db"),
        ("postgres://u@h1:5432,h2:5433/db", "db"),
        ("sqlite:////var/x.sqlite3", "/var/x.sqlite3"),
        ("sqlite://:memory:", ":memory:"),
    ],
)
def test_a_good_database_is_taken(url: str, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    assert environment.database("DATABASE_URL", tmp_path / "db")["NAME"] == name


@pytest.mark.parametrize("url", ["foo", "redis://", "redis:/h", "http://h", "h:6379", "redis://h /0", "unix://h"])
def test_a_bad_redis_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    with pytest.raises(ImproperlyConfigured, match=r"^REDIS_URL must be redis://"):
        environment.redis("REDIS_URL")


BAD_MAIL = (
    "s3cret",
    "http://u:s3cret@h",
    "smtp://",
    "smtp://u:s3cret@h:port",
    "smtp://u:s3cret@h:99999",
    "smtp://h?x=s3cret",
)


@pytest.mark.parametrize("url", BAD_MAIL)
def test_a_bad_mail_server_is_told_without_its_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMAIL_URL", url)
    with pytest.raises(ImproperlyConfigured, match=r"^EMAIL_URL must be smtp://") as caught:
        environment.email("EMAIL_URL")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}),
        (
            "smtp+tls://u%40h:p%23w@mail:587",
            {
                "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
                "EMAIL_HOST": "mail",
                "EMAIL_PORT": 587,
                "EMAIL_HOST_USER": "u@h",
                "EMAIL_HOST_PASSWORD": "p#w",
                "EMAIL_USE_TLS": True,
            },
        ),
        *(
            (
                url,
                {"EMAIL_BACKEND": "django.core.mail.backends.filebased.EmailBackend", "EMAIL_FILE_PATH": folder},
            )
            for url, folder in (
                ("filemail:///var/mail", "/var/mail"),
                ("filemail:////var/mail", "/var/mail"),
                ("filemail://relative/path", "path"),
            )
        ),
    ],
)
def test_a_good_mail_server_is_taken(url: str, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMAIL_URL", url)
    assert environment.email("EMAIL_URL") == expected


@pytest.mark.parametrize(
    ("url", "patient"),
    [
        ("redis://h:6379/0", "redis://h:6379/0?socket_connect_timeout=3&socket_timeout=10"),
        ("rediss://h?db=1", "rediss://h?db=1&socket_connect_timeout=3&socket_timeout=10"),
        ("unix:///run/redis?db=1", "unix:///run/redis?db=1"),
    ],
)
def test_nobody_waits_for_ever_for_redis(url: str, patient: str) -> None:
    assert environment.patient(url) == patient


@pytest.mark.parametrize(
    "url", ["", "redis://h", "redis://u:p@h:6379/0", "rediss://h:6380/1", "unix:///run/redis?db=1"]
)
def test_a_good_redis_is_taken_as_it_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", url)
    assert environment.redis("REDIS_URL") == url


def test_the_data_folder_is_its_owners_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    environment.database("DATABASE_URL", tmp_path / "var" / "db")
    assert stat.S_IMODE((tmp_path / "var").stat().st_mode) == 0o700


@pytest.mark.parametrize("value", ["maybe", "2", "tru e"])
def test_a_switch_is_true_or_false(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBUG", value)
    with pytest.raises(ImproperlyConfigured, match="DEBUG must be true or false"):
        environment.switch("DEBUG", default=False)


@pytest.mark.parametrize("value", ["abc", "-1", "1.5", "9" * 10, "٣"])
def test_a_number_is_whole_and_not_without_measure(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEASE_SECONDS", value)
    with pytest.raises(ImproperlyConfigured, match="LEASE_SECONDS must be a whole number"):
        environment.whole("LEASE_SECONDS", 600)


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("X", " ")
    assert environment.text("X", "a") == "a"
    assert environment.whole("X", 7) == 7
    assert environment.switch("X", default=True) is True
    assert environment.listed("X", ["b"]) == ["b"]
    assert environment.database("X", tmp_path / "data" / "db")["NAME"] == str(tmp_path / "data" / "db")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", BAD_DATABASES[1]),
        ("REDIS_URL", "s3cret"),
        ("EMAIL_URL", BAD_MAIL[1]),
        ("LEASE_SECONDS", "abc"),
        ("DEBUG", "maybe"),
        ("VAR_DIR", "/dev/null/x"),
        ("KEYS_DIR", "/dev/null"),
        ("KEYS_DIR", "/" + "x" * 300),
    ],
)
@pytest.mark.parametrize("command", ["check", "verify_audit"])
def test_every_command_tells_it_in_one_line(service: Installation, command: str, name: str, value: str) -> None:
    ran = service.manage(command, **{name: value})
    assert failed(ran, 2, name) == ran.err.strip()
    assert ran.err.startswith("error: ")
    assert "s3cret" not in ran.err


def test_a_folder_in_the_place_of_djangos_key_is_told(service: Installation) -> None:
    key = service.folder / "keys" / "django"
    key.unlink()
    key.mkdir()
    failed(service.manage("check"), 2, str(key), "SECRET_KEY")


@pytest.mark.parametrize(("name", "value"), [("LEASE_SECONDS", "abc"), ("MODEL_CALL_SECONDS", "700")])
def test_the_web_process_tells_it_and_gives_up(service: Installation, name: str, value: str) -> None:
    places = {"VAR_DIR": str(service.folder), "KEYS_DIR": str(service.folder / "keys"), name: value}
    ran = subprocess.run(
        [sys.executable, "-c", "import config.wsgi"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": "", **places},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 3
    assert ran.stderr.startswith("Palimpsest does not start:")
    assert name in ran.stderr
    assert "Traceback" not in ran.stderr
