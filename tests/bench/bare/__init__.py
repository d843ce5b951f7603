"""The API's floor: a bare Django + DRF project that keeps the same texts in clear.

Token check, a row, its full-text row (FTS5; a `tsvector` column with a GIN index on PostgreSQL), an audit row that
names the edit: one transaction, through the ORM, just as durable as ours. It seals, chains and counts nothing.
"""
