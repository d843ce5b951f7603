"""Addresses of an agent's pages, for the pages that lead to them."""

from __future__ import annotations

from urllib.parse import urlencode

from django.urls import reverse


def ask_access_address(agent_id: int) -> str:
    return reverse("admin:memory_agent_ask", args=[agent_id])


def time_machine_address(agent_id: int, kind: str = "", at: int | str = "") -> str:
    place = reverse("admin:memory_agent_time_machine", args=[agent_id])
    return f"{place}?{urlencode({'kind': kind, 'at': at})}" if kind else place
