"""Counts tokens. The default is a heuristic: four characters per token, rounded up."""

import os
from collections.abc import Callable
from functools import lru_cache

from django.conf import settings

from config.errors import ConfigurationError

CHARACTERS_PER_TOKEN = 4


class TokenCounterMissing(ConfigurationError):
    code = "token_counter"


def count(text: str) -> int:
    """Count the tokens in `text` with the counter that TOKEN_COUNTER names. Raises TokenCounterMissing."""
    return _counter(settings.TOKEN_COUNTER)(text)


@lru_cache(maxsize=4)
def _counter(name: str) -> Callable[[str], int]:
    if name == "heuristic":
        return lambda text: -(-len(text) // CHARACTERS_PER_TOKEN)
    kind, _, encoding = name.partition(":")
    if kind == "tiktoken" and encoding:
        return _tiktoken(encoding)
    raise TokenCounterMissing("TOKEN_COUNTER must be 'heuristic' or 'tiktoken:ENCODING', such as tiktoken:o200k_base.")


def _tiktoken(name: str) -> Callable[[str], int]:
    import tiktoken

    folder = os.environ.get("TIKTOKEN_CACHE_DIR", "")
    try:
        encoding = tiktoken.get_encoding(name)
    except ValueError:
        known = ", ".join(sorted(tiktoken.list_encoding_names()))
        raise TokenCounterMissing(f"The encoding in TOKEN_COUNTER is unknown. tiktoken has: {known}.") from None
    except Exception as failure:  # noqa: BLE001  any error of requests or tiktoken during the download
        raise TokenCounterMissing(
            f"The tiktoken encoding {name} is not in the cache folder ({folder or 'TIKTOKEN_CACHE_DIR is not set'}) "
            f"and the download failed ({type(failure).__name__}). On a machine with internet access, set "
            f"TIKTOKEN_CACHE_DIR and run: python -c \"import tiktoken; tiktoken.get_encoding('{name}')\". "
            "Then copy the cache folder to this machine."
        ) from None
    return lambda text: len(encoding.encode_ordinary(text))
