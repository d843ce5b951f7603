"""The project itself as an app: its system checks, the commands that set it up, and what it adds to the queue."""

from __future__ import annotations

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class ConfigConfig(AppConfig):
    default = True
    name = "config"
    verbose_name = "Palimpsest"

    def ready(self) -> None:
        from django_q.signals import pre_enqueue

        from config import checks, queue  # noqa: F401  registers the checks

        pre_enqueue.connect(queue.require_known)


class AdminConfig(SimpleAdminConfig):
    """Django's admin on our own site, which imports its pages with the addresses: commands start without them."""

    default_site = "refinement.admin_site.Site"
