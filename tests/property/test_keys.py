"""No tenant's key ever reads a silo, by whatever sequence of calls: keys, exchanges, revocations, stewards, models.

The machine plays a tenant's program that keeps every key it ever saw, and an agent's runtime that keeps to its own.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from memory.access import tenants
from memory.access.authentication import agent_named
from memory.consent import erasure, removal_requests
from tests import steps
from tests.api.calling import BASE, Answer, Caller
from tests.api.test_keys import address, is_tenants, operations
from tests.property.effort import Walk, walks
from tests.steps import ME, PERSON, problems

SAID = "OKAPI7kept"  # what the memories say
OF_AGENTS = [(method, address(path)) for method, path in operations() if not is_tenants(path)]
SLUGS = ("ada", "eve", "fay")
slugs = st.sampled_from(SLUGS)


class Tenant(Walk):
    """`seen` are the keys that the tenant was shown; `own` the runtime's, which it was not."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[str]] = {slug: [] for slug in SLUGS}
        self.own: dict[str, str] = {}
        self.filled: set[str] = set()  # silos that hold memories
        self.taken: set[str] = set()  # silos that the runtime made its own
        self.erased: set[str] = set()

    def check_at_end(self) -> None:
        for slug in SLUGS:
            if self.seen[slug]:
                assert problems(agent_named(f"acme/{slug}")) == []

    @initialize()
    def begin(self) -> None:
        from memory.agents import lifecycle
        from tests.conftest import OPERATOR

        _, first = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
        lifecycle.create("globex", "bob", model="builtin/dedupe", actor=OPERATOR)
        self.seen["ada"].append(first)
        self.tenant = Caller(tenants.issue_key("acme"))
        self.others = Caller(tenants.issue_key("globex"))

    # --- what the tenant does

    @rule(slug=slugs)
    def makes_an_agent(self, slug: str) -> None:
        made = self.tenant.post("agents", {"agent": slug, "model": "builtin/dedupe"})
        assert made.status == (409 if self.seen[slug] else 201)
        if made.status == 201:
            self.seen[slug].append(made.json["key"])

    @rule(slug=slugs)
    def asks_for_a_key(self, slug: str) -> None:
        asked = self.tenant.post(f"agents/{slug}/keys", {})
        if not self.seen[slug]:
            assert asked.status == 404
        elif slug in self.taken:
            assert (asked.status, asked.codes) == (409, ["agents_side"])
        elif asked.status == 201:
            self.seen[slug].append(asked.json["key"])

    @rule(slug=slugs, place=st.integers(0, 5))
    def ends_a_key(self, slug: str, place: int) -> None:
        keys = [*self.seen[slug], *([self.own[slug]] if slug in self.own else [])]
        if keys:
            prefix = keys[place % len(keys)].split("_")[1]
            assert self.tenant.delete(f"agents/{slug}/keys/{prefix}").status == 204
            assert self.others.delete(f"agents/{slug}/keys/{prefix}").status == 404
            assert Caller(keys[place % len(keys)]).get("agent").status == 401

    @rule(slug=slugs, body=st.sampled_from([{"paused": True}, {"budget_tokens": 9_000}, {"refine_every": None}]))
    def sets_what_it_may(self, slug: str, body: dict[str, Any]) -> None:
        assert self.tenant.patch(f"agents/{slug}", body).status == (200 if self.seen[slug] else 404)

    @rule(
        slug=slugs, name=st.sampled_from(["model", "steward", "is_steward_only", "refinement_prompt", "memory_enabled"])
    )
    def sets_what_it_may_not(self, slug: str, name: str) -> None:
        if self.seen[slug]:
            assert self.tenant.patch(f"agents/{slug}", {name: "x"}).codes == ["unknown_field"]

    @rule(
        asked=st.sampled_from(OF_AGENTS), body=st.sampled_from([{}, {"exchange": True}, {"content": "x"}, {"q": SAID}])
    )
    def asks_for_content(self, asked: tuple[str, str], body: dict[str, Any]) -> None:
        self.refused(self.tenant.ask(asked[0], asked[1], body))

    @rule(slug=slugs, exchange=st.booleans())
    def makes_a_key_with_one_it_kept(self, slug: str, exchange: bool) -> None:
        """Before the runtime did, the silo is the tenant's own to fill; afterwards no such key is any."""
        if self.seen[slug]:
            answer = Caller(self.seen[slug][-1]).post("agent/keys", {"exchange": exchange})
            if answer.status == 201:
                assert slug not in self.taken
                self.seen[slug].append(answer.json["key"])

    # --- what the runtime and its steward do

    @rule(slug=slugs, place=st.integers(0, 3))
    def the_runtime_makes_the_silo_its_own(self, slug: str, place: int) -> None:
        """It is handed a key that works, with the silo empty of anything it said, and exchanges it."""
        working = [key for key in self.seen[slug] if Caller(key).get("agent").status == 200]
        if working and slug not in self.taken:
            answer = Caller(working[place % len(working)]).post("agent/keys", {"exchange": True})
            assert answer.status == 201
            self.own[slug] = answer.json["key"]
            self.taken.add(slug)

    @precondition(lambda self: self.own)
    @rule(slug=slugs)
    def the_runtime_remembers(self, slug: str) -> None:
        if slug in self.own and Caller(self.own[slug]).post("memories", {"content": f"{SAID} tea"}).status == 201:
            self.filled.add(slug)

    @precondition(lambda self: self.own)
    @rule(slug=slugs, exchange=st.booleans())
    def the_runtime_issues_a_key(self, slug: str, exchange: bool) -> None:
        if slug in self.own:
            answer = Caller(self.own[slug]).post("agent/keys", {"exchange": exchange})
            if answer.status == 201:
                self.own[slug] = answer.json["key"]

    @precondition(lambda self: self.own)
    @rule(
        slug=slugs, body=st.sampled_from([{"model": "openai/x"}, {"steward": "s@acme.test"}, {"is_steward_only": True}])
    )
    def the_runtime_changes_its_voice(self, slug: str, body: dict[str, Any]) -> None:
        if slug in self.own:
            assert Caller(self.own[slug]).patch("agent", body).status in (200, 401)

    @precondition(lambda self: self.filled)
    @rule(slug=slugs)
    def the_silo_is_erased(self, slug: str) -> None:
        if slug in self.filled - self.erased:
            agent = agent_named(f"acme/{slug}")
            if not agent.is_steward_only:
                asked = removal_requests.ask_erasure(agent, PERSON, reason="asked")
                erasure.erase(agent, asked.number, ME)
                self.erased.add(slug)

    # --- what holds

    @invariant()
    def no_key_the_tenant_saw_opens_a_silo_of_the_runtimes(self) -> None:
        for slug in self.taken:
            for key in self.seen[slug]:
                assert Caller(key).get("memories").status == 401
                assert Caller(key).post("memories/search", {"q": SAID}).status == 401

    @invariant()
    def nothing_that_the_tenant_is_told_says_it(self) -> None:
        if hasattr(self, "tenant"):
            for path in ("agents", *(f"agents/{slug}" for slug in SLUGS)):
                assert SAID.encode() not in self.tenant.get(path).content

    def refused(self, answer: Answer) -> None:
        assert (answer.status, answer.codes) == (403, ["permission_denied"])
        assert SAID.encode() not in answer.content


@pytest.mark.usefixtures("db")
def test_no_tenants_key_reads_a_silo(settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(Tenant, settings=walks(8, steps=20))


@pytest.mark.parametrize(("method", "path"), OF_AGENTS)
def test_every_address_of_content_refuses_a_tenants_key(method: str, path: str, ada: Any, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["testserver"]
    steps.remember(ada, f"{SAID} tea")
    answer = Caller(tenants.issue_key("acme")).ask(method, path, {})
    assert (answer.status, answer.codes) == (403, ["permission_denied"])
    assert BASE == "/api/v1/"
