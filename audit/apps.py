from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class AuditConfig(AppConfig):
    name = "audit"
    verbose_name = "Audit"

    def ready(self) -> None:
        from audit import bulk, checks, connection_setup, guards  # noqa: F401  they register themselves

        pre_migrate.connect(guards.refuse_updates, sender=self, dispatch_uid="audit.guards")
        post_migrate.connect(guards.restore_triggers, dispatch_uid="audit.guards")
