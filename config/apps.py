"""The project itself as an app: its system checks, the commands that set it up, and what it adds to the queue."""

from __future__ import annotations

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"
    verbose_name = "Palimpsest"

    def ready(self) -> None:
        from django_q.signals import pre_enqueue

        from config import checks, queue  # noqa: F401  registers the checks

        pre_enqueue.connect(queue.require_known)
