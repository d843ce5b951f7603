from django.db import migrations, models
from django.db.models import F


def of_themselves(apps, _):
    """What was moved in before is known as what is no part of anything."""
    apps.get_model('memory', 'Moved').objects.update(place_digest=F('key_digest'), file_digest=F('key_digest'))


class Migration(migrations.Migration):

    dependencies = [
        ('memory', '0016_quiet_sessions'),
    ]

    operations = [
        migrations.AddField(
            model_name='moved',
            name='place_digest',
            field=models.BinaryField(db_default=b'', help_text='keyed, of the list or text that it is part of', max_length=32),
        ),
        migrations.AddField(
            model_name='moved',
            name='file_digest',
            field=models.BinaryField(db_default=b'', help_text='keyed, of its file', max_length=32),
        ),
        migrations.AddField(
            model_name='moved',
            name='before',
            field=models.JSONField(db_default=[], default=list, help_text='number and version of what it was before, newest first'),
        ),
        migrations.AddIndex(
            model_name='moved',
            index=models.Index(fields=['agent', 'content_digest'], name='moved_words'),
        ),
        migrations.AddIndex(
            model_name='moved',
            index=models.Index(fields=['agent', 'place_digest'], name='moved_place'),
        ),
        migrations.AddIndex(
            model_name='moved',
            index=models.Index(fields=['agent', 'file_digest'], name='moved_file'),
        ),
        migrations.RunPython(of_themselves, migrations.RunPython.noop),
    ]
