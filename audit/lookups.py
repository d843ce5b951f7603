"""A lookup of ours: membership in a list of any length, of numbers and of bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.db import connection as default_connection
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

if TYPE_CHECKING:
    _Lookup = models.Lookup[Any]
else:
    _Lookup = models.Lookup


class Among(_Lookup):
    """`number__among=[…]`: membership in a list of any length as one parameter. Bytes compare as bytes."""

    lookup_name = "among"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, tuple[Any, ...]]:
        left, params = self.process_lhs(compiler, connection)
        wanted = "value"
        if connection.vendor == "postgresql":
            return f"{left} = ANY(%s)", (*params, parameter(self.rhs))
        if isinstance(self.lhs.output_field, models.BinaryField):
            wanted = "from_base64(value)"
        return f"{left} IN (SELECT {wanted} FROM json_each(%s))", (*params, parameter(self.rhs))


def parameter(values: Iterable[int] | Iterable[bytes]) -> list[int | bytes] | str:
    """What the SQL of `among` takes for these values: an array, or JSON on SQLite."""
    if default_connection.vendor == "postgresql":
        return list(values)
    return json.dumps([base64.b64encode(value).decode() if isinstance(value, bytes) else value for value in values])


for _field in (models.BigIntegerField, models.PositiveBigIntegerField, models.BigAutoField, models.BinaryField):
    _field.register_lookup(Among)
