// The official TypeScript client: lists, calls, reads and gets a prompt.
//
//   client.mjs MODE URL          over HTTP
//   client.mjs MODE COMMAND ...  over standard input and output
import assert from 'node:assert/strict';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const [mode, ...target] = process.argv.slice(2);
const key = process.env.PALIMPSEST_AGENT_KEY;
const transport = target[0].startsWith('http')
  ? new StreamableHTTPClientTransport(new URL(target[0]), { requestInit: { headers: { Authorization: `Bearer ${key}` } } })
  : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
const client = new Client({ name: 'interop', version: '1' }, { versionNegotiation: { mode } });
await client.connect(transport);
assert.equal(client.getNegotiatedProtocolVersion(), { legacy: '2025-11-25', auto: '2026-07-28' }[mode]);

const { tools } = await client.listTools();
assert.equal(tools.length, 12);
const call = (name, args = {}) => client.callTool({ name, arguments: args });
for (const number of [0, 1]) await call('remember', { content: `TypeScript, ${mode}: Ben drinks coffee, cup ${number} ☕` });
const found = await call('search', { query: `typescript ${mode} coffee` });
const memory = found.structuredContent.results[0];
assert.ok(memory.content.includes('☕'));
assert.ok((await call('fetch', { id: '999999' })).isError);
const { contents } = await client.readResource({ uri: memory.url });
assert.equal(contents[0].text, memory.content);
assert.deepEqual((await client.listResources()).resources.map((each) => each.uri), ['memory://context']);
assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 2);
assert.deepEqual((await client.listPrompts()).prompts.map((each) => each.name), ['refine']);
const prompt = await client.getPrompt({ name: 'refine' });
assert.ok(prompt.messages.at(-1).content.text.includes('consolidate_memories'));
assert.ok((await call('knife', { action: 'search_memories', arguments: { query: 'coffee' } })).structuredContent.ok);
assert.ok(!(await call('knife', { action: 'decline_refinement', reason: 'a trial' })).isError);
await assert.rejects(call('no_such_tool'));
await client.close();
console.log(`TypeScript, ${mode}: done`);
