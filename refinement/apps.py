from __future__ import annotations

from django.apps import AppConfig


class RefinementConfig(AppConfig):
    name = "refinement"
    verbose_name = "Refinement"
