"""Scripts for `tests/model_server.py`, which runs them in a process without Django."""

from tests.model_server import Action, Slow, Turn, tidy

SECONDS = 2.0  # of silence


def thoughtful(turn: Turn) -> Action:
    """What `tidy` does, after a while."""
    return Slow(SECONDS, then=tidy(turn))  # type: ignore[arg-type]  # a reply of several calls is one too
