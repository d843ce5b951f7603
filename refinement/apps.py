from __future__ import annotations

from django.apps import AppConfig


class RefinementConfig(AppConfig):
    name = "refinement"
    verbose_name = "Refinement"

    def ready(self) -> None:
        from memory import elsewhere
        from memory.announcements import over_budget
        from refinement import gc_reports, line, session

        elsewhere.register(session.end_unheard)
        elsewhere.register(gc_reports.withdraw)
        over_budget.connect(line.when_over_budget)
