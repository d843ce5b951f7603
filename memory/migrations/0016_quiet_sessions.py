from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('memory', '0015_moving'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='recordedsession',
            index=models.Index(condition=models.Q(('ended_at__isnull', True)), fields=['last_at'], name='recorded_session_open'),
        ),
    ]
