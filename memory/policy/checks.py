"""A system check: the token counter in TOKEN_COUNTER must be available."""

from typing import Any

from django.core.checks import CheckMessage, Error, register

from config.checks import OURS
from memory.policy import tokens


@register(OURS)
def token_counter_is_there(**_: Any) -> list[CheckMessage]:
    try:
        tokens.count("")
    except tokens.TokenCounterMissing as missing:
        return [Error(str(missing), id="palimpsest.E005")]
    return []
