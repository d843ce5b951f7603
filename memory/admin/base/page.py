"""What every page of the admin shares: who sees which rows, lists, pages of a row, and pages with a form.

Rows of other tenants do not exist, and no column holds what a memory says. Django's own admin scopes lists alone. Here
every row, by whatever address, filter or form, comes from one scoped queryset; nothing is added, changed or removed but
by an action (memory/admin/base/actions.py); and a query may ask only for what the page offers, because `?digest=` would
answer whether a memory says a certain thing.

Unfold's buttons are links, opened by GET. Each leads to a page with a form, which changes nothing until it is POSTed to
itself. A secret that is shown once is shown by the answer to that POST, on a page that no browser keeps.
"""

from __future__ import annotations

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
from memory.admin.base.help_texts import HELP, WHEN_EMPTY
from memory.errors import Invalid
from memory.mail import letters
from memory.models import Agent, Tenant

MOST = 200  # choices that a filter offers


# --- who sees which rows


def actor_of(person: Any) -> Actor:
    """Whoever is signed in, as the trail names them."""
    return Actor.person(person.email)


def ids_seen_by(request: HttpRequest, action: Action = Action.SEE) -> list[int]:
    """The tenants in which whoever asks may do this. Asked of the database once a request."""
    known: dict[Action, list[int]] | None = request.__dict__.get("_tenants")
    if known is None:
        known = request.__dict__["_tenants"] = tenant_ids(request.user)  # type: ignore[arg-type]
    return known[action]


def forget_tenants(request: HttpRequest) -> None:
    """Ask the database again, because an action may have changed the person's own part."""
    request.__dict__.pop("_tenants", None)


def seen_by(request: HttpRequest, action: Action = Action.SEE) -> QuerySet[Tenant]:
    """The same, as rows."""
    return Tenant.objects.filter(pk__in=ids_seen_by(request, action))


class OfTenant(SimpleListFilter):
    """Rows of one of the tenants that whoever asks may see."""

    title = parameter_name = "tenant"

    def __init__(self, request: HttpRequest, params: Any, model: Any, model_admin: Any) -> None:
        self.lookup = f"{model_admin.tenant}__in"
        super().__init__(request, params, model, model_admin)

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return list(seen_by(request).order_by("slug").values_list("slug", "slug")[:MOST])

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        return queryset.filter(**{self.lookup: seen_by(request).filter(slug=self.value()).values("pk")})


class OfAgent(SimpleListFilter):
    """Rows of one agent, `tenant/agent`."""

    title = parameter_name = "agent"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        agents = Agent.objects.filter(tenant__in=ids_seen_by(request)).order_by("tenant__slug", "slug")
        labels = [f"{tenant}/{slug}" for tenant, slug in agents.values_list("tenant__slug", "slug")[:MOST]]
        if self.value() and self.value() not in labels:
            labels.append(str(self.value()))
        return [(label, label) for label in labels]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not self.value():
            return queryset
        tenant, _, slug = str(self.value()).partition("/")
        agents = Agent.objects.filter(tenant__in=seen_by(request).filter(slug=tenant), slug=slug)
        return queryset.filter(agent_id__in=list(agents.values_list("pk", flat=True)))


# --- lists, and pages of a row


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


# --- what several pages say of an agent: its weight, why it is due, who decides for it, and where its pages are


WHY = {
    "weekly": "its date",
    "over_budget": "over budget",
    "manual": "asked for by a person",
    "agent": "asked for by itself",
    "retry": "once more, after trouble",
}


def budget_bar(agent: Agent) -> SafeString:
    """Core tokens as a part of the budget: yellow above the target, red above the budget."""
    most = max(1, agent.core_tokens, agent.budget_tokens)
    return render_to_string("admin/budget_bar.html", {"agent": agent, "most": most})


def ask_access_address(agent_id: int, **asked: int | str) -> str:
    """The page on which access is asked for, with these fields filled in."""
    return reverse("admin:memory_agent_ask", args=[agent_id], query=asked or None)


def time_machine_address(agent_id: int, kind: str = "", at: int | str = "") -> str:
    query = {"kind": kind, "at": at} if kind else None
    return reverse("admin:memory_agent_time_machine", args=[agent_id], query=query)


def who_decides(agent: Agent, path: str) -> str:
    """Its steward, its runtime, or either. `path` is where its runtime says yes, below `/api/v1/`."""
    runtime = f"its runtime: POST /api/v1/{path} with the agent's key"
    link = "the link that is mailed to its steward"
    if agent.steward and agent.is_steward_only:
        return link
    return f"{link}, or {runtime}" if agent.steward and not letters.are_printed() else runtime


# --- pages with a form


_CLASSES: dict[type[forms.Widget], Any] = {
    forms.Select: widgets.UnfoldAdminSelectWidget,
    forms.CheckboxInput: widgets.UnfoldBooleanWidget,
    forms.Textarea: widgets.UnfoldAdminTextareaWidget,
}


class AdminForm(forms.Form):
    """A form with the CSS classes of the theme. `title` (of `row`), `button` and `lead` are those of its page."""

    title: ClassVar[str] = ""
    button: ClassVar[str] = "Save"
    lead: ClassVar[Sequence[str]] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for field in self.fields.values():
            themed = _CLASSES.get(type(field.widget), widgets.UnfoldAdminTextInputWidget)
            field.widget.attrs.setdefault("class", themed().attrs["class"])
            if themed is widgets.UnfoldAdminSelectWidget:
                field.widget.template_name = themed.template_name  # with an arrow


class OfTenantForm(AdminForm):
    """About one of these tenants."""

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
    """The page of a list, or of a row. When a valid form is POSTed, `save` returns a message or its own answer."""
    back = page.address_of(row) if row else page.list_address
    form = form_class(request.POST if request.method == "POST" else None, **options)
    if request.method == "POST" and form.is_valid():
        try:
            done = save(form.cleaned_data)
        except DomainError as refusal:
            add_refusal(form, refusal)
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
        "opts": page.opts,  # the theme makes the way back to the list of it
    }
    return TemplateResponse(request, "admin/form.html", context)


def add_refusal(form: forms.Form, refusal: DomainError) -> None:
    """Show a refusal at its field, if the form has that field."""
    if isinstance(refusal, Invalid) and refusal.field in form.fields:
        problem = refusal.problem.rstrip(".")
        form.add_error(refusal.field, f"{problem[:1].upper()}{problem[1:]}.")
    else:
        form.add_error(None, str(refusal))


@plain
def shown_once(request: HttpRequest, *, title: str, secret: str, lines: Sequence[str], back: str) -> HttpResponse:
    """A page with a secret that is stored nowhere: no message, session or history holds it."""
    return render(request, "shown_once.html", {"title": title, "secret": secret, "lines": lines, "back": back})
