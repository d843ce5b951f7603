"""The expected and the actual cost of a session."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from config import environment
from memory.models import Agent
from refinement import cost
from refinement.llm.base import Usage
from refinement.session import preview
from tests.refining import change, fill
from tests.steps import fresh


def test_the_estimate_grows_with_the_ledger_and_the_edits_that_the_target_needs(settings: Any) -> None:
    usages = [cost.expected("openai/x", 8_000, 300, target, None) for target in (8_000, 5_000, 2_000)]
    assert usages == [Usage(11_700, 0, 170), Usage(128_130, 0, 11_560), Usage(337_020, 0, 22_950)]
    assert cost.expected("builtin/dedupe", 8_000, 300, 1, None) == Usage()
    assert cost.expected("openai/x", 8_000, 300, 8_000, 4_600) == Usage(19_200, 0, 680), "four batches"


def test_the_dry_run_shows_the_price_if_the_operator_has_set_one(ada: Agent, settings: Any) -> None:
    fill(ada, 10, 100)
    change(ada, model="openai/gpt-4.1")
    assert preview(fresh(ada))["expected_price"] is None
    settings.MODEL_PRICES = {"openai/*": (2.0, 0.5, 8.0)}
    figures = preview(fresh(ada))
    shown = [figures[f"expected_{what}"] for what in ("prompt_tokens", "completion_tokens", "price")]
    assert shown == [3_540, 170, 0.0084]


def test_a_server_that_reports_too_many_cached_tokens_does_not_lower_the_sum() -> None:
    assert (Usage(10, 10, 2).charged, Usage(10, 99, 2).charged, Usage(10, 0, 2).charged) == (3, 3, 12)


def test_prices_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_PRICES", "openai/a=b=2/0.5/8, anthropic/*=3/0.3/15")
    assert environment.prices("MODEL_PRICES") == {"openai/a=b": (2, 0.5, 8), "anthropic/*": (3, 0.3, 15)}
    for wrong in ("openai/x", "openai/x=1/2", "=1/2/3", "openai/x=1/2/-3", "openai/x=1/2/nan"):
        monkeypatch.setenv("MODEL_PRICES", wrong)
        with pytest.raises(ImproperlyConfigured, match="PROMPT/CACHED/REPLY"):
            environment.prices("MODEL_PRICES")
