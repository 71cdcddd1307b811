"""One story, told through any client library and any transport: what an agent does on its first day."""

import asyncio
import json

CORE = {
    "sandbox_create", "sandbox_run", "sandbox_run_code", "sandbox_list", "sandbox_start", "sandbox_stop", "sandbox_remove",
    "sandbox_exec", "sandbox_shell", "sandbox_exec_start", "sandbox_exec_poll", "sandbox_fs_read", "sandbox_fs_write",
    "sandbox_fs_list", "sandbox_fs_edit", "sandbox_exec_write_stdin", "sandbox_exec_signal", "sandbox_package_install",
    "sandbox_package_status", "sandbox_fork", "sandbox_ports", "toolset_list", "toolset_enable",
}


class Broken(AssertionError):
    """What the server answered is not what an agent was promised."""


def check(condition, what):
    if not condition:
        raise Broken(what)


async def data(client, tool, arguments, progress=None):
    """The data of an answer, the same as text and as structured content."""
    result = await client.call(tool, arguments, progress)
    check(not result.is_error, f"{tool} failed: {result.text}")
    check(json.loads(result.text) == result.structured, f"{tool}: text and structuredContent differ")
    check(result.structured["ok"] is True, f"{tool}: {result.text}")
    return result.structured["data"]


async def refused(client, tool, arguments, code):
    """The error of a refusal, in the envelope like everything else."""
    result = await client.call(tool, arguments)
    check(result.is_error, f"{tool} should have failed: {result.text}")
    envelope = json.loads(result.text)
    check(envelope["ok"] is False and envelope["error"]["code"] == code, f"{tool}: {result.text}")
    check(envelope["error"].get("hint"), f"{tool}: no hint in {result.text}")
    return envelope["error"]


async def tell(client, name):
    """As `tell_all`, which takes seconds; whoever waits longer has found a bug."""
    await asyncio.wait_for(tell_all(client, name), 120)


async def tell_all(client, name):
    """`client` offers tools, call, read, prompt, complete, changes; `name` is a sandbox that nobody else uses."""
    listed = {tool.name: tool for tool in await client.tools()}
    check(set(listed) == CORE, f"the default toolset is {sorted(listed)}")
    check(all(tool_schema(tool) for tool in listed.values()), "a tool has no output schema")

    created = await data(client, "sandbox_create", {"name": name, "memoryMib": 256})
    check(created["status"] == "running", created)
    try:
        await work(client, name)
    finally:
        await data(client, "sandbox_remove", {"name": name, "force": True})
    await refused(client, "sandbox_exec", {"name": name, "command": "true"}, "not_found")


def tool_schema(tool):
    return getattr(tool, "outputSchema", None) or getattr(tool, "output_schema", None)


async def work(client, name):
    await commands(client, name)
    await files(client, name)
    await session(client, name)
    await looking_around(client, name)
    await mistakes(client, name)


async def commands(client, name):
    done = await data(client, "sandbox_exec", {"name": name, "command": "echo", "args": ["grüße", "✓"]})
    check((done["stdout"], done["exitCode"]) == ("grüße ✓\n", 0), done)
    done = await data(client, "sandbox_shell", {"name": name, "command": "echo no >&2; exit 3"})
    check((done["stderr"], done["exitCode"], done["success"]) == ("no\n", 3, False), done)
    done = await data(client, "sandbox_exec", {"name": name, "command": "sleep", "args": ["60"], "timeoutMs": 200})
    check(done["timedOut"] is True, done)

    steps = []
    await data(client, "sandbox_exec", {"name": name, "command": "sleep", "args": ["2.6"]}, steps.append)
    check(steps, "no progress was told of a command that took its time")

    ran = await data(client, "sandbox_run", {"command": "printf run-ok", "image": "host"})
    check((ran["stdout"], ran["exitCode"]) == ("run-ok", 0), ran)


async def files(client, name):
    path = "/root/notes.txt"
    await data(client, "sandbox_fs_write", {"name": name, "path": path, "content": "one\ntwo\n"})
    edited = await data(client, "sandbox_fs_edit", {
        "name": name, "path": path, "edits": [{"oldText": "two", "newText": "zwei"}],
    })
    check("+zwei" in json.dumps(edited), edited)
    read = await data(client, "sandbox_fs_read", {"name": name, "path": path})
    check(read["content"] == "one\nzwei\n", read)
    text = await client.read(f"warren://sandboxes/{name}/files{path}")
    check(text == "one\nzwei\n", text)


async def session(client, name):
    started = await data(client, "sandbox_exec_start", {"name": name, "command": "cat"})
    exec_id = started["execSessionId"]
    await data(client, "sandbox_exec_write_stdin", {"execSessionId": exec_id, "data": "hello\n", "close": True})
    said, cursor, done = "", 0, False
    while not done:
        polled = await data(client, "sandbox_exec_poll", {"execSessionId": exec_id, "cursor": cursor, "waitMs": 5000})
        said += "".join(e["event"]["data"] for e in polled["events"] if e["event"]["kind"] == "stdout")
        cursor, done = polled["nextCursor"], polled["done"]
    check(said == "hello\n" and polled["exitStatus"]["code"] == 0, polled)
    output = await client.read(f"warren://sandboxes/{name}/execs/{exec_id}/output")
    check(output == "hello\n", output)


async def looking_around(client, name):
    for uri in ("warren://sandboxes", "microsandbox://sandboxes", "microsandbox://policy", "warren://runtime"):
        json.loads(await client.read(uri))
    check("sandbox_create" in await client.prompt("getting-started"), "the prompt does not say how to start")
    values = await client.complete("warren://sandboxes/{name}/files/{+path}", "name", name[:4])
    check(name in values, values)

    changed = await client.changes("warren://sandboxes")
    if changed is not None:
        other = await data(client, "sandbox_create", {"name": f"{name}-2"})
        await asyncio.wait_for(changed.wait(), 20)
        await data(client, "sandbox_remove", {"name": other["name"], "force": True})
    if client.keeps_session:
        await data(client, "toolset_enable", {"toolsets": ["metrics"]})
        await asyncio.wait_for(client.list_changed.wait(), 20)
        check("sandbox_metrics" in {tool.name for tool in await client.tools()}, "the list did not change")
    metrics = await data(client, "sandbox_metrics", {"name": name})
    check(metrics["memoryBytes"] > 0, metrics)


async def mistakes(client, name):
    error = await refused(client, "sandbox_exec", {"name": name, "comand": "true"}, "invalid_request")
    check("command" in error["hint"], error)
    await refused(client, "sandbox_nothing", {}, "not_found")
    await refused(client, "sandbox_fs_copy_to_host",
                  {"name": name, "guestPath": "/etc/hostname", "hostPath": "/tmp/stolen"}, "host_path_denied")
    await refused(client, "sandbox_exec",
                  {"name": name, "command": "false", "treatNonZeroAsError": True}, "exec_failed")
