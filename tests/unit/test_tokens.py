import pytest
from pytest_django import Settings

from memory.policy import tokens


@pytest.mark.parametrize(("text", "count"), [("", 0), ("x", 1), ("xxxx", 1), ("xxxxx", 2), ("é" * 8, 2), ("😀" * 4, 1)])
def test_the_heuristic_is_four_characters_a_token_rounded_up(text: str, count: int) -> None:
    assert tokens.count(text) == count


@pytest.mark.parametrize("name", ["", "words", "tiktoken", "tiktoken:", "tiktoken:no-such-encoding"])
def test_an_unknown_counter_is_refused_with_the_known_ones(settings: Settings, name: str) -> None:
    settings.TOKEN_COUNTER = name
    with pytest.raises(tokens.TokenCounterMissing, match="tiktoken"):
        tokens.count("x")
