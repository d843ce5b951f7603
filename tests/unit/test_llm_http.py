"""Connections to model servers: reuse, isolation between tenants, addresses and keys."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
import time_machine
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from refinement.llm import connections, http
from refinement.llm.base import Message, ModelNotConfigured, ModelReplyInvalid, ModelUnavailable, Request
from refinement.llm.openai import OpenAI
from tests.model_server import ModelServer, Raw, Say, Status

REQUEST = Request("some-model", (Message("user", "hello"),), retries=0)


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    yield
    connections.close_clients()


def test_calls_share_a_connection() -> None:
    with ModelServer() as server:
        for key in ("one", "two", "three"):
            OpenAI(key, server.openai_url).complete(REQUEST)
        assert server.connections == 1
        assert [one.headers["authorization"] for one in server.requests] == ["Bearer one", "Bearer two", "Bearer three"]
        assert server.requests[0].headers["accept-encoding"] == "identity"


def test_a_connection_closed_by_the_server_is_opened_again() -> None:
    with ModelServer([Raw(b"{}", {"Connection": "close"}), Say("hello")]) as server:
        with pytest.raises(ModelReplyInvalid):
            OpenAI("key", server.openai_url).complete(REQUEST)
        assert OpenAI("key", server.openai_url).complete(REQUEST).text == "hello"


def test_a_forked_process_gets_a_client_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = connections.client_for("http://127.0.0.1:1")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert connections.client_for("http://127.0.0.1:1") is not ours
    connections.close_clients()


def test_no_cookie_is_kept() -> None:
    with ModelServer([Status(401, {"Set-Cookie": "tenant=a; Path=/"}), Say()]) as server:
        with pytest.raises(Exception, match="401"):
            OpenAI("a", server.openai_url).complete(REQUEST)
        OpenAI("b", server.openai_url).complete(REQUEST)
        assert "cookie" not in server.requests[1].headers


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with ModelServer() as server:
        assert OpenAI("key", server.openai_url).complete(REQUEST).text == "hello"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a model server")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "server.pem"
    path.write_bytes(secret + signed.public_bytes(Encoding.PEM))
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[str]:
    """The address of a model server behind TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ModelServer()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        yield server.openai_url.replace("http:", "https:")


def test_a_certificate_authority_of_ones_own_is_trusted(
    secure: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert OpenAI("key", secure).complete(REQUEST).text == "hello"


def test_a_certificate_nobody_vouches_for_is_not(secure: str) -> None:
    with pytest.raises(ModelUnavailable):
        OpenAI("key", secure).complete(REQUEST)


# --- Retry-After, addresses and keys


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("Wed, 01 Jul 2026 12:00:30 GMT", 30.0),
        ("Wed, 01 Jul 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("9" * 5000, None),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    with time_machine.travel("2026-07-01T12:00:00Z", tick=False):
        assert http.retry_after(value) == seconds


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080/v1", " https://models.example/ ", "http://[::1]:11434"])
def test_a_usable_address_is_taken_without_its_slash(address: str) -> None:
    assert http.checked_address(address, "It") == address.strip().rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "marker",
        "ftp://marker.example",
        "https://marker.example:0",
        "https://marker.example:99999",
        "https://user:marker@models.example",
        "https://models.example/v1?key=marker",
        "https://[marker",
        "https://marker\x00.example",
        "https://models.example/\nmarker",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_and_not_quoted(address: str) -> None:
    with pytest.raises(ModelNotConfigured) as caught:
        http.checked_address(address, "It")
    assert "marker" not in str(caught.value)
    assert caught.value.__context__ is None


def test_the_newline_at_the_end_of_a_key_file_is_not_part_of_the_key() -> None:
    assert http.checked_key("sk-1\n", "It") == "sk-1"


@pytest.mark.parametrize("host", ["a" * 64 + ".invalid", "modèles..example"])
def test_a_host_that_cannot_be_looked_up_is_unavailable(host: str) -> None:
    with pytest.raises(ModelUnavailable):
        OpenAI("key", f"http://{host}").complete(REQUEST)
