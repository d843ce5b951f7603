"""Search over one agent's memories. The index is only in memory and never stored (`Index`)."""

from memory.search.holdings import Document
from memory.search.index import Hit, Index

__all__ = ["Document", "Hit", "Index"]
