"""What can go wrong with memories. No message quotes what a memory says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from config.errors import USAGE, ConfigurationError, DomainError, InvalidField

MAX_LISTED = 20  # conflicts that one error lists


class MemoryFault(DomainError):
    """Base of this app's errors (`MemoryError` is Python's own word for something else)."""

    code = "memory"


class Invalid(InvalidField, MemoryFault):
    """A value that cannot be stored: names the field, what is wrong with it and what would be right."""


class NumbersError(MemoryFault):
    """An edit refused because of some memories; `numbers` says which."""

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
    what = "Constitutional, so not to be discarded, merged or rewritten"


class Stale(NumbersError):
    code = "stale_memory"
    what = "Changed meanwhile"


class CoreMemoryRequired(NumbersError):
    code = "not_core"
    what = "A journal memory, where a core memory is needed"


class MixedScope(NumbersError):
    """Memories of more than one scope or project in one consolidation."""

    code = "mixed_scope"
    what = "Of another scope or project than the first"


class DuplicateNumbers(NumbersError):
    code = "repeated"
    what = "Given more than once"


class Private(NumbersError):
    """Credentials, keys and sensitive memories stay out of refinement."""

    code = "private_category"
    what = "Credentials, keys and sensitive memories are never refined"


class Notice(NumbersError):
    """The system's own notices to the agent."""

    code = "notice"
    what = "A notice of the system, which stays as it is"


class ProtectionRefused(MemoryFault):
    """Protection asked for by somebody, or at a time, that may not."""

    code = "protection_refused"


class ProtectionFull(MemoryFault):
    """By agents, constitutional memories may hold at most half the budget."""

    code = "protection_full"


_A_PERSON = "Only a person can switch it on."


class MemoryDisabled(MemoryFault):
    code = "memory_disabled"

    def __init__(self) -> None:
        super().__init__(f"Memory is switched off for this agent. {_A_PERSON}")


class CategoryDisabled(MemoryFault):
    """Of memories in a category that is switched off: they are neither written nor read back (seed 004)."""

    code = "category_disabled"

    def __init__(self, category: str) -> None:
        super().__init__(f"Memories of the category {category} are switched off for this agent. {_A_PERSON}")
        self.category = category


class PersonRequired(MemoryFault):
    code = "persons_only"

    def __init__(self) -> None:
        super().__init__("Only a person changes memory rules: in the admin, or by a command.")


class NotConfirmed(MemoryFault):
    """A switch that would be turned on with what was asked for, and that nobody agreed to: it was turned off since."""

    code = "not_agreed"

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__(
            f"Nothing was changed: {', '.join(paths)} would be switched on, too, which nobody agreed to. Somebody "
            "switched it off meanwhile: look again."
        )
        self.paths = tuple(paths)


class NotFound(MemoryFault):
    """Missing, or somebody else's: the two look alike."""

    code = "not_found"
    exit_code = USAGE


class AlreadyExists(MemoryFault):
    code = "taken"


class DiscardShare(MemoryFault):
    """More of the core memory than a day outside sessions may cost (memory/writing/daily_limit.py)."""

    code = "discard_share"

    def __init__(self, allowed: int) -> None:
        super().__init__(
            f"At most {allowed:,} of the core memories may be discarded or rewritten within 24 hours outside sessions. "
            "Refine instead, wait, or have the agent's side lift this (discard_share_lifted_until)."
        )


class KeyRejected(MemoryFault):
    """An agent key that is malformed, unknown, revoked or another agent's."""

    code = "key_rejected"
    exit_code = USAGE


class AgentConsentRequired(MemoryFault):
    """What the agent's side alone decides, asked for by somebody else."""

    code = "agents_side"


class SealBroken(MemoryFault):
    """A sealed record does not open: wrong key, altered byte, or moved from where it was sealed."""

    code = "seal_broken"


class SiloKeyMissing(ConfigurationError):
    """No key-encryption key of the keyring opens an agent's key."""

    code = "silo_key_missing"


