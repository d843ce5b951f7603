from __future__ import annotations

from typing import Any

from django.db import migrations, models

from memory.access import authority
from memory.silo.keys import unwrap
from memory.silo.silo import Silo

PROMPTS = ("system_prompt", "refinement_prompt")


def seal(apps: Any, _: Any) -> None:
    """Seal the prompts under the agents' data keys. Without any prompt, this needs no keys. An erased agent keeps
    none."""
    for agent in _agents(apps).exclude(**dict.fromkeys(PROMPTS, "")):
        silo = _silo(agent)
        texts = {name: getattr(agent, name) for name in PROMPTS}
        sealed = {name: silo.seal_text(name, 0, text) if silo and text else b"" for name, text in texts.items()}
        _write(apps, agent, {f"sealed_{name}": value for name, value in sealed.items()} | dict.fromkeys(PROMPTS, ""), sealed)


def unseal(apps: Any, _: Any) -> None:
    empty = {f"sealed_{name}": b"" for name in PROMPTS}
    for agent in _agents(apps).exclude(**empty):
        silo = _silo(agent)
        sealed = {name: bytes(getattr(agent, f"sealed_{name}")) for name in PROMPTS}
        vars(agent).update(sealed)  # as the present signature covers them
        texts = {name: silo.open_text(name, 0, value) if silo and value else "" for name, value in sealed.items()}
        _write(apps, agent, empty | texts, texts)


def _agents(apps: Any) -> Any:
    return apps.get_model("memory", "Agent").objects


def _silo(agent: Any) -> Silo | None:
    return Silo(agent.pk, unwrap(agent.pk, bytes(agent.wrapped_key))) if agent.wrapped_key else None


def _write(apps: Any, agent: Any, values: dict[str, Any], covered: dict[str, Any]) -> None:
    """Write these values. If the row's signature is right, sign the row again, with these prompts."""
    if authority.is_signed(agent):
        vars(agent).update(covered)
        authority.sign(agent)
        values |= {name: getattr(agent, name) for name in authority.SIGNATURE}
    _agents(apps).filter(pk=agent.pk).update(**values)


class Migration(migrations.Migration):
    dependencies = [("memory", "0010_imported_pieces_with_ids")]

    operations = [
        *(migrations.AddField("agent", f"sealed_{name}", models.BinaryField(default=b"")) for name in PROMPTS),
        migrations.RunPython(seal, unseal, elidable=True),
        *(migrations.RemoveField("agent", name) for name in PROMPTS),
        *(migrations.RenameField("agent", f"sealed_{name}", name) for name in PROMPTS),
    ]
