"""The errors of the memory app. No error message quotes the content of a memory."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from config import PROGRAM
from config.errors import USAGE, ConfigurationError, DomainError, InvalidField

MAX_LISTED = 20  # the most conflicts that one error lists


class MemoryFault(DomainError):
    """The base class of this app's errors. (The name `MemoryError` is already used by Python.)"""

    code = "memory"


class Invalid(InvalidField, MemoryFault):
    """The value of a field cannot be stored. The message gives the field, the problem, and what is allowed."""


class NumbersError(MemoryFault):
    """The base class of errors that refuse an edit because of some memories. `numbers` has the memories' numbers."""

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
    what = "These memories have changed since you read them"


class CoreMemoryRequired(NumbersError):
    code = "not_core"
    what = "These memories are not core memories"


class Beneath(NumbersError):
    code = "beneath"
    what = "These memories are beneath. Promote them first"


class PathTaken(NumbersError):
    """Two memories of a store would have the same path, or a memory would have the path of a folder. `numbers` has the
    memories that are in the way."""

    code = "path_taken"
    what = "The store already has memories at this path, above it or below it"


class ContentChanged(MemoryFault):
    """The content of the memory is not the content that the client expects."""

    code = "content_changed"
    message = "The memory's content has changed. Read it again."


class StoreArchived(MemoryFault):
    code = "store_archived"
    message = "The memory store is archived: its memories can be read and deleted, but not changed."


class MixedScope(NumbersError):
    """Memories of different scopes or projects cannot be consolidated."""

    code = "mixed_scope"
    what = "These memories have another scope or project than the first memory"


class DuplicateNumbers(NumbersError):
    code = "repeated"
    what = "Given more than once"


class Private(NumbersError):
    """The edit changes memories that are never refined: credentials, keys and sensitive memories."""

    code = "private_category"
    what = "Credentials, keys and sensitive memories are never refined"


class Notice(NumbersError):
    """The edit changes a notice that the service wrote to the agent."""

    code = "notice"
    what = "Notices of the service cannot be changed"


class ProtectionRefused(MemoryFault):
    """An agent tried to protect memories without a refinement session, or the caller may not remove a protection."""

    code = "protection_refused"


class ProtectionFull(MemoryFault):
    """The protected memories would have more tokens than half of the agent's budget."""

    code = "protection_full"


_A_PERSON = "Only a person can turn it on."


class MemoryDisabled(MemoryFault):
    code = "memory_disabled"
    message = f"Memory is off for this agent. {_A_PERSON}"


class CategoryDisabled(MemoryFault):
    """The category is off. While it is off, no memory of this category can be written or read."""

    code = "category_disabled"

    def __init__(self, category: str) -> None:
        super().__init__(f"The category {category} is off for this agent. {_A_PERSON}")
        self.category = category


class PersonRequired(MemoryFault):
    code = "persons_only"
    message = "Only a person can change memory rules: in the admin, or with the command 'rules'."


class NotConfirmed(MemoryFault):
    """The change would turn on a switch without the person's agreement, because somebody has just turned off this
    switch."""

    code = "not_agreed"

    def __init__(self, paths: Sequence[str]) -> None:
        off = ", ".join(paths)
        super().__init__(f"Nothing was changed. Somebody has just turned off {off}. Look at it, and try again.")
        self.paths = tuple(paths)


class SlowSearch(MemoryFault):
    """The phrases of a query take too long to compare."""

    code = "slow_search"
    message = "The query has too many phrases, or phrases that are too long. Use fewer or shorter ones."


class NotFound(MemoryFault):
    """The object does not exist, or the caller has no access to it. The message is the same in both cases."""

    code = "not_found"
    exit_code = USAGE


class AlreadyExists(MemoryFault):
    code = "taken"


class DiscardShare(MemoryFault):
    """The agent would discard or rewrite too many memories within 24 hours (`memory/writing/daily_limit.py`)."""

    code = "discard_share"

    def __init__(self, allowed: int) -> None:
        super().__init__(
            f"Outside refinement sessions, an agent can discard or rewrite at most {allowed:,} core memories within 24 "
            "hours. Run a refinement session, wait, or ask the agent's side to lift the limit "
            "(discard_share_lifted_until)."
        )


class KeyRejected(MemoryFault):
    """The key is malformed, unknown or revoked, or it belongs to another agent."""

    code = "key_rejected"
    exit_code = USAGE


class KeySuspended(KeyRejected):
    """The agent's keys are suspended."""

    code = "key_suspended"
    message = (
        "The keys of this agent are suspended. After an owner of the tenant has lifted the suspension, exchange "
        'the key: POST /api/v1/agent/keys with the body {"exchange": true}. If the silo was claimed, send the '
        "recovery code of the claim instead of the key, or the code that the steward received by mail."
    )


