"""Base of every admin page: lists, and pages of a row.

Every row comes from one queryset, which contains only rows of the person's tenants. No column shows the content of a
memory. Only actions change rows (memory/admin/base/actions.py). A page accepts only its own filters in a URL. With
another filter, such as `?digest=`, somebody could test what a memory says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

from django.contrib import messages
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG, IGNORED_PARAMS, PAGE_VAR, ChangeList
from django.core.exceptions import FieldDoesNotExist
from django.db.models import DateTimeField, IntegerField, Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst, slugify
from unfold.admin import ModelAdmin
from unfold.decorators import display

from config.templatetags.moments import moment
from memory.access.roles import ACTIONS_OF_SUPERUSER, Action, manages
from memory.admin.base import export
from memory.admin.base.filters import MENUS, is_number
from memory.admin.base.help_texts import EMPTY_TEXTS, HELP_TEXTS
from memory.admin.base.permissions import visible_tenant_ids


class Part(NamedTuple):
    """A part of a row's page. While `live` is true, the browser loads it again every three seconds."""

    name: str
    title: str
    content: str
    live: bool = False


class Status(NamedTuple):
    """What a row's page says below its title: a label in the colour of its meaning, a sentence, and paragraphs about
    what is wrong. If something is wrong, no button is the main one."""

    label: str
    meaning: str  # good, warn, bad or faint
    text: str
    notes: str = ""


NUMBERS = {"number", "seq", "session", "version", "audit_seq", "superseded_by"}  # fields that name a row
MOST_WORDS, MOST_CHARACTERS = 4, 200  # of a search


