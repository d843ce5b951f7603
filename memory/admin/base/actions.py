"""Admin actions with a confirmation page that previews what will happen.

They are Django admin actions. People run them from a list or from the page of a row. Every request uses the page's
queryset, which contains only rows of the person's tenants. If the person may not act on a row, the response is the same
404 as for a row that does not exist.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

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
from memory.admin.base.forms import AdminForm
from memory.admin.base.permissions import actor_of, clear_tenant_cache
from memory.errors import NumbersError
from memory.models import Agent, Memory
from memory.writing.edits import PAUSE
from memory.writing.stores import MOST_BYTES_AT_ONCE

MAX_ROWS = 500  # rows per action
MAX_LISTED = 20  # rows that the confirmation page lists


class Result(NamedTuple):
    """A message that says what the action did to one row, or to the rows of one agent."""

    line: str
    ok: bool = True


class AdminAction:
    """An action on rows of a page. A subclass defines which rows have the action, what the preview says, and what the
    action does."""

    name: ClassVar[str]
    label: ClassVar[str]
    needs: ClassVar[Action]
    form: ClassVar[type[forms.Form]] = AdminForm  # no fields: only a confirmation
    is_destructive: ClassVar[bool] = False  # its button is red
    do_not_call_in_templates = True  # otherwise a template would call the action

    def is_offered(self, row: Any) -> bool:
        """Whether the row's page shows the button. If somebody sends a POST for a row without the button, `do` reports
        the error."""
        return True

    def changed(self, rows: Sequence[Any]) -> list[Any]:
        """Those of the rows that the action changes. It skips the others, or reports an error."""
        return [row for row in rows if self.is_offered(row)]

    def may(self, page: Any, request: HttpRequest, row: Any) -> bool:
        """Whether this person has the permission for this row. The row's state does not matter."""
        return bool(page.may(request, self.needs, row))

    def preview(self, rows: Sequence[Any]) -> Iterable[str]:
        """The lines of the confirmation page. They say what will happen, with numbers."""
        raise NotImplementedError

    def do(self, row: Any, by: Any, values: dict[str, Any]) -> str:
        """Act on one row, as person `by`, with the form's values. Returns a text that says what happened. Raises
        DomainError."""
        raise NotImplementedError

    def run(self, page: Any, rows: Sequence[Any], by: Any, values: dict[str, Any]) -> Iterator[Result]:
        """Act on the rows one by one. An error on one row does not stop the others."""
        for row in rows:
            try:
                yield Result(f"{page.describe(row)}: {self.do(row, by, values)}")
            except DomainError as refusal:
                yield Result(f"{page.describe(row)}: {refusal}", ok=False)

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        """Show the confirmation page, or run the action if the person has confirmed it.

        Returns None if there are too many rows. Django then shows the list again.
        """
        rows = self.rows(page, request, chosen)
        if rows is None:
            messages.warning(request, f"Select at most {MAX_ROWS} rows at a time.")
            return None
        is_confirmed = "confirmed" in request.POST
        form = self.form(request.POST if is_confirmed else None)
        if not (is_confirmed and form.is_valid()):
            return self._confirmation(page, request, rows, form)
        for result in self.run(page, rows, request.user, form.cleaned_data):
            (messages.success if result.ok else messages.error)(request, result.line)
        return HttpResponseRedirect(_after(page, request, rows[0]))

    def rows(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> list[Any] | None:
        """The selected rows, or None if there are too many. Raises Http404 unless the person may act on all of them."""
        found = list(chosen[: MAX_ROWS + 1])
        if len(found) > MAX_ROWS:
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
            "names": [page.describe(row) for row in rows[:MAX_LISTED]],
            "more": max(0, len(rows) - MAX_LISTED),
            "form": form,
            "opts": page.opts,
            "from_row": from_row,
            "back": page.row_url(rows[0]) if from_row else request.get_full_path(),
        }
        return TemplateResponse(request, "admin/confirm.html", context)


class LinkAction(AdminAction):
    """An action that redirects to a page about the selected rows. All these rows must have the same value in one
    attribute. `same` is the name of this attribute."""

    same: ClassVar[str] = "pk"
    warning: ClassVar[str] = "Select one row."

    def address(self, rows: Sequence[Any]) -> str:
        raise NotImplementedError

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        rows = self.rows(page, request, chosen)
        if rows is None or len({getattr(row, self.same) for row in rows}) > 1:
            messages.warning(request, self.warning)
            return None
        return HttpResponseRedirect(self.address(rows))


class MemoryAction(AdminAction):
    """An action on memories. It makes one edit for each agent. If its memories are large, it makes several edits, so
    that other writers do not wait for long."""

    is_split: ClassVar[bool] = True

    def do_to(self, agent: Agent, numbers: list[int], by: Actor, values: dict[str, Any]) -> str:
        raise NotImplementedError

    def run(self, page: Any, rows: Sequence[Any], by: Any, values: dict[str, Any]) -> Iterator[Result]:
        for agent, numbers in by_agent(rows).items():
            left = sorted(numbers)
            while left:
                rows_left = Memory.objects.of(agent).numbered(left).order_by("number").only("number")
                fit = len(rows_left.fitting(MAX_ROWS, MOST_BYTES_AT_ONCE) if self.is_split else left) or MAX_ROWS
                try:
                    yield Result(f"{agent.label}: {self.do_to(agent, left[:fit], actor_of(by), values)}")
                    left = left[fit:]
                    time.sleep(PAUSE if left else 0)
                except DomainError as refusal:  # retry without the memories that the error lists
                    yield Result(f"{agent.label}: {refusal}", ok=False)
                    refused = refusal.numbers if isinstance(refusal, NumbersError) else left
                    left = [number for number in left if number not in refused] if refused else []


def by_agent(rows: Iterable[Any]) -> dict[Agent, list[int]]:
    """Map each agent to the numbers of its selected memories."""
    chosen: dict[Agent, list[int]] = {}
    for row in rows:
        chosen.setdefault(row.agent, []).append(row.number)
    return chosen


def _after(page: Any, request: HttpRequest, row: Any) -> str:
    """The URL to return to: the page from which the person started the action.

    If the row no longer exists, this is the URL of the list. If the person may no longer open the list, this is the URL
    of the overview.
    """
    clear_tenant_cache(request)
    if not page.has_view_permission(request):
        return reverse("admin:index")
    if "from_row" not in request.POST:
        return request.get_full_path()
    return str(page.row_url(row) if page.has_view_permission(request, row) else page.list_url)
