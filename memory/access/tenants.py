"""Tenants and their keys. A tenant's key is for programs that set up and monitor agents. It gives no access to
silos."""

from typing import Any

from django.core.exceptions import ValidationError
from django.db import IntegrityError, models, transaction
from django.utils import timezone

from memory.access.authentication import new_key
from memory.access.roles import lock, set_live, sign_roles, whole_roles
from memory.errors import AlreadyExists, Invalid, NotFound
from memory.models import Tenant, TenantKey


def create(slug: str, *, name: str = "") -> Tenant:
    """Create a tenant. Raises Invalid, AlreadyExists."""
    tenant = Tenant(slug=slug, name=name)
    _clean(tenant)
    try:
        with transaction.atomic():
            tenant.save()
            sign_roles(tenant, {}, ())
    except IntegrityError:
        raise AlreadyExists("A tenant with this name already exists.") from None
    return tenant


def change(tenant: Tenant, **settings: Any) -> Tenant:
    """Set the tenant's name and limits. The slug cannot change, because the agents' trails contain it. Raises
    Invalid."""
    with transaction.atomic():
        row = lock(tenant.pk)
        for name, value in settings.items():
            setattr(row, name, value)
        _clean(row)
        row.save(update_fields=list(settings))
        return row


def _clean(tenant: Tenant) -> None:
    """Run Django's field checks. Raises Invalid. The message does not contain the value."""
    field = wrong_field(tenant)
    if field:
        raise Invalid(field, _ADVICE.get(field, "is not valid"))


def wrong_field(row: models.Model) -> str:
    """The name of the first invalid field, or "". This raises no error, because a ValidationError contains the
    value."""
    try:
        row.clean_fields()
    except ValidationError as problem:
        return next(iter(problem.message_dict))
    return ""


_ADVICE = {
    "slug": "must be 1 to 64 lower-case letters, digits, '-' and '_', beginning and ending with a letter or digit",
    "name": "must be at most 200 characters",
}


def issue_key(slug: str, *, pk: int | None = None, label: str = "") -> str:
    """Issue a key of the tenant with this name, and with this number if it is given: SQL can exchange names. Returns
    the key, which is not stored. Raises NotFound, and Invalid if the tenant has too many keys."""
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(no_key=True).filter(slug=slug).first()
        if tenant is None or tenant.slug != slug or pk not in (None, tenant.pk):
            raise NotFound(f"The tenant {slug} does not exist.")
        prefix, mac, key = new_key(TenantKey, tenant.pk)
        TenantKey.objects.create(tenant=tenant, prefix=prefix, mac=mac, label=label)
        set_live(tenant.pk, prefix)
    return key


def revoke_key(slug: str, prefix: str) -> None:
    """Revoke a key. A key that is already revoked does not change. Raises NotFound."""
    with transaction.atomic():
        tenant = Tenant.objects.select_for_update(no_key=True).filter(slug=slug).first()
        rows = TenantKey.objects.filter(tenant=tenant, prefix=prefix)
        if tenant is None or tenant.slug != slug or not rows.exists():
            raise NotFound("The tenant has no key with this prefix.")
        ended = rows.filter(revoked_at=None).update(revoked_at=timezone.now(), mac=b"")
        if ended or f"{prefix}-" in tenant.live_prefixes:
            set_live(tenant.pk, ended=prefix)
        else:
            whole_roles(tenant)  # SQL may only seem to have ended it
