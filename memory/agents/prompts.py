"""The prompts that an agent's side sets. They are content, so the agent's row has them sealed."""

from memory.models import Agent
from memory.silo.silo import Silo

NAMES = ("system_prompt", "refinement_prompt")


def opened(agent: Agent, name: str) -> str:
    """The text of a prompt. Raises SealBroken, and the errors of a silo that cannot be opened."""
    sealed = bytes(getattr(agent, name))
    return Silo.for_agent(agent).open_text(name, 0, sealed) if sealed else ""


def sealed(agent: Agent, name: str, text: str) -> bytes:
    """The seal of a text for the agent's row. If this is the present text, it is the present seal."""
    if text == opened(agent, name):
        return bytes(getattr(agent, name))
    return Silo.for_agent(agent).seal_text(name, 0, text) if text else b""
