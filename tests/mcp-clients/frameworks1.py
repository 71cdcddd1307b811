"""Frameworks on version 1 of Python's MCP library: langchain's adapters, with several servers in one client."""

import asyncio
import os
import sys

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

import frameworks


class LangChain:
    def __init__(self, tools):
        self.by_name = {tool.name: tool for tool in tools}

    async def tools(self):
        return list(self.by_name)

    async def call(self, tool, arguments):
        # As a model's call, so that a failure comes back as a message.
        answer = await self.by_name[tool].ainvoke({"type": "tool_call", "id": "1", "name": tool, "args": arguments})
        content = answer.content
        return content if isinstance(content, str) else content[0]["text"]


async def main(warren, url, key):
    bearer = {"Authorization": f"Bearer {key}"}
    client = MultiServerMCPClient({
        "stdio": {"transport": "stdio", "command": warren, "args": ["mcp"], "env": dict(os.environ)},
        "http": {"transport": "streamable_http", "url": f"{url}/mcp", "headers": bearer},
        "opensandbox": {"transport": "streamable_http", "url": f"{url}/mcp/opensandbox", "headers": bearer},
    })
    for server, story in [
        ("stdio", frameworks.native), ("http", frameworks.native), ("opensandbox", frameworks.opensandbox),
    ]:
        async with client.session(server) as session:
            await asyncio.wait_for(story(LangChain(await load_mcp_tools(session))), 120)
        print(f"langchain-mcp-adapters, {server}: ok", flush=True)


asyncio.run(main(*sys.argv[1:]))
