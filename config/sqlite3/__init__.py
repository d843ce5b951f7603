"""Django's SQLite backend, with fair waiting for the write lock."""
