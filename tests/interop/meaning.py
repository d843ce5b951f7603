"""Search by meaning with the real weights of all-MiniLM-L6-v2. `python -m tests.interop meaning` runs this."""

import os
from pathlib import Path
from typing import Any

from memory.agents import lifecycle
from refinement.embedding import embed
from tests.conftest import House
from tests.embedding import minilm
from tests.embedding.steps import found
from tests.steps import ME, remember


def test_new_users_questions_find_their_answers(house: House, settings: Any, tmp_path: Path) -> None:
    settings.EMBEDDERS_DIR = Path(os.environ.get("EMBEDDERS", tmp_path))
    lifecycle.change(house.ada, ME, embedder=f"local/{minilm.installed_in(settings.EMBEDDERS_DIR).name}")
    remember(house.ada, "Ana fixed the car.", "We use Postgres.", "Bob likes green tea.", "Dr. Lee is her dentist.")
    assert embed(house.ada.pk) == "embedded"
    for query, number in (("vehicle repair", 1), ("which database", 2), ("drinks", 3), ("teeth", 4)):
        assert found(house.ada, query)[:1] == [number], query
    assert found(house.ada, "quantum chromodynamics") == []
