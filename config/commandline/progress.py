"""Progress on long work, on standard error, when somebody is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress import Task as RichTask
from rich.text import Text

Advance = Callable[[int], None]


class _Done(MofNCompleteColumn):
    """ "3/10", or "3" where nobody knows of how many."""

    def render(self, task: RichTask) -> Text:
        return super().render(task) if task.total is not None else Text(f"{int(task.completed):,}")


@contextmanager
def progress(what: str, *, unit: str, total: int | None = None) -> Iterator[Advance]:
    """Yields a function to call with how much was done; it does nothing when standard error is no terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Done(),
        TextColumn(unit),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
