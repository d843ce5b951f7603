"""What people do to rows: chosen on a list or on a row's page, told in numbers, done when it is confirmed.

Django's own actions are the road: whatever is posted goes through the page's scoped rows, and through here. A row of
another tenant, or of one in which the person may not do it, is as one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from memory.admin.base.scope import ids_seen_by
from memory.errors import NumbersError
from memory.models import Agent

MOST = 500  # rows at a time
LISTED = 20  # of which the page names


@dataclass(frozen=True, slots=True)
class Told:
    """What became of some of the rows."""

    line: str
    went_well: bool = True


class Nothing(forms.Form):
    """Most deeds ask for nothing but a yes."""


class Deed:
    """One thing that can be done. A subclass says what, to which rows it is offered, and what it will mean."""

    name: ClassVar[str]
    label: ClassVar[str]
    needs: ClassVar[Action]
    form: ClassVar[type[forms.Form]] = Nothing
    is_grave: ClassVar[bool] = False  # its button is red
    do_not_call_in_templates = True  # which call whatever can be

    def offered(self, row: Any) -> bool:
        """Whether it makes sense for this row as it stands; what is posted all the same is answered in a line."""
        return True

    def may(self, page: Any, request: HttpRequest, row: Any) -> bool:
        """Whether whoever asks may do it to this row, whatever its state."""
        return page.tenant_of(row) in ids_seen_by(request, self.needs)

    def means(self, rows: Sequence[Any]) -> Iterable[str]:
        """What will happen, in numbers, a line each."""
        raise NotImplementedError

    def do(self, rows: Sequence[Any], actor: Actor, given: dict[str, Any]) -> Iterator[Told]:
        raise NotImplementedError

    def __call__(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
        """One step of it: the page that asks, or the deed itself. None leads back to the list."""
        rows = self._rows(page, request, chosen)
        if rows is None:
            messages.warning(request, f"Choose at most {MOST} at a time.")
            return None
        is_confirmed = "confirmed" in request.POST
        form = self.form(request.POST if is_confirmed else None)
        if not (is_confirmed and form.is_valid()):
            return self._ask(page, request, rows, form)
        for told in self._done(rows, request, form.cleaned_data):
            (messages.success if told.went_well else messages.error)(request, told.line)
        return HttpResponseRedirect(page.address(rows[0])) if "from_row" in request.POST else None

    def _rows(self, page: Any, request: HttpRequest, chosen: QuerySet[Any]) -> list[Any] | None:
        """The rows that were chosen, every one of them the person's to do this to. None for too many; else raises
        Http404."""
        found = list(chosen[: MOST + 1])
        if len(found) > MOST:
            return None
        wanted = set(request.POST.getlist(ACTION_CHECKBOX_NAME))
        is_all = request.POST.get("select_across") == "1" or len(found) == len(wanted)
        if not found or not is_all or not all(self.may(page, request, row) for row in found):
            raise Http404
        return found

    def _ask(self, page: Any, request: HttpRequest, rows: Sequence[Any], form: forms.Form) -> HttpResponse:
        back = page.address(rows[0]) if "from_row" in request.POST else request.get_full_path()
        context = page.admin_site.each_context(request) | {
            "title": self.label,
            "deed": self,
            "means": list(self.means(rows)),
            "rows": rows,
            "named": [page.named(row) for row in rows[:LISTED]],
            "more": max(0, len(rows) - LISTED),
            "form": form,
            "opts": page.opts,
            "from_row": "from_row" in request.POST,
            "back": back,
            "checkbox": ACTION_CHECKBOX_NAME,
        }
        return TemplateResponse(request, "admin/deed.html", context)

    def _done(self, rows: Sequence[Any], request: HttpRequest, given: dict[str, Any]) -> Iterator[Told]:
        try:
            yield from self.do(rows, actor_of(request), given)
        except DomainError as refused:  # which nobody caught for a row of its own
            yield Told(str(refused), went_well=False)


def actor_of(request: HttpRequest) -> Actor:
    person: Any = request.user
    return Actor.person(person.email)


def each(rows: Iterable[Agent], do: Callable[[Agent], str]) -> Iterator[Told]:
    """Do it to one agent after the other; a refusal keeps none of the others waiting."""
    for row in rows:
        try:
            yield Told(f"{row.label}: {do(row)}")
        except DomainError as refused:
            yield Told(f"{row.label}: {refused}", went_well=False)


def of_each_agent(rows: Iterable[Any], do: Callable[[Agent, list[int]], str]) -> Iterator[Told]:
    """Do it to the memories of one agent after the other, in one edit each; those that it is refused for are told, and
    left out."""
    chosen: dict[Agent, list[int]] = {}
    for row in rows:
        chosen.setdefault(row.agent, []).append(row.number)
    for agent, numbers in chosen.items():
        left = sorted(numbers)
        while left:
            try:
                yield Told(f"{agent.label}: {do(agent, left)}")
                break
            except NumbersError as refused:
                yield Told(f"{agent.label}: {refused}", went_well=False)
                left = [number for number in left if number not in refused.numbers] if refused.numbers else []
            except DomainError as refused:
                yield Told(f"{agent.label}: {refused}", went_well=False)
                break


def buttons(page: Any, request: HttpRequest, row: Any) -> list[Deed]:
    """What the person may do to this row, as it stands."""
    return [deed for deed in page.deeds if deed.offered(row) and deed.may(page, request, row)]


def list_address(page: Any) -> str:
    return reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist")
