from django.db import migrations

from audit import mending


class Migration(migrations.Migration):
    dependencies = [("refinement", "0007_line")]

    operations = [
        mending.column("refinement", "RefinementSession", "shown_at", 0),
        mending.number("refinement", "RefinementSession", "shown_at", 0),
    ]
