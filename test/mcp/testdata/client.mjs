// Lists and calls every tool with a client library that is not ours, and says
// what it saw as JSON.
//
//   client.mjs v1|v2 stdio COMMAND [ARG...]
//   client.mjs v1|v2 http URL KEY
//
// v1 is the library of revision 2025-11-25, v2 that of 2026-07-28. Both check
// structured answers against the schema that the tool was listed with.
import assert from "node:assert/strict";

const [library, transport, target, ...rest] = process.argv.slice(2);

async function load() {
  if (library === "v2") {
    const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
    const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
    const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: "auto" } });
    return { client, StreamableHTTPClientTransport, StdioClientTransport };
  }
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  return { client: new Client({ name: "test", version: "1" }), StreamableHTTPClientTransport, StdioClientTransport };
}

const { client, StreamableHTTPClientTransport, StdioClientTransport } = await load();
await client.connect(
  transport === "stdio"
    ? new StdioClientTransport({ command: target, args: rest, env: process.env, stderr: "inherit" })
    : new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers: { Authorization: `Bearer ${rest[0]}` } } }),
);
const version = client.getNegotiatedProtocolVersion?.() ?? "2025-11-25";
assert.equal(version, library === "v2" ? "2026-07-28" : "2025-11-25");
assert.equal(client.getServerVersion().name, "sunaba");

const { tools } = await client.listTools();
const called = new Set();

// good calls a tool, and wants an answer of both kinds.
async function good(name, args, options) {
  called.add(name);
  const params = { name, arguments: args };
  const res = library === "v2" ? await client.callTool(params, options) : await client.callTool(params, undefined, options);
  assert.ok(!res.isError, `${name}: ${JSON.stringify(res.content)}`);
  assert.equal(res.content[0].type, "text");
  assert.ok(res.structuredContent, name);
  return res;
}

let res = await good("run_code", { language: "python", code: "print(6*7)" });
assert.equal(res.structuredContent.stdout.text, "42\n");
res = await good("run_command", { command: "echo $((6*7)); exit 3" });
assert.deepEqual([res.structuredContent.stdout.text, res.structuredContent.exit_code], ["42\n", 3]);
res = await good("execute", { name: "bash", input: "echo hands" });
assert.match(res.structuredContent.output, /\nhands\n/);

const { sandbox_id } = (await good("create_box", { resource_limits: { memory: "512m" }, ttl_sec: 600 })).structuredContent;
await good("write_file", { sandbox_id, path: "a/b.txt", content: "written\n" });
res = await good("list_files", { sandbox_id, path: "a" });
assert.equal(res.structuredContent.entries.length, 1);
res = await good("run_command", { sandbox_id, command: ["cat", "a/b.txt"] });
assert.equal(res.structuredContent.stdout.text, "written\n");
res = await good("read_file", { sandbox_id, path: "a/b.txt" });
assert.equal(res.structuredContent.content, "written\n");

// A context keeps its variables.
await good("run_code", { sandbox_id, language: "python", code: "x = 41" });
res = await good("run_code", { sandbox_id, language: "python", code: "x + 1" });
assert.equal(res.structuredContent.results.find((r) => r.main).forms["text/plain"], "42");
res = await good("run_code", { sandbox_id, language: "python", code: "1/0" });
assert.equal(res.structuredContent.error.name, "ZeroDivisionError");

// What is too long for an answer can be read as a resource.
res = await good("run_command", { sandbox_id, command: "seq 1 50000" });
const link = res.content.find((c) => c.type === "resource_link");
const { contents } = await client.readResource({ uri: link.uri });
assert.equal(contents[0].text.split("\n").length, 50001);

// A call that lasts shows signs of life, every five seconds: on a busy host one of two.
if (transport === "http") {
  let beats = 0;
  await good("run_command", { sandbox_id, command: "sleep 12" }, { onprogress: () => beats++ });
  assert.ok(beats >= 1, "no progress");
}

// What a model can repair is an answer, and what it cannot is an error.
res = await client.callTool({ name: "read_file", arguments: { sandbox_id, path: "nothing" } });
assert.ok(res.isError && /not_found/.test(res.content[0].text), JSON.stringify(res));
res = await client.callTool({ name: "run_code", arguments: { language: "python", cod: "1" } });
assert.ok(res.isError && /hint: its arguments are language, code/.test(res.content[0].text), JSON.stringify(res));
await assert.rejects(client.callTool({ name: "no_such_tool", arguments: {} }));

await good("destroy_box", { sandbox_id });
res = await client.callTool({ name: "list_files", arguments: { sandbox_id, path: "/" } });
assert.ok(res.isError, "a destroyed box has files");

assert.deepEqual([...called].sort(), tools.map((t) => t.name));
await client.close();
console.log(JSON.stringify({ version, called: called.size }));
