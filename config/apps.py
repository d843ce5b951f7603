"""The project itself as an app: its system checks and the commands that set it up."""

from __future__ import annotations

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
    verbose_name = "Palimpsest"

    def ready(self) -> None:
        from config import checks  # noqa: F401  registers the checks
