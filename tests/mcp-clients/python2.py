"""The story through version 2 of Python's client library: stdio and Streamable HTTP, with the newest protocol and with the
handshake of the older ones, and HTTP+SSE."""

import asyncio
import os
import sys
from types import SimpleNamespace

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
import mcp_types as types

from story import check, tell


class Adapter:
    def __init__(self, client):
        self.client = client
        self.keeps_session = False
        self.list_changed = asyncio.Event()
        self.updated = asyncio.Event()
        self.listener = None

    async def on_message(self, message):
        if isinstance(message, types.ToolListChangedNotification):
            self.list_changed.set()
        elif isinstance(message, types.ResourceUpdatedNotification):
            self.updated.set()

    async def tools(self):
        return (await self.client.list_tools(cache_mode="refresh")).tools

    async def call(self, tool, arguments, progress=None):
        async def on_progress(done, total, message):
            progress((done, total, message))

        result = await self.client.call_tool(
            tool, arguments, progress_callback=on_progress if progress else None)
        return SimpleNamespace(text=result.content[0].text, structured=result.structured_content,
                               is_error=result.is_error)

    async def read(self, uri):
        return (await self.client.read_resource(uri)).contents[0].text

    async def prompt(self, name):
        return (await self.client.get_prompt(name)).messages[0].content.text

    async def complete(self, template, argument, value):
        reference = types.ResourceTemplateReference(type="ref/resource", uri=template)
        done = await self.client.complete(reference, {"name": argument, "value": value})
        return done.completion.values

    async def changes(self, uri):
        if self.keeps_session:
            await self.client.subscribe_resource(uri)
            return self.updated
        listening = asyncio.Event()

        async def listen():
            async with self.client.listen(resource_subscriptions=[uri]) as subscription:
                listening.set()
                async for _event in subscription:
                    self.updated.set()

        self.listener = asyncio.create_task(listen())
        await asyncio.wait_for(listening.wait(), 20)
        return self.updated


async def through(way, server, mode, version):
    adapter = Adapter(None)
    async with Client(server, mode=mode, message_handler=adapter.on_message) as client:
        adapter.client = client
        check(client.protocol_version == version, f"{way}: {client.protocol_version} was negotiated")
        adapter.keeps_session = mode == "legacy"
        await tell(adapter, f"py2-{way}")
        if adapter.listener:
            adapter.listener.cancel()
    print(f"python mcp 2.x over {way} ({version}): ok", flush=True)


async def main(warren, url, key):
    def stdio():
        return StdioServerParameters(command=warren, args=["mcp"], env=dict(os.environ))

    def http():
        client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60)
        return streamable_http_client(f"{url}/mcp", http_client=client)

    await through("stdio", stdio(), "auto", "2026-07-28")
    await through("stdio-old", stdio(), "legacy", "2025-11-25")
    await through("http", http(), "auto", "2026-07-28")
    await through("http-old", http(), "legacy", "2025-11-25")
    await through("sse", sse_client(f"{url}/sse?api_key={key}"), "legacy", "2025-11-25")


asyncio.run(main(*sys.argv[1:]))
