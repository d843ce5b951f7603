"""What every page of the admin shares: rows of other tenants do not exist, and no column holds what a memory says.

Django's own admin scopes lists alone. Here every row, by whatever address, filter or form, comes from one scoped
queryset; nothing is added, changed or removed but by an action (memory/admin/base/actions.py); and a query may ask only
for what the page offers, because `?digest=` would answer whether a memory says a certain thing.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.urls import reverse
from unfold.admin import ModelAdmin
from unfold.decorators import display

from memory.access.roles import Action, manages
from memory.admin.base.help_texts import HELP, WHEN_EMPTY
from memory.admin.base.scope import ids_seen_by


class Scoped(ModelAdmin):  # type: ignore[misc]  # Unfold comes without types
    """A page over rows that belong to tenants, to look at. `tenant` is the way from a row to its tenant's id; empty
    where rows belong to none."""

    tenant: ClassVar[str] = ""
    needs: ClassVar[Action] = Action.SEE  # to open the page
    row_actions: ClassVar[Sequence[Any]] = ()  # memory/admin/base/actions.py
    deferred: ClassVar[Sequence[str]] = ()  # columns that no page needs
    sections: ClassVar[dict[str, list[str]]]  # of a row's page: headings and fields; the first has no heading
    introduction: ClassVar[str] = ""  # to the first section
    change_form_outer_before_template = "admin/buttons.html"
    list_per_page = 50
    show_full_result_count = False
    show_facets = False
    list_fullwidth = True
    list_filter_sheet = False

    @property
    def when_empty(self) -> str:
        """What to do where its list is empty (templates/unfold/helpers/empty_results.html)."""
        return WHEN_EMPTY[str(self.opts.model_name)]

    def may(self, request: HttpRequest, action: Action, row: Any = None) -> bool:
        """Whether this person may do this: to this row, or to any."""
        ids = ids_seen_by(request, action)
        return bool(ids) if row is None else attrgetter(self.tenant.replace("__", "."))(row) in ids

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.select_related(*self.list_select_related or [None]).defer(*self.deferred)
        if self.tenant:
            return rows.filter(**{f"{self.tenant}__in": ids_seen_by(request, self.needs)})
        return rows if self.may(request, self.needs) else rows.none()

    def row_or_404(self, request: HttpRequest, object_id: str) -> Any:
        """A row of the page, read once a request. Raises Http404 for another tenant's as for none."""
        known = request.__dict__.setdefault("_rows", {})
        if object_id not in known:
            known[object_id] = self.get_object(request, object_id)
        if known[object_id] is None:
            raise Http404
        return known[object_id]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if any("\0" in value for _, values in request.GET.lists() for value in values):  # which PostgreSQL refuses
            return HttpResponseRedirect(request.path)
        return super().changelist_view(request, extra_context)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        row = context["original"]
        offered = [each for each in self.row_actions if each.is_offered(row) and each.may(self, request, row)]
        context |= {"title": self.named(row), "buttons": offered, "links": self.related_pages(request, row)}
        return super().render_change_form(request, context, *args, **options)

    def related_pages(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        """Other pages that a row's page leads to, by their labels."""
        return []

    def named(self, row: Any) -> str:
        """A row in a line, for people."""
        return str(row)

    @property
    def list_address(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def address_of(self, row: Any) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[row.pk])

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return [
            (heading, {"fields": fields, "description": "" if heading else self.introduction})
            for heading, fields in self.sections.items()
        ]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        offered = [each for each in self.row_actions if self.may(request, each.needs)]
        return {each.name: (each, each.name, each.label) for each in offered}

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        if not all(_is_id(chosen) for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise Http404
        return super().response_action(request, queryset)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        own = self.may(request, self.needs)
        return own if obj is None else own and self.get_queryset(request).filter(pk=obj.pk).exists()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        filters = self.list_filter if request is None else self.get_list_filter(request)
        offered = {each if isinstance(each, str) else each.parameter_name for each in filters}
        return lookup.removesuffix("__exact") in offered

    def get_form(self, request: HttpRequest, obj: Model | None = None, change: bool = False, **options: Any) -> Any:
        return super().get_form(request, obj, change, help_texts=HELP, **options)


def column(path: str, description: str, **options: Any) -> Any:
    """A column, or a field of a row's page, that shows an attribute of the row: `path`, with dots."""

    def show(_: Scoped, row: Any) -> Any:
        return attrgetter(path)(row)

    return display(description=description, **options)(show)


class OfService(Scoped):
    """A page over what belongs to no tenant: for superusers alone."""

    def may(self, request: HttpRequest, action: Action, row: Any = None) -> bool:
        return manages(request.user)  # type: ignore[arg-type]  # who is signed in

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.may(request, self.needs)  # every row is theirs


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
