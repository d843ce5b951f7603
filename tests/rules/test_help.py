"""What `memory_rules … --help` tells: what each argument is for, in words."""

from __future__ import annotations

import argparse

import pytest
from django.core.management import load_command_class

from memory.policy.categories import SCOPES


def deeds() -> dict[str, argparse.ArgumentParser]:
    parser = load_command_class("memory", "memory_rules").create_parser("manage.py", "memory_rules")
    [found] = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    return dict(found.choices)


@pytest.mark.parametrize("deed", sorted(set(deeds()) - {"detect", "migrate"}))
def test_each_argument_is_explained(deed: str) -> None:
    silent = [each.dest for each in deeds()[deed]._actions if not each.help]
    assert silent == []


@pytest.mark.parametrize("deed", ["record", "session", "topic"])
def test_no_two_are_explained_alike(deed: str) -> None:
    told = [each.help for each in deeds()[deed]._actions]
    assert len(set(told)) == len(told)


@pytest.mark.parametrize("deed", ["enable", "disable", "store", "cleanup"])
def test_category_names_those_there_are(deed: str) -> None:
    [category] = [each for each in deeds()[deed]._actions if each.dest == "category"]
    assert all(name in (category.help or "") for name in SCOPES)
