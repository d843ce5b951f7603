"""The search for the marker: it finds each form in bytes, logs, rows and database files, and nothing in other bytes."""

import base64
import bz2
import gzip
import html
import json
import logging
import lzma
import os
import pickle
import sqlite3
import urllib.parse
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from django.core import signing
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from memory.models import Agent, Tenant
from tests import refining, steps
from tests.privacy import leaks, logbook
from tests.privacy.marker import MARKER, unique
from tests.privacy.plugin import left

PLANTED = unique().replace("ZEBRA", "OKAPI")  # the plugin does not look for it
TEXT = f"She mentioned {PLANTED} at 3, naïvely."


def escaped(text: str, form: str) -> bytes:
    return "".join(form.format(ord(c)) for c in text).encode()


def mixed(text: str) -> bytes:
    return "".join(c if n % 2 else f"\\u{ord(c):04x}" for n, c in enumerate(text)).encode()


FORMS: dict[str, Callable[[str], bytes]] = {
    "text": str.encode,
    "lower case": lambda t: t.lower().encode(),
    "upper case": lambda t: t.upper().encode(),
    "utf-16-le": lambda t: t.encode("utf-16-le"),
    "utf-16-be": lambda t: t.encode("utf-16-be"),
    "utf-32": lambda t: t.encode("utf-32"),
    "base64 0": lambda t: base64.b64encode(t.encode()),
    "base64 1": lambda t: base64.b64encode(b"x" + t.encode()),
    "base64 2": lambda t: base64.b64encode(b"xx" + t.encode()),
    "base64 of lower case": lambda t: base64.b64encode(t.lower().encode()),
    "base64, wrapped": lambda t: base64.encodebytes(os.urandom(50) + t.encode()),
    "base64, wrapped in json": lambda t: json.dumps(base64.encodebytes(os.urandom(50) + t.encode()).decode()).encode(),
    "base64 of utf-16": lambda t: base64.b64encode(t.encode("utf-16-le")),
    "base64url 0": lambda t: base64.urlsafe_b64encode(t.encode()).rstrip(b"="),
    "base64url 1": lambda t: base64.urlsafe_b64encode(b"\xff" + t.encode()),
    "base64url 2": lambda t: base64.urlsafe_b64encode(b"\xff\xfe" + t.encode()),
    "base64 twice": lambda t: base64.b64encode(base64.b64encode(t.encode())),
    "hex": lambda t: t.encode().hex().encode(),
    "hex, upper": lambda t: t.encode().hex().upper().encode(),
    "hex, of postgresql": lambda t: b"\\x" + t.encode().hex().encode(),
    "hex of base64": lambda t: base64.b64encode(t.encode()).hex().encode(),
    "json": lambda t: json.dumps(t).encode(),
    "json, every character": lambda t: escaped(t, "\\u{:04x}"),
    "json, upper case": lambda t: escaped(t, "\\u{:04X}"),
    "json in json": lambda t: json.dumps(escaped(t, "\\u{:04x}").decode()).encode(),
    "json, mixed": mixed,
    "python": lambda t: escaped(t, "\\x{:02x}"),
    "octal": lambda t: escaped(t, "\\{:03o}"),
    "url": lambda t: urllib.parse.quote(t).encode(),
    "url, every character": lambda t: escaped(t, "%{:02X}"),
    "url, lower case": lambda t: escaped(t, "%{:02x}"),
    "quoted-printable": lambda t: escaped(t, "={:02X}"),
    "html": lambda t: html.escape(t).encode(),
    "html, every character": lambda t: escaped(t, "&#{};"),
    "html, hex": lambda t: escaped(t, "&#x{:x};"),
    "zlib": lambda t: zlib.compress(t.encode()),
    "zlib, fast": lambda t: zlib.compress(t.encode() * 9, 1),
    "zlib, best": lambda t: zlib.compress(t.encode() * 9, 9),
    "zlib, small window": lambda t: (c := zlib.compressobj(wbits=9)).compress(t.encode()) + c.flush(),
    "zlib, incomplete": lambda t: zlib.compress(t.encode() + os.urandom(5_000))[:3_000],
    "gzip": lambda t: gzip.compress(t.encode()),
    "bz2": lambda t: bz2.compress(t.encode()),
    "xz": lambda t: lzma.compress(t.encode()),
    "lzma": lambda t: lzma.compress(t.encode(), format=lzma.FORMAT_ALONE),
    "base64 of zlib": lambda t: base64.b64encode(zlib.compress(t.encode())),
    "base64url of gzip": lambda t: base64.urlsafe_b64encode(gzip.compress(t.encode())).rstrip(b"="),
    "hex of zlib": lambda t: zlib.compress(t.encode()).hex().encode(),
    "zlib of base64": lambda t: zlib.compress(base64.b64encode(t.encode())),
    "zlib of utf-16": lambda t: zlib.compress(t.encode("utf-16")),
    "gzip of gzip": lambda t: gzip.compress(gzip.compress(t.encode())),
    "pickle": lambda t: pickle.dumps({"args": (1, [t])}),
    "pickle, protocol 0": lambda t: pickle.dumps({"args": (1, [t])}, protocol=0),
    "a queued job": lambda t: signing.dumps({"func": "refine", "args": [t * 20]}, key="k", compress=True).encode(),
    "a small queued job": lambda t: signing.dumps({"args": [t]}, key="k").encode(),
    "a pickled job": lambda t: base64.b64encode(zlib.compress(pickle.dumps(("refine", (7, t))))),
}


