"""YAML front matter, read with python-frontmatter. Files come from strangers, so that the loader knows only text, lists
and mappings, refuses aliases, and reads a bounded number of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from frontmatter.default_handlers import YAMLHandler

MAX_LENGTH = 2**16  # characters of front matter
Value = str | tuple[str, ...]
# Tools write values that are no YAML, or mean something else there: `globs: **/*.ts`, `globs: "a", "b"`,
# `description: Use it: always`. Such values are put in quotes before YAML reads them.
_UNQUOTED = re.compile(
    r"""^([ \t]*(?:[\w.-]+:|-)[ \t]+)"""
    r"""([*{&!%@`][^\n]*|["'][^"'\n]*["'][ \t]*,[^\n]*|[^\s'"\[|>#-][^\n]*:[ \t][^\n]*)$""",
    re.MULTILINE,
)


class Unreadable(Exception):
    """The text has no readable front matter."""


class _Loader(yaml.BaseLoader):
    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError
        return super().compose_node(parent, index)


class _Handler(YAMLHandler):
    def load(self, fm: str, **_: object) -> Any:
        quoted = _UNQUOTED.sub(lambda found: found[1] + "'" + found[2].rstrip().replace("'", "''") + "'", fm)
        return yaml.load(quoted, Loader=_Loader)  # noqa: S506  a BaseLoader makes text, lists and mappings alone


def split_front_matter(text: str) -> tuple[Mapping[str, Value], str]:
    """The fields and the body of a text that begins with `---`. Keys below a key are `key.below`. Raises Unreadable."""
    fields, body = None, ""
    try:
        front, body = _Handler().split(text)
        if len(front) <= MAX_LENGTH:
            fields = _Handler().load(front) or {}
    except (ValueError, yaml.YAMLError, RecursionError):
        pass
    if not isinstance(fields, dict):
        raise Unreadable  # outside the handler: the errors there hold the text
    return dict(_flat(fields)), body


def _flat(fields: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{below}", _value(inner)) for below, inner in value.items())
        else:
            yield name, _value(value)


def _value(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(each for each in value if isinstance(each, str) and each)
    return value if isinstance(value, str) else ""


def as_list(value: Value) -> list[str]:
    """A list, or a text with commas as a list. A comma within braces separates nothing."""
    texts = value if isinstance(value, tuple) else re.findall(r"(?:\{[^{}]*\}|[^,])+", value.strip().strip("[]"))
    return [text for each in texts if (text := each.strip().strip("'\"").strip())]


def as_line(value: Value) -> str:
    return " ".join((value if isinstance(value, str) else ", ".join(value)).split())
