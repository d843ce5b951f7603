"""The marker in the memories of the tests. It must not appear where content has no place.

A test that stores memories begins their texts with MARKER. A test that looks for its own leaks uses `unique()`, which
begins with it too. After the suite, `tests.privacy.plugin` looks for MARKER in everything that remains.
"""

import secrets

MARKER = "ZEBRAq7xk2m9vw"
_LETTERS = "bcdfghjkmnpqrtvwxz"


def unique() -> str:
    """A new marker. It is one word, so that an index of words contains it whole."""
    return MARKER + "".join(secrets.choice(_LETTERS) for _ in range(10)) + "7"