def test_each_form_is_found_in_bytes_and_in_a_log() -> None:
    for form, encode in FORMS.items():
        planted = encode(TEXT)
        assert leaks.find(planted, PLANTED), form
        assert leaks.find(os.urandom(999) + b"\0" + planted + b"\0" + os.urandom(999), PLANTED), form
        with logbook.kept() as log:
            logging.getLogger("planted").info("text %s", planted.decode("latin-1"))
        assert leaks.find_in_value(log.text, PLANTED), form
        assert leaks.find_in_value(log.raw, PLANTED), form


def test_each_form_is_found_in_a_database_file(tmp_path: Path) -> None:
    for number, (form, encode) in enumerate(FORMS.items()):
        file = tmp_path / f"{number}.sqlite3"
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE jobs (payload BLOB)")
            database.executemany("INSERT INTO jobs VALUES (?)", [(os.urandom(500),), (encode(TEXT),)])
        assert leaks.find_in_files([file], PLANTED), form


@given(st.binary(max_size=4), st.sampled_from(sorted(FORMS)), st.binary(max_size=4))
def test_a_form_is_found_between_any_bytes(before: bytes, form: str, after: bytes) -> None:
    assert leaks.find(before + b"." + FORMS[form](TEXT) + b"." + after, PLANTED)


def test_a_leak_has_its_place_and_form(tmp_path: Path) -> None:
    data = b"12345" + zlib.compress(PLANTED.encode())
    (tmp_path / "dump").write_bytes(data)
    assert leaks.find(data, PLANTED, "dump") == [leaks.Leak("dump", "zlib>text", 5)]
    assert leaks.find_in_files([tmp_path / "dump", tmp_path / "none"], PLANTED) == leaks.find(data, PLANTED, "dump")


def test_other_bytes_have_no_leak() -> None:
    noise = os.urandom(200_000) + base64.b64encode(os.urandom(50_000)) + os.urandom(50_000).hex().encode()
    assert leaks.find(noise, PLANTED) == []
    assert leaks.find(TEXT.replace(PLANTED, PLANTED[:-3]).encode(), PLANTED) == []


def test_a_value_without_json_or_pickle_is_searched() -> None:
    assert leaks.find_in_value({"at": lambda: None, "text": TEXT}, PLANTED)
    assert leaks.find_in_value(Path(PLANTED), PLANTED)


@pytest.mark.database
def test_logs_and_rows_are_searched(ada: Agent, tmp_path: Path) -> None:
    steps.remember(ada, f"{MARKER} drinks tea", tags=[MARKER])
    assert left(tmp_path / "none") == []
    (tmp_path / "log").write_bytes(b"text " + gzip.compress(MARKER.encode()))
    assert [(leak.where, leak.form) for leak in left(tmp_path / "log")] == [("log", "gzip>text")]
    refining.change(ada, model=MARKER.encode().hex())
    assert {(leak.where, leak.form) for leak in left(None)} >= {("memory_agent", "hex")}


@pytest.mark.database
@pytest.mark.sqlite
@pytest.mark.django_db(transaction=True)
def test_database_files_are_searched() -> None:
    Tenant.objects.create(slug="leaky", name=MARKER)
    assert any(leak.where.endswith("-wal") for leak in left(None))
    Tenant.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert left(None) == []
