"""The specifics a rewrite must keep, and which of them it lost (design: refinement, "Specifics check").

Pure functions over text: no model, no database, no state; the same texts always get the same answer.
"""

from collections.abc import Sequence

from refinement.specifics.comparing import are_look_alikes, lost, names_it
from refinement.specifics.page import read, specifics_of
from refinement.specifics.text import Specific

__all__ = ["Specific", "differ", "extract", "missing"]


def extract(text: str) -> tuple[Specific, ...]:
    """Every specific of the text, in its order."""
    return specifics_of(read(text))


def missing(sources: Sequence[str], result: str, dropping: Sequence[str] = ()) -> list[Specific]:
    """The specifics of the sources that the result doesn't keep and `dropping` doesn't name, each once.

    The same fact in another form is kept. An item of `dropping` names a specific it contains, in any form.
    """
    gone = lost([read(source) for source in sources], read(result))
    named = [read(item) for item in dropping if gone and item.strip()]
    return [one for one in gone if not any(names_it(item, one) for item in named)]


def differ(a: str, b: str) -> bool:
    """Whether the texts are look-alikes that state different facts, so that keeping either loses something.

    True if each has a specific the other lacks ("40 euros" and "45 euros", "met Ana" and "met Ben"), if one denies
    what the other affirms, if they take opposite sides ("before" and "after"), or have the same names or numbers the
    other way round. False if one merely says more: the fuller wording then keeps everything. Symmetric.
    """
    return a != b and are_look_alikes(read(a), read(b))
