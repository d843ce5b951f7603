from __future__ import annotations

from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"
    verbose_name = "Memory"

    def ready(self) -> None:
        from audit.guards import Guard, register

        # Discarded memories are kept for ever (seed 003, Clarifications): no road removes a row.
        register(Guard("memory_memory", ("DELETE",), ("agent_id", "number")))
