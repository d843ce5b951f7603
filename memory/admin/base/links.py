"""Links between the pages of an agent, its sessions, entries, memories and access requests."""

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

MOST = 50  # memories in one line
KINDS = {  # the model of each kind of row, and the field with its number
    "memory": ("memory.Memory", "number"),
    "session": ("refinement.RefinementSession", "number"),
    "entry": ("audit.AuditEntry", "seq"),
    "access": ("audit.AccessRequest", "number"),
}


def go(request: HttpRequest, agent_id: int, kind: str, number: int) -> HttpResponseRedirect:
    """Redirect to the page of a row that has this number within its agent. Raises Http404 if the person may not see
    it."""
    if kind not in KINDS:
        raise Http404
    name, field = KINDS[kind]
    page: Any = admin.site.get_model_admin(apps.get_model(name))
    if not page.has_view_permission(request):
        raise Http404
    row = get_object_or_404(page.get_queryset(request), agent_id=agent_id, **{field: number})
    return HttpResponseRedirect(page.row_url(row))


def url(agent_id: int, kind: str, number: int) -> str:
    """The URL of a row's page, by the number that people know."""
    return reverse("admin:numbered", args=[agent_id, kind, number])


def link(agent_id: int, kind: str, number: int | None, text: str = "") -> SafeString | None:
    """A link to a row's page. Its text is the number unless `text` is given. None without a number."""
    if number is None:
        return None
    return format_html('<a href="{}">{}</a>', url(agent_id, kind, number), text or number)


def memories(agent_id: int, numbers: Sequence[int]) -> SafeString:
    """Links to memories. Of many, the first MOST, and how many more there are."""
    found = format_html_join(", ", "{}", ([link(agent_id, "memory", number)] for number in numbers[:MOST]))
    more = len(numbers) - MOST
    return format_html("{} and {} more", found, f"{more:,}") if more > 0 else found


def agent_link(agent_id: int, label: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', reverse("admin:memory_agent_change", args=[agent_id]), label)


def may_open(request: HttpRequest, name: str) -> bool:
    """Whether the person may open the list of a model, such as "memory.Membership"."""
    return admin.site.get_model_admin(apps.get_model(name)).has_view_permission(request)


def to_person(request: HttpRequest, address: str) -> list[tuple[str, str]]:
    """The link to the members with this address, if the reader may see members."""
    if not may_open(request, "memory.Membership"):
        return []
    return [("See this person", reverse("admin:memory_membership_changelist", query={"q": address}))]
