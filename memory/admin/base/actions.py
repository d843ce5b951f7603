"""Admin actions: chosen in a list or on a row's page, previewed in numbers, carried out when they are confirmed.

They are Django's own: whatever is posted goes through the page's scoped queryset, and through here. A row of another
tenant, or of one in which the person may not do this, gives the same 404 as a row that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from audit.trail import Actor
from config.errors import DomainError
from memory.access.roles import Action
from memory.admin.base.page import AdminForm, actor_of, forget_tenants
from memory.errors import NumbersError
from memory.models import Agent

MOST = 500  # rows at a time
LISTED = 20  # of which the confirmation page names


@dataclass(frozen=True, slots=True)
class Result:
    """What became of some of the rows."""

    line: str
    ok: bool = True


class AdminAction:
    """What can be done to rows of a page. A subclass says what, to which rows it is offered, and what it will mean."""

    name: ClassVar[str]
    label: ClassVar[str]
    needs: ClassVar[Action]
    form: ClassVar[type[forms.Form]] = AdminForm  # without fields: a confirmation
    is_destructive: ClassVar[bool] = False  # its button is red
    do_not_call_in_templates = True  # which call everything that can be called

    def is_offered(self, row: Any) -> bool:
        """Whether it makes sense for this row as it stands. If it is posted all the same, a message says why not."""
        return True

    def may(self, page: Any, request: HttpRequest, row: Any) -> bool:
        """Whether this person may do it to this row, whatever its state."""
        return bool(page.may(request, self.needs, row))

    def get_form(self, request: HttpRequest, rows: Sequence[Any]) -> type[forms.Form]:
        return self.form

    def preview(self, rows: Sequence[Any]) -> Iterable[str]:
        """What will happen, in numbers, one line each."""
        raise NotImplementedError

    def do(self, row: Any, by: Any, given: dict[str, Any]) -> str:
        """Do it to one row, by this person, with the form's values; what was done. Raises DomainError."""
        raise NotImplementedError

    def run(self, page: Any, rows: Sequence[Any], by: Any, given: dict[str, Any]) -> Iterator[Result]:
        """Do it to one row after the other; a refusal does not keep the others waiting."""
        for row in rows:
            try:
                yield Result(f"{page.named(row)}: {self.do(row, by, given)}")
            except DomainError as refusal:
                yield Result(f"{page.named(row)}: {refusal}", ok=False)

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        """The confirmation page; when it is confirmed, the action itself. None leads back to the list."""
        rows = self.rows(page, request, chosen)
        if rows is None:
            messages.warning(request, f"Choose at most {MOST} at a time.")
            return None
        is_confirmed = "confirmed" in request.POST
        form = self.get_form(request, rows)(request.POST if is_confirmed else None)
        if not (is_confirmed and form.is_valid()):
            return self._confirmation(page, request, rows, form)
        for result in self.run(page, rows, request.user, form.cleaned_data):
            (messages.success if result.ok else messages.error)(request, result.line)
        return HttpResponseRedirect(_after(page, request, rows[0]))

    def rows(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> list[Any] | None:
        """The chosen rows, if this person may do it to every one of them; None for too many. Raises Http404."""
        found = list(chosen[: MOST + 1])
        if len(found) > MOST:
            return None
        wanted = set(request.POST.getlist(ACTION_CHECKBOX_NAME))
        is_all = request.POST.get("select_across") == "1" or len(found) == len(wanted)
        if not found or not is_all or not all(self.may(page, request, row) for row in found):
            raise Http404
        return found

    def _confirmation(self, page: Any, request: HttpRequest, rows: Sequence[Any], form: forms.Form) -> HttpResponse:
        from_row = "from_row" in request.POST
        context = page.admin_site.each_context(request) | {
            "title": self.label,
            "action": self,
            "preview": list(self.preview(rows)),
            "rows": rows,
            "named": [page.named(row) for row in rows[:LISTED]],
            "more": max(0, len(rows) - LISTED),
            "form": form,
            "opts": page.opts,
            "from_row": from_row,
            "back": page.address_of(rows[0]) if from_row else request.get_full_path(),
        }
        return TemplateResponse(request, "admin/confirm.html", context)


class LinkAction(AdminAction):
    """Leads to a page about the chosen rows, which have one value of `same`. That page asks before it does anything."""

    same: ClassVar[str] = "pk"
    warning: ClassVar[str] = "Choose one."

    def address(self, rows: Sequence[Any]) -> str:
        raise NotImplementedError

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        rows = self.rows(page, request, chosen)
        if rows is None or len({getattr(row, self.same) for row in rows}) > 1:
            messages.warning(request, self.warning)
            return None
        return HttpResponseRedirect(self.address(rows))


class MemoryAction(AdminAction):
    """Done to the memories of one agent after the other, in one edit each."""

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, given: dict[str, Any]) -> str:
        raise NotImplementedError

    def run(self, page: Any, rows: Sequence[Any], by: Any, given: dict[str, Any]) -> Iterator[Result]:
        for agent, numbers in by_agent(rows).items():
            left = sorted(numbers)
            while left:
                try:
                    yield Result(f"{agent.label}: {self.do_to(agent, left, actor_of(by), given)}")
                    break
                except DomainError as refusal:  # those that it is refused for are left out
                    yield Result(f"{agent.label}: {refusal}", ok=False)
                    refused = refusal.numbers if isinstance(refusal, NumbersError) else left
                    left = [number for number in left if number not in refused] if refused else []


def by_agent(rows: Iterable[Any]) -> dict[Agent, list[int]]:
    """The numbers of the chosen memories of each agent."""
    chosen: dict[Agent, list[int]] = {}
    for row in rows:
        chosen.setdefault(row.agent, []).append(row.number)
    return chosen


def _after(page: Any, request: HttpRequest, row: Any) -> str:
    """Where the person came from: the row's page, or the list. The list where the row is gone; the overview where the
    action ended the person's own part."""
    forget_tenants(request)
    if not page.has_view_permission(request):
        return reverse("admin:index")
    if "from_row" not in request.POST:
        return request.get_full_path()
    return str(page.address_of(row) if page.has_view_permission(request, row) else page.list_address)
