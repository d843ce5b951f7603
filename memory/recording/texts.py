"""Clean the texts that describe a conversation. A cleaned text is on one line, and has no secrets, brands or
licences."""

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from memory.errors import Invalid
from memory.masking.neutral import neutral
from memory.masking.scanner import masked_together
from memory.models import Agent
from memory.policy import paths, switches
from memory.policy.validation import checked_content, looks_secret

_SHORT = 160  # characters of a quotation


def one_line(text: object, field: str, most: int) -> str:
    """Return a text on one line. The text can be "". Raises Invalid."""
    return " ".join(checked_content(text, field, most).split()) if text != "" else ""


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def short(text: str) -> str:
    """Return the beginning of a text as one line of at most _SHORT characters."""
    return cut(" ".join(text[: 8 * _SHORT].split()), _SHORT)


def checked_name(name: object) -> str:
    """Check a session's name and return it. The name can be "". The name is stored unencrypted, so it must not look
    like a secret. Raises Invalid."""
    if name == "":
        return ""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise Invalid("session", "must be 1 to 64 characters: letters, digits and . _ -")
    if looks_secret(name):
        raise Invalid("session", "looks like a secret. Session names are not encrypted: choose another name")
    return name


def cleaned(fields: Mapping[str, str | tuple[str, ...]], most: int) -> dict[str, Any]:
    """Return the fields without brands and secrets. A field is a text or a tuple of texts. Each text is put on one line
    and cut to `most` characters. Raises Invalid."""
    texts: dict[str, list[str]] = {}
    for name, value in fields.items():
        items = value if isinstance(value, tuple) else (value,)
        texts[name] = [neutral(one_line(text, name, most)) for text in items]
    masked = iter(masked_together([text for each in texts.values() for text in each])[0])
    clean = {name: tuple(cut(next(masked), most) for _ in each) for name, each in texts.items()}
    return {name: each if isinstance(fields[name], tuple) else each[0] for name, each in clean.items()}


def reference(row: Agent, number: int, category: str, project: str, title: str, *, within: str) -> str:
    """Return a reference to a memory, such as `memory 3`. If the agent has a vault, return a link to the memory's file,
    such as `[memory 3](000003-tea.md)`. `within` is a category. The path of the link is relative to the folder of this
    category in the same project. `title` is the title in the file's name."""
    label = f"memory {number}"
    if not row.vault_path:
        return label
    rules = switches.rules_of(row)
    folder, here = (paths.folder(each, project, rules) for each in (category, within))
    file = folder / paths.name_of(number, category, title, rules)
    return f"[{label}]({posixpath.relpath(file, here)})"
