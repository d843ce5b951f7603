"""Base of every admin page: permissions by tenant, lists, pages of a row, and pages with a form.

Every row comes from one queryset, which contains only rows of the person's tenants. No column shows the content of a
memory. Only actions change rows (memory/admin/base/actions.py). A page accepts only its own filters in a URL. With
another filter, such as `?digest=`, somebody could test what a memory says.

Unfold's buttons are links, so they use GET. Each link leads to a page with a form, and the POST of this form makes the
change. A new secret is shown once, in the response to that POST, on a page that the browser does not cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold import widgets
from unfold.admin import ModelAdmin
from unfold.decorators import display

from audit.trail import Actor
from config.errors import DomainError
from config.plain import plain
from memory.access.roles import Action, manages, tenant_ids
from memory.admin.base.help_texts import EMPTY_TEXTS, HELP_TEXTS
from memory.errors import Invalid
from memory.mail import letters
from memory.models import Agent, Tenant

MAX_CHOICES = 200  # choices per filter
MOST_WORDS, MOST_CHARACTERS = 10, 200  # of a search


# --- permissions


def actor_of(person: Any) -> Actor:
    """The person as an actor for the audit trail."""
    return Actor.person(person.email)


def visible_tenant_ids(request: HttpRequest, action: Action = Action.SEE) -> list[int]:
    """Ids of the tenants in which the person may carry out `action`. The ids are cached for the request."""
    known: dict[Action, list[int]] | None = request.__dict__.get("_tenants")
    if known is None:
        known = request.__dict__["_tenants"] = tenant_ids(request.user)  # type: ignore[arg-type]
    return known[action]


def clear_tenant_cache(request: HttpRequest) -> None:
    """Clear the cache of `visible_tenant_ids`, because an action may have changed the person's own roles."""
    request.__dict__.pop("_tenants", None)


def visible_tenants(request: HttpRequest, action: Action = Action.SEE) -> QuerySet[Tenant]:
    """The tenants in which the person may carry out `action`."""
    return Tenant.objects.filter(pk__in=visible_tenant_ids(request, action))


def permission(needs: Action) -> Callable[..., bool]:
    """Make a permission method for Unfold. With a row's id, it checks whether the person may carry out the action
    `needs` on this row. Without an id, it checks whether the person may carry it out in at least one tenant."""

    def has_permission(page: ScopedAdmin, request: HttpRequest, object_id: str | None = None) -> bool:
        return page.may(request, needs, page.row_or_404(request, object_id) if object_id else None)

    return has_permission


class TenantFilter(SimpleListFilter):
    """A filter by tenant. It offers the tenants that the person may see."""

    title = parameter_name = "tenant"

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        self.lookup = f"{model_admin.tenant}__in"
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return list(visible_tenants(request).order_by("slug").values_list("slug", "slug")[:MAX_CHOICES])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(**{self.lookup: visible_tenants(request).filter(slug=self.value()).values("pk")})


class AgentFilter(SimpleListFilter):
    """Filters by agent, as `tenant/agent`."""

    title = parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        agents = Agent.objects.filter(tenant__in=visible_tenant_ids(request)).order_by("tenant__slug", "slug")
        labels = [f"{tenant}/{slug}" for tenant, slug in agents.values_list("tenant__slug", "slug")[:MAX_CHOICES]]
        if self.value() and self.value() not in labels:
            labels.append(str(self.value()))
        return [(label, label) for label in labels]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        tenant, _, slug = str(self.value()).partition("/")
        agents = Agent.objects.filter(tenant__in=visible_tenants(request).filter(slug=tenant), slug=slug)
        return queryset.filter(agent_id__in=list(agents.values_list("pk", flat=True)))


# --- lists, and pages of a row


