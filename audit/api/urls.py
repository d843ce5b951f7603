"""URLs of the audit trail under /api/v1/."""

from django.urls import path

from audit.api import trail

urlpatterns = [path("audit", trail.Trail.as_view()), path("audit/<int:seq>", trail.OneEntry.as_view())]
