"""Show and change an agent's memory rules."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from config import PROGRAM
from config.commandline import as_json, read_file
from config.wording import several
from memory.agents import rule_changes
from memory.errors import Invalid
from memory.management.agent_command import AgentCommand, agents_side, has_agents_key, wanted_value
from memory.models import Agent, Vault, VaultFile
from memory.policy import settings_document, suggest_setting, switches
from memory.policy.categories import NAMES, SCOPES
from memory.vault import comparing, writer

_ANALYSIS = "memory_rules.project_support.git_history_analysis.enabled"
_RECORDING = "memory_rules.auto_recording.enabled"


class Command(AgentCommand):
    help = (
        "Show and change the settings for what an agent may remember: the master switch, each category, automatic "
        "recording, and all other settings. A person must agree before anything is turned on. At a terminal, the "
        "command asks. A script passes --yes after a person has agreed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(required=True, metavar="ACTION")
        status = self.add_action(actions, "status", self.status, "show what is on, and the state of the vault")
        status.add_argument("--json", action="store_true", help="one line of JSON")
        for name, is_on in (("enable", True), ("disable", False)):
            summary = f"{name} memory, a category or automatic recording"
            switch = self.add_action(actions, name, partial(self.switch, is_on=is_on), summary)
            which = switch.add_mutually_exclusive_group()
            category = f"only this category: {NAMES}"
            which.add_argument("--category", choices=sorted(SCOPES), metavar="NAME", help=category)
            which.add_argument("--recording", action="store_true", help="only automatic recording")
            if is_on:
                switch.add_argument("--yes", action="store_true", help="turn it on and do not ask")
        summary = "print all settings as JSON, or print or change one setting"
        settings = self.add_action(actions, "settings", self.settings, summary)
        key = settings.add_argument("key", metavar="[KEY]", help="such as memory_rules.cleanup_guidance_days")
        value = settings.add_argument("value", metavar="[VALUE]", help="true, 5, text, or a JSON list")
        key.required = value.required = False
        settings.add_argument("--file", metavar="FILE", help="set all settings from a file; - for standard input")
        settings.add_argument("--yes", action="store_true", help="turn settings on and do not ask")

    # --- status

    def status(self, agent: Agent, *, json: bool, **_: Any) -> None:
        rules, off = switches.rules_of(agent), switches.closed(agent)
        categories = settings_document.value(rules, "memory_rules.categories")
        status: dict[str, Any] = {
            "agent": agent.label,
            "version": settings_document.value(rules, "version"),
            "enabled": agent.memory_enabled,
            "recording": settings_document.is_on(rules, "auto_recording", "enabled"),
            "git_history_analysis": settings_document.value(rules, _ANALYSIS),
            "categories": {
                name: {
                    "enabled": name not in off,
                    "location": categories[name]["storage_location"],
                    "suggested_retention_days": categories[name]["suggested_retention_days"],
                }
                for name in SCOPES
            },
            "vault": _vault(agent),
        }
        if json:
            self.result(status)
            return
        for line in _status_lines(status):
            self.tell(line)

    # --- switches and settings

    def switch(
        self, agent: Agent, *, is_on: bool, category: str | None, recording: bool, yes: bool = False, **_: Any
    ) -> None:
        path = f"memory_rules.categories.{category}.enabled" if category else settings_document.MASTER
        self._change(agent, wanted_value(_RECORDING if recording else path, "true" if is_on else "false"), yes=yes)

    def settings(
        self, agent: Agent, *, key: str | None, value: str | None, file: str | None, yes: bool, **_: Any
    ) -> None:
        if file is not None:
            if key is not None:
                raise Invalid("file", "sets all settings, so it cannot be used with a key")
            document = settings_document.read(read_file("file", file))
            for wrong, right in suggest_setting.mistyped(document):
                self.say(f"{wrong} is not a setting. It is stored, but has no effect. Did you mean {right}?")
            rules = document.get("memory_rules")
            enabled = rules.get("enabled") if isinstance(rules, dict) else None  # the master switch
            self._change(agent, rule_changes.Wanted(enabled, document), yes=yes)
        elif key is None:
            self.stdout.write(as_json(rule_changes.whole(agent), indent=2))
        elif value is None:
            self.stdout.write(as_json(_setting(agent, key), indent=2))
        else:
            _setting(agent, key)  # or raise Invalid
            self._change(agent, wanted_value(key, value), yes=yes)

    def _change(self, agent: Agent, wanted: rule_changes.Wanted, *, yes: bool) -> None:
        on = rule_changes.turned_on(agent, wanted)
        if on and not self.agrees_to_enable(on, yes=yes):
            self.say("Nothing was changed.")
            return
        side = agents_side(agent) if has_agents_key(agent) else None
        entry = rule_changes.make(agent, self.operator, wanted, agreed=on, side=side).seq
        self.say("Nothing to change." if entry is None else f"Changed, as entry {entry}.")


def _vault(agent: Agent) -> dict[str, Any] | None:
    """Return the state of the agent's vault for JSON output. The files are not compared with the silo."""
    if not agent.vault_path:
        return None
    return {
        "path": agent.vault_path,
        "is_there": writer.is_there(agent),
        "is_behind": writer.is_behind(agent),
        "fault": Vault.objects.filter(agent_id=agent.pk).values_list("fault", flat=True).first() or "",
        "files": VaultFile.objects.filter(agent_id=agent.pk, state=VaultFile.State.THERE).count(),
        "of_another_version": comparing.older(agent),
    }


def _status_lines(status: Mapping[str, Any]) -> Iterator[str]:
    state = {True: "on", False: "off"}
    yield f"{status['agent']}: memory is {state[status['enabled']]}, rules {status['version']}"
    yield f"automatic recording is {state[status['recording']]}"
    yield f"git history analysis is {state[status['git_history_analysis']]}"
    for name, each in status["categories"].items():
        days = each["suggested_retention_days"]
        kept = f"{days:>5} day{'' if days == 1 else 's'} suggested"
        yield f"{state[each['enabled']]:3} {name:16} {each['location']:8} {kept}"
    label, vault = status["agent"], status["vault"]
    if vault is None:
        yield f"no vault, so no files; '{PROGRAM} project init {label} --vault' creates a vault"
        return
    files = several(vault["files"], "file")
    behind = "not in sync with its silo" if vault["is_behind"] else "in sync with its silo"
    if vault["is_there"]:
        yield f"vault {vault['path']}, {files}, {behind}; '{PROGRAM} vault index {label} --check' compares each file"
    else:
        yield f"vault {vault['path']}: the folder is gone; '{PROGRAM} vault index {label}' writes {files} again"
    if vault["fault"]:
        yield f"the vault could not be written: {vault['fault']}; the next write retries"
    if older := vault["of_another_version"]:
        it = "it" if older == 1 else "them"
        yield f"{several(older, 'file')} of another version: '{PROGRAM} vault index {label}' writes {it} again"


def _setting(agent: Agent, key: str) -> Any:
    """Return the value of a setting. Raises Invalid. The error suggests a similar key."""
    if key == settings_document.MASTER:
        return agent.memory_enabled
    try:
        return settings_document.value(switches.rules_of(agent), key)
    except Invalid as wrong:
        raise Invalid(key[:200], f"{wrong.problem}{suggest_setting.hint(key)}") from None
