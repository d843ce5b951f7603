"""The export formats."""

from functools import partial
from typing import NamedTuple

from memory.errors import Invalid
from memory.transfer.exporting import Writer
from memory.transfer.formats import axe, jsonl, letta, mem0, tree


class Export(NamedTuple):
    """An export format. `write` is a function that yields the bytes of an export. This function keeps only a few of the
    agent's memories in RAM at a time."""

    media_type: str
    ending: str  # the end of a file's name
    write: Writer


EXPORTS = {
    "jsonl": Export("application/x-ndjson", ".jsonl", jsonl.write),
    "markdown": Export("application/gzip", ".tar.gz", tree.write),
    "axe": Export("text/markdown; charset=utf-8", ".md", axe.write),
    "mem0": Export("application/json", ".mem0.json", mem0.write),
    "letta": Export("application/json", ".af", letta.write),
}
_ABOUT = {
    "jsonl": "JSON Lines, one memory per line, with every field",
    "markdown": "a folder of Markdown files in the structure of the memory rules, and the agent's settings",
    "axe": "an axe run log: one entry per memory, with its date to the second",
    "mem0": "JSON as mem0's API returns it; other fields of a memory are in its metadata",
    "letta": "a Letta agent file with one block per memory; other fields of a memory are in the block's metadata",
}
HELP = "; ".join(f"{name}: {about}" for name, about in _ABOUT.items())


def writer(name: str, *, with_discarded: bool) -> Writer:
    """Return the writer of a format. With `with_discarded`, raises Invalid if the format cannot show which memories are
    discarded."""
    if with_discarded and name != "jsonl":
        raise Invalid("discarded", f"works only with jsonl: the format {name} cannot show which memories are discarded")
    return partial(jsonl.write, with_discarded=True) if with_discarded else EXPORTS[name].write
