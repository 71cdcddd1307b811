"""The story through version 1 of Python's client library: stdio, Streamable HTTP, HTTP+SSE."""

import asyncio
import contextlib
import os
import sys
from types import SimpleNamespace

import anyio
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client
from pydantic import AnyUrl

from story import tell


class Adapter:
    keeps_session = True

    def __init__(self, session):
        self.session = session
        self.list_changed = asyncio.Event()
        self.updated = asyncio.Event()

    async def on_message(self, message):
        root = getattr(message, "root", None)
        if isinstance(root, types.ToolListChangedNotification):
            self.list_changed.set()
        elif isinstance(root, types.ResourceUpdatedNotification):
            self.updated.set()

    async def tools(self):
        return (await self.session.list_tools()).tools

    async def call(self, tool, arguments, progress=None):
        async def on_progress(done, total, message):
            progress((done, total, message))

        result = await self.session.call_tool(
            tool, arguments, progress_callback=on_progress if progress else None)
        return SimpleNamespace(text=result.content[0].text, structured=result.structuredContent,
                               is_error=result.isError)

    async def read(self, uri):
        return (await self.session.read_resource(AnyUrl(uri))).contents[0].text

    async def prompt(self, name):
        return (await self.session.get_prompt(name)).messages[0].content.text

    async def complete(self, template, argument, value):
        reference = types.ResourceTemplateReference(type="ref/resource", uri=template)
        done = await self.session.complete(reference, {"name": argument, "value": value})
        return done.completion.values

    async def changes(self, uri):
        await self.session.subscribe_resource(AnyUrl(uri))
        return self.updated


@contextlib.asynccontextmanager
async def connected(streams):
    async with streams as (read, write, *_):
        adapter = Adapter(None)
        async with ClientSession(read, write, message_handler=adapter.on_message) as session:
            adapter.session = session
            adapter.instructions = (await session.initialize()).instructions
            yield adapter


async def main(warren, url, key):
    bearer = {"Authorization": f"Bearer {key}"}
    ways = {
        "stdio": lambda: stdio_client(StdioServerParameters(command=warren, args=["mcp"], env=dict(os.environ))),
        "http": lambda: streamablehttp_client(f"{url}/mcp", headers=bearer),
        "sse": lambda: sse_client(f"{url}/sse", headers=bearer),
        "sse-query": lambda: sse_client(f"{url}/sse?api_key={key}"),
    }
    for way, streams in ways.items():
        is_told = False
        try:
            async with connected(streams()) as client:
                await tell(client, f"py1-{way}")
                is_told = True
        except* anyio.BrokenResourceError:
            # Over stdio, a notification that arrives while this library closes ends in this error of its own.
            if not is_told:
                raise
        print(f"python mcp 1.x over {way}: ok", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
