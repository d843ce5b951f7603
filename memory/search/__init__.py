"""Search the memories of one agent. The search index (`Index`) is only in RAM and is never stored."""
