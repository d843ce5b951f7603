"""The official Python client: lists, calls, reads and gets a prompt. It runs in an environment of its own, with `mcp`.

client.py MODE URL          over HTTP
client.py MODE COMMAND ...  over standard input and output
"""

import asyncio
import os
import sys
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

KEY = os.environ["PALIMPSEST_AGENT_KEY"]
VERSIONS = {"legacy": "2025-11-25", "auto": "2026-07-28"}


def server(target: list[str]) -> Any:
    if target[0].startswith("http"):
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {KEY}"})
        return streamable_http_client(target[0], http_client=http)
    return StdioServerParameters(command=target[0], args=target[1:], env=dict(os.environ))


async def use(mode: str, target: list[str]) -> None:
    async with Client(server(target), mode=mode) as client:
        assert client.session.protocol_version == VERSIONS[mode], client.session.protocol_version
        tools = [tool.name for tool in (await client.list_tools()).tools]
        assert len(tools) == 12, tools
        for number in range(2):
            await client.call_tool("remember", {"content": f"Python, {mode}: Ann drinks tea, cup {number} ☕"})
        found = await client.call_tool("search", {"query": f"python {mode} tea"})
        assert not found.is_error, found
        memory = found.structured_content["results"][0]
        assert "☕" in memory["content"], memory
        wrong = await client.call_tool("fetch", {"id": "999999"})
        assert wrong.is_error, wrong
        [read] = (await client.read_resource(memory["url"])).contents
        assert read.text == memory["content"], read
        assert [str(each.uri) for each in (await client.list_resources()).resources] == ["memory://context"]
        assert len((await client.list_resource_templates()).resource_templates) == 2
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["refine"]
        prompt = await client.get_prompt("refine")
        assert "consolidate_memories" in prompt.messages[-1].content.text
        merge = {"ids_to_merge": [int(memory["id"]), int(memory["id"]) + 1], "new_content": f"Ann drinks tea {mode}"}
        done = await client.call_tool("knife", {"action": "search_memories", "arguments": {"query": "tea"}})
        assert done.structured_content["ok"], done
        await client.call_tool("knife", {"action": "consolidate_memories", "arguments": merge})
        ended = await client.call_tool("knife", {"action": "decline_refinement", "reason": "a trial"})
        assert not ended.is_error, ended
        refused = await asyncio.gather(client.call_tool("no_such_tool"), return_exceptions=True)
        assert isinstance(refused[0], MCPError), refused
        assert refused[0].code == -32602, refused


mode, *target = sys.argv[1:]
asyncio.run(use(mode, target))
print(f"Python, {mode}: done")
