"""Run the tables: for each rule a copy of the project without it, and the tests that must fail there."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.rules_out import musts, table
from tests.rules_out.entry import Rule

ROOT = Path(__file__).resolve().parents[2]
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "var", "__pycache__", ".*_cache", ".coverage*")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?)(?:\[.*)?(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """What became of a rule's tests without it: those that passed all the same."""

    rule: Rule
    passed: tuple[str, ...]
    trouble: str = ""


def main() -> int:
    options = _options()
    wanted = [rule for rule in (*table.RULES, *musts.RULES) if all(word in str(rule) for word in options.words)]
    with ThreadPoolExecutor(options.jobs) as at_once:
        found = []
        for each in at_once.map(tried, wanted):
            found.append(each)
            print(f"{'held' if not (each.passed or each.trouble) else 'NOT HELD'}  {each.rule.what}", flush=True)
            for line in [*each.passed, *([each.trouble] if each.trouble else [])]:
                print(f"          {line}", flush=True)
    loose = [each for each in found if each.passed or each.trouble]
    tests = sum(len(rule.tests) for rule in wanted)
    print(f"{len(wanted) - len(loose)} of {len(wanted)} rules held by their {tests} tests")
    return 1 if loose else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.rules_out", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD", help="only rules in whose entry all of these stand")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="copies tried at the same time")
    return parser.parse_args()


def tried(rule: Rule) -> Found:
    """Take the rule out of a copy, and run its tests there."""
    with tempfile.TemporaryDirectory(prefix="palimpsest-rule-") as place:
        copy = Path(place) / "project"
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
        trouble = _taken_out(rule, copy)
        if trouble:
            return Found(rule, (), trouble)
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no", *rule.tests],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
    if ran.returncode != 1:  # 0 all passed; others: nothing was collected, or pytest itself failed
        told = ran.stdout.strip().splitlines()[-1:] or ran.stderr.strip().splitlines()[-1:]
        return Found(rule, rule.tests if ran.returncode == 0 else (), "" if ran.returncode == 0 else str(told))
    failed = set(_FAILED.findall(ran.stdout))
    return Found(rule, tuple(test for test in rule.tests if test.partition("[")[0] not in failed))


def _taken_out(rule: Rule, copy: Path) -> str:
    for change in rule.changes:
        file = copy / change.file
        text = file.read_text("utf-8")
        if text.count(change.there) < 1:
            return f"{change.file} has no longer: {change.there}"
        file.write_text(text.replace(change.there, change.instead), "utf-8")
    return ""


if __name__ == "__main__":
    sys.exit(main())
