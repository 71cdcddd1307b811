/** Configurations of MCP clients, with the address as the browser sees it. */
export type Client = { name: string; where: string; text: string };

const KEY = "wrn_…";

function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2);
}

/** Over HTTP, from anywhere. `needsKey` is false in development mode. */
export function overHttp(origin: string, needsKey: boolean): Client[] {
  const url = `${origin}/mcp`;
  const headers = needsKey ? { headers: { Authorization: `Bearer ${KEY}` } } : {};
  const flag = needsKey ? ` --header "Authorization: Bearer ${KEY}"` : "";
  return [
    { name: "Claude Code", where: "a terminal", text: `claude mcp add --transport http warren ${url}${flag}` },
    { name: "Cursor", where: "~/.cursor/mcp.json", text: pretty({ mcpServers: { warren: { url, ...headers } } }) },
    {
      name: "VS Code",
      where: ".vscode/mcp.json",
      text: pretty({ servers: { warren: { type: "http", url, ...headers } } }),
    },
    {
      name: "Windsurf",
      where: "~/.codeium/windsurf/mcp_config.json",
      text: pretty({ mcpServers: { warren: { serverUrl: url, ...headers } } }),
    },
    {
      name: "Zed",
      where: "settings.json",
      text: pretty({ context_servers: { warren: { source: "custom", url, ...headers } } }),
    },
    {
      name: "Codex",
      where: "~/.codex/config.toml",
      text: `[mcp_servers.warren]\nurl = "${url}"${needsKey ? '\nbearer_token_env_var = "WARREN_KEY"' : ""}`,
    },
    {
      name: "Python (fastmcp)",
      where: "a program",
      text: [
        "from fastmcp import Client",
        "from fastmcp.client.transports import StreamableHttpTransport",
        "",
        `transport = StreamableHttpTransport("${url}"${needsKey ? `, headers={"Authorization": "Bearer ${KEY}"}` : ""})`,
        "async with Client(transport) as client:",
        '    print(await client.call_tool("sandbox_run", {"command": "echo hello"}))',
      ].join("\n"),
    },
    { name: "Older clients (SSE)", where: "an address", text: `${origin}/sse${needsKey ? `?api_key=${KEY}` : ""}` },
  ];
}

/** Over stdio, on the machine itself. */
export function overStdio(): Client[] {
  const stdio = { command: "warren", args: ["mcp"] };
  return [
    { name: "Claude Code", where: "a terminal", text: "claude mcp add warren -- warren mcp" },
    {
      name: "Claude Desktop, Cursor, Windsurf",
      where: "its MCP configuration",
      text: pretty({ mcpServers: { warren: stdio } }),
    },
    { name: "VS Code", where: ".vscode/mcp.json", text: pretty({ servers: { warren: { type: "stdio", ...stdio } } }) },
    {
      name: "Zed",
      where: "settings.json",
      text: pretty({ context_servers: { warren: { source: "custom", ...stdio, env: {} } } }),
    },
  ];
}

/** The plain API. */
export function overRest(origin: string, needsKey: boolean): Client[] {
  const header = needsKey ? ` -H "Authorization: Bearer ${KEY}"` : "";
  const json = '-H "Content-Type: application/json"';
  return [
    {
      name: "Make a sandbox and run a command",
      where: "a terminal",
      text: [
        `curl${header} ${json} ${origin}/v1/sandboxes -d '{"name": "lab"}'`,
        `curl${header} ${json} "${origin}/v1/sandboxes/lab/execs?wait=true" -d '{"command": ["echo", "hello"]}'`,
      ].join("\n"),
    },
    { name: "Everything it can do", where: "an OpenAPI document", text: `${origin}/v1/openapi.json` },
  ];
}
