"""Search the memories of one agent. The search index (`Index`) is only in RAM and is never stored."""

from memory.search.holdings import Document
from memory.search.index import Hit, Index

__all__ = ["Document", "Hit", "Index"]
