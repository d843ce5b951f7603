"""Models and connections to their servers: settings, reuse, isolation between tenants, addresses and keys."""

import os
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import time_machine
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from refinement.llm import catalog, connections, http
from refinement.llm.anthropic import Anthropic
from refinement.llm.base import Message, ModelNotConfigured, ModelReplyInvalid, ModelUnavailable, Request
from refinement.llm.dedupe import Dedupe
from refinement.llm.ollama import Ollama
from refinement.llm.openai import OpenAI
from tests.model_server import ModelServer, Raw, Say, Status

REQUEST = Request("some-model", (Message("user", "hello"),), retries=0)


@pytest.fixture(autouse=True)
def _close_connections() -> Iterator[None]:
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


def test_a_forked_process_gets_its_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    client = connections.client_for("http://127.0.0.1:1")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert connections.client_for("http://127.0.0.1:1") is not client


def test_no_cookie_is_kept() -> None:
    with ModelServer([Status(401, {"Set-Cookie": "tenant=a; Path=/"}), Say()]) as server:
        with pytest.raises(Exception, match="401"):
            OpenAI("a", server.openai_url).complete(REQUEST)
        OpenAI("b", server.openai_url).complete(REQUEST)
        assert "cookie" not in server.requests[1].headers


def test_proxy_settings_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with ModelServer() as server:
        assert OpenAI("key", server.openai_url).complete(REQUEST).text == "hello"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a model server")])
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
    addresses = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    signed = builder.add_extension(addresses, critical=False).sign(key, hashes.SHA256())
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path / "server.pem"
    path.write_bytes(secret + signed.public_bytes(Encoding.PEM))
    return path


def test_only_certificates_of_known_authorities_are_trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = ModelServer()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server:
        url = server.openai_url.replace("http:", "https:")
        with pytest.raises(ModelUnavailable):
            OpenAI("key", url).complete(REQUEST)
        connections.close_clients()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert OpenAI("key", url).complete(REQUEST).text == "hello"


def test_retry_after() -> None:
    rows = {"0": 0.0, "Wed, 01 Jul 2026 12:00:30 GMT": 30.0, "Wed, 01 Jul 2026 11:00:00 GMT": 0.0}
    with time_machine.travel("2026-07-01T12:00:00Z", tick=False):
        for value, seconds in (rows | dict.fromkeys(("soon", "-5", "nan", "9" * 5000))).items():
            assert http.retry_after(value) == seconds


def test_a_usable_address_loses_its_last_slash_and_a_key_its_newline() -> None:
    for address in ("http://127.0.0.1:8080/v1", " https://models.example/ ", "http://[::1]:11434"):
        assert http.checked_address(address, "It") == address.strip().rstrip("/")
    assert http.checked_key("sk-1\n", "It") == "sk-1"


def test_an_unusable_address_is_refused_and_not_quoted() -> None:
    addresses = ["marker", "ftp://marker.example", "https://marker.example:0", "https://marker.example:99999"]
    addresses += ["https://user:marker@models.example", "https://models.example/v1?key=marker", "https://[marker"]
    for address in [*addresses, "https://marker\x00.example", "https://models.example/\nmarker"]:
        with pytest.raises(ModelNotConfigured) as caught:
            http.checked_address(address, "It")
        assert "marker" not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("host", ["a" * 64 + ".invalid", "modèles..example"])
def test_an_unknown_host_is_unavailable(host: str) -> None:
    with pytest.raises(ModelUnavailable):
        OpenAI("key", f"http://{host}").complete(REQUEST)


@pytest.fixture(autouse=True)
def _configured(settings: Any) -> None:
    settings.OPENAI_API_KEY = settings.ANTHROPIC_API_KEY = "key"
    settings.OPENAI_BASE_URL = "https://api.openai.com/v1"
    settings.ANTHROPIC_BASE_URL = "https://api.anthropic.com"
    settings.OLLAMA_BASE_URL = "http://127.0.0.1:11434"


def test_a_model_is_split_at_the_first_slash() -> None:
    rows = {"openai/meta-llama/Llama-3": OpenAI, "anthropic/claude": Anthropic, "ollama/llama3:8b": Ollama}
    for model, kind in (rows | {"builtin/dedupe": Dedupe}).items():
        opened, name = catalog.open_model(model)
        assert (type(opened), name) == (kind, model.split("/", 1)[1])


@pytest.mark.parametrize(
    ("models", "message", "secret"),
    [
        (["", "openai", "openai/", "/gpt", "OpenAI/gpt", "marker/gpt"], "openai, anthropic, ollama, builtin", "marker"),
        (["openai/gpt\nX: y", "openai/g\x00", " openai/gpt", "openai/" + "x" * 194], "control character", "gpt"),
        (["builtin/gpt"], "builtin/dedupe", "gpt"),
    ],
)
def test_an_invalid_model_is_refused_and_not_quoted(models: list[str], message: str, secret: str) -> None:
    for model in models:
        with pytest.raises(ModelNotConfigured, match=message) as caught:
            catalog.parse(model)
        assert secret not in str(caught.value)


def test_an_operator_may_list_the_models(settings: Any) -> None:
    settings.MODELS = {"openai/gpt-4.1": 2, "anthropic/*": 3}
    for model, weight in (("openai/gpt-4.1", 2), ("anthropic/claude", 3)):
        assert (catalog.parse(model)[0], catalog.weight(model)) == (model.partition("/")[0], weight)
    for model in ("openai/gpt-4.1-pro", "openai/gpt-4", "ollama/any", "builtin/dedupe"):
        with pytest.raises(ModelNotConfigured, match=r"openai/gpt-4.1, anthropic/\*"):
            catalog.open_model(model)


def test_a_missing_key_or_unusable_address_is_an_error_before_any_call(settings: Any) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        setattr(settings, name, "")
        with pytest.raises(ModelNotConfigured, match=name):
            catalog.open_model(f"{name.split('_')[0].lower()}/any")
        setattr(settings, name, "key")
    for provider in ("openai", "anthropic", "ollama"):
        setattr(settings, f"{provider.upper()}_BASE_URL", "not a url")
        with pytest.raises(ModelNotConfigured, match="address"):
            catalog.open_model(f"{provider}/any")


def test_a_compatible_server_needs_no_key(settings: Any) -> None:
    settings.OPENAI_API_KEY, settings.OPENAI_BASE_URL = "", "http://127.0.0.1:8000/v1"
    opened, _ = catalog.open_model("openai/local")
    assert isinstance(opened, OpenAI)
    assert "Authorization" not in opened.headers
