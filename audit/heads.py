"""Heads: the last entry of each trail, exported and signed. Keep them where the database administrator has no access.

A chain shows changes that were made without the audit key. It does not show whether somebody removed its last entries,
or whether somebody with the key wrote the whole chain again. An exported head makes both visible, because the entry of
the head is then missing or different.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db.models import Max, Q
from django.utils import timezone

from audit.bulk import streamed
from audit.ill_formed import binary, ill_formed
from audit.models import AuditEntry
from audit.trail import canonical
from audit.verify import Problem
from config.errors import ConfigurationError
from config.keyring import keyring

FORMAT = "palimpsest-heads-1"
_AT_ONCE = 300  # trails in one query
Head = dict[str, Any]
_NONE: Head = {"seq": 0}


class BadHeads(ConfigurationError):
    """The file has no heads signed with a key of this keyring. The message says why."""

    code = "bad_heads"


def export(agent_id: int | None = None, earlier: Sequence[Head] = ()) -> dict[str, Any]:
    """Export the last entry of every trail, or of one agent's trail. The newest key signs the export (Ed25519). The
    export has no content. A head of `earlier` stays if its entry is missing or different now, or the trail is shorter.

    `{"format", "at", "heads": [{"agent_id", "agent", "seq", "mac", "at"}], "key_id", "public_key", "signature"}`
    """
    heads = {head["agent_id"]: head for head in _heads(agent_id)}
    changed = (head for head in earlier if heads.get(head["agent_id"]) != head)
    kept = (head for head in changed if head["seq"] > heads.get(head["agent_id"], _NONE)["seq"] or any(_lost([head])))
    heads |= {head["agent_id"]: head for head in kept}
    key = keyring().heads[0]
    private = Ed25519PrivateKey.from_private_bytes(key.secret)
    signed: dict[str, Any] = {
        "format": FORMAT,
        "at": timezone.now().isoformat(),
        "heads": list(heads.values()),
        "key_id": key.id,
        "public_key": base64.b64encode(private.public_key().public_bytes_raw()).decode(),
    }
    return signed | {"signature": base64.b64encode(private.sign(canonical(signed).encode())).decode()}


def _heads(agent_id: int | None) -> Iterator[Head]:
    which = Q() if agent_id is None else Q(agent_id=agent_id)
    ends = AuditEntry.objects.filter(which).order_by("agent_id").values_list("agent_id").annotate(Max("seq"))
    with streamed(ends) as rows:
        while batch := list(islice(rows, _AT_ONCE)):
            with ill_formed() as found:
                yield from _ends(batch)
            for each in batch if found else ():  # a row that cannot be read must not cost the others their heads
                with ill_formed():
                    yield from _ends([each])


def _ends(batch: Iterable[tuple[int, int]]) -> list[Head]:
    """The heads of these entries. An entry with an ill-formed MAC has none."""
    these = reduce(or_, (Q(agent_id=agent, seq=seq) for agent, seq in batch))
    entries = AuditEntry.objects.filter(these).order_by("agent_id")
    found = [
        {"agent_id": e.agent_id, "agent": e.agent_label, "seq": e.seq, "mac": e.mac.hex(), "at": e.at.isoformat()}
        for e in entries
    ]
    return list(filter(_is_head, found))


def read(text: str | bytes) -> list[Head]:
    """The heads of an export. Checks the signature. Raises BadHeads."""
    problem = "is not JSON"
    try:
        value = json.loads(text)
        problem = "is not an export of heads"
        signature = base64.b64decode(value["signature"], validate=True)
        signed = {name: each for name, each in value.items() if name != "signature"}
        if signed["format"] == FORMAT and all(_is_head(head) for head in signed["heads"]):
            problem = f"was signed with key {signed['key_id']!s:.8}, which is not in the keyring (HEADS_KEY)"
            for key in keyring().heads:
                if key.id == signed["key_id"]:
                    problem = "was changed after it was signed"
                    public = Ed25519PrivateKey.from_private_bytes(key.secret).public_key()
                    public.verify(signature, canonical(signed).encode())
                    return list(signed["heads"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, binascii.Error, InvalidSignature):
        pass
    raise BadHeads(f"The heads file {problem}.")


def _is_head(head: Head) -> bool:
    return (
        isinstance(head["agent_id"], int)
        and isinstance(head["seq"], int)
        and isinstance(head["agent"], str)
        and len(bytes.fromhex(head["mac"])) == 32
        and datetime.fromisoformat(head["at"]).tzinfo is not None
    )


def problems(heads: Iterable[Head]) -> Iterator[Problem]:
    """Report each exported entry that is now missing or different. It was the last entry of its trail.

    If the exported entry is unchanged and the chain is intact, all earlier entries are unchanged too.
    """
    return (Problem(head["agent"], head["seq"], problem) for head, problem in _lost(heads))


def _lost(heads: Iterable[Head]) -> Iterator[tuple[Head, str]]:
    for head in heads:
        found = AuditEntry.objects.filter(agent_id=head["agent_id"], seq=head["seq"]).values_list("mac", flat=True)
        mac = b""
        with ill_formed():
            mac = next((binary(each) for each in found[:1]), b"")
        if not mac:
            yield head, "truncated: this entry was the last at the export and is missing"
        elif mac.hex() != head["mac"]:
            yield head, "replaced: the export has another entry with this number"
