"""Tenants' keys: for programs that set up agents and watch them, without a way into a silo."""

from __future__ import annotations

from django.utils import timezone

from memory.access import new_key
from memory.errors import NotFound
from memory.models import Tenant, TenantKey


def issue_key(slug: str, *, label: str = "") -> str:
    """A key of the tenant. Returned, and never shown again. Raises NotFound."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise NotFound(f"There is no tenant {slug}.")
    prefix, mac, key = new_key(TenantKey, tenant.pk)
    TenantKey.objects.create(tenant=tenant, prefix=prefix, mac=mac, label=label)
    return key


def revoke_key(slug: str, prefix: str) -> None:
    """End a key. One that was ended is left as it is. Raises NotFound."""
    keys = TenantKey.objects.filter(tenant__slug=slug, prefix=prefix)
    if not keys.exists():
        raise NotFound("There is no such key.")
    keys.filter(revoked_at=None).update(revoked_at=timezone.now())
