"""The detector itself: a leak of each form, planted, is found, and clean bytes are clean."""

from __future__ import annotations

import base64
import bz2
import gzip
import html
import json
import lzma
import os
import pickle
import sqlite3
import urllib.parse
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core import signing
from hypothesis import given
from hypothesis import strategies as st

from tests.privacy import leaks, logbook
from tests.privacy.marker import unique

PLANTED = unique().replace("ZEBRA", "OKAPI")  # not the marker: the plugin would rightly find it in what is kept here
TEXT = f"She told me {PLANTED} at 3, naïvely."


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
    "json, upper": lambda t: escaped(t, "\\u{:04X}"),
    "json in json": lambda t: json.dumps(escaped(t, "\\u{:04x}").decode()).encode(),
    "json, mixed": mixed,
    "python": lambda t: escaped(t, "\\x{:02x}"),
    "octal": lambda t: escaped(t, "\\{:03o}"),
    "url": lambda t: urllib.parse.quote(t).encode(),
    "url, every character": lambda t: escaped(t, "%{:02X}"),
    "url, lower": lambda t: escaped(t, "%{:02x}"),
    "quoted-printable": lambda t: escaped(t, "={:02X}"),
    "html": lambda t: html.escape(t).encode(),
    "html, every character": lambda t: escaped(t, "&#{};"),
    "html, hex": lambda t: escaped(t, "&#x{:x};"),
    "zlib": lambda t: zlib.compress(t.encode()),
    "zlib, fast": lambda t: zlib.compress(t.encode() * 9, 1),
    "zlib, best": lambda t: zlib.compress(t.encode() * 9, 9),
    "zlib, small window": lambda t: (c := zlib.compressobj(wbits=9)).compress(t.encode()) + c.flush(),
    "zlib, cut off": lambda t: zlib.compress(t.encode() + os.urandom(5_000))[:3_000],
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
    "pickle, old": lambda t: pickle.dumps({"args": (1, [t])}, protocol=0),
    "a queued job": lambda t: signing.dumps({"func": "refine", "args": [t * 20]}, key="k", compress=True).encode(),
    "a queued job, small": lambda t: signing.dumps({"args": [t]}, key="k").encode(),
    "a pickled job": lambda t: base64.b64encode(zlib.compress(pickle.dumps(("refine", (7, t))))),
}


def test_each_form_is_found() -> None:
    for form, encode in FORMS.items():
        planted = encode(TEXT)
        assert leaks.find(planted, PLANTED), form
        assert leaks.find(os.urandom(999) + b"\0" + planted + b"\0" + os.urandom(999), PLANTED), form


@pytest.mark.parametrize("form", ["text", "utf-16-le", "base64 1", "json, every character", "zlib", "a pickled job"])
def test_a_form_is_found_in_a_database_file(form: str, tmp_path: Path) -> None:
    file = tmp_path / "leaky.sqlite3"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE jobs (payload BLOB)")
        database.executemany("INSERT INTO jobs VALUES (?)", [(os.urandom(500),), (FORMS[form](TEXT),)])
    database.close()
    assert leaks.find_in_files([file], PLANTED)


def test_each_form_is_found_in_a_log() -> None:
    import logging

    for form, encode in FORMS.items():
        with logbook.kept() as log:
            logging.getLogger("planted").info("said %s", encode(TEXT).decode("latin-1"))
        assert leaks.find_in_value(log.text, PLANTED), form
        assert leaks.find_in_value(log.raw, PLANTED), form


@given(st.binary(max_size=4), st.sampled_from(sorted(FORMS)), st.binary(max_size=4))
def test_what_stands_around_a_form_hides_nothing(before: bytes, form: str, after: bytes) -> None:
    assert leaks.find(before + b"." + FORMS[form](TEXT) + b"." + after, PLANTED)


def test_what_is_found_says_where_and_as_what() -> None:
    [leak] = leaks.find(b"12345" + zlib.compress(PLANTED.encode()), PLANTED, "the cache")
    assert leak == leaks.Leak("the cache", "zlib>text", 5)


def test_clean_bytes_are_clean() -> None:
    noise = os.urandom(200_000) + base64.b64encode(os.urandom(50_000)) + os.urandom(50_000).hex().encode()
    assert leaks.find(noise, PLANTED) == []
    assert leaks.find(TEXT.replace(PLANTED, PLANTED[:-3]).encode(), PLANTED) == []


def test_an_unreadable_value_is_looked_at_all_the_same() -> None:
    assert leaks.find_in_value({"at": lambda: None, "said": TEXT}, PLANTED)
    assert leaks.find_in_value(Path(PLANTED), PLANTED)
