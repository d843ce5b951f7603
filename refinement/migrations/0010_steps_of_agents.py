from django.db import migrations, models


def name_agents(apps, editor):
    """Give each step its session's agent. In a transaction of its own: while it runs, steps are written."""
    session = apps.get_model("refinement", "RefinementSession").objects.filter(pk=models.OuterRef("session_id"))
    steps = apps.get_model("refinement", "SessionStep").objects.filter(agent_id=None)
    steps.update(agent_id=models.Subquery(session.values("agent_id")))


class Migration(migrations.Migration):
    dependencies = [("refinement", "0009_step_agent")]

    operations = [migrations.RunPython(name_agents, migrations.RunPython.noop)]
