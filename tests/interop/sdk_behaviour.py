"""What the memory stores do, as programs with Anthropic's SDK see it: once with its client, once with its async client,
and two writers at one path. It runs in the environment of the SDK.

sdk_behaviour.py ADDRESS KEY
"""

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic

ADDRESS, KEY = sys.argv[1:]
ROUNDS, LARGEST = 25, 102_400


async def done(value: Any) -> Any:
    """The result of either client."""
    return await value if inspect.isawaitable(value) else value


async def listed(pages: Any) -> list[Any]:
    """All items of all pages."""
    if hasattr(pages, "__aiter__"):
        return [item async for item in pages]
    return list(pages)


async def fails(kind: type[Exception], request: Callable[[], Any]) -> Any:
    """The body of the error that a request gets."""
    try:
        await done(request())
    except kind as error:
        return getattr(error, "body", None)
    raise AssertionError(f"{kind.__name__} was expected")


async def use(client: Any) -> None:
    stores = client.beta.memory_stores
    store = (await done(stores.create(name="Notes", metadata={"a": "b"}))).id
    memories, versions = stores.memories, stores.memory_versions
    made = await done(memories.create(store, path="/été/日記.md", content="one"))
    known = {"type": "content_sha256", "content_sha256": made.content_sha256}
    at = {"memory_store_id": store}
    changed = await done(memories.update(made.id, content="two", precondition=known, **at))
    assert changed.content_sha256 != made.content_sha256

    error = await fails(
        anthropic.ConflictError, lambda: memories.update(made.id, content="3", precondition=known, **at)
    )
    assert error["error"]["type"] == "memory_precondition_failed_error", error
    same = await done(memories.update(made.id, content="two", precondition=known, **at))
    assert same.memory_version_id == changed.memory_version_id
    error = await fails(anthropic.ConflictError, lambda: memories.create(store, path="/été/日記.md", content="x"))
    assert error["error"]["type"] == "memory_path_conflict_error", error
    await done(memories.update(error["error"]["conflicting_memory_id"], content="three", **at))
    assert (await done(memories.retrieve(made.id, **at))).content == "three"

    found = await listed(versions.list(store, memory_id=made.id, view="full", limit=1))
    assert [each.content for each in found] == ["three", "two", "one"], found
    await fails(anthropic.BadRequestError, lambda: versions.redact(found[0].id, **at))
    redacted = await done(versions.redact(found[2].id, **at))
    assert (redacted.content, redacted.path, redacted.content_sha256) == (None, None, None)
    assert redacted.redacted_at is not None

    for number in range(45):
        await done(memories.create(store, path=f"/many/{number}", content=str(number)))
    assert len(await listed(memories.list(store))) == 46
    assert len(await listed(memories.list(store, view="full", path_prefix="/many/"))) == 45
    top = await listed(memories.list(store, depth=1))
    assert {(each.type, each.path) for each in top} == {("memory_prefix", "/many/"), ("memory_prefix", "/été/")}, top
    await done(memories.create(store, path="/large", content="x" * LARGEST))
    await fails(anthropic.BadRequestError, lambda: memories.create(store, path="/larger", content="x" * (LARGEST + 1)))
    await done(
        memories.delete(
            made.id, expected_content_sha256=(await done(memories.retrieve(made.id, **at))).content_sha256, **at
        )
    )
    await fails(anthropic.NotFoundError, lambda: memories.retrieve(made.id, **at))
    await done(stores.archive(store))
    await fails(anthropic.BadRequestError, lambda: memories.create(store, path="/x", content="x"))
    await done(stores.delete(store))
    await fails(anthropic.NotFoundError, lambda: stores.retrieve(store))


def outcomes(writers: Iterable[Callable[[], Any]]) -> list[str]:
    """What two requests at once get: "done" or the type of the error."""

    def one(write: Callable[[], Any]) -> str:
        try:
            write()
        except anthropic.ConflictError as error:
            return str(error.body["error"]["type"])  # type: ignore[index]
        return "done"

    with ThreadPoolExecutor(2) as pool:
        return sorted(pool.map(one, writers))


def race(client: Any) -> None:
    """Of two writers, one wins and the other gets the conflict. Each content that was accepted is a version."""
    stores = client.beta.memory_stores
    store, memories = stores.create(name="Race").id, stores.memories

    def creates(path: str, content: str) -> Callable[[], Any]:
        return lambda: memories.create(store, path=path, content=content)

    def updates(memory: Any, content: str) -> Callable[[], Any]:
        known = {"type": "content_sha256", "content_sha256": memory.content_sha256}
        return lambda: memories.update(memory.id, memory_store_id=store, content=content, precondition=known)

    for number in range(ROUNDS):
        path = f"/race/{number}"
        both = outcomes([creates(path, "a"), creates(path, "b")])
        assert both == ["done", "memory_path_conflict_error"], both
        [memory] = [each for each in memories.list(store, limit=100) if each.path == path]
        both = outcomes([updates(memory, "c"), updates(memory, "d")])
        assert both == ["done", "memory_precondition_failed_error"], both
        contents = [each.content for each in stores.memory_versions.list(store, memory_id=memory.id, view="full")]
        now = memories.retrieve(memory.id, memory_store_id=store).content
        assert [len(contents), contents[0]] == [2, now], contents
        assert (now in "cd", contents[1] in "ab") == (True, True)


asyncio.run(use(anthropic.Anthropic(base_url=ADDRESS, api_key=KEY)))
asyncio.run(use(anthropic.AsyncAnthropic(base_url=ADDRESS, api_key=KEY)))
race(anthropic.Anthropic(base_url=ADDRESS, api_key=KEY))
print(f"Anthropic's SDK: the stores behave as documented, also with two writers at one path ({ROUNDS} times)")
