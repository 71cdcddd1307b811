"""All tools of OpenSandbox's own MCP server, which uses our REST as it uses OpenSandbox's."""

import asyncio
import os
import sys

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=[], env=dict(os.environ))
    # It logs every request.
    log = open(os.devnull, "w")
    async with Client(stdio_client(server, errlog=log)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        called = set()

        async def call(tool, **arguments):
            called.add(tool)
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, (tool, result)
            return result.structured_content

        made = await call("sandbox_create", image="host", timeout_seconds=600, env={"A": "1"}, metadata={"m": "cp"})
        sandbox = made["sandbox_id"]
        assert made["info"]["status"]["state"] == "Running", made
        assert (await call("sandbox_connect", sandbox_id=sandbox))["sandbox_id"] == sandbox
        assert (await call("sandbox_get_info", sandbox_id=sandbox))["metadata"] == {"m": "cp"}
        listed = await call("sandbox_list", filter={"metadata": {"m": "cp"}})
        assert [one["id"] for one in listed["sandbox_infos"]] == [sandbox], listed
        assert (await call("sandbox_healthcheck", sandbox_id=sandbox))["healthy"] is True
        assert (await call("sandbox_get_metrics", sandbox_id=sandbox))["memory_total_in_mib"] > 0
        assert (await call("sandbox_renew", sandbox_id=sandbox, timeout_seconds=900))["expires_at"]
        endpoint = await call("sandbox_get_endpoint", sandbox_id=sandbox, port=8000)
        assert endpoint["endpoint"].endswith(f"/sandboxes/{sandbox}/proxy/8000") and endpoint["headers"], endpoint

        ran = await call("command_run", sandbox_id=sandbox, command="echo $A; echo e >&2; exit 3")
        assert ran["exit_code"] == 3 and [one["text"] for one in ran["logs"]["stdout"]] == ["1"], ran
        ran = await call("command_run", sandbox_id=sandbox, command="exec sleep 600", background=True)
        assert (await call("command_interrupt", sandbox_id=sandbox, execution_id=ran["id"]))["status"] == "interrupted"

        inside = {"sandbox_id": sandbox}
        await call("file_create_directories", entries=[{"path": "/tmp/d/e"}], **inside)
        await call("file_write", path="/tmp/d/a.txt", content="one one", **inside)
        assert (await call("file_read", path="/tmp/d/a.txt", **inside))["content"] == "one one"
        part = await call("file_read", path="/tmp/d/a.txt", range_header="bytes=4-6", **inside)
        assert part["content"] == "one", part
        entry = {"path": "/tmp/d/a.txt", "old_content": "one", "new_content": "two"}
        counts = await call("file_replace_contents", entries=[entry], **inside)
        assert counts["result"][0]["replaced_count"] == 2, counts
        found = await call("file_search", path="/tmp/d", pattern="*.txt", **inside)
        assert [one["path"] for one in found["result"]] == ["/tmp/d/a.txt"], found
        await call("file_move", entries=[{"source": "/tmp/d/a.txt", "destination": "/tmp/d/b.txt"}], **inside)
        assert (await call("file_read", path="/tmp/d/b.txt", **inside))["content"] == "two two"
        await call("file_delete", paths=["/tmp/d/b.txt"], **inside)
        await call("file_delete_directories", paths=["/tmp/d"], **inside)
        assert (await call("sandbox_kill", sandbox_id=sandbox))["status"] == "killed"
        assert called == names and len(names) == 19, names - called
    print(f"ok: {len(names)} tools of opensandbox-mcp")


asyncio.run(main())
