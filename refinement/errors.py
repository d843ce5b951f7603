"""What a refinement session refuses, and why it ends. No message quotes what a memory says."""

from __future__ import annotations

from config.errors import DomainError


class RefinementError(DomainError):
    code = "refinement"


class SessionOpen(RefinementError):
    """The agent has an open session: there is at most one."""

    code = "session_open"


class SessionEnded(RefinementError):
    """The session has ended, or its lease went to somebody else. Nothing more is done in its name."""

    code = "session_ended"


class BackingOff(RefinementError):
    """Sessions of the agent ended in trouble: the service tries again by itself, and not sooner for being asked."""

    code = "backing_off"


class AgentBusy(RefinementError):
    """Somebody holds the agent's lock for longer than a worker waits."""

    code = "agent_busy"


class AllowanceSpent(RefinementError):
    """The tenant's model tokens of this month are used up: nothing but what a person asks for is begun."""

    code = "allowance_spent"


class UnknownSession(RefinementError):
    """The agent has no session of this number."""

    code = "not_found"


class BadCall(RefinementError):
    """A tool call that is wrong in itself; the message says how it would be right."""

    code = "bad_call"

    def __init__(self, message: str, code: str = "bad_call", **more: object) -> None:
        super().__init__(message)
        self.code = code
        self.more = more


class LimitReached(RefinementError):
    """A call beyond one of the session's limits: the session ends, what was done stays."""

    code = "limit"

    def __init__(self, limit: str, allowed: int) -> None:
        super().__init__(f"The session's limit of {allowed:,} {limit.replace('_', ' ')} is reached.")
        self.limit = limit


class FloorReached(RefinementError):
    """The circuit breaker: the call would cut core memory below the agent's floor."""

    code = "floor"
