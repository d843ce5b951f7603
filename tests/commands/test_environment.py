"""Environment variables with bad values: one line that names the variable and shows no secret."""

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import environment
from tests.commands.calling import Installation, failed

BAD_DATABASES = (
    *("garbage", "mysql://u:s3cret@h/db", "postgres://u:s3cret@h:port/db", "postgres://u:s3cret@h:99999/db"),
    *("postgres://u:s3cret@h", "postgres://u:s3cret@[::1/db", "://u:s3cret@h/db", "sqlite://s3cret/db"),
)
BAD_MAIL = (
    *("s3cret", "http://u:s3cret@h", "smtp://", "smtp://u:s3cret@h:port", "smtp://u:s3cret@h:99999"),
    *("smtp://h?x=s3cret", "filemail://s3cret/path", "filemail://"),
)

# A variable, the function that reads it, and values that it refuses.
BAD: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "DATABASE_URL": (lambda name: environment.database(name, Path("none")), BAD_DATABASES),
    "REDIS_URL": (
        environment.redis,
        ("s3cret", "redis://", "redis:/s3cret", "http://s3cret", "redis://s3cret /0", "redis://h:s3cret"),
    ),
    "EMAIL_URL": (environment.email, BAD_MAIL),
    "DEBUG": (lambda name: environment.switch(name, default=False), ("maybe", "2", "tru e")),
    "LEASE_SECONDS": (lambda name: environment.whole(name, 600), ("abc", "-1", "1.5", "9" * 10, "٣")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_refused_without_its_password(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, values = BAD[name]
    for value in values:
        monkeypatch.setenv(name, value)
        with pytest.raises(ImproperlyConfigured, match=f"^{name} must be ") as caught:
            read(name)
        assert "s3cret" not in str(caught.value)


def test_a_good_address_of_a_server_is_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    databases = {
        "postgres://u:p%23w@h:5433/db": "db",
        "postgresql:///db": "db",
        "postgres://u@h1:5432,h2:5433/db": "db",
        "sqlite:////var/x.sqlite3": "/var/x.sqlite3",
        "sqlite://:memory:": ":memory:",
    }
    for url, name in databases.items():
        monkeypatch.setenv("DATABASE_URL", url)
        assert environment.database("DATABASE_URL", tmp_path / "db")["NAME"] == name
    for url in ("", "redis://u:p@h:6379/0", "rediss://h:6380/1", "unix:///run/redis?db=1"):
        monkeypatch.setenv("REDIS_URL", url)
        assert environment.redis("REDIS_URL") == url


def test_a_good_mail_server_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    tls = {"EMAIL_HOST_USER": "u@h", "EMAIL_HOST_PASSWORD": "p#w", "EMAIL_USE_TLS": True}
    servers: dict[str, tuple[str, dict[str, Any]]] = {
        "": ("django.core.mail.backends.console", {}),
        "smtp+tls://u%40h:p%23w@mail:587": ("memory.mail.smtp", {"EMAIL_HOST": "mail", "EMAIL_PORT": 587} | tls),
        "filemail:///var/mail": ("django.core.mail.backends.filebased", {"EMAIL_FILE_PATH": "/var/mail"}),
        "filemail:////var/mail": ("django.core.mail.backends.filebased", {"EMAIL_FILE_PATH": "/var/mail"}),
    }
    for url, (backend, more) in servers.items():
        monkeypatch.setenv("EMAIL_URL", url)
        expected = {"EMAIL_BACKEND": f"{backend}.EmailBackend"} | more
        assert environment.email("EMAIL_URL") == expected


def test_a_redis_address_gets_timeouts() -> None:
    limits = "socket_connect_timeout=3&socket_timeout=10"
    assert environment.with_timeouts("redis://h:6379/0", 3, 10) == f"redis://h:6379/0?{limits}"
    assert environment.with_timeouts("rediss://h?db=1", 3, 10) == f"rediss://h?db=1&{limits}"
    assert environment.with_timeouts("unix:///run/redis?db=1", 3, 10) == "unix:///run/redis?db=1"


def test_an_empty_variable_has_its_default_and_the_data_folder_is_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("X", " ")
    assert (environment.text("X", "a"), environment.whole("X", 7)) == ("a", 7)
    assert (environment.switch("X", default=True), environment.listed("X", ["b"])) == (True, ["b"])
    assert environment.database("X", tmp_path / "data" / "db")["NAME"] == str(tmp_path / "data" / "db")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


def test_every_command_reports_a_bad_variable_in_one_line(service: Installation) -> None:
    rows = [
        ("check", "DATABASE_URL", BAD_DATABASES[1]),
        ("verify_audit", "EMAIL_URL", BAD_MAIL[1]),
        ("check", "LEASE_SECONDS", "abc"),
        ("check", "SECRET_KEY", "s3cret"),
        ("check", "PUBLIC_URL", "s3cret.example"),
        ("check", "OPENAI_BASE_URL", "s3cret.example/v1"),
        ("verify_audit", "KEYS_DIR", "/dev/null"),
        ("check", "VAR_DIR", __file__),
    ]
    for command, name, value in rows:
        ran = service.manage(command, **{name: value})
        assert failed(ran, 2, name) == ran.err.strip()
        assert (ran.err.startswith("error: "), "s3cret" in ran.err) == (True, False)
    key = service.folder / "keys" / "django"
    key.write_text("short")
    failed(service.manage("check"), 2, str(key), "50 or more characters")
    key.unlink()
    key.mkdir()
    failed(service.manage("check"), 2, str(key), "SECRET_KEY")


def test_the_web_process_does_not_start_with_a_bad_variable(service: Installation) -> None:
    ran = service.execute(sys.executable, "-c", "import config.wsgi", DATABASE_URL="", MODEL_CALL_SECONDS="700")
    failed(ran, 3, "Palimpsest does not start:", "MODEL_CALL_SECONDS")
