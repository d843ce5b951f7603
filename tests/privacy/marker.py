"""The mark that the contents of the tests' memories bear, so that they can be looked for where they must not be.

A test whose memories are stored for real begins their texts with MARKER; a test that looks for its own leaks uses
`unique()`, which begins with it too. After the suite `tests.privacy.plugin` looks for MARKER in all that is left.
"""

from __future__ import annotations

import secrets

MARKER = "ZEBRAq7xk2m9vw"
_LETTERS = "bcdfghjkmnpqrtvwxz"


def unique() -> str:
    """A marker nobody used before: one word, so that an index of words would hold it whole."""
    return MARKER + "".join(secrets.choice(_LETTERS) for _ in range(10)) + "7"
