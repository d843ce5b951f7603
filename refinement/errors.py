"""The errors of this app. No message quotes the content of a memory."""

from config.errors import DomainError


class SessionOpen(DomainError):
    """The agent already has an open session."""

    code = "session_open"


class SessionEnded(DomainError):
    """The session has ended, or another worker took its lease. It accepts no more calls."""

    code = "session_ended"


class ResultNotKept(DomainError):
    """The call was repeated with its Idempotency-Key, but its result was too large, or can no longer be shown."""

    code = "result_not_kept"
    message = "The call was made before, but its result is not kept. Read the session."


class BackingOff(DomainError):
    """The agent's last session failed, or the agent's side requested it and it changed almost nothing. If the
    agent's side requests a refinement, the cool-down does not become shorter."""

    code = "backing_off"


class AgentBusy(DomainError):
    """Another process kept the agent locked for too long."""

    code = "agent_busy"


class AllowanceSpent(DomainError):
    """The tenant has used up its model tokens of this month. Until next month, the service opens only sessions that a
    person requests."""

    code = "allowance_spent"


class DreamRunning(DomainError):
    """The agent has a dream that is not over."""

    code = "dream_running"
    message = "A dream of this agent is not over. Wait for its end, or cancel it."


class DreamOver(DomainError):
    """The dream has ended, so it cannot be canceled."""

    code = "dream_over"
    message = "The dream is over. Only a pending or running dream can be canceled."


class UnknownSession(DomainError):
    """The agent has no session with this number."""

    code = "not_found"


class BadCall(DomainError):
    """An invalid tool call. The message says how to correct it."""

    code = "bad_call"

    def __init__(self, message: str, code: str = "bad_call", **more: object) -> None:
        super().__init__(message)
        self.code = code
        self.more = more


class LimitReached(DomainError):
    """The call exceeds a limit of the session. The session ends, and its edits stay."""

    code = "limit"

    def __init__(self, limit: str, allowed: int) -> None:
        super().__init__(f"The session's limit of {allowed:,} {limit.replace('_', ' ')} is reached.")
        self.limit = limit


class FloorReached(DomainError):
    """The circuit breaker refused the call, because the call would cut core memory below the session's floor."""

    code = "floor"
