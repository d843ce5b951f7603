"""What the code of the release before can go on working with (docs/how-to/operate.md, "What migrations promise")."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.migrations import (
    AddConstraint,
    AddField,
    AlterField,
    DeleteModel,
    RemoveField,
    RenameField,
    RenameModel,
)
from django.db.migrations.loader import MigrationLoader
from django.db.models import NOT_PROVIDED

pytestmark = pytest.mark.database

OURS = ("audit", "memory", "refinement")
FIRST = {(app, "0001_initial") for app in OURS}

# (app, migration) → why what it does is borne all the same, or that everything stops for it, as the changelog says.
LOOKED_AT: dict[tuple[str, str], str] = {
    ("memory", "0002_remove_facts_of_history_analyses"): "before the first release",
    ("memory", "0003_imported_pieces"): "before the first release",
    ("memory", "0004_help_texts"): "changes no column",
}


def is_borne(operation: Any) -> bool:
    """Whether code that knows nothing of it reads and writes as before."""
    if isinstance(operation, AddField):
        return bool(operation.field.null or operation.field.db_default is not NOT_PROVIDED)
    return not isinstance(operation, RemoveField | RenameField | RenameModel | DeleteModel | AlterField | AddConstraint)


def test_a_migration_leaves_the_code_before_it_working() -> None:
    graph = MigrationLoader(None).graph
    ours = {node for node in graph.nodes if node[0] in OURS}
    assert ours >= FIRST
    unborne = {node for node in ours - FIRST for each in graph.nodes[node].operations if not is_borne(each)}
    assert unborne == set(LOOKED_AT)
