"""The errors of this app. No message quotes the content of a memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from config.errors import USAGE, ConfigurationError, DomainError, InvalidField

MAX_LISTED = 20  # conflicts that one error lists


class MemoryFault(DomainError):
    """The base of this app's errors. (`MemoryError` is a built-in of Python.)"""

    code = "memory"


class Invalid(InvalidField, MemoryFault):
    """A value that cannot be stored. The message names the field, the problem, and what is allowed."""


class NumbersError(MemoryFault):
    """An edit that is refused because of some memories: `numbers`."""

    what = "Refused"

    def __init__(self, numbers: Sequence[int], what: str = "") -> None:
        self.numbers = tuple(sorted(numbers))
        super().__init__(f"{what or self.what}: {', '.join(map(str, self.numbers))}.")


class UnknownMemory(NumbersError):
    code = "unknown_memory"
    what = "No such memory"


class Discarded(NumbersError):
    code = "discarded"
    what = "Already discarded"


class Constitutional(NumbersError):
    code = "constitutional"
    what = "Constitutional memories cannot be discarded, merged or rewritten"


class Stale(NumbersError):
    code = "stale_memory"
    what = "Changed since you read them"


class CoreMemoryRequired(NumbersError):
    code = "not_core"
    what = "Not core memories"


class MixedScope(NumbersError):
    """A consolidation of memories of different scopes or projects."""

    code = "mixed_scope"
    what = "In another scope or project than the first memory"


class DuplicateNumbers(NumbersError):
    code = "repeated"
    what = "Named more than once"


class Private(NumbersError):
    """Memories that refinement leaves out: credentials, keys and sensitive memories."""

    code = "private_category"
    what = "Credentials, keys and sensitive memories are never refined"


class Notice(NumbersError):
    """The service's own notices to the agent."""

    code = "notice"
    what = "Notices of the service cannot be changed"


class ProtectionRefused(MemoryFault):
    """This caller cannot protect memories, or not at this time."""

    code = "protection_refused"


class ProtectionFull(MemoryFault):
    """An agent can protect memories up to half of its budget."""

    code = "protection_full"


_A_PERSON = "Only a person can turn it on."


class MemoryDisabled(MemoryFault):
    code = "memory_disabled"

    def __init__(self) -> None:
        super().__init__(f"Memory is off for this agent. {_A_PERSON}")


class CategoryDisabled(MemoryFault):
    """A category that is off. Its memories are neither written nor read."""

    code = "category_disabled"

    def __init__(self, category: str) -> None:
        super().__init__(f"The category {category} is off for this agent. {_A_PERSON}")
        self.category = category


class PersonRequired(MemoryFault):
    code = "persons_only"

    def __init__(self) -> None:
        super().__init__("Only a person can change memory rules: in the admin, or with the command 'rules'.")


class NotConfirmed(MemoryFault):
    """The change turns on a switch that the person did not agree to, because somebody turned it off meanwhile."""

    code = "not_agreed"

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            f"Nothing was changed. The change also turns on {', '.join(paths)}, which somebody turned off meanwhile. "
            "Look at the settings and try again."
        )
        self.paths = tuple(paths)


class NotFound(MemoryFault):
    """The object is missing, or the caller has no access to it. The message is the same for both."""

    code = "not_found"
    exit_code = USAGE


class AlreadyExists(MemoryFault):
    code = "taken"


class DiscardShare(MemoryFault):
    """The daily limit of memories that are discarded or rewritten outside sessions (memory/writing/daily_limit.py)."""

    code = "discard_share"

    def __init__(self, allowed: int) -> None:
        super().__init__(
            f"At most {allowed:,} core memories can be discarded or rewritten within 24 hours outside sessions. Run a "
            "refinement session, wait, or lift the limit on the agent's side (discard_share_lifted_until)."
        )


class KeyRejected(MemoryFault):
    """A key that is malformed, unknown, revoked, or of another agent."""

    code = "key_rejected"
    exit_code = USAGE


class AgentConsentRequired(MemoryFault):
    """Only the agent's side can do this, and the caller is not on it."""

    code = "agents_side"


