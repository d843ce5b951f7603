from django.apps import AppConfig


class MemoryConfig(AppConfig):
    name = "memory"
    verbose_name = "Memory"

    def ready(self) -> None:
        from audit.guards import Guard, register
        from memory.policy import checks as policy_checks  # noqa: F401  registers itself
        from memory.search import cache
        from memory.silo import checks as silo_checks  # noqa: F401  registers itself
        from memory.vault import writer
        from memory.writing.signals import edited

        # Discarded memories are kept permanently, so nothing may delete the row of a memory.
        register(Guard("memory_memory", ("DELETE",), ("agent_id", "number")))
        edited.connect(cache.note_edit, dispatch_uid="memory.search")
        edited.connect(writer.sync_after_commit, dispatch_uid="memory.vault")
