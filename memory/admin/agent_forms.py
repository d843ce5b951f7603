"""Forms to add an agent, to change its settings, to propose a change that the agent's side must accept, and to create
the agent's first key."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.duration import duration_string

from memory.admin.base.forms import AdminForm, TenantChoiceForm
from memory.admin.base.help_texts import LIMITS
from memory.admin.keys import LabelForm
from memory.admin.tenants import LimitsForm, whole_number
from memory.agents import lifecycle
from memory.search.words import LANGUAGES

TENANT_SETS = (
    *("budget_tokens", "target_tokens", "refine_every", "paused", "last_n", "max_entries", "context_tokens"),
    *LIMITS,
)
RARELY_SET = {
    "Log of runs": ("last_n", "max_entries", "context_tokens"),
    "Limits of a refinement session": tuple(LIMITS),
}


INTERVALS = [
    ("", "only when core memory is over its budget, or when somebody asks"),
    ("1 00:00:00", "every day"),
    ("3 00:00:00", "every 3 days"),
    ("7 00:00:00", "every week"),
    ("14 00:00:00", "every 2 weeks"),
    ("28 00:00:00", "every 4 weeks"),
]


class _Period(forms.DurationField):
    """Django needs half a second to read a text of 2.4 MB, and no other thread runs meanwhile."""

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and len(value) > 100:
            raise ValidationError(self.error_messages["invalid"], code="invalid")
        return super().to_python(value)


class BudgetForm(LimitsForm):
    default_text = "the tenant's limit, or {} if the tenant has no limit"
    budget_tokens = whole_number(
        "if core memory is larger, a refinement is due", least=1, initial=8_000, required=True, label="Token budget"
    )
    target_tokens = whole_number(
        "the size that a refinement tries to reach; cannot be above the token budget",
        least=1,
        initial=5_000,
        required=True,
        label="Target, in tokens",
    )
    refine_every = _Period(
        label="Refinement", required=False, initial="7 00:00:00", widget=forms.Select(choices=INTERVALS)
    )
    last_n = whole_number(
        "how many of the newest entries gc always keeps; 0: see below", label="Newest entries to keep"
    )
    max_entries = whole_number(
        "how many entries gc keeps if the number above is 0; 0: gc removes nothing", label="Most entries to keep"
    )
    context_tokens = whole_number(
        "limits the log that gc sends to the model, and a batch of refinement to half of it; empty: no limit",
        least=1,
        most=lifecycle.MAX_CONTEXT,
        label="Context of the model, in tokens",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        present = self.initial.get("refine_every")
        if present and duration_string(present) not in dict(INTERVALS):  # set over the API
            self.fields["refine_every"].widget.choices = [*INTERVALS, (duration_string(present), f"every {present}")]

    def clean(self) -> dict[str, Any]:
        """Replace an empty `last_n` or `max_entries` with 0."""
        cleaned: dict[str, Any] = super().clean() or {}
        return cleaned | {name: cleaned.get(name) or 0 for name in ("last_n", "max_entries")}


class SettingsForm(BudgetForm):
    """Settings that a tenant may change directly."""

    title = "Settings of {row.label}"
    field_order = TENANT_SETS
    groups = {
        "Size of core memory": ("budget_tokens", "target_tokens"),
        "When refinement starts": ("refine_every", "paused"),
        **RARELY_SET,
    }
    advanced = [name for names in RARELY_SET.values() for name in names]
    paused = forms.BooleanField(required=False, help_text="while it is paused, no refinement starts automatically")


class ModelChoiceForm(AdminForm):
    """A choice of the models that this service can call, a field for another model, and the steward."""

    model_is_required: ClassVar[bool] = False
    shown_if = [("other_model", "model", "")]
    model = forms.ChoiceField(
        required=False,
        help_text="The provider can read memories when they are refined. Two models need no provider: builtin/archive "
        "takes memories out of core memory until it reaches its target (they are kept, and the agent finds them when "
        "it searches), and builtin/dedupe merges only near duplicates, so core memory may stay over its budget",
    )
    other_model = forms.CharField(max_length=200, required=False, label="Another model")
    steward = forms.EmailField(required=False, help_text="email address of the person who decides for the agent")

    def __init__(self, *args: Any, models: Iterable[str], providers: Iterable[str], **options: Any) -> None:
        super().__init__(*args, **options)
        choices = [*((each, each) for each in models), ("", "another model")]
        self.fields["model"].choices = choices  # type: ignore[attr-defined]
        self.fields["other_model"].help_text = (
            "a model that is not in the list, as provider/model-name. This service has a configuration for these "
            f"providers: {', '.join(providers)}"
        )

    def clean(self) -> dict[str, Any]:
        """Combine the two fields for the model into `model`."""
        cleaned: dict[str, Any] = super().clean() or {}
        chosen, other = cleaned.get("model", ""), cleaned.pop("other_model", "")
        is_missing = self.model_is_required and not (chosen or other)
        if chosen and other:
            self.add_error("other_model", "Choose a model, or write one here, but not both.")
        elif is_missing and not {"model", "other_model"} & set(self.errors):
            self.add_error("model", "Choose a model, or write one below.")
        return cleaned | {"model": chosen or other}


class NewAgentForm(ModelChoiceForm, BudgetForm, TenantChoiceForm):
    title, button = "Add an agent", "Add the agent"
    lead = ("Later, only the agent's side can change the model, the steward and the language.",)
    field_order = ("tenant", "agent", "model", "other_model", "budget_tokens", "language", "steward", *TENANT_SETS)
    groups = {"Memories": ("language", "target_tokens", "refine_every"), "Consent": ("steward",), **RARELY_SET}
    advanced = [name for names in groups.values() for name in names]
    model_is_required = True
    agent = forms.CharField(
        max_length=64, label="Name", help_text="name of the agent: lower-case letters, digits, '-' and '_'"
    )
    language = forms.CharField(
        max_length=32,
        initial="english",
        widget=forms.Select(choices=[(name, name) for name in sorted(LANGUAGES)]),
        help_text="language of the memories, for search; if it is not in the list, choose 'other'",
    )


class ProposalForm(ModelChoiceForm):
    """Settings that only the agent's side can change. A tenant can only propose a change."""

    title, button = "Propose a change to {row.label}", "Propose"
    lead = (
        "These settings decide who can read the agent's memories, so the agent's side must accept a change. Nothing "
        "changes until the agent's runtime or steward accepts the proposal. After 72 hours, the proposal lapses. A new "
        "proposal replaces an earlier open proposal.",
    )
    field_order = ("model", "other_model")
    is_steward_only = forms.BooleanField(
        required=False, label="Only the steward consents", help_text="the runtime cannot consent"
    )
    memory_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Memory file",
        help_text="a file such as notes.md, in the tenant's folder on the server. The service writes the log of runs "
        "to it in clear text, so anyone with access to the file can read the log. If this is empty, the log is in the "
        "agent's memory and is encrypted",
    )
    vault_path = forms.CharField(
        max_length=1_000,
        required=False,
        label="Vault",
        help_text="a folder such as vault, in the tenant's folder on the server. The service writes one file for each "
        "memory to this folder. Anyone with access to the folder can read the files. Only private memories stay "
        "encrypted in their files. If this is empty, the agent has no vault",
    )


class FirstKeyForm(LabelForm):
    title, button = "First key of {row.label}", "Create the key"
    lead = (
        "You can create a key while the agent has no memories. After that, only the agent's side creates keys.",
        "The agent's present keys will end. Its program then needs the new key.",
    )
