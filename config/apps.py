"""The project as an app: its system checks and the commands that run the service."""

from django.apps import AppConfig
from django.contrib.admin.apps import SimpleAdminConfig


class ConfigConfig(AppConfig):
    default = True
    name = "config"
    verbose_name = "Palimpsest"

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_in
        from django_q.signals import pre_enqueue

        from config import checks, queue, sessions  # noqa: F401  registers the checks

        pre_enqueue.connect(queue.require_known)
        user_logged_in.connect(sessions.set_end)


class AdminConfig(SimpleAdminConfig):
    """Django's admin with our own site. The site imports its pages only when its URLs are needed. So commands start
    faster."""

    default_site = "refinement.admin_site.Site"
