"""All Django models of the app. Rows hold metadata and sealed bytes, never plain text."""

from memory.models.agents import Agent, AgentKey, ApiKey, DueReason, TenantKey
from memory.models.imports import HistoryAnalysis, ImportBody, ImportedPiece, ImportJob
from memory.models.letters import Letter, LetterKind, Turn
from memory.models.memories import CleanupDecision, Creation, Kind, Layer, Memory, Recall, Scope, Source, layer_of
from memory.models.people import Authenticator, Digest, Invitation, Membership, People, Pepper, Person, Role
from memory.models.sessions import RecordedSession
from memory.models.stores import Store, StoreVersion
from memory.models.tenants import RefinementLimits, Tenant
from memory.models.vault import Vault, VaultFile
from memory.models.vectors import Embedding, Vector
