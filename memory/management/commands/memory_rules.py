"""An agent's memory rules: what may be remembered, and where it is kept (seed 004)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from config.commandline import Task, as_json
from config.commandline.any_order import AnyOrder
from config.wording import several
from memory.access import request_key
from memory.access.authentication import agent_named
from memory.agents import rule_changes
from memory.agents.rule_changes import Wanted
from memory.errors import Invalid
from memory.management.rules import (
    Deed,
    asking,
    beginning,
    cleaning,
    history,
    indexing,
    keeping,
    moving,
    recording,
    retrieving,
)
from memory.models import Agent, Vault, VaultFile
from memory.policy import settings_document, suggest_setting, switches
from memory.policy.categories import NAMES, SCOPES
from memory.vault import repair, writer
from memory.writing import edits

_ALL = (
    *beginning.DEEDS,
    *keeping.DEEDS,
    *indexing.DEEDS,
    *recording.DEEDS,
    *retrieving.DEEDS,
    *cleaning.DEEDS,
    *history.DEEDS,
    *moving.DEEDS,
)
_DEEDS: dict[str, Deed] = {deed.name: deed for deed in _ALL}  # beside those of this module
_CATEGORY = "memory_rules.categories.{}.enabled"
_ANALYSIS = "memory_rules.project_support.git_history_analysis.enabled"
_RECORDING = "memory_rules.auto_recording.enabled"


class Command(Task):
    help = (
        "Show and change what an agent may remember: its master switch, its categories, automatic recording, and every "
        "other setting. Nothing is switched on without a yes: at a terminal it is asked for, in a script it is --yes."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        each = parser.add_subparsers(dest="deed", required=True, metavar="DEED", parser_class=AnyOrder)
        self._of(each, "status", "what is on, and where it is kept")
        for name, told in (("enable", "switch memory on"), ("disable", "switch memory off")):
            switch = self._of(each, name, told)
            which = switch.add_mutually_exclusive_group()
            alone = f"this category alone: {NAMES}"
            which.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help=alone)
            which.add_argument("--recording", action="store_true", help="automatic recording alone")
        settings = self._of(each, "settings", "print all of them as settings.json, one of them, or set one")
        settings.add_argument("key", nargs="?", metavar="KEY", help="such as memory_rules.cleanup_guidance_days")
        settings.add_argument("value", nargs="?", metavar="VALUE", help="true, 5, some text, or a JSON list")
        settings.add_argument("--file", metavar="FILE", help="take all from a settings.json; - for standard input")
        for deed in _DEEDS.values():
            deed.arguments(self._of(each, deed.name, deed.told))

    def _of(self, each: Any, name: str, told: str) -> CommandParser:
        parser: CommandParser = each.add_parser(name, help=told, description=f"{told[0].upper()}{told[1:]}.")
        parser.add_argument("agent", metavar="TENANT/AGENT", help="whose memory it is: acme/ada")
        if name == "status":
            parser.add_argument("--json", action="store_true", help="one line of JSON")
        elif name in ("enable", "settings"):
            parser.add_argument("--yes", action="store_true", help="do not ask before something is switched on")
        return parser

    def run(self, *, deed: str, agent: str, **options: Any) -> int | None:
        target = agent_named(agent)
        edits.require_key(target)
        with request_key.request():
            if deed in _DEEDS:
                return _DEEDS[deed].run(self, target, **options)
            if deed == "status":
                self._status(target, **options)
            elif deed == "settings":
                self._settings(target, **options)
            else:
                self._switch(target, is_on=deed == "enable", **options)
        return None

    # --- what is so

    def _status(self, agent: Agent, *, json: bool, **_: Any) -> None:
        rules, off = switches.rules_of(agent), switches.closed(agent)
        told: dict[str, Any] = {
            "agent": agent.label,
            "version": settings_document.value(rules, "version"),
            "enabled": agent.memory_enabled,
            "recording": settings_document.is_on(rules, "auto_recording", "enabled"),
            "git_history_analysis": settings_document.value(rules, _ANALYSIS),
            "categories": {
                name: {
                    "enabled": name not in off,
                    "location": settings_document.value(rules, f"memory_rules.categories.{name}.storage_location"),
                    "suggested_retention_days": settings_document.value(
                        rules, f"memory_rules.categories.{name}.suggested_retention_days"
                    ),
                }
                for name in SCOPES
            },
        }
        told["vault"] = _vault(agent)
        if json:
            self.result(told)
            return
        self.tell(f"{agent.label}: memory is {'on' if agent.memory_enabled else 'off'}, rules {told['version']}")
        self.tell(f"automatic recording is {'on' if told['recording'] else 'off'}")
        self.tell(f"the analysis of git history is {'on' if told['git_history_analysis'] else 'off'}")
        for name, each in told["categories"].items():
            state = "on " if each["enabled"] else "off"
            kept = each["suggested_retention_days"]
            self.tell(f"{state} {name:16} {each['location']:8} {kept:>5} day{'' if kept == 1 else 's'} suggested")
        for line in _of_vault(told["vault"]):
            self.tell(line)

    # --- switches

    def _switch(self, agent: Agent, *, is_on: bool, category: str | None, recording: bool, **options: Any) -> None:
        wanted = Wanted(enabled=is_on)
        if category or recording:
            path = _RECORDING if recording else _CATEGORY.format(category)
            wanted = Wanted(key=path, value="true" if is_on else "false")
        self._change(agent, wanted, yes=options.get("yes", False))

    def _settings(
        self, agent: Agent, *, key: str | None, value: str | None, file: str | None, yes: bool, **_: Any
    ) -> None:
        if file is not None:
            if key is not None:
                raise Invalid("settings", "are one key or a whole file, not both")
            given = settings_document.read(_read(file))
            for wrong, right in suggest_setting.mistyped(given):
                self.say(f"{wrong} is no setting, and is kept as it is. Was {right} meant?")
            self._change(agent, Wanted(_master(given), given), yes=yes)
            return
        if key is not None and key != settings_document.MASTER:
            _require_setting(switches.rules_of(agent), key)
        if value is not None and key == settings_document.MASTER:
            self._change(agent, Wanted(_truth(value)), yes=yes)
        elif value is not None and key is not None:
            self._change(agent, Wanted(key=key, value=value), yes=yes)
        else:
            found: Any = rule_changes.whole(agent)
            if key is not None:
                found = (
                    agent.memory_enabled
                    if key == settings_document.MASTER
                    else settings_document.value(switches.rules_of(agent), key)
                )
            self.stdout.write(as_json(found, indent=2))

    def _change(self, agent: Agent, wanted: Wanted, *, yes: bool) -> None:
        on = rule_changes.turned_on(agent, wanted)
        if on and not asking.agreed(self, on, yes=yes):
            self.say("Nothing was changed.")
            return
        side = keeping.agents_side(agent) if keeping.is_agents_side(agent) else None
        entry = rule_changes.make(agent, asking.OPERATOR, wanted, agreed=on, side=side).seq
        self.say("Nothing had to be changed." if entry is None else f"Changed, as entry {entry}.")


def _vault(agent: Agent) -> dict[str, Any] | None:
    """The state of its vault, without looking at each file."""
    if not agent.vault_path:
        return None
    state = Vault.objects.filter(agent_id=agent.pk).first()
    return {
        "path": agent.vault_path,
        "is_there": writer.is_there(agent),
        "is_behind": writer.is_behind(agent),
        "fault": state.fault if state else "",
        "files": VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE).count(),
        "of_another_version": repair.older(agent),
    }


def _of_vault(vault: dict[str, Any] | None) -> Iterator[str]:
    if vault is None:
        yield "no vault: no files; 'init --vault' begins one"
        return
    behind = "behind its silo" if vault["is_behind"] else "follows its silo"
    if vault["is_there"]:
        yield f"vault {vault['path']}, {several(vault['files'], 'file')}, {behind}; 'index --check' looks at each"
    else:
        files = several(vault["files"], "file")
        yield f"vault {vault['path']}: the folder is gone; 'index --repair' writes its {files} again"
    if vault["fault"]:
        yield f"the vault could not be written: {vault['fault']}; it is tried again"
    if vault["of_another_version"]:
        it = "it" if vault["of_another_version"] == 1 else "them"
        yield f"{several(vault['of_another_version'], 'file')} of another version: 'index --repair' writes {it} again"


def _master(given: settings_document.Document) -> bool | None:
    """What a document says of the master switch. Raises Invalid."""
    rules = given.get("memory_rules")
    found = rules.get("enabled") if isinstance(rules, dict) else None
    if found is not None and not isinstance(found, bool):
        raise Invalid(settings_document.MASTER, "must be true or false")
    return found


def _require_setting(rules: Mapping[str, Any], key: str) -> None:
    try:
        settings_document.value(rules, key)
    except Invalid as wrong:
        raise Invalid(key[:200], f"{wrong.problem}{suggest_setting.hint(key)}") from None


def _truth(value: str) -> bool:
    """Raises Invalid."""
    if value not in ("true", "false"):
        raise Invalid(settings_document.MASTER, "must be true or false")
    return value == "true"


def _read(file: str) -> bytes:
    """Raises Invalid, quoting nothing."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as problem:
        raise Invalid("file", f"cannot be read ({(problem.strerror or '').lower()})") from None
