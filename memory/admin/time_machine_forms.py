"""The forms of the Time Machine: the choice of what to roll back, and the options of the rollback."""

from datetime import UTC
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminRadioSelectWidget

from memory.admin.base.forms import AdminForm
from memory.time_machine.rollback import Figures
from memory.time_machine.selection import What

MAX_NUMBER = 2**53
KINDS = {
    "moment": "everything after a date and time",
    "from_entry": "one entry and everything later",
    "entry": "only one entry",
    "session": "one session",
    "session_from": "one entry and the rest of its session",
    "import": "one import or migration",
}
LABELS = {
    "moment": "undo everything after {}",
    "from_entry": "undo entry {} and everything later",
    "entry": "undo only entry {}",
    "session": "roll back session {}",
    "session_from": "undo entry {} and the rest of its session",
    "import": "undo the import that began with entry {}",
}
OTHERS = {"entry": "from_entry", "from_entry": "entry"}  # the other choice for the same entry


class ChooseForm(AdminForm):
    """The form in which a person chooses what to roll back."""

    shown_if = [
        ("moment", "kind", "moment"),
        ("session", "kind", "session"),
        ("entry", "kind", "from_entry entry session_from import"),
    ]
    kind = forms.ChoiceField(choices=KINDS.items(), label="Undo", initial="moment")
    moment = forms.DateTimeField(
        required=False,
        label="Date and time in UTC",  # time_machine.js makes it local
        widget=forms.DateTimeInput({"type": "datetime-local", "step": 1}, format="%Y-%m-%dT%H:%M:%S"),
    )
    session = forms.IntegerField(
        min_value=0,
        max_value=MAX_NUMBER,
        required=False,
        widget=forms.Select,
        help_text="one of the latest sessions; you can roll back an older session on its page",
    )
    entry = forms.IntegerField(
        min_value=1,
        max_value=MAX_NUMBER,
        required=False,
        label="Number of the entry",
        help_text="for an import or a migration, the number of its first entry",
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        kind = cleaned.get("kind", "")
        name = kind if kind in self.fields else "entry"
        at = cleaned.get(name)
        if at is None:
            if name not in self.errors:
                self.add_error(name, "Enter a value.")
        elif kind == "from_entry":
            cleaned |= {"at": at, "what": What("since_entry", at - 1)}
        elif kind:
            cleaned |= {"at": at, "what": What(kind, at.astimezone(UTC) if kind == "moment" else at)}
        return cleaned


class RollBackForm(AdminForm):
    """The form with the options of the rollback."""

    conflicts = forms.ChoiceField(
        choices=[
            ("skip", "Leave these memories as they are"),
            ("force", "Undo the later changes of these memories, too"),
        ],
        required=False,
        label="Memories that later entries changed",
        widget=UnfoldAdminRadioSelectWidget,
    )
    include_constitutional = forms.BooleanField(required=False, label="Also roll back protected memories")
    reason = forms.CharField(
        max_length=500,
        required=False,
        widget=forms.Textarea({"rows": 2}),
        help_text="optional; the reason stays in the audit trail. Do not quote memories.",
    )
    head = forms.IntegerField(min_value=0, max_value=MAX_NUMBER, widget=forms.HiddenInput({"id": "head"}))

    def keep_needed(self, figures: Figures) -> None:
        """Remove the options that make no difference to this rollback."""
        if not figures.conflicts:
            del self.fields["conflicts"]
        if figures.constitutional:
            self.fields["reason"].help_text = "required for protected memories; the reason stays in the audit trail"
        else:
            del self.fields["include_constitutional"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if cleaned.get("include_constitutional") and not cleaned.get("reason"):
            self.add_error("reason", "To roll back protected memories, give a reason.")
        return cleaned
