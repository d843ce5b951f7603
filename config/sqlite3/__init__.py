"""Django's SQLite, with writers that wait for each other evenly."""
