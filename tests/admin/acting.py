"""Admin actions, as the forms of the lists and of the rows' pages send them."""

from __future__ import annotations

from typing import Any

from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse


def pages_of(row: Any) -> tuple[str, str]:
    """Of the list that it is in, and its own."""
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"{name}_changelist"), reverse(f"{name}_change", args=[row.pk])


def post(client: Client, deed: str, *rows: Any, **more: str) -> Any:
    """Asks, unless `more` confirms."""
    form = {"action": deed, "_selected_action": [str(row.pk) for row in rows]} | more
    return client.post(pages_of(rows[0])[0], form)


def confirm(client: Client, deed: str, *rows: Any, **more: str) -> Any:
    return post(client, deed, *rows, confirmed="1", reason="asked for by the owner", **more)


def said(answer: Any) -> str:
    """What became of it, in the messages."""
    return " / ".join(str(message) for message in get_messages(answer.wsgi_request))
