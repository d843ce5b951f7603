from django.db import migrations

from audit import mending


class Migration(migrations.Migration):
    dependencies = [("audit", "0009_rollbacks")]

    operations = [
        mending.index("audit", "AuditEntry", "audit_entry_session", lambda definition: "WHERE" in definition),
        mending.index(
            "audit",
            "AuditEntry",
            "audit_entry_own_edits",
            lambda definition: " IN (" not in definition and "ANY (" not in definition,
        ),
    ]