class Erased(SiloKeyMissing):
    """The agent's data key was destroyed: nothing of its silo is read or written again."""

    code = "erased"


class Redacted(NumbersError):
    """Memories whose body was removed for good: nothing brings them back."""

    code = "redacted"
    what = "Redacted, for good"


class RequestNotFound(MemoryFault):
    """No request of this number is open: there is none, or it was settled."""

    code = "no_request"


class ConsentRequired(MemoryFault):
    """The agent's side alone, its runtime's key or its steward, agrees to a redaction or an erasure, or declines it."""

    code = "consent_needed"


class UnknownEntry(MemoryFault):
    """The trail has no such entry or session."""

    code = "unknown_entry"


class SessionRunning(MemoryFault):
    """A session that goes on is not rolled back."""

    code = "not_over"


class TrailChanged(MemoryFault):
    """More happened since what was agreed to was shown."""

    code = "moved"


class AlreadyUndone(MemoryFault):
    """Nothing is undone twice by accident."""

    code = "already_undone"


class NothingToUndo(MemoryFault):
    code = "nothing_to_undo"


class Conflict(MemoryFault):
    """Later entries touched the same memories: `conflicts` says which memories, and which entries."""

    code = "conflict"

    def __init__(self, conflicts: Mapping[int, Sequence[int]]) -> None:
        self.conflicts = {number: tuple(seqs) for number, seqs in sorted(conflicts.items())}
        told = [f"memory {n} by {', '.join(map(str, seqs))}" for n, seqs in list(self.conflicts.items())[:MAX_LISTED]]
        more = f" and {len(self.conflicts) - MAX_LISTED:,} more" if len(self.conflicts) > MAX_LISTED else ""
        super().__init__(
            f"Later entries changed the same memories: {'; '.join(told)}{more}. Skip these memories, or force it."
        )


class AlreadyRequested(MemoryFault):
    """A person has one open request to an agent at a time."""

    code = "already_asked"


class TooManyRequests(MemoryFault):
    """More requests and proposals within 24 hours than one may make, or one agent's side is asked."""

    code = "too_many_asked"

    def __init__(self, who: str, most: int, until: datetime) -> None:
        minute = (until + timedelta(minutes=1, microseconds=-1)).replace(second=0, microsecond=0)
        super().__init__(
            f"{who} asked as often as may be within 24 hours ({most:,}, requests and proposals together). "
            f"Ask again from {minute:%Y-%m-%d %H:%M} UTC on."
        )


class NotOpen(MemoryFault):
    """What is to be decided, or revoked, is over, or was decided before."""

    code = "not_open"


class NotGranted(MemoryFault):
    """No grant in force covers it."""

    code = "not_granted"


class InvalidLink(MemoryFault):
    """A consent link that is none, is too old, or was mailed to somebody who no longer speaks for the agent."""

    code = "link_broken"


class NotAllowed(MemoryFault):
    """Whoever asks for it may not do that."""

    code = "not_allowed"


class LastOwner(MemoryFault):
    """A tenant keeps an owner."""

    code = "last_owner"


class MailNotSent(MemoryFault):
    """A link by which a steward decides would be printed where others than the steward read it."""

    code = "mail_not_sent"

    def __init__(self) -> None:
        super().__init__(
            "This agent has a steward, and mail is written to the console, where the operator would read the link by "
            "which the steward decides. Have the operator set EMAIL_URL, as to smtp+tls://USER:PASSWORD@HOST:587."
        )


class FileFault(MemoryFault):
    """A memory file cannot be read or written, or is not what it was. `reason`: the system's word, without the path."""

    code = "memory_file"

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or "not as it should be"


class FileOutsideRoots(FileFault):
    """A memory file that does not lie where the operator lets such files be."""

    code = "memory_file_elsewhere"


class NotAFile(FileFault):
    """What has the name of a file is a folder, a link, a pipe: somebody's, which is left alone."""


class VaultBusy(FileFault):
    """Somebody else is writing to a vault, for longer than is waited for."""

    code = "vault_busy"
