"""Sends a POST to the address of a webhook. People of a tenant choose this address, so it must be a public one.

All addresses of the name are checked, and the connection goes to a checked address. So a name that leads to another
address a moment later changes nothing. An operator can allow other hosts in WEBHOOK_ALLOWED_HOSTS.
"""

import re
import socket
import time
from collections.abc import Mapping
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpcore
import httpx
from django.conf import settings

from config.deadlines import within
from memory.errors import Invalid
from refinement.llm.connections import Network, new_client, seconds_left, set_deadline

SECONDS, CONNECT_SECONDS = 10.0, 3.0  # of an attempt, and of a connection to one address
MOST_ADDRESSES = 3  # of a name, that are tried
_URL = re.compile(r"(https?)://([\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?(?:[/?][!\"$-~]*)?", re.ASCII)
_NUMBER = re.compile(r"(.*\.)?(0x[\da-f]*|\d+)\.?", re.ASCII | re.IGNORECASE)  # no name has such a last label
_PROTOCOLS = IPv4Network("192.0.0.0/24")  # Python 3.11 calls some of these addresses global
_UNICAST, _NAT64 = IPv6Network("2000::/3"), IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = "must lead to public addresses only, unless the operator allows the host in WEBHOOK_ALLOWED_HOSTS"


class _NotPublic(Exception):
    """The name has an address that is not public."""


def require_valid(url: str) -> None:
    """Check the form of a webhook's address. This makes no DNS lookup. Raises Invalid."""
    match = _URL.fullmatch(url)
    if match is None or not 0 < int(match[3] or 1) < 65536:
        raise Invalid("url", "must be https://HOST/PATH, without a user name and without #")
    host = match[2].strip("[]")
    if match[1] == "http" and not _is_allowed(host):
        raise Invalid("url", "must begin with https://")
    try:
        is_refused = not is_public(host)
    except ValueError:  # a name, or a number, which is another form of an IPv4 address
        is_refused = _NUMBER.fullmatch(host) is not None
    if is_refused and not _is_allowed(host):
        raise Invalid("url", _NOT_PUBLIC)


def is_public(address: str) -> bool:
    """Whether an IP address is global and unicast. An IPv6 address that contains an IPv4 address counts as that one.
    Raises ValueError if the text is not an IP address."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        inner = IPv4Address(int(found) & 0xFFFFFFFF) if found in _NAT64 else found.ipv4_mapped
        if inner is None:
            return found in _UNICAST and found.is_global and found.sixtofour is None and found.teredo is None
        found = inner
    return found.is_global and not found.is_multicast and found not in _PROTOCOLS


def post(url: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Send the body. Return why this failed, or "" if the server answered 2xx within SECONDS. The body of the response
    is not read, and redirects are not followed."""
    set_deadline(time.monotonic() + SECONDS)
    timeout = httpx.Timeout(SECONDS, connect=CONNECT_SECONDS)
    try:
        require_valid(url)
        client = new_client(url, _CheckedNetwork())
        with client, client.stream("POST", url, content=body, headers=headers, timeout=timeout) as response:
            return "" if response.is_success else f"The server answered {response.status_code}."
    except Invalid as refusal:
        return f"The address {refusal.problem}."
    except _NotPublic:
        return f"The name {_NOT_PUBLIC}."
    except (httpx.TimeoutException, httpcore.TimeoutException, TimeoutError):
        return f"The server did not answer within {SECONDS:.0f} seconds."
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError):
        return "The server could not be reached, or it closed the connection."


def _is_allowed(host: str) -> bool:
    return host.rstrip(".").lower() in settings.WEBHOOK_ALLOWED_HOSTS


class _CheckedNetwork(Network):
    """Connects to checked addresses of a name. TLS and the `Host` header use the name."""

    def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> httpcore.NetworkStream:
        error: Exception = httpcore.ConnectError()
        for address in _checked_addresses(host, port)[:MOST_ADDRESSES]:
            try:
                return super().connect_tcp(address, port, *args, **options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failure:
                error = failure
        raise error


def _checked_addresses(host: str, port: int) -> list[str]:
    """The addresses of a host. Raises _NotPublic, OSError, httpcore.ConnectTimeout."""
    seconds = seconds_left(None, httpcore.ConnectTimeout)
    found = within(seconds, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))
    if not _is_allowed(host) and not all(map(is_public, addresses)):
        raise _NotPublic
    return addresses
