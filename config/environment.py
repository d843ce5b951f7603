"""Reads environment variables for the settings. An empty variable counts as not set.

An error names the variable and what is allowed. It never quotes the value, which may contain a secret.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from config import IN_CHECKOUT
from config.keyfiles import how_to_open, read_key_file

_TRUE = {"true", "yes", "on", "ok", "y", "1"}
_FALSE = {"false", "no", "off", "n", "0"}
_WHOLE = re.compile(r"[0-9]{1,9}")  # enough digits for every setting, and without overflows
_PRICES = re.compile(r"/".join([r"([0-9]{1,6}(?:\.[0-9]{1,6})?)"] * 3))
_DATABASES = ("sqlite", "postgres", "postgresql", "psql", "pgsql")
_DATABASE_ADVICE = "must be postgres://USER:PASSWORD@HOST:PORT/NAME (special characters %-encoded) or sqlite:///PATH"
_MAIL_ADVICE = (
    "must be smtp://USER:PASSWORD@HOST:PORT, smtp+tls://… or smtp+ssl://… (special characters %-encoded), "
    "filemail:///FOLDER or consolemail://"
)


def text(name: str, default: str = "") -> str:
    return os.environ.get(name, "").strip() or default


def data_folder() -> Path:
    """The folder for keys and data: VAR_DIR, or `var` in a checkout, or a folder of the user."""
    if named := text("VAR_DIR"):
        return Path(named)
    if IN_CHECKOUT:
        return Path(__file__).resolve().parents[1] / "var"
    return Path(text("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "palimpsest"


def switch(name: str, *, default: bool) -> bool:
    value = text(name).lower()
    if value and value not in _TRUE | _FALSE:
        raise ImproperlyConfigured(f"{name} must be true or false")
    return value in _TRUE if value else default


def whole(name: str, default: int) -> int:
    value = text(name)
    if not value:
        return default
    if not _WHOLE.fullmatch(value):
        raise ImproperlyConfigured(f"{name} must be a whole number from 0 to 999999999")
    return int(value)


def numbers(name: str, default: dict[str, int], example: str = "") -> dict[str, int]:
    """A variable with pairs of a name and a number ("ollama=2,openai=32"). With an `example`, any name is allowed."""
    found = {}
    advice = example or f"{next(iter(default))}=2; the names are {', '.join(default)}"
    for part in listed(name, []):
        what, _, value = (each.strip() for each in part.rpartition("="))
        if not _WHOLE.fullmatch(value) or not (what if example else what in default):
            raise ImproperlyConfigured(f"{name} must be numbers by name, such as {advice}")
        found[what] = int(value)
    return default | found


def prices(name: str) -> dict[str, tuple[float, float, float]]:
    """A variable with prices of models: those of a million tokens of prompts, of cached prompts, and of replies."""
    found = {}
    for part in listed(name, []):
        model, _, numbers = (each.strip() for each in part.rpartition("="))
        match = _PRICES.fullmatch(numbers)
        if not model or not match:
            raise ImproperlyConfigured(f"{name} must be PROMPT/CACHED/REPLY by model, such as openai/gpt-4.1=2/0.5/8")
        found[model] = float(match[1]), float(match[2]), float(match[3])
    return found


def url(name: str, default: str) -> str:
    """A URL without a slash at the end."""
    return _in_form(name, r"https?://[^\s/]\S*", "http://HOST:PORT or https://HOST", default).rstrip("/")


def redis(name: str) -> str:
    """The URL of a Redis server, or ""."""
    host, number = r"(\S*@)?([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?", r"(/\d*)?(\?\S*)?"
    advice = "redis://HOST:PORT/NUMBER, rediss://… or unix:///PATH"
    return _in_form(name, rf"rediss?://{host}{number}|unix://(\S*@)?/\S*", advice)


def _in_form(name: str, form: str, advice: str, default: str = "") -> str:
    value = text(name, default)
    if value and not re.fullmatch(form, value):
        raise ImproperlyConfigured(f"{name} must be {advice}")
    return value


def with_timeouts(url: str, connect: int, wait: int) -> str:
    """The URL of a Redis server, with timeouts. So no process waits forever for a server that does not answer."""
    if url.startswith("unix:"):
        return url
    return f"{url}{'&' if '?' in url else '?'}socket_connect_timeout={connect}&socket_timeout={wait}"


def email(name: str) -> dict[str, Any]:
    """Django's settings for mail. Without the variable, mail is printed to standard output."""
    url = text(name, "consolemail://")
    try:
        found: dict[str, Any] = environ.Env.email_url_config(url)
    except (ValueError, LookupError, TypeError, AttributeError, ImproperlyConfigured):
        found = {}
    if url.lower().startswith("filemail:///") and found.get("EMAIL_FILE_PATH"):  # the parser drops the slash
        found["EMAIL_FILE_PATH"] = "/" + found["EMAIL_FILE_PATH"].lstrip("/")
    is_sent = found.get("EMAIL_BACKEND", "").endswith(".smtp.EmailBackend")
    has_no_folder = url.lower().startswith("filemail:") and not found.get("EMAIL_FILE_PATH")
    if not found or found.pop("OPTIONS", None) or is_sent != bool(found.get("EMAIL_HOST")) or has_no_folder:
        raise ImproperlyConfigured(f"{name} {_MAIL_ADVICE}")
    if is_sent:
        found |= {"EMAIL_BACKEND": "memory.mail.smtp.EmailBackend", "EMAIL_FILE_PATH": ""}
    return {setting: value for setting, value in found.items() if setting.startswith("EMAIL_") and value}