class ScopedAdmin(ModelAdmin):  # type: ignore[misc]  # Unfold comes without types
    """A read-only page for rows that belong to tenants."""

    tenant: ClassVar[str] = ""  # lookup of a row's tenant id; empty if rows belong to no tenant
    needs: ClassVar[Action] = Action.SEE  # permission to open the page
    row_actions: ClassVar[Sequence[Any]] = ()  # memory/admin/base/actions.py
    deferred: ClassVar[Sequence[str]] = ()  # columns not to load
    sections: ClassVar[dict[str, list[str]]]  # the fields of a row's page, by heading; the first heading is empty
    introduction: ClassVar[str] = ""  # text above the first section
    change_form_outer_before_template = "admin/buttons.html"
    list_per_page = 50
    show_full_result_count = False
    show_facets = False
    list_fullwidth = True
    list_filter_sheet = False

    @property
    def empty_text(self) -> str:
        """The text of an empty list. It says what to do. Used by templates/unfold/helpers/empty_results.html."""
        return EMPTY_TEXTS[str(self.opts.model_name)]

    def may(self, request: HttpRequest, action: Action, row: Any = None) -> bool:
        """Whether the person may carry out `action` on the row. Without a row: whether they may do it in at least one
        tenant."""
        ids = visible_tenant_ids(request, action)
        return bool(ids) if row is None else attrgetter(self.tenant.replace("__", "."))(row) in ids

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        rows = rows.select_related(*self.list_select_related or [None]).defer(*self.deferred)
        if self.tenant:
            return rows.filter(**{f"{self.tenant}__in": visible_tenant_ids(request, self.needs)})
        return rows if self.may(request, self.needs) else rows.none()

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Search for the first words. A database takes seconds to plan a query with a thousand."""
        words = search_term[:MOST_CHARACTERS].split()[:MOST_WORDS]
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
        return super().changelist_view(request, extra_context)

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any) -> Any:
        row = context["original"]
        offered = [each for each in self.row_actions if each.is_offered(row) and each.may(self, request, row)]
        context |= {"title": self.describe(row), "buttons": offered, "links": self.related_pages(request, row)}
        return super().render_change_form(request, context, *args, **options)

    def related_pages(self, request: HttpRequest, row: Any) -> list[tuple[str, str]]:
        """The pairs (label, URL) of the links on a row's page."""
        return []

    def describe(self, row: Any) -> str:
        """A short text that identifies the row."""
        return str(row)

    @property
    def list_url(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def row_url(self, row: Any) -> str:
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
        if not all(re.fullmatch("[0-9]{1,18}", chosen) for chosen in request.POST.getlist(ACTION_CHECKBOX_NAME)):
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
        return super().get_form(request, obj, change, help_texts=HELP_TEXTS, **options)


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


# --- texts and links that several pages show about an agent


DUE_REASONS = {
    "weekly": "refinement date",
    "over_budget": "over budget",
    "manual": "requested by a person",
    "agent": "requested by the agent",
    "retry": "retry after a failure",
}


def budget_bar(agent: Agent) -> SafeString:
    """A bar that shows core tokens and budget. It is yellow above the target, and red above the budget."""
    most = max(1, agent.core_tokens, agent.budget_tokens)
    return render_to_string("admin/budget_bar.html", {"agent": agent, "most": most})


def ask_access_url(agent_id: int, **fields: int | str) -> str:
    """The URL of the access request form, with these fields filled in."""
    return reverse("admin:memory_agent_ask", args=[agent_id], query=fields or None)


def time_machine_url(agent_id: int, kind: str = "", at: int | str = "") -> str:
    query = {"kind": kind, "at": at} if kind else None
    return reverse("admin:memory_agent_time_machine", args=[agent_id], query=query)


def who_decides(agent: Agent, path: str) -> str:
    """A text that says who may decide: the agent's steward, its runtime, or one of these two.

    `path` is the API path for the runtime, without `/api/v1/`.
    """
    runtime = f"the agent's runtime (POST /api/v1/{path} with the agent's key)"
    link = "the agent's steward (by the mailed link)"
    if agent.steward and agent.is_steward_only:
        return link
    return f"{link} or {runtime}" if agent.steward and not letters.are_printed() else runtime


# --- pages with a form


_CLASSES: dict[type[forms.Widget], Any] = {
    forms.Select: widgets.UnfoldAdminSelectWidget,
    forms.CheckboxInput: widgets.UnfoldBooleanWidget,
    forms.Textarea: widgets.UnfoldAdminTextareaWidget,
}


class AdminForm(forms.Form):
    """A form with the CSS classes of the theme. `title` may contain `{row}`. `lead` has the paragraphs above the
    form."""

    title: ClassVar[str] = ""
    button: ClassVar[str] = "Save"
    lead: ClassVar[Sequence[str]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for field in self.fields.values():
            themed = _CLASSES.get(type(field.widget), widgets.UnfoldAdminTextInputWidget)
            field.widget.attrs.setdefault("class", themed().attrs["class"])
            if themed is widgets.UnfoldAdminSelectWidget:
                field.widget.template_name = themed.template_name  # this template shows an arrow


class TenantChoiceForm(AdminForm):
    """A form with a field to choose a tenant."""

    tenant: forms.ModelChoiceField[Tenant] = forms.ModelChoiceField(Tenant.objects.none())

    def __init__(self, *args: Any, tenants: QuerySet[Tenant], **options: Any) -> None:
        super().__init__(*args, **options)
        self.fields["tenant"].queryset = tenants.order_by("slug")  # type: ignore[attr-defined]


def form_page(
    page: Any,
    request: HttpRequest,
    form_class: type[AdminForm],
    save: Callable[[dict[str, Any]], HttpResponse | str],
    *,
    row: Any = None,
    lead: Sequence[str] | None = None,
    warning: str = "",
    **options: Any,
) -> HttpResponse:
    """A page with a form, for a list or for a row.

    `save` receives the values of a valid form. It returns a message for the next page, or the response itself.
    """
    back = page.row_url(row) if row else page.list_url
    form = form_class(request.POST if request.method == "POST" else None, **options)
    if request.method == "POST" and form.is_valid():
        try:
            done = save(form.cleaned_data)
        except DomainError as refusal:
            add_error_to(form, refusal)
        else:
            if not isinstance(done, str):
                return done
            messages.success(request, done)
            return redirect(back)
    context = page.admin_site.each_context(request) | {
        "title": form.title.format(row=row),
        "lines": form.lead if lead is None else lead,
        "warning": warning,
        "form": form,
        "back": back,
        "opts": page.opts,  # for the theme's breadcrumbs
    }
    return TemplateResponse(request, "admin/form.html", context)


def add_error_to(form: forms.Form, refusal: DomainError) -> None:
    """Show the error at the field that it names. If the form does not have this field, show the error for the whole
    form."""
    if isinstance(refusal, Invalid) and refusal.field in form.fields:
        problem = refusal.problem.rstrip(".")
        form.add_error(refusal.field, f"{problem[:1].upper()}{problem[1:]}.")
    else:
        form.add_error(None, str(refusal))


@plain
def secret_page(request: HttpRequest, *, title: str, secret: str, lines: Sequence[str], back: str) -> HttpResponse:
    """A page that shows a secret once. No message, session or browser history contains the secret."""
    return render(request, "shown_once.html", {"title": title, "secret": secret, "lines": lines, "back": back})
