"""How a database carries out queries."""

from django.db import connection
from django.test.utils import CaptureQueriesContext


def plans(captured: CaptureQueriesContext) -> list[str]:
    """The plan of each query in SQLite."""
    found = []
    with connection.cursor() as cursor:
        for each in captured.captured_queries:
            cursor.execute(f"EXPLAIN QUERY PLAN {each['sql']}")
            found.append("\n".join(str(row) for row in cursor.fetchall()))
    return found
