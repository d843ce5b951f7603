"""Arguments in whatever order somebody types them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.management.base import CommandParser


class AnyOrder(CommandParser):
    """A parser that finds what it takes without a name behind options, too: `store ada --tag x "some text"`.

    Python's own (3.11) gives up an optional one as soon as an option follows the one before it.
    """

    _is_within = False

    def parse_known_args(  # type: ignore[override]  # its overloads say no more
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        if self._is_within:  # called back
            return super().parse_known_args(args, namespace)
        self._is_within = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_within = False
