"""Addresses of an agent's pages, for the pages that lead to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest
from django.urls import reverse

from memory.models import Agent


def ask_access_address(agent: Agent) -> str:
    return reverse("admin:ask", args=[agent.pk])


def time_machine_address(agent: Agent, kind: str = "", at: int | str = "") -> str:
    place = reverse("admin:time_machine", args=[agent.pk])
    return f"{place}?{urlencode({'kind': kind, 'at': at})}" if kind else place


def one_of(rows: Sequence[Any] | None, request: HttpRequest) -> Any:
    """The one row that was chosen; None, and a word about it, when there are more."""
    if rows is not None and len(rows) == 1:
        return rows[0]
    messages.warning(request, "Choose one.")
    return None
