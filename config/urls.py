"""The service's addresses."""

from __future__ import annotations

from django.urls import path

from config import health

urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready),
]
