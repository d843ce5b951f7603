"""No key that a tenant saw reads a silo that a runtime took over, after any sequence of calls.

The walk plays a program of the tenant that keeps every key it saw, and a runtime that uses its own key.
"""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from memory.access import tenants
from memory.access.authentication import agent_named
from memory.agents import lifecycle
from memory.consent import erasure, requests
from tests.api.calling import Caller
from tests.api.test_keys import address, is_tenants, operations
from tests.conftest import OPERATOR
from tests.property.walk import Walk, walk
from tests.steps import ME, PERSON

CONTENT = "OKAPI7kept"  # in every memory
AGENT_ENDPOINTS = [(method, address(path)) for method, path in operations() if not is_tenants(path)]
SLUGS = ("ada", "eve", "fay")
REFUSED = ["model", "steward", "is_steward_only", "refinement_prompt", "memory_enabled"]
BODIES: list[dict[str, Any]] = [{}, {"exchange": True}, {"content": "x"}, {"q": CONTENT}]
CHANGES: list[dict[str, Any]] = [{"model": "openai/x"}, {"steward": "s@acme.test"}, {"is_steward_only": True}]
slugs = st.sampled_from(SLUGS)


class Keys(Walk):
    """`seen` are the keys that the tenant saw, `own` the runtime's, which it did not see."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[str]] = {slug: [] for slug in SLUGS}
        self.own: dict[str, str] = {}
        self.filled: set[str] = set()  # silos with memories
        self.taken: set[str] = set()  # silos that the runtime took over
        self.erased: set[str] = set()

    def teardown(self) -> None:
        self.created = [agent_named(f"acme/{slug}") for slug in SLUGS if self.seen[slug]]
        super().teardown()

    @initialize()
    def begin(self) -> None:
        _, first = lifecycle.create("acme", "ada", model="builtin/dedupe", actor=OPERATOR)
        lifecycle.create("globex", "bob", model="builtin/dedupe", actor=OPERATOR)
        self.seen["ada"].append(first)
        self.tenant = Caller(tenants.issue_key("acme"))
        self.others = Caller(tenants.issue_key("globex"))

    @rule(slug=slugs)
    def create_an_agent(self, slug: str) -> None:
        answer = self.tenant.post("agents", {"agent": slug, "model": "builtin/dedupe"})
        assert answer.status == (409 if self.seen[slug] else 201)
        if answer.status == 201:
            self.seen[slug].append(answer.json["key"])

    @rule(slug=slugs)
    def issue_a_key(self, slug: str) -> None:
        answer = self.tenant.post(f"agents/{slug}/keys", {})
        if not self.seen[slug]:
            assert answer.status == 404
        elif slug in self.taken:
            assert (answer.status, answer.codes) == (409, ["agents_side"])
        elif answer.status == 201:
            self.seen[slug].append(answer.json["key"])

    @rule(slug=slugs, place=st.integers(0, 5))
    def revoke_a_key(self, slug: str, place: int) -> None:
        keys = [*self.seen[slug], *([self.own[slug]] if slug in self.own else [])]
        if keys:
            key = keys[place % len(keys)]
            prefix = key.split("_")[1]
            live = agent_named(f"acme/{slug}").live_keys.split()
            is_last = [each.partition("-")[0] for each in live] == [prefix]
            assert self.tenant.delete(f"agents/{slug}/keys/{prefix}").status == (409 if is_last else 204)
            assert self.others.delete(f"agents/{slug}/keys/{prefix}").status == 404
            assert is_last or Caller(key).get("agent").status == 401

    @rule(slug=slugs, lifts=st.booleans())
    def suspend_the_keys(self, slug: str, lifts: bool) -> None:
        if self.seen[slug]:
            assert self.tenant.post(f"agents/{slug}/keys/suspend").status == 200
            if lifts:
                lifecycle.lift_suspension(agent_named(f"acme/{slug}"), PERSON)
            keys = [*self.seen[slug], self.own.get(slug, "")]
            assert {Caller(key).get("memories").status for key in keys} == {401}

    @rule(slug=slugs, body=st.sampled_from([{"paused": True}, {"budget_tokens": 9_000}, {"refine_every": None}]))
    def change_an_allowed_setting(self, slug: str, body: dict[str, Any]) -> None:
        assert self.tenant.patch(f"agents/{slug}", body).status == (200 if self.seen[slug] else 404)

    @rule(slug=slugs, name=st.sampled_from(REFUSED))
    def change_a_refused_setting(self, slug: str, name: str) -> None:
        if self.seen[slug]:
            assert self.tenant.patch(f"agents/{slug}", {name: "x"}).codes == ["unknown_field"]

    @rule(endpoint=st.sampled_from(AGENT_ENDPOINTS), body=st.sampled_from(BODIES))
    def request_content(self, endpoint: tuple[str, str], body: dict[str, Any]) -> None:
        answer = self.tenant.ask(*endpoint, body)
        assert (answer.status, answer.codes) == (403, ["permission_denied"])
        assert CONTENT.encode() not in answer.content

    @rule(slug=slugs, exchange=st.booleans())
    def issue_a_key_with_an_old_key(self, slug: str, exchange: bool) -> None:
        """This works only until the runtime takes the silo over."""
        if self.seen[slug]:
            answer = Caller(self.seen[slug][-1]).post("agent/keys", {"exchange": exchange})
            if answer.status == 201:
                assert slug not in self.taken
                self.seen[slug].append(answer.json["key"])

    @rule(slug=slugs, place=st.integers(0, 3))
    def the_runtime_takes_the_silo_over(self, slug: str, place: int) -> None:
        """It gets a valid key while the silo has none of its memories, and exchanges the key."""
        working = [key for key in self.seen[slug] if Caller(key).get("agent").status == 200]
        if working and slug not in self.taken:
            answer = Caller(working[place % len(working)]).post("agent/keys", {"exchange": True})
            assert answer.status == 201
            self.own[slug] = answer.json["key"]
            self.taken.add(slug)

    @precondition(lambda self: self.own)
    @rule(slug=slugs)
    def the_runtime_remembers(self, slug: str) -> None:
        if slug in self.own and Caller(self.own[slug]).post("memories", {"content": f"{CONTENT} tea"}).status == 201:
            self.filled.add(slug)

    @precondition(lambda self: self.own)
    @rule(slug=slugs, exchange=st.booleans())
    def the_runtime_issues_a_key(self, slug: str, exchange: bool) -> None:
        if slug in self.own:
            answer = Caller(self.own[slug]).post("agent/keys", {"exchange": exchange})
            if answer.status == 201:
                self.own[slug] = answer.json["key"]

    @precondition(lambda self: self.own)
    @rule(slug=slugs, body=st.sampled_from(CHANGES))
    def the_runtime_changes_its_settings(self, slug: str, body: dict[str, Any]) -> None:
        if slug in self.own:
            assert Caller(self.own[slug]).patch("agent", body).status in (200, 401)

    @precondition(lambda self: self.filled)
    @rule(slug=slugs)
    def the_silo_is_erased(self, slug: str) -> None:
        if slug in self.filled - self.erased:
            agent = agent_named(f"acme/{slug}")
            if not agent.is_steward_only:
                request = requests.ask_erasure(agent, PERSON, reason="a test")
                erasure.erase(agent, request.number, ME)
                self.erased.add(slug)

    @invariant()
    def no_key_the_tenant_saw_opens_a_silo_that_was_taken_over(self) -> None:
        for slug in self.taken:
            for key in self.seen[slug]:
                assert Caller(key).get("memories").status == 401
                assert Caller(key).post("memories/search", {"q": CONTENT}).status == 401

    @invariant()
    def no_response_to_the_tenant_has_content(self) -> None:
        if hasattr(self, "tenant"):
            for path in ("agents", *(f"agents/{slug}" for slug in SLUGS)):
                assert CONTENT.encode() not in self.tenant.get(path).content


@pytest.mark.usefixtures("db")
def test_no_tenants_key_reads_a_silo(settings: Any) -> None:
    settings.ALLOWED_HOSTS, settings.API_RATE = ["testserver"], 10**9
    walk(Keys, 8, steps=20)
