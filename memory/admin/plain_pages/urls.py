"""URLs of the pages outside the admin's theme."""

from django.urls import include, path, re_path

from memory.admin.plain_pages import accounts, consent_link

urlpatterns = [
    path("reading/", include("memory.admin.plain_pages.reading")),
    path("join/<str:token>", accounts.join, name="join"),
    # Any text: every invalid token gets the same page.
    re_path(r"^consent/(?P<token>[\s\S]*)\Z", consent_link.link, name="consent"),
]
