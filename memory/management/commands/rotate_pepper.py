"""Sign people, members, tenants' keys and invitations with the newest pepper."""

from typing import Any

from django.db import transaction

from config.commandline import Task
from config.errors import FAILED
from memory.access import roles
from memory.errors import NotAllowed
from memory.models import Person, Tenant


class Command(Task):
    help = (
        "Sign all people, and the members, keys and invitations of every tenant, with the newest pepper. Run it after "
        "you put a new key first in PEPPER_KEY, or in the pepper file, and started all processes again. Without it, "
        "tenants that have no members give no access after you remove the older key. You can run it again at any time."
    )

    def run(self, **options: Any) -> int:
        refused = 0
        for number in Person.objects.order_by("pk").values_list("pk", flat=True):
            with transaction.atomic():
                person = Person.objects.select_for_update().get(pk=number)
                if person.is_proven():
                    person.sign()
                else:
                    refused += 1
                    self.say(f"error: person {number} was changed outside the service. Run 'verify_audit'.")
        for number in Tenant.objects.order_by("pk").values_list("pk", flat=True):
            try:
                with transaction.atomic():
                    tenant = roles.lock(number)
                    roles.sign_roles(tenant, roles.whole_roles(tenant), tenant.live_prefixes.split())
            except NotAllowed as error:
                refused += 1
                self.say(f"error: {error}")
        if not refused:
            self.stdout.write("every person and tenant is signed with the newest pepper")
        return FAILED if refused else 0
