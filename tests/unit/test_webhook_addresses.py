"""A webhook reaches only public addresses, unless the operator allows its host."""

import socket
import ssl
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils import timezone

from refinement.notices import posting
from tests.hooks import HookServer

PUBLIC = ("93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::5db8:d822")
NOT_PUBLIC = (
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.1.2.3", "224.0.0.1"),
    *("255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *("ff02::1", "ff0e::1", "fec0::1", "2001:db8::1", "::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1"),
    *(
        "192.0.0.192",
        "192.0.0.9",
        "::ffff:192.0.0.192",
        "64:ff9b::7f00:1",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:4136:e378::",
    ),
)


class Resolver:
    """Answers lookups of `hooks.test` with the next list of addresses, and then with the last list again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers, self.connected = list(answers), list[str]()
        self._lookup, self._connect = socket.getaddrinfo, socket.create_connection
        monkeypatch.setattr(socket, "getaddrinfo", self.lookup)
        monkeypatch.setattr(socket, "create_connection", self.connect)

    def lookup(self, host: str, port: Any, *args: Any, **options: Any) -> Any:
        if host != "hooks.test":
            return self._lookup(host, port, *args, **options)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]

    def connect(self, address: Any, *args: Any, **options: Any) -> Any:
        self.connected.append(address[0])
        if address[0] in PUBLIC:
            raise ConnectionRefusedError
        return self._connect(address, *args, **options)


def test_only_global_addresses_are_public() -> None:
    assert [address for address in PUBLIC if not posting.is_public(address)] == []
    assert [address for address in NOT_PUBLIC if posting.is_public(address)] == []


def test_a_name_with_any_address_that_is_not_public_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254"):
        resolver = Resolver(monkeypatch, [PUBLIC[0], address])
        assert "must lead to public addresses only" in posting.post("https://hooks.test/", b"{}", {})
        assert resolver.connected == []


def test_a_name_that_changes_after_the_check_is_not_looked_up_again(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """DNS rebinding: the first answer is public, and the next ones are not."""
    with HookServer() as server:
        resolver = Resolver(monkeypatch, [PUBLIC[0]], ["127.0.0.1"])
        problem = posting.post(f"https://hooks.test:{server.server_port}/", b"{}", {})
        assert problem == "The server could not be reached, or it closed the connection."
        assert resolver.connected == [PUBLIC[0]]
        assert server.requests == []


def test_a_resolver_that_does_not_answer_has_the_deadline_of_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, HookServer() as server:
        patch.setattr(posting, "SECONDS", 0.6)
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: server.is_ended.wait(4))
        start = time.monotonic()
        assert posting.post("https://hooks.test/", b"{}", {}) == "The server did not answer within 1 seconds."
        assert time.monotonic() - start < 2


def test_the_certificate_is_checked_for_the_name_and_the_host_is_the_name(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.WEBHOOK_ALLOWED_HOSTS = ["hooks.test"]
    names: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(tmp_path / "hooks.test.pem", "hooks.test"))
    context.sni_callback = lambda _, name, __: names.append(name)
    with HookServer() as server:
        server.use_tls(context)
        Resolver(monkeypatch, ["127.0.0.1"])
        url = f"https://hooks.test:{server.server_port}/hook"
        for trusted in (certificate(tmp_path / "other.pem", "other.test"), tmp_path / "hooks.test.pem"):
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            problem = posting.post(url, b"{}", {})
        assert (problem, len(server.requests)) == ("", 1)
        assert server.requests[0].headers["host"] == f"hooks.test:{server.server_port}"
        assert set(names) == {"hooks.test"}


def certificate(file: Path, name: str) -> Path:
    """Write a new key, and a certificate that it signs itself."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = timezone.now()
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name)])
    signed = made.add_extension(alternatives, critical=True).sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()) + signed.public_bytes(pem))
    return file
