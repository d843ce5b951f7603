"""The admin site. It requires a password and a second factor. The roles that a person has in tenants decide what this
person sees.

When a page is imported, it registers itself on this site. So the site imports the pages inside its methods.
"""

from typing import Any

from django.core.paginator import InvalidPage
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, URLResolver, path
from django_otp.admin import OTPAdminSite
from unfold.sites import UnfoldAdminSite

from config import PROGRAM, __version__


class Site(UnfoldAdminSite, OTPAdminSite):  # type: ignore[misc]  # Unfold comes without types
    index_title = "Overview"
    enable_nav_sidebar = True
    index_template = "admin/overview.html"
    login_template = "admin/login.html"  # instead of OTPAdminSite's template

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Import only this project's pages. `admin.autodiscover` would also import the pages of django-q and of
        Django's groups."""
        from audit import admin as audit_pages  # noqa: F401
        from memory import admin as memory_pages  # noqa: F401
        from memory.admin.plain_pages.accounts import SignInForm
        from refinement import admin as refinement_pages  # noqa: F401

        self.login_form = SignInForm
        urls: list[URLPattern | URLResolver] = super().get_urls()
        return urls

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        context: dict[str, Any] = super().each_context(request)
        return context | {"version": __version__, "program": PROGRAM}

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        from refinement.admin import overview

        return super().index(request, {"overview": overview.figures(request)} | (extra_context or {}))

    def extra_urls(self) -> list[URLPattern]:
        from memory.admin.base import links
        from memory.admin.plain_pages import accounts

        return [
            path("agents/<int:agent_id>/<slug:kind>/<int:number>/", self.admin_view(links.go), name="numbered"),
            path("account/", self.admin_view(accounts.account), name="account"),
            path("account/password/", self.admin_view(accounts.password), name="account_password"),
            path("account/factor/", self.admin_view(accounts.factor), name="account_factor"),
        ]

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        """Search with Unfold's search. Unfold fails for a page of results that does not exist. Return a 404 in this
        case."""
        try:
            return super().search(request, extra_context)
        except (InvalidPage, ValueError):
            raise Http404 from None

    def password_change(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Redirect to `accounts.password`, which asks for a code and ends grants. Django's own page does not do these
        two things."""
        return redirect("admin:account_password")

    password_change_done = password_change
