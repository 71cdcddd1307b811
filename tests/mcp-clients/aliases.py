"""What models bring from other systems, through Python's client library: names of arguments, tools, ways to wait, roots."""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from story import check


async def call(session, tool, arguments):
    result = await session.call_tool(tool, arguments)
    return json.loads(result.content[0].text)


async def data(session, tool, arguments):
    answer = await call(session, tool, arguments)
    check(answer["ok"], f"{tool}: {answer}")
    return answer["data"]


async def refused(session, tool, arguments, code):
    answer = await call(session, tool, arguments)
    check(not answer["ok"] and answer["error"]["code"] == code, f"{tool}: {answer}")
    return answer["error"]


async def words(session, name):
    await data(session, "sandbox_fs_write", {"sandbox_id": name, "file_path": "/root/f", "text": "one"})
    await data(session, "sandbox_fs_edit",
               {"sandbox": name, "file_path": "/root/f", "old_string": "one", "new_string": "two"})
    read = await data(session, "sandbox_fs_read", {"sandboxName": name, "filename": "/root/f", "max_bytes": "100"})
    check(read["content"] == "two", read)
    await data(session, "sandbox_fs_edit", {"name": name, "path": "/root/f", "old_str": "two", "new_str": "three"})
    await data(session, "sandbox_fs_edit",
               {"name": name, "path": "/root/f", "edits": '[{"oldText": "three", "newText": "two"}]'})
    read = await data(session, "sandbox_fs_read", {"name": name, "path": "/root/f"})
    check(read["content"] == "two", read)
    done = await data(session, "sandbox_exec", {"name": name, "command": "printf", "args": '["%s|", "a b"]'})
    check(done["stdout"] == "a b|", done)
    done = await data(session, "sandbox_shell", {"id": name, "cmd": "echo $A", "env": '{"A": "1"}'})
    check(done["stdout"] == "1\n", done)
    error = await refused(session, "sandbox_exec", {"name": name, "sandbox": "other", "command": "true"}, "invalid_request")
    check("sandbox" in error["message"] and "name" in error["message"], error)


async def strange_tools(session, name):
    for tool, arguments, right in [
        ("bash", {"command": "ls"}, "sandbox_shell"),
        ("command_run", {"sandbox_id": name, "command": "ls"}, "sandbox_shell"),
        ("execute_python_code", {"sandbox_id": name, "code": "1"}, "sandbox_run_code"),
        ("run_python", {"code": "1"}, "sandbox_run_code"),
        ("file_write", {"sandbox_id": name, "path": "/f", "content": "x"}, "sandbox_fs_write"),
        ("str_replace_editor", {"command": "view", "path": "/f"}, "sandbox_fs_read"),
        ("sandbox_read_file", {"path": "/f"}, "sandbox_fs_read"),
    ]:
        error = await refused(session, tool, arguments, "not_found")
        check(error["details"]["call"]["tool"] == right and right in error["hint"], error)
    error = await refused(session, "sandbox_rest", {}, "not_found")
    check("Did you mean" not in error["hint"], error)


async def waiting(session, name):
    started = await data(session, "sandbox_exec_start", {"name": name, "command": "sh", "args": ["-c", "read x; echo got $x; exec cat"]})
    session_id = started["execSessionId"]
    written = await data(session, "sandbox_exec_write_stdin",
                         {"session_id": session_id, "text": "it\n", "until": "got it", "wait_ms": 20000})
    check(written["output"]["reached"] is True, written)
    await data(session, "sandbox_exec_write_stdin", {"execSessionId": session_id, "data": "end", "close": True})
    polled = await data(session, "sandbox_exec_poll", {"execSessionId": session_id, "until": "exit", "waitMs": 20000})
    text = [e["event"]["data"] for e in polled["events"] if e["event"]["kind"] == "stdout"]
    check(polled["done"] and text == ["got it\nend"], polled)
    # Whatever comes first; the command goes on.
    slow = await data(session, "sandbox_exec_start", {"name": name, "command": "sleep 0.3; echo begun; sleep 600"})
    which = {"execSessionId": slow["execSessionId"]}
    polled = await data(session, "sandbox_exec_poll", {**which, "until": "output", "waitMs": 20000})
    text = [e["event"]["data"] for e in polled["events"] if e["event"]["kind"] == "stdout"]
    check((polled["reached"], polled["done"], text) == (True, False, ["begun\n"]), polled)
    await data(session, "sandbox_exec_signal", {**which, "signal": "kill"})


