from __future__ import annotations

import json
import re
from pathlib import Path

from tests.commands.calling import ROOT, Installation, failed, run
from tests.conftest import House

LEDGER = [json.loads(line) for line in (ROOT / "refinement/demo/ledger.jsonl").read_text("utf-8").splitlines()]


def test_the_demo_shows_what_a_person_wants_to_see_and_can_be_seen_twice(tmp_path: Path) -> None:
    shown = [_shown(tmp_path / name) for name in ("first", "second")]
    assert shown[0] == shown[1]
    text = shown[0]
    for words in ("target", "floor", "exact duplicates removed", "near-duplicates merged", "constitutional"):
        assert words in text
    before, after = (int(n.replace(",", "")) for n in re.findall(r"core memory, tokens\D+([\d,]+)\D+([\d,]+)", text)[0])
    assert before > after > 0
    [[had, _]] = re.findall(r"core memories\D+([\d,]+)\D+([\d,]+)", text)
    assert int(had.replace(",", "")) == sum(line.get("kind") != "journal" for line in LEDGER)
    assert f"has {len(LEDGER):,} memories" in text
    assert re.search(r"Audit trail \d+ entries, valid", text)
    assert len(re.findall(r"^  \+ #\d+ \d{4}-\d\d-\d\d ", text, re.M)) == 2


def _shown(folder: Path) -> str:
    ran = Installation(folder).manage("demo")
    assert (ran.code, "Traceback" in ran.err) == (0, False), ran.err
    return re.sub(r"Done in [\d.]+ seconds", "Done", ran.out)


def test_it_keeps_away_from_a_database_that_is_in_use(house: House) -> None:
    failed(run("demo"), 1, "already has agents")
