"""Forms that make an agent, change its settings, or propose a change to its side."""

from __future__ import annotations

from typing import Any

from django import forms

from memory.admin.base.help_texts import LIMITS
from memory.admin.base.page import AdminForm, OfTenantForm
from memory.admin.keys import LabelForm
from memory.admin.tenants import LimitsForm, whole
from memory.agents import lifecycle
from memory.search.words import LANGUAGES

TENANT_SETS = (
    "budget_tokens",
    "target_tokens",
    "refine_every",
    "paused",
    "last_n",
    "max_entries",
    "context_tokens",
    *LIMITS,
)


class BudgetForm(LimitsForm):
    otherwise = "its tenant's limit, or else {}"
    budget_tokens = whole("core memory beyond it makes a refinement due", least=1, initial=8_000, required=True)
    target_tokens = whole("what a refinement aims for; no more than the budget", least=1, initial=5_000, required=True)
    refine_every = forms.DurationField(
        required=False,
        initial="7 00:00:00",
        help_text="days and hours:minutes:seconds, such as 7 00:00:00; from one hour to ten years; empty: off",
    )
    last_n = whole("newest entries of its log of runs that gc keeps; 0: the next")
    max_entries = whole("… where that is 0; 0 too: gc trims nothing")
    context_tokens = whole("of its log that gc sends to the model; empty: all", least=1, most=lifecycle.MAX_CONTEXT)

    def clean(self) -> dict[str, Any]:
        """With 0 where no number of entries is given."""
        cleaned: dict[str, Any] = super().clean() or {}
        return cleaned | {name: cleaned.get(name) or 0 for name in ("last_n", "max_entries")}


class SettingsForm(BudgetForm):
    """What a tenant may set, as over the API."""

    title = "Settings of {row.label}"
    lead = ("Its model, its steward and who may consent are its own side's to change.",)
    field_order = TENANT_SETS
    paused = forms.BooleanField(required=False, help_text="nothing is refined until it is resumed")


class NewAgentForm(BudgetForm, OfTenantForm):
    title, button = "Add an agent", "Add it"
    lead = ("Its model, its steward and its language are its own side's to change, once it is there.",)
    field_order = ("tenant", "agent", "model", "language", "steward", *TENANT_SETS)
    agent = forms.CharField(max_length=64, help_text="its name: lower-case letters, digits, '-' and '_'")
    model = forms.CharField(max_length=200, help_text="provider/model-name, such as builtin/dedupe")
    language = forms.CharField(
        max_length=32,
        initial="english",
        widget=forms.Select(choices=[(name, name) for name in sorted(LANGUAGES)]),
        help_text="of its memories, for search; other: words are taken as they stand",
    )
    steward = forms.EmailField(required=False, help_text="who speaks for it until its runtime exchanges its key")


class ProposalForm(AdminForm):
    """What the agent's side decides, and others may propose to it."""

    title, button = "Propose a change of {row.label}", "Propose it"
    lead = (
        "Its own side decides these, because they decide who can read. Nothing changes until its runtime or its "
        "steward accepts, within 72 hours. A proposal that is open is replaced by this one.",
    )
    model = forms.CharField(max_length=200, help_text="provider/model-name; the provider can read what is refined")
    steward = forms.EmailField(required=False, help_text="the address of the person who speaks for the agent")
    is_steward_only = forms.BooleanField(
        required=False, label="Its steward alone consents", help_text="and not its runtime"
    )
    memory_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Memory file",
        help_text="a file such as notes.md, in its tenant's folder on the server. Its runs are logged there in clear "
        "text: anyone who can read the file can read them. Empty: they are logged in its memory, sealed",
    )
    vault_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Vault",
        help_text="a folder such as vault, in its tenant's folder on the server. It gets a file for each memory, which "
        "anyone with access to the folder can read. Private memories stay sealed. Empty: no vault",
    )


class FirstKeyForm(LabelForm):
    title, button = "The first key of {row.label}", "Make the key"
    lead = ("A key is handed out while the silo is empty. From then on its own side alone issues keys.",)
