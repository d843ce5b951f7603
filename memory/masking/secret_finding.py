"""What finds secrets, and what tells beforehand that it would find none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from memory.masking.seen_text import Seen

Span = tuple[int, int, str]  # where it begins and ends, and what it is


_RUN = 14  # characters without a blank are in every token


@dataclass(frozen=True, slots=True)
class Finder:
    """In whatever it finds stands one of `signs`, in lower case (where there are any). What has a `run` finds only what
    has so many characters without a blank, and a sign among them."""

    signs: tuple[str, ...]
    find: Callable[[Seen], Iterator[Span]]
    run: int = 0


class Sieve:
    """The finders, and which of them may find something in a text: it leaves out none that would."""

    def __init__(self, finders: Iterable[Finder]) -> None:
        told = [_Signs.of(finder) for finder in finders]
        self._of_runs = [each for each in told if each.finder.run >= _RUN]
        self._others = [each for each in told if each.finder.run < _RUN]

    def spans(self, seen: Seen) -> Iterator[Span]:
        for finder in self.left(seen):
            yield from finder.find(seen)

    def left(self, seen: Seen) -> Iterator[Finder]:
        said, plain = seen.folded, _ascii(seen.folded)
        yield from (each.finder for each in self._others if each.are_in(said, plain))
        runs = [run for run in seen.folded.split() if len(run) >= _RUN]
        if runs:
            longest, said = max(map(len, runs)), "\n".join(runs)
            plain = _ascii(said)
            yield from (
                each.finder for each in self._of_runs if longest >= each.finder.run and each.are_in(said, plain)
            )


class _Signs(NamedTuple):
    finder: Finder
    plain: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, finder: Finder) -> _Signs:
        plain = tuple(sign for sign in finder.signs if sign.isascii())
        return cls(finder, plain, tuple(sign for sign in finder.signs if not sign.isascii()))

    def are_in(self, said: str, plain: str) -> bool:
        for sign in self.plain:
            if sign in plain:
                return True
        return not self.finder.signs or (said is not plain and any(sign in said for sign in self.others))


def _ascii(said: str) -> str:
    """The same in letters of one width, in which to look is several times as fast."""
    return said if said.isascii() else said.encode("ascii", "replace").decode()