class AuthorityBroken(MemoryFault):
    """The service did not write the agent's row as it is now. Nothing of its silo leaves the service."""

    code = "authority_broken"

    def __init__(self, label: str) -> None:
        advice = f"An operator must run '{PROGRAM} repair_authority {label}'."
        super().__init__(f"The settings of {label} were not changed by the service, so its silo stays closed. {advice}")


class AgentConsentRequired(MemoryFault):
    """Only the agent's side (the runtime or the steward) can do this. The caller is not on the agent's side."""

    code = "agents_side"


class SealBroken(MemoryFault):
    """Sealed data cannot be decrypted: the key is wrong, or the data was changed or moved to another place."""

    code = "seal_broken"


class SiloKeyMissing(ConfigurationError):
    """The keyring has no key that unwraps the agent's data key."""

    code = "silo_key_missing"


class Erased(SiloKeyMissing):
    """The agent's data key was destroyed. Its silo can no longer be read or written."""

    code = "erased"


class TrailShortened(MemoryFault):
    """The agent's audit trail has lost entries that the newest signed heads show."""

    code = "trail_shortened"


class Redacted(NumbersError):
    """The content of these memories was removed permanently."""

    code = "redacted"
    what = "Redacted permanently"


class RequestNotFound(MemoryFault):
    """The request with this number does not exist, or it was already decided."""

    code = "no_request"


class ConsentRequired(MemoryFault):
    """Only the agent's side (the runtime with its key, or the steward) can agree to this request or decline it."""

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
    """The entry, session or import was already rolled back."""

    code = "already_undone"


class NothingToUndo(MemoryFault):
    code = "nothing_to_undo"


class Conflict(MemoryFault):
    """Later entries changed the same memories. `conflicts` maps each memory number to the numbers of these entries."""

    code = "conflict"

    def __init__(self, conflicts: Mapping[int, Sequence[int]]) -> None:
        self.conflicts = {number: tuple(seqs) for number, seqs in sorted(conflicts.items())}
        first = list(self.conflicts.items())[:MAX_LISTED]
        listed = "; ".join(f"memory {number} (entries: {', '.join(map(str, seqs))})" for number, seqs in first)
        more = f" and {len(self.conflicts) - MAX_LISTED:,} more" if len(self.conflicts) > MAX_LISTED else ""
        super().__init__(f"Later entries changed the same memories: {listed}{more}. Skip them, or force the rollback.")


class AlreadyRequested(MemoryFault):
    """The person already has a request to this agent that is not decided yet."""

    code = "already_asked"


class TooManyRequests(MemoryFault):
    """Within 24 hours, a person made too many requests and proposals, or an agent received too many."""

    code = "too_many_asked"

    def __init__(self, who: str, most: int, until: datetime) -> None:
        minute = (until + timedelta(minutes=1, microseconds=-1)).replace(second=0, microsecond=0)
        limit = f"{who} reached the limit of {most:,} requests and proposals within 24 hours"
        super().__init__(f"{limit}. Try again after {minute:%Y-%m-%d %H:%M} UTC.")


class NotOpen(MemoryFault):
    """The request, grant or session does not exist, has ended, or was already decided."""

    code = "not_open"


class NotGranted(MemoryFault):
    """No active grant covers the memories or the entry that the person wants to read."""

    code = "not_granted"


class InvalidLink(MemoryFault):
    """The link is wrong or expired, or its recipient is no longer the agent's steward."""

    code = "link_broken"


class NotAllowed(MemoryFault):
    """The person does not have the permission for this action."""

    code = "not_allowed"


class LastOwner(MemoryFault):
    """A tenant must have at least one owner."""

    code = "last_owner"


class MailNotSent(MemoryFault):
    """Mail is printed to the console, so people other than the steward could read a consent link."""

    code = "mail_not_sent"
    message = (
        "This agent's steward decides with a link, which the service sends by mail. At present, mail is printed to "
        "the console, and the operator can read the link there. Ask the operator to set EMAIL_URL, such as "
        "smtp+tls://USER:PASSWORD@HOST:587."
    )


class FileFault(MemoryFault):
    """A file cannot be read or written, or was changed. `reason` is the problem without the path."""

    code = "memory_file"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or "unexpected state"


class FileOutsideRoots(FileFault):
    """The file is outside the folders in VAULT_ROOTS."""

    code = "memory_file_elsewhere"


class NotAFile(FileFault):
    """There is a folder, a symlink or a pipe at the path of a file. The service does not change it."""


class VaultBusy(FileFault):
    """Another process kept the vault locked for too long."""

    code = "vault_busy"
