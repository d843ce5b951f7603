"""The lineage of memories: from which memories a memory was made. Nothing is decrypted."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from django.db.models import Q, QuerySet

from audit.models import AuditEntry, Change, Operation
from memory.models import Agent, Memory
from memory.writing.edits import fields_of

STEPS = 20  # of a walk that asks the database at each step; then all links are read at once
Links = defaultdict[int, set[int]]


class Walk:
    """Finds the sources and the successors of memories, step by step. A chain of thousands of merges would take
    thousands of queries, so a long walk reads all links of the agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._steps = agent, 0
        self._all: tuple[Links, Links] | None = None

    def sources(self, numbers: Collection[int]) -> set[int]:
        """Return the memories that were merged into one of these, and the memories that one of these replaced."""
        return _united(self.parents(numbers), numbers)

    def successors(self, numbers: Collection[int]) -> set[int]:
        """Return the memories that were merged from one of these, and the memories that replaced one of these."""
        return _united(self.children(numbers), numbers)

    def parents(self, numbers: Collection[int]) -> Links:
        """Map each of these memories to its sources."""
        return self._links(numbers, "superseded_by__among")[0]

    def children(self, numbers: Collection[int]) -> Links:
        """Map each of these memories to its successors."""
        return self._links(numbers, "number__among")[1]

    def _links(self, numbers: Collection[int], replaced: str) -> tuple[Links, Links]:
        self._steps += 1
        if self._steps <= STEPS:
            return _links(self._agent, Q(number__among=list(numbers)), Q((replaced, list(numbers))))
        self._all = self._all or _links(self._agent, Q(), Q())
        return self._all


def sources(agent: Agent, numbers: Collection[int]) -> set[int]:
    """Return the memories that were merged into one of these, and the memories that one of these replaced."""
    return Walk(agent).sources(numbers)


def _united(links: Links, numbers: Iterable[int]) -> set[int]:
    return set().union(*(links[number] for number in numbers if number in links))


def _links(agent: Agent, touched: Q, replaced: Q) -> tuple[Links, Links]:
    """The sources and the successors of each memory, as far as merges of `touched` and `replaced` rows have them."""
    before, after = Links(set), Links(set)
    for made, merged in _merges(agent, touched):
        for number in made:
            before[number] |= merged
        for number in merged:
            after[number] |= made
    for number, successor in _replaced(agent, replaced):
        before[successor].add(number)
        after[number].add(successor)
    return before, after


def _merges(agent: Agent, touched: Q) -> Iterator[tuple[set[int], set[int]]]:
    """Yield, for each merge, the memories that it made, and those that it merged."""
    changes: QuerySet[Change] = Change.objects.filter(agent_id=agent.pk)
    entries = AuditEntry.objects.filter(agent_id=agent.pk, operation=Operation.CONSOLIDATED)
    if touched:
        entries = entries.filter(seq__in=changes.filter(touched).values("seq"))
    merges: defaultdict[int, tuple[set[int], set[int]]] = defaultdict(lambda: (set(), set()))
    rows = changes.filter(seq__in=entries.values("seq")).values_list("seq", "number", "before_digest")
    for seq, number, before in rows.iterator(chunk_size=2_000):
        merges[seq][before is not None].add(number)
    yield from merges.values()


def _replaced(agent: Agent, condition: Q) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the replaced memories, each with the number of its successor. A number that is in the row
    but not in the trail is left out, because SQL can change the row."""
    rows = Memory.objects.of(agent).filter(condition, superseded_by__isnull=False)
    versions = {row.number: (row.version, row.superseded_by or 0) for row in rows.defer("sealed", "digest")}
    seqs = [version for version, _ in versions.values()]
    changes = Change.objects.filter(agent_id=agent.pk, number__among=list(versions), seq__among=seqs)
    for number, seq, after in changes.values_list("number", "seq", "after").iterator(chunk_size=500):
        version, successor = versions[number]
        if seq == version and after is not None and fields_of(bytes(after))["superseded_by"] == successor:
            yield number, successor