def listed(name: str, default: list[str]) -> list[str]:
    return [part.strip() for part in text(name).split(",") if part.strip()] or default


def secret_key(name: str, folder: Path) -> str:
    """Django's secret key, from the variable or the key file."""
    try:
        key = text(name) or read_key_file(folder, "django")
        if 0 < len(key) < 50:
            where = name if text(name) else folder / "django"
            raise ImproperlyConfigured(f"{where} must be a random text of 50 or more characters")
        return key
    except OSError as failure:
        advice = f"({failure.strerror}): {how_to_open(folder, 'django')}, or set {name}"
        raise ImproperlyConfigured(f"{folder / 'django'} cannot be read {advice}") from None


def database(name: str, embedded: Path) -> dict[str, Any]:
    """Django's settings for the database. Creates the folder of the embedded database."""
    url = text(name)
    if not url:
        _make_folder(embedded.parent)
        url = f"sqlite:///{embedded}"
    found = _parsed(url)
    ports = filter(None, str(found.get("PORT", "")).split(","))
    if not found.get("NAME") or not all(port.isdigit() and 0 < int(port) < 2**16 for port in ports):
        raise ImproperlyConfigured(f"{name} {_DATABASE_ADVICE}")
    return found


def _parsed(url: str) -> dict[str, Any]:
    """The settings in a database URL. They are empty if the URL is invalid. The warnings of the parser contain the
    password, so this function checks the URL first."""
    kind, separator, rest = url.partition("://")
    if kind not in _DATABASES or not separator or (kind == "sqlite" and not rest.startswith(("/", ":memory:"))):
        return {}
    try:
        found: dict[str, Any] = environ.Env.db_url_config(url)
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    return found


def folder(name: str, default: Path) -> Path:
    """A folder, which may not exist yet."""
    path = Path(text(name, str(default)))
    with suppress(OSError):
        if path.is_file():
            raise ImproperlyConfigured(f"{name} must be a folder, not a file")
    return path


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as failure:
        problem = f"cannot create the folder {folder} ({failure.strerror})"
        raise ImproperlyConfigured(f"VAR_DIR: {problem}: name a folder that this user can write to") from None
