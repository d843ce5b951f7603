from __future__ import annotations

from typing import Any

from django.db import migrations, models

from memory.access import authority


def sign_rows(apps: Any, _: Any) -> None:
    """Sign the rows of agents, whose live keys are those that the trail has issued and not revoked."""
    entries = apps.get_model("audit", "AuditEntry").objects.order_by("seq")
    for agent in apps.get_model("memory", "Agent").objects.exclude(audit_seq=0).iterator():
        own = entries.filter(agent_id=agent.pk)
        prefixes = [
            {detail["prefix"] for detail in own.filter(operation=name).values_list("detail", flat=True)}
            for name in ("key_issued", "key_revoked")
        ]
        agent.live_keys = " ".join(sorted(prefixes[0] - prefixes[1]))
        authority.sign(agent)
        agent.save(update_fields=["live_keys", *authority.SIGNATURE])


class Migration(migrations.Migration):
    dependencies = [("memory", "0004_help_texts"), ("audit", "0001_initial")]

    operations = [
        migrations.AddField("agent", "live_keys", models.TextField(db_default="", default="", editable=False)),
        migrations.AddField(
            "agent", "authority_key_id", models.CharField(db_default="", default="", editable=False, max_length=8)
        ),
        migrations.AddField("agent", "authority_mac", models.BinaryField(default=b"", max_length=32)),
        migrations.RunPython(sign_rows, migrations.RunPython.noop, elidable=True),
    ]