class ScopedAdmin(ModelAdmin):  # type: ignore[misc]  # Unfold comes without types
    """A read-only page for rows that belong to tenants."""

    tenant: ClassVar[str] = ""  # lookup of a row's tenant id; empty if rows belong to no tenant
    needs: ClassVar[Action] = Action.SEE  # permission to open the page
    row_actions: ClassVar[Sequence[Any]] = ()  # memory/admin/base/actions.py
    main_actions: ClassVar[Sequence[str] | None] = None  # those beside the menu of the others; None: all, and no menu
    menu: ClassVar[str] = "More"
    deferred: ClassVar[Sequence[str]] = ()  # columns not to load
    sections: ClassVar[dict[str, list[str]]]  # the fields of a row's page, by heading; the first heading is empty
    folded: ClassVar[Sequence[str]] = ()  # headings of sections that are closed at first
    introduction: ClassVar[str] = ""  # text above the first section
    change_form_template = "admin/row.html"
    time: ClassVar[str] = ""  # the field that PeriodFilter compares
    numbered_by: ClassVar[str] = ""  # the field with the number that people know, for a search
    exported: ClassVar[Sequence[str]] = ()  # columns of an export; may contain dots
    export_formats = export.FORMATS
    list_before_template = "admin/parts/above_list.html"
    list_per_page = 50
    show_full_result_count = False
    show_facets = False
    empty_value_display = ""
    list_fullwidth = True
    list_filter_sheet = False

    @property
    def empty_text(self) -> str:
        """The text of an empty list. It says what to do. Used by templates/unfold/helpers/empty_results.html."""
        return EMPTY_TEXTS[str(self.opts.model_name)]

    def may(self, request: HttpRequest, action: Action, row: Any = None) -> bool:
        """Whether the person may carry out `action` on the row. Without a row: whether they may do it in at least one
        tenant. A superuser may also do it if there is no tenant yet."""
        ids = visible_tenant_ids(request, action)
        if row is None:
            return bool(ids) or (action in ACTIONS_OF_SUPERUSER and manages(request.user))  # type: ignore[arg-type]
        return attrgetter(self.tenant.replace("__", "."))(row) in ids

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.select_related(*self.list_select_related or [None]).defer(*self.deferred)
        if self.tenant:
            return rows.filter(**{f"{self.tenant}__in": visible_tenant_ids(request, self.needs)})
        return rows if self.may(request, self.needs) else rows.none()

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search for the first words. A database takes seconds to plan a query with a thousand. A number is the number
        of a row, and `tenant/agent` are two words."""
        words = search_term[:MOST_CHARACTERS].replace("/", " ").split()[:MOST_WORDS]
        for number in [each for each in words if self.numbered_by and is_number(each)]:
            queryset = queryset.filter(**{self.numbered_by: int(number)})
            words.remove(number)
        found: tuple[Any, bool] = super().get_search_results(request, queryset, " ".join(words))
        return found

    def row_or_404(self, request: HttpRequest, object_id: str) -> Any:
        """A row by its id, cached for the request. Raises Http404 if the person may not see the row, or if it does not
        exist."""
        known = request.__dict__.setdefault("_rows", {})
        if object_id not in known:
            known[object_id] = self.get_object(request, object_id)
        if known[object_id] is None:
            raise Http404
        return known[object_id]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if any("\0" in value for _, values in request.GET.lists() for value in values):  # PostgreSQL refuses NUL
            return HttpResponseRedirect(request.path)
        if empty := [name for name in MENUS if request.GET.get(name) == ""]:  # sent by the form above the list
            return HttpResponseRedirect(f"{request.path}?{_without(request, empty)}")
        if ERROR_FLAG in request.GET:  # Django redirects to this address
            messages.warning(request, "The address had a value that is not valid. The list shows all rows instead.")
            return HttpResponseRedirect(request.path)
        try:
            if self.exported and request.GET.get("export") in export.FORMATS:
                return self._exported(request)
            response = super().changelist_view(request, extra_context)
        except DisallowedModelAdminLookup:
            return self._without_unknown_filters(request)
        found = getattr(response, "context_data", {}).get("cl")
        if found:
            found.shown_filters = _shown_filters(found)
            specs = {getattr(each, "parameter_name", ""): each for each in found.filter_specs}
            found.menus = [specs[name] for name in MENUS if name in specs]
            found.kept = {name: value for name, value in found.params.items() if name not in MENUS}
        if found and is_number(found.query) and found.result_count == 1 and self.numbered_by:
            return HttpResponseRedirect(self.row_url(found.result_list[0]))  # a jump to a number
        return response

    def _exported(self, request: HttpRequest) -> Any:
        query = request.GET.copy()
        form = query.pop("export")[-1]
        request.GET = query  # type: ignore[assignment]
        try:
            found = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            return HttpResponseRedirect(request.path)
        if (count := found.queryset.count()) > export.MOST:
            advice = f"An export can have {export.MOST:,} rows. Use filters, such as one month."
            messages.warning(request, f"This list has {count:,} rows. {advice}")
            return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")
        words = [str(self.opts.verbose_name_plural), *(value for _, value, _ in _shown_filters(found))]
        name = slugify(" ".join(words).replace("/", " "))
        return export.response(found.queryset, self.exported, str(form), name)

    def _without_unknown_filters(self, request: HttpRequest) -> HttpResponseRedirect:
        """Redirect to the list, without the filters of the address that this list does not have."""
        own = (*IGNORED_PARAMS, PAGE_VAR)
        unknown = [name for name in request.GET if not (name in own or self.lookup_allowed(name, "", request))]
        named = ", ".join(name[:40] for name in unknown[:5])
        messages.warning(request, f"This list has no such filter: {named}. It was removed from the address.")
        return HttpResponseRedirect(f"{request.path}?{_without(request, unknown)}")

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        row = context["original"]
        offered = [each for each in self.row_actions if each.is_offered(row) and each.may(self, request, row)]
        main = [each for each in offered if self.main_actions is None or each.name in self.main_actions]
        title = self.describe(row)
        context |= {"title": title, "heading": title if title == str(row) else capfirst(title)}
        context |= {"links": self.related_pages(request, row), "buttons": main}
        context |= {"more": [each for each in offered if each not in main], "tabs": self.tabs(request, row)}
        context |= {"menu": self.menu, "neighbours": self.neighbours(row)}
        status = self.status(request, row)
        context |= {"has_main": bool(self.main_actions) and not (status and status.notes)}
        context |= {"status": status, "parts": self.parts(request, row), "folded": self.folded}
        return super().render_change_form(request, context, *args, **options)

    def related_pages(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        """The pairs (label, URL) of the links on a row's page."""
        return []

    def neighbours(self, row: Any) -> list[tuple[str, str]]:
        """The pairs (label, URL) of the rows before and after this one."""
        return []

    def tabs(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        """The pairs (label, URL) of the lists that belong to the row."""
        return []

    def status(self, request: HttpRequest, row: Any) -> Status | None:
        """What the page says below its title."""
        return None

    def parts(self, request: HttpRequest, row: Any) -> list[Part]:
        """The parts of a row's page above its fields."""
        return []

    def describe(self, row: Any) -> str:
        """A short text that identifies the row."""
        return str(row)

    @property
    def list_url(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def row_url(self, row: Any) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_change", args=[row.pk])

    def get_list_display(self, request: HttpRequest) -> list[Any]:
        return [self._readable(each) for each in super().get_list_display(request)]

    def _readable(self, name: Any) -> Any:
        """A column that shows a time as `moment` does, or a count with separators, if the field has one. Otherwise the
        name itself."""
        try:
            field = self.opts.get_field(name)
        except FieldDoesNotExist:
            return name
        is_count = isinstance(field, IntegerField) and name not in NUMBERS
        if not (is_count or isinstance(field, DateTimeField)):
            return name

        def show(row: Any) -> str | None:
            value = getattr(row, name)
            return None if value is None else f"{value:,}" if is_count else moment(value)

        show.__name__ = name
        return display(description=str(field.verbose_name), ordering=name, empty_value="")(show)

    def get_fieldsets(self, request: HttpRequest, obj: Model | None = None) -> list[Any]:
        return [
            (heading, {"fields": [self._readable(each) for each in fields]})
            for heading, fields in self.sections.items()
        ]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        offered = [each for each in self.row_actions if self.may(request, each.needs)]
        return {each.name: (each, each.name, each.label) for each in offered}

    def response_action(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        if not all(re.fullmatch("[0-9]{1,18}", chosen) for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME)):
            raise Http404
        return super().response_action(request, queryset)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        own = self.may(request, self.needs)
        return own if obj is None else own and self.get_queryset(request).filter(pk=obj.pk).exists()

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        filters = self.list_filter if request is None else self.get_list_filter(request)
        offered = {each if isinstance(each, str) else each.parameter_name for each in filters}
        return lookup.removesuffix("__exact") in offered

    def get_form(self, request: HttpRequest, obj: Model | None = None, change: bool = False, **options: Any) -> Any:
        return super().get_form(request, obj, change, help_texts=HELP_TEXTS, **options)


def _without(request: HttpRequest, names: Iterable[str]) -> str:
    """The query of the address, without the parameters of these names."""
    query = request.GET.copy()
    for name in names:
        del query[name]
    return query.urlencode()


def _shown_filters(found: ChangeList) -> list[tuple[str, str, str]]:
    """The chosen filters of a list: the title, the value, and the query without this filter."""
    shown = []
    for each in found.filter_specs:
        every, *choices = each.choices(found)
        chosen = [str(one["display"]) for one in choices if one["selected"]]
        shown += [(str(each.title), value, str(every["query_string"])) for value in chosen]
    return shown


def column(path: str, description: str, **options: Any) -> Any:
    """A column or field that shows an attribute of the row. `path` may contain dots."""

    def show(_: ScopedAdmin, row: Any) -> Any:
        return attrgetter(path)(row)

    return display(description=description, **options)(show)


class SuperuserAdmin(ScopedAdmin):
    """A page for rows that belong to no tenant. Only superusers may open it."""

    def may(self, request: HttpRequest, action: Action, row: Any = None) -> bool:
        return manages(request.user)  # type: ignore[arg-type]  # the site requires sign-in

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self.may(request, self.needs)  # superusers see every row
