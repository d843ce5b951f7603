"""A lookup of ours: membership in a list of any length, of numbers and of bytes."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

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
        values = list(self.rhs)
        if connection.vendor == "postgresql":
            return f"{left} = ANY(%s)", (*params, values)
        if isinstance(self.lhs.output_field, models.BinaryField):
            listed = json.dumps([base64.b64encode(value).decode() for value in values])
            return f"{left} IN (SELECT from_base64(value) FROM json_each(%s))", (*params, listed)
        return f"{left} IN (SELECT value FROM json_each(%s))", (*params, json.dumps(values))


for _field in (models.BigIntegerField, models.PositiveBigIntegerField, models.BigAutoField, models.BinaryField):
    _field.register_lookup(Among)
