"""Send admin actions as the admin's forms do, and read the responses."""

import re
from typing import Any

from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

from tests.privacy.marker import MARKER


def pages_of(row: Any) -> tuple[str, str]:
    """The addresses of the list that holds the row, and of the row's own page."""
    name = f"admin:{row._meta.app_label}_{row._meta.model_name}"
    return reverse(f"{name}_changelist"), reverse(f"{name}_change", args=[row.pk])


def post(client: Client, action: str, *rows: Any, **fields: str) -> Any:
    """Send the action. The response is its confirmation page, unless `fields` confirm it."""
    form = {"action": action, "_selected_action": [str(row.pk) for row in rows]} | fields
    return client.post(pages_of(rows[0])[0], form)


def confirm(client: Client, action: str, *rows: Any, **fields: str) -> Any:
    return post(client, action, *rows, confirmed="1", reason="requested by the owner", **fields)


def state_of(*models: Any) -> list[Any]:
    """Every row of these models."""
    return [list(model.objects.order_by("pk").values()) for model in models]


def html(response: Any) -> str:
    text: str = response.getvalue().decode()  # also of an export, which is streamed
    return text


def text_of(client: Client, address: str) -> str:
    """The words of a page, without its markup."""
    response = client.get(address)
    assert response.status_code == 200
    assert MARKER not in html(response)
    return " ".join(re.sub(r"<[^>]+>", " ", html(response)).split())


def messages_of(response: Any) -> str:
    return " / ".join(str(message) for message in get_messages(response.wsgi_request))
