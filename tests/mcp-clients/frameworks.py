"""What an agent's framework does with a server: list the tools, create a sandbox, run code, read a file, remove it."""

import json

from story import check

PROGRAM = "print(sum(range(10)), file=open('/root/sum.txt', 'w'))"


async def native(client):
    """`client` offers tools, which are names, and call, which returns a text."""
    names = await client.tools()
    check({"sandbox_create", "sandbox_run_code", "sandbox_fs_read"} <= set(names), names)
    made = await enveloped(client, "sandbox_create", {})
    name = made["name"]
    try:
        await enveloped(client, "sandbox_run_code", {"name": name, "code": "n = 20"})
        ran = await enveloped(client, "sandbox_run_code", {"name": name, "code": f"{PROGRAM}; n + 22"})
        check("42" in json.dumps(ran), ran)
        read = await enveloped(client, "sandbox_fs_read", {"name": name, "path": "/root/sum.txt"})
        check(read["content"] == "45\n", read)
    finally:
        await enveloped(client, "sandbox_remove", {"name": name, "force": True})


async def enveloped(client, tool, arguments):
    envelope = json.loads(await client.call(tool, arguments))
    check(envelope["ok"] is True, f"{tool}: {envelope}")
    return envelope["data"]


async def microsandbox_mcp(client):
    """The same without sandbox_run_code, which microsandbox-mcp does not have."""
    names = await client.tools()
    check(names[:4] == ["runtime_check", "runtime_install", "sandbox_run", "sandbox_create"], names)
    name = (await enveloped(client, "sandbox_create", {"image": "host"}))["name"]
    try:
        ran = await enveloped(client, "sandbox_exec", {"name": name, "command": "python3", "args": ["-c", PROGRAM]})
        check(ran["exitCode"] == 0, ran)
        read = await enveloped(client, "sandbox_fs_read", {"name": name, "path": "/root/sum.txt"})
        check(read["content"] == "45\n", read)
    finally:
        await enveloped(client, "sandbox_remove", {"name": name, "force": True})


async def opensandbox(client):
    names = await client.tools()
    check((len(names), names[0], names[-1]) == (19, "sandbox_create", "sandbox_get_endpoint"), names)
    sandbox = {"sandbox_id": (await plain(client, "sandbox_create", {"image": "host"}))["sandbox_id"]}
    try:
        ran = await plain(client, "command_run", {**sandbox, "command": f'python3 -c "{PROGRAM}" && echo done'})
        check((ran["exit_code"], [line["text"] for line in ran["logs"]["stdout"]]) == (0, ["done"]), ran)
        failed = await plain(client, "command_run", {**sandbox, "command": "exit 3"})
        check((failed["exit_code"], failed["error"]["name"]) == (3, "CommandExecError"), failed)
        await plain(client, "file_write", {**sandbox, "path": "/root/more.txt", "content": "grüße\n", "mode": 644})
        found = await plain(client, "file_search", {**sandbox, "path": "/root", "pattern": "*.txt"})
        check([entry["path"] for entry in found["result"]] == ["/root/more.txt", "/root/sum.txt"], found)
        read = await plain(client, "file_read", {**sandbox, "path": "/root/sum.txt"})
        check(read["content"] == "45\n", read)
    finally:
        await plain(client, "sandbox_kill", sandbox)
    told = await client.call("command_run", {**sandbox, "command": "true"})
    check("no sandbox" in told and "sandbox_list" in told, told)


async def plain(client, tool, arguments):
    return json.loads(await client.call(tool, arguments))
