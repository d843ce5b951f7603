"""Words too common to tell one memory from another: stopwords.toml has a list for each language that has any."""

import tomllib
from functools import cache
from pathlib import Path


@cache
def _lists() -> dict[str, str]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def stop_words(language: str) -> frozenset[str]:
    return frozenset(_lists().get(language, "").casefold().split())
