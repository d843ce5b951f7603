"""Fill the bare project anew: `fill` of a process whose settings are `tests.bench.bare.settings`."""

import secrets

from django.db import connection, transaction

from tests.bench import texts
from tests.bench.bare import words
from tests.bench.bare.models import Entry, Note, Owner, hashed


def fill(owners: int, notes: int, seed: str) -> list[str]:
    """The tokens of so many owners, each with so many notes. Whatever was there is gone."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bare_words")
        for model in (Entry, Note, Owner):
            cursor.execute(f'DROP TABLE IF EXISTS "{model._meta.db_table}"')
    with connection.schema_editor() as editor:
        for model in (Owner, Note, Entry):
            editor.create_model(model)
    words.make()
    tokens = [secrets.token_hex(20) for _ in range(owners)]
    with transaction.atomic():
        for place, token in enumerate(tokens):
            owner = Owner.objects.create(token=hashed(token))
            contents = texts.many(notes, f"{seed} {place}")
            Note.objects.bulk_create([Note(owner=owner, content=content) for content in contents], 500)
        words.add_all()
    return tokens
