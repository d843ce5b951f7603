from django.apps import AppConfig


class RefinementConfig(AppConfig):
    name = "refinement"

    def ready(self) -> None:
        from memory.consent.claims import claiming
        from memory.consent.requests import removing
        from memory.search import embedding as vectors
        from memory.writing.signals import over_budget
        from refinement import backlog, embedding, gc_reports, session
        from refinement.llm import checks  # noqa: F401  registers itself

        claiming.connect(session.end_open)
        removing.connect(session.end_open)
        removing.connect(gc_reports.withdraw)
        over_budget.connect(backlog.when_over_budget)
        vectors.embed_query, vectors.has_failed = embedding.query_vector, embedding.has_failed
