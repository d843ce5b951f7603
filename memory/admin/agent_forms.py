"""Forms to add an agent, to change its settings, and to propose a change to its side."""

from __future__ import annotations

from typing import Any

from django import forms

from memory.admin.base.help_texts import LIMITS
from memory.admin.base.page import AdminForm, TenantChoiceForm
from memory.admin.keys import LabelForm
from memory.admin.tenants import LimitsForm, whole_number
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
    default_text = "the tenant's limit, or else {}"
    budget_tokens = whole_number("larger core memory makes a refinement due", least=1, initial=8_000, required=True)
    target_tokens = whole_number(
        "a refinement aims for this; at most the budget", least=1, initial=5_000, required=True
    )
    refine_every = forms.DurationField(
        required=False,
        initial="7 00:00:00",
        help_text="days and hours:minutes:seconds, such as 7 00:00:00; one hour to ten years; empty: never by date",
    )
    last_n = whole_number("newest entries of the log of runs that gc keeps; 0: use max entries")
    max_entries = whole_number("entries that gc keeps if last n is 0; 0: gc removes nothing")
    context_tokens = whole_number(
        "of the log that gc sends to the model; empty: all", least=1, most=lifecycle.MAX_CONTEXT
    )

    def clean(self) -> dict[str, Any]:
        """Replace an empty number of entries with 0."""
        cleaned: dict[str, Any] = super().clean() or {}
        return cleaned | {name: cleaned.get(name) or 0 for name in ("last_n", "max_entries")}


class SettingsForm(BudgetForm):
    """Settings that a tenant may change directly."""

    title = "Settings of {row.label}"
    lead = ("The agent's side decides about the model, the steward and who may consent. Propose a change to it.",)
    field_order = TENANT_SETS
    paused = forms.BooleanField(required=False, help_text="no refinement when due, until you resume the agent")


class NewAgentForm(BudgetForm, TenantChoiceForm):
    title, button = "Add an agent", "Add the agent"
    lead = ("Later, only the agent's side can change the model, the steward and the language.",)
    field_order = ("tenant", "agent", "model", "language", "steward", *TENANT_SETS)
    agent = forms.CharField(max_length=64, help_text="name of the agent: lower-case letters, digits, '-' and '_'")
    model = forms.CharField(max_length=200, help_text="provider/model-name, such as builtin/dedupe")
    language = forms.CharField(
        max_length=32,
        initial="english",
        widget=forms.Select(choices=[(name, name) for name in sorted(LANGUAGES)]),
        help_text="language of the memories, for search; other: search uses words without stemming",
    )
    steward = forms.EmailField(required=False, help_text="email address of the person who decides for the agent")


class ProposalForm(AdminForm):
    """Settings that only the agent's side changes. Others may propose a change."""

    title, button = "Propose a change to {row.label}", "Propose"
    lead = (
        "These settings decide who can read the agent's memories, so the agent's side must accept a change. Nothing "
        "changes until its runtime or its steward accepts, within 72 hours. This proposal replaces an open one.",
    )
    model = forms.CharField(max_length=200, help_text="provider/model-name; the provider can read refined memories")
    steward = forms.EmailField(required=False, help_text="email address of the person who decides for the agent")
    is_steward_only = forms.BooleanField(
        required=False, label="Only the steward consents", help_text="the runtime can no longer consent"
    )
    memory_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Memory file",
        help_text="a file such as notes.md, in the tenant's folder on the server. The log of runs goes there in clear "
        "text: anyone who can read the file can read it. Empty: the log is encrypted in the agent's memory",
    )
    vault_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Vault",
        help_text="a folder such as vault, in the tenant's folder on the server. It receives a file for each memory. "
        "Anyone with access to the folder can read the files, except private memories, which stay encrypted. Empty: no "
        "vault",
    )


class FirstKeyForm(LabelForm):
    title, button = "First key of {row.label}", "Create the key"
    lead = ("You can create a key while the agent has no memories. After that, only the agent's side creates keys.",)
