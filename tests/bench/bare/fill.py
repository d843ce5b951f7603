"""Fill the bare project anew: python -m tests.bench.bare.fill OWNERS NOTES SEED

So many owners, each with so many notes; their tokens are printed, one a line. Whatever was there is gone.
"""

from __future__ import annotations

import os
import secrets
import sys

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.bench.bare.settings"


def main(owners: int, notes: int, seed: str) -> None:
    import django

    django.setup()
    from django.db import connection, transaction

    from tests.bench import texts
    from tests.bench.bare import words
    from tests.bench.bare.models import Entry, Note, Owner
    from tests.bench.bare.tokens import hashed

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
        made = [Owner.objects.create(token=hashed(token)) for token in tokens]
        for place, owner in enumerate(made):
            contents = texts.many(notes, f"{seed} {place}")
            Note.objects.bulk_create([Note(owner=owner, content=content) for content in contents], 500)
        words.add_all()
    print("\n".join(tokens))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