async def files_again(session, name):
    await data(session, "toolset_enable", {"toolsets": ["snapshots"]})
    listed = {tool.name: tool.inputSchema for tool in (await session.list_tools()).tools}
    check(listed["snapshot_create"]["required"] == ["fromSandbox"], listed["snapshot_create"])
    error = await refused(session, "snapshot_create", {"name": f"{name}-none"}, "invalid_request")
    check("fromSandbox" in error["message"] and "fromSandbox" in error["hint"], error)
    await data(session, "snapshot_create", {"name": f"{name}-ready", "sandbox": name})
    await data(session, "sandbox_fs_write", {"name": name, "path": "/root/f", "content": "spoiled"})
    await data(session, "sandbox_restore", {"name": name, "snapshot": f"{name}-ready", "replace": True})
    read = await data(session, "sandbox_fs_read", {"name": name, "path": "/root/f"})
    check(read["content"] == "two", read)
    await data(session, "sandbox_fork", {"name": name, "names": [f"{name}-fork"]})
    await data(session, "sandbox_fs_write", {"name": f"{name}-fork", "path": "/root/new", "content": "x"})
    diff = await data(session, "sandbox_diff", {"name": f"{name}-fork", "since": name})
    check("/root/new" in {change["path"] for change in diff["changes"]}, diff)
    check("/root/f" not in {change["path"] for change in diff["changes"]}, diff)
    await data(session, "sandbox_remove", {"name": f"{name}-fork", "force": True})


async def told(streams, name, work, **callbacks):
    async with streams as (read, write, *_):
        async with ClientSession(read, write, **callbacks) as session:
            await session.initialize()
            await data(session, "sandbox_create", {"sandbox_name": name})
            try:
                await asyncio.wait_for(work(session, name), 120)
            finally:
                await data(session, "sandbox_remove", {"sandbox": name, "force": True})


async def all_words(session, name):
    await words(session, name)
    await strange_tools(session, name)
    await waiting(session, name)
    await files_again(session, name)


def person(access, asked):
    """The answers of a person: which access they give to a root, or None for a refusal."""
    async def answer(context, params):
        asked.append(params.message)
        if access is None:
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"access": access})
    return answer


async def roots(streams, place, access):
    """What a client may copy from its root and to it, and what the person was asked, who gives this access."""
    asked, may = [], {}

    async def list_roots(context):
        return types.ListRootsResult(roots=[types.Root(uri=Path(place).as_uri())])

    async def work(session, name):
        inside = {"name": name, "guestPath": "/root/in", "hostPath": f"{place}/in"}
        may["read"] = (await call(session, "sandbox_fs_copy_from_host", inside))["ok"]
        outside = {"name": name, "guestPath": "/etc/hostname", "hostPath": f"{place}/out"}
        written = await call(session, "sandbox_fs_copy_to_host", outside)
        may["write"] = written["ok"]
        if not written["ok"] and asked:
            check("--allow-host-path" in written["error"]["hint"], written)
        await refused(session, "sandbox_fs_copy_from_host", {**inside, "hostPath": "/etc/passwd"}, "host_path_denied")

    await told(streams, f"roots-{access}".lower(), work, list_roots_callback=list_roots, elicitation_callback=person(access, asked))
    return may, asked


async def main(warren, url, key):
    bearer = {"Authorization": f"Bearer {key}"}
    stdio = lambda: stdio_client(StdioServerParameters(command=warren, args=["mcp"], env=dict(os.environ)))
    http = lambda: streamablehttp_client(f"{url}/mcp", headers=bearer)
    for way, streams in {"stdio": stdio, "http": http}.items():
        await told(streams(), f"words-{way}", all_words)
        print(f"words of other systems over {way}: ok", flush=True)
    with tempfile.TemporaryDirectory() as place:
        Path(place, "in").write_text("in")
        for access, expected in {"read": {"read": True, "write": False}, "write": {"read": True, "write": True},
                                 None: {"read": False, "write": False}}.items():
            may, asked = await roots(stdio(), place, access)
            check(may == expected and len(asked) == 1 and place in asked[0], f"{access}: {may}, {asked}")
        # Whoever comes from elsewhere is not asked: its directories are not on this machine.
        may, asked = await roots(http(), place, "write")
        check(may == {"read": False, "write": False} and not asked, f"http: {may}, {asked}")
    print("roots become host paths when the person agrees: ok", flush=True)


asyncio.run(main(*sys.argv[1:]))
