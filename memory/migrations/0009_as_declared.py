from django.db import migrations

from audit import mending


class Migration(migrations.Migration):
    dependencies = [("memory", "0008_background")]

    # Whose authenticator the service has not sworn to has to be enrolled anew.
    operations = [mending.column("memory", "Authenticator", "proof", b"")]