class SealBroken(MemoryFault):
    """A sealed record cannot be opened: the key is wrong, or the record was changed or moved."""

    code = "seal_broken"


class SiloKeyMissing(ConfigurationError):
    """The keyring has no key that unwraps the agent's data key."""

    code = "silo_key_missing"


class Erased(SiloKeyMissing):
    """The agent's data key was destroyed. Its silo can no longer be read or written."""

    code = "erased"


class Redacted(NumbersError):
    """Memories whose content was removed permanently."""

    code = "redacted"
    what = "Redacted permanently"


class RequestNotFound(MemoryFault):
    """There is no open request with this number. It does not exist, or was already decided."""

    code = "no_request"


class ConsentRequired(MemoryFault):
    """Only the agent's side (a runtime with its key, or its steward) can agree to this request or decline it."""

    code = "consent_needed"


class UnknownEntry(MemoryFault):
    """The audit trail has no entry or session with this number."""

    code = "unknown_entry"


class SessionRunning(MemoryFault):
    """A session can be rolled back only after it has ended."""

    code = "not_over"


class TrailChanged(MemoryFault):
    """The trail has changed since the preview that the person agreed to."""

    code = "moved"


class AlreadyUndone(MemoryFault):
    """This was already rolled back."""

    code = "already_undone"


class NothingToUndo(MemoryFault):
    code = "nothing_to_undo"


class Conflict(MemoryFault):
    """Later entries changed the same memories. `conflicts` maps a memory to these entries."""

    code = "conflict"

    def __init__(self, conflicts: Mapping[int, Sequence[int]]) -> None:
        self.conflicts = {number: tuple(seqs) for number, seqs in sorted(conflicts.items())}
        first = list(self.conflicts.items())[:MAX_LISTED]
        listed = "; ".join(f"memory {number} by {', '.join(map(str, seqs))}" for number, seqs in first)
        more = f" and {len(self.conflicts) - MAX_LISTED:,} more" if len(self.conflicts) > MAX_LISTED else ""
        super().__init__(
            f"Later entries changed the same memories: {listed}{more}. Skip these memories, or force the rollback."
        )


class AlreadyRequested(MemoryFault):
    """The person already has an open request to this agent."""

    code = "already_asked"


class TooManyRequests(MemoryFault):
    """Too many requests and proposals within 24 hours, by one person or to one agent."""

    code = "too_many_asked"

    def __init__(self, who: str, most: int, until: datetime) -> None:
        minute = (until + timedelta(minutes=1, microseconds=-1)).replace(second=0, microsecond=0)
        super().__init__(
            f"{who} reached the limit of {most:,} requests and proposals within 24 hours. "
            f"Try again after {minute:%Y-%m-%d %H:%M} UTC."
        )


class NotOpen(MemoryFault):
    """The request, grant or session is over, or was already decided."""

    code = "not_open"


class NotGranted(MemoryFault):
    """No active grant covers this."""

    code = "not_granted"


class InvalidLink(MemoryFault):
    """The link is wrong or expired, or its recipient is no longer the agent's steward."""

    code = "link_broken"


class NotAllowed(MemoryFault):
    """The person does not have permission for this."""

    code = "not_allowed"


class LastOwner(MemoryFault):
    """A tenant must have at least one owner."""

    code = "last_owner"


class MailNotSent(MemoryFault):
    """Mail is printed to the console, where others than the steward can read a consent link."""

    code = "mail_not_sent"

    def __init__(self) -> None:
        super().__init__(
            "This agent has a steward, who decides by a link in a letter. Mail now goes to the console, where the "
            "operator can read that link. Ask the operator to set EMAIL_URL, such as smtp+tls://USER:PASSWORD@HOST:587."
        )


class FileFault(MemoryFault):
    """A file cannot be read or written, or was changed. `reason` is the problem without the path."""

    code = "memory_file"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or "not as it should be"


class FileOutsideRoots(FileFault):
    """A file outside the folders of VAULT_ROOTS."""

    code = "memory_file_elsewhere"


class NotAFile(FileFault):
    """Something else has the name of a file: a folder, a symlink or a pipe. It is left alone."""


class VaultBusy(FileFault):
    """Another process kept the vault locked for too long."""

    code = "vault_busy"
