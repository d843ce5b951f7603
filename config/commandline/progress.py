"""A progress bar for long work. It is shown on standard error, if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeElapsedColumn
from rich.text import Text


class _Done(MofNCompleteColumn):
    """The progress as text: "3/10", or "3" if the total is unknown."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total is not None else Text(f"{int(task.completed):,}")


@contextmanager
def progress(what: str, *, unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function. The caller calls it with the amount of work done since the last call. If standard error is not
    a terminal, the function does nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), _Done(), TextColumn(unit), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
