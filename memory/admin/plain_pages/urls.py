"""Addresses of the pages outside the admin's theme."""

from __future__ import annotations

from django.urls import include, path, register_converter

from memory.admin.plain_pages import consent_link, joining

register_converter(consent_link.AnyToken, "any_token")

urlpatterns = [
    path("reading/", include("memory.admin.plain_pages.reading")),
    path("join/<str:token>", joining.join, name="join"),
    path("consent/<any_token:token>", consent_link.link, name="consent"),
]
