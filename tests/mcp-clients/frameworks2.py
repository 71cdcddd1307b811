"""Frameworks on version 2 of Python's MCP library: fastmcp and agno, over stdio and Streamable HTTP."""

import asyncio
import os
import sys

from agno.tools.function import FunctionCall
from agno.tools.mcp import MCPTools, StreamableHTTPClientParams
from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from mcp import StdioServerParameters

import frameworks


class FastMcp:
    def __init__(self, client):
        self.client = client

    async def tools(self):
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, tool, arguments):
        result = await self.client.call_tool(tool, arguments, raise_on_error=False)
        return result.content[0].text


class Agno:
    """As an agent of theirs calls tools, without a model that decides to."""

    def __init__(self, toolkit):
        self.toolkit = toolkit

    async def tools(self):
        return list(self.toolkit.functions)

    async def call(self, tool, arguments):
        called = FunctionCall(function=self.toolkit.functions[tool], arguments=arguments, call_id="1")
        done = await called.aexecute()
        frameworks.check(done.status == "success", f"{tool}: {called.error}")
        return called.result.content if hasattr(called.result, "content") else called.result


async def main(warren, url, key, opensandbox_mcp, opensandbox_url):
    bearer = {"Authorization": f"Bearer {key}"}
    environment = dict(os.environ)
    for what, transport, story in [
        ("stdio", StdioTransport(warren, ["mcp"], env=environment), frameworks.native),
        ("http", StreamableHttpTransport(f"{url}/mcp", headers=bearer), frameworks.native),
        # Their own program's name and options, and nothing else of the configuration changed.
        ("opensandbox-mcp", StdioTransport(opensandbox_mcp, ["--api-key", key, "--domain", "localhost:8080"],
                                           env=environment), frameworks.opensandbox),
        ("opensandbox-mcp over http", StreamableHttpTransport(opensandbox_url), frameworks.opensandbox),
    ]:
        async with Client(transport) as client:
            await asyncio.wait_for(story(FastMcp(client)), 120)
        print(f"fastmcp, {what}: ok", flush=True)
    for what, toolkit, story in [
        # Its short form takes a few well-known programs only.
        ("stdio", MCPTools(
            transport="stdio", timeout_seconds=60,
            server_params=StdioServerParameters(command=warren, args=["mcp"], env=environment),
        ), frameworks.native),
        ("http, microsandbox-mcp", MCPTools(
            transport="streamable-http", timeout_seconds=60,
            server_params=StreamableHTTPClientParams(url=f"{url}/mcp/microsandbox-mcp", headers=bearer),
        ), frameworks.microsandbox_mcp),
    ]:
        async with toolkit:
            await asyncio.wait_for(story(Agno(toolkit)), 120)
        print(f"agno, {what}: ok", flush=True)


asyncio.run(main(*sys.argv[1:]))
