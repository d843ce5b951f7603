"""Search over one agent's memories, without an index at rest: see `Index`."""

from memory.search.holdings import Document
from memory.search.index import Hit, Index

__all__ = ["Document", "Hit", "Index"]
