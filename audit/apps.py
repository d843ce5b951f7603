from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class AuditConfig(AppConfig):
    name = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        from audit import bulk, checks, connection_setup, guards  # noqa: F401  two register themselves

        connection_setup.prepare_connections()
        pre_migrate.connect(guards.let_nothing_through, sender=self, dispatch_uid="audit.guards")
        post_migrate.connect(guards.put_back, dispatch_uid="audit.guards")
