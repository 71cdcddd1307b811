"""Everyday tasks of an agent, through Python's MCP client over stdio and HTTP: what a model stumbles over when an answer is
too long, a default is not told, an image is replaced, or a tool is not listed."""

import asyncio
import http.client
import json
import os
import socket
import sys
from datetime import timedelta
from urllib.parse import urlsplit

from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

from python1 import connected
from story import check, data, refused

# What a model may be given of one stream, and of the list of tools.
MAX_STREAM_BYTES = 24 * 1024
MAX_LIST_BYTES = 16 * 1024
EVERYDAY = {
    "sandbox_package_install", "sandbox_package_status", "sandbox_exec_write_stdin", "sandbox_exec_signal", "sandbox_fork",
    "sandbox_ports",
}


# What a parameter for a time has in its name.
TIMES = {"duration", "timeout", "wait", "ttl", "idle"}


def split(word):
    """The words of a name in camel case."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in word).split()


async def answer(client, tool, arguments, progress=None):
    """The whole envelope of an answer."""
    result = await client.call(tool, arguments, progress)
    check(not result.is_error, f"{tool} failed: {result.text}")
    return result.structured


def written_call(hint, tool):
    """The arguments of a call that a hint writes out."""
    _, found, rest = hint.partition(tool + " ")
    check(found, f"no call of {tool} in {hint!r}")
    return json.JSONDecoder().raw_decode(rest)[0]


async def what_is_there(client, name):
    """A sandbox says what it has, and the default list has what a day needs."""
    instructions = client.instructions
    for word in ("no network", "sandbox_package_install", "/root", "root", "bash", "120 s", "1GiB", "24 KB"):
        check(word in instructions, f"{word!r} is not in the instructions: {instructions}")
    listed = (await client.session.list_tools()).model_dump(mode="json", exclude_none=True)
    check(EVERYDAY <= {tool["name"] for tool in listed["tools"]}, "an everyday tool is not listed")
    n_bytes = len(json.dumps(listed, separators=(",", ":"), ensure_ascii=False).encode())
    check(n_bytes <= MAX_LIST_BYTES, f"tools/list takes {n_bytes} bytes")
    made = await data(client, "sandbox_create", {"name": name, "memoryMib": 512})
    check((made["workdir"], made["user"], made["network"]) == ("/root", "root", "packages"), made)
    for tool in listed["tools"]:
        units = {word[-2:] == "Ms" for word in tool["inputSchema"]["properties"] if TIMES & set(split(word))}
        check(len(units) < 2, f"{tool['name']} has times in two units")
    check(made["shell"].endswith("bash") and {"python", "bash"} <= set(made["languages"]), made)
    check((made["memoryMib"], made["timeoutMs"]) == (512, 120_000), made)


async def long_output(client, name):
    """Five megabytes do not fill a context, and every hint is a call that works as it stands."""
    noisy = await answer(client, "sandbox_shell", {
        "name": name, "command": "seq 1 700000; echo 'the error is here'; seq 1 10"})
    check(len(noisy["data"]["stdout"].encode()) <= MAX_STREAM_BYTES + 64, "the output is not cut")
    check(len(json.dumps(noisy)) <= 2 * MAX_STREAM_BYTES, "the answer is long all the same")
    hint = noisy["truncated"][0]["hint"]
    found = await data(client, "sandbox_logs_read", written_call(hint, "sandbox_logs_read"))
    check([entry["text"] for entry in found["entries"]] == ["the error is here\n"], found)
    more = await data(client, "sandbox_exec_poll", written_call(hint, "sandbox_exec_poll"))
    check(more["events"][-1]["event"]["kind"] == "stdout" and not more["done"], "the call for the rest reads nothing")

    await data(client, "sandbox_shell", {"name": name, "command": "seq 1 100000 > numbers.txt; mkdir many; cd many; "
                                                                  "touch $(seq 1 900)"})
    read = await answer(client, "sandbox_fs_read", {"name": name, "path": "numbers.txt"})
    check(len(read["data"]["content"]) <= MAX_STREAM_BYTES, "the file is not cut")
    rest = await data(client, "sandbox_fs_read", written_call(read["truncated"][0]["hint"], "sandbox_fs_read"))
    check(rest["content"] and read["data"]["content"].endswith("\n") or rest["offset"] == MAX_STREAM_BYTES, rest["offset"])
    listed = await answer(client, "sandbox_fs_list", {"name": name, "path": "many"})
    check(len(json.dumps(listed)) <= 2 * MAX_STREAM_BYTES and len(listed["data"]) < 900, "the list is not cut")
    hint = listed["truncated"][0]["hint"]
    whole = await data(client, "sandbox_fs_list", written_call(hint[hint.index(", or "):], "sandbox_fs_list"))
    check(len(whole) == 900, len(whole))
    code = await answer(client, "sandbox_run_code", {"name": name, "code": "print('x' * 5_000_000)"})
    check(len(code["data"]["stdout"]) <= MAX_STREAM_BYTES + 64 and code["truncated"], "the code's output is not cut")


async def what_is_missing(client, name):
    """A command that fails for want of something says so, with the next call."""
    async def warning(command, **more):
        told = await answer(client, "sandbox_shell", {"name": name, "command": command, **more})
        return " ".join(told.get("warnings", []))

    check("no network" in await warning("curl -sS https://example.org"), "curl does not tell of the network")
    check("no network" in await warning("python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'"), "python")
    waited = await warning("curl() { sleep 60; }; curl https://example.org", timeoutMs=500)
    check("no network" in waited and "larger timeoutMs" not in waited, waited)
    check("larger timeoutMs" in await warning("sleep 60", timeoutMs=300), "a slow command may take longer")
    missing = await warning("python3 -c 'import burrow'")
    arguments = written_call(missing, "sandbox_package_install")
    check(arguments == {"name": name, "manager": "pip", "packages": ["burrow"]}, arguments)
    told = await answer(client, "sandbox_run_code", {"name": name, "code": "import burrow"})
    check("sandbox_package_install" in " ".join(told["warnings"]), told)
    again = await warning("node -e \"require('dns').lookup('example.org', e => { console.error(e.code); process.exit(1) })\"")
    check("no network" in again, f"EAI_AGAIN: {again}")
    # Debian's Python refuses what its own configuration here allows.
    managed = await warning("export PIP_CONFIG_FILE=/dev/null; pip install burrow")
    check(written_call(managed, "sandbox_package_install") == arguments, f"PEP 668: {managed}")
    full = await warning("dd if=/dev/zero of=/dev/shm/full bs=1M count=2000; rm -f /dev/shm/full; exit 1")
    check("diskMib" in full or "full" in full, full)
    check(await warning("exit 3") == "", "nothing is missing here")

    # The call that the warning wrote, as it stands.
    job = await data(client, "sandbox_package_install", arguments)
    while job["state"] == "installing":
        job = await data(client, "sandbox_package_status", {"name": name, "jobId": job["jobId"]})
    check(job["state"] == "installed", job)
    done = await data(client, "sandbox_shell", {"name": name, "command": "python3 -c 'import burrow; print(burrow.answer)'"})
    check(done["stdout"] == "42\n", done)

    # A client that gives up after five seconds gets its answer, whatever the index does, and hears of it meanwhile.
    steps = []

    async def on_progress(*step):
        steps.append(step)

    slow = await client.session.call_tool(
        "sandbox_package_install", {"name": name, "packages": ["molasses"]},
        read_timeout_seconds=timedelta(seconds=5), progress_callback=on_progress)
    check(slow.structuredContent["data"]["state"] == "installing", slow.structuredContent)
    check("sandbox_package_status" in slow.structuredContent["warnings"][0] and steps, slow.structuredContent)


async def packages(client, name):
    """From a file, in a project, and typed in a shell; the log is told only where something failed."""
    async def install(**what):
        job = await data(client, "sandbox_package_install", {"name": name, **what})
        while job["state"] == "installing":
            job = await data(client, "sandbox_package_status", {"name": name, "jobId": job["jobId"]})
        return job

    async def printed_by(line):
        done = await data(client, "sandbox_shell", {"name": name, "command": line})
        check(done["exitCode"] == 0, f"{line}: {done}")
        return done["stdout"]

    await data(client, "sandbox_fs_write", {"name": name, "path": "app/requirements.txt", "content": "den\n"})
    job = await install(requirementsFile="requirements.txt", cwd="app")
    check(job["state"] == "installed" and "log" not in job, job)
    check([found["name"] for found in job["installed"]] == ["den"], job)
    failed = await install(packages=["nothing-of-that-name"])
    check(failed["state"] == "failed" and "nothing-of-that-name" in failed["log"][-1], failed)

    await data(client, "sandbox_fs_write", {"name": name, "path": "app/package.json", "content": '{"name": "app"}'})
    job = await install(manager="npm", packages=["holt"], cwd="app")
    check(job["state"] == "installed" and "log" not in job, job)
    project = json.loads(await printed_by("cat app/package.json"))
    check(list(project["dependencies"]) == ["holt"], project)
    check(await printed_by("cd app && npm install drey >&2 && node -p 'require(\"drey\") + require(\"holt\")'") == "84\n", "npm")
    check(await printed_by("pip install sett >&2 && python3 -c 'import den, sett; print(den.answer + sett.answer)'") == "84\n", "pip")


def fetch(address, headers=None):
    """The status of a page at an address of this machine, whatever the name of its host is."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=60)
    connection.request("GET", "/", headers={"Host": parts.netloc, **(headers or {})})
    response = connection.getresponse()
    response.read()
    return response.status


async def ports(client, name):
    """A server inside is reached at an address, at a port of this machine until that is withdrawn, and by none other."""
    async def serve(sandbox, port):
        line = f"exec python3 -u -m http.server {port}"
        server = await data(client, "sandbox_shell", {"name": sandbox, "command": line, "background": True})
        await printed(client, server["execSessionId"], until="Serving")
        return server["execSessionId"]

    server = await serve(name, 8125)
    exposed = await data(client, "sandbox_ports", {"name": name, "expose": {"port": 8125, "hostPort": 0}})
    endpoint = await data(client, "sandbox_get_endpoint", {"name": name, "port": 8125})
    check(endpoint["url"] == exposed["endpoint"]["url"] and endpoint["listening"] is True, endpoint)
    check(await asyncio.to_thread(fetch, endpoint["url"], endpoint["headers"]) == 200, endpoint)
    check(await asyncio.to_thread(fetch, endpoint["url"]) == 401, "it is open to everybody")
    published = exposed["exposed"][0]["published"]
    check(await asyncio.to_thread(fetch, f"http://{published}") == 200, published)
    withdrawn = await data(client, "sandbox_ports", {"name": name, "withdraw": 8125})
    check(withdrawn["exposed"] == [], withdrawn)
    host, port = published.split(":")
    with socket.socket() as stream:
        check(stream.connect_ex((host, int(port))) != 0, f"{published} is still open")
    await data(client, "sandbox_exec_signal", {"execSessionId": server, "signal": "kill"})

    # Asked for when the sandbox is made.
    other = f"{name}-ports"
    network = {"ports": [{"hostPort": 0, "guestPort": 8126}]}
    await data(client, "sandbox_create", {"name": other, "network": network})
    try:
        await serve(other, 8126)
        exposed = (await data(client, "sandbox_ports", {"name": other}))["exposed"]
        check([port["port"] for port in exposed] == [8126], exposed)
        check(await asyncio.to_thread(fetch, f"http://{exposed[0]['published']}") == 200, exposed)
    finally:
        await data(client, "sandbox_remove", {"name": other, "force": True})


async def changes(client, name):
    """What a sandbox changed, however much that is."""
    fill = "mkdir -p changed; cd changed; touch $(seq 1 3000); seq 1 100000 > long.txt"
    await data(client, "sandbox_shell", {"name": name, "command": fill})
    told = await answer(client, "sandbox_diff", {"name": name, "path": "changed", "patch": True})
    check(len(json.dumps(told)) <= 4 * MAX_STREAM_BYTES, "the changes are not cut")
    cut = {one["field"]: one["hint"] for one in told["truncated"]}
    check(set(cut) == {"changes", "patch"} and told["data"]["moreChanges"] and told["data"]["patchCut"], told["truncated"])
    whole = await data(client, "sandbox_diff", written_call(cut["changes"][cut["changes"].rindex("sandbox_diff"):], "sandbox_diff"))
    check(len(whole["changes"]) >= 3001 and not whole["moreChanges"], len(whole["changes"]))
    whole = await data(client, "sandbox_diff", written_call(cut["patch"], "sandbox_diff"))
    check("\n+100000\n" in whole["patch"] and not whole["patchCut"], "the call for the whole patch cuts it")


async def images(client, name):
    """An image that cannot be had is not replaced; each refusal is about its own image."""
    for image in ("python:3.12-slim", "node:20"):
        result = await client.call("sandbox_create", {"name": f"{name}-image", "image": image})
        check(result.is_error, f"{image} was replaced: {result.text}")
        error = json.loads(result.text)["error"]
        check(image.split(":")[0] in error["message"], error)
        check('image: "host"' in error["hint"] and "python3" in error["hint"], error)
        check("imageFallback: true" in error["hint"], error)
    told = await answer(client, "sandbox_create", {
        "name": f"{name}-image", "image": "python:3.12-slim", "imageFallback": True})
    check(told["data"]["image"] == "host" and "not used" in told["warnings"][0], told)
    await data(client, "sandbox_remove", {"name": f"{name}-image", "force": True})


async def commands(client, name):
    """Lines are lines, whichever tool takes them; the shell is bash; relative paths start in the working directory."""
    line = "x=(a b c); echo ${#x[@]} | tr 3 4"
    for tool in ("sandbox_exec", "sandbox_shell", "sandbox_run"):
        where = {} if tool == "sandbox_run" else {"name": name}
        done = await data(client, tool, {**where, "command": line})
        check(done["stdout"] == "4\n", (tool, done))
    started = await data(client, "sandbox_exec_start", {"name": name, "command": "read line; echo got $line"})
    session = started["execSessionId"]
    await data(client, "sandbox_exec_write_stdin", {"execSessionId": session, "data": "this\n"})
    check("got this" in await printed(client, session), "stdin did not arrive")

    server = await data(client, "sandbox_shell", {
        "name": name, "command": "exec python3 -u -m http.server 8123", "background": True})
    await printed(client, server["execSessionId"], until="Serving")
    ports = await data(client, "sandbox_ports", {"name": name})
    check(8123 in [port["port"] for port in ports["ports"]], ports)
    fetched = await data(client, "sandbox_shell", {"name": name, "command": "curl -s http://127.0.0.1:8123/ | head -c 15"})
    check(fetched["stdout"].lower().startswith("<!doctype html"), fetched)
    await data(client, "sandbox_exec_signal", {"execSessionId": server["execSessionId"], "signal": "term"})
    await printed(client, server["execSessionId"])

    await data(client, "sandbox_fs_write", {"name": name, "path": "src/a.txt", "content": "one\n"})
    done = await data(client, "sandbox_exec", {"name": name, "command": "cat", "args": ["a.txt"], "cwd": "src"})
    check(done["stdout"] == "one\n", done)
    read = await data(client, "sandbox_fs_read", {"name": name, "path": "/root/src/a.txt"})
    check(read["content"] == "one\n", read)
    forked = await data(client, "sandbox_fork", {"name": name})
    fork = forked["forks"][0]["name"]
    check((await data(client, "sandbox_fs_read", {"name": fork, "path": "src/a.txt"}))["content"] == "one\n", fork)
    await data(client, "sandbox_remove", {"name": fork, "force": True})


async def printed(client, session, until=None):
    """What a command prints until it ends, or until it has printed this."""
    text, cursor, done = "", 0, False
    while not done and not (until and until in text):
        polled = await data(client, "sandbox_exec_poll", {"execSessionId": session, "cursor": cursor, "waitMs": 5000})
        text += "".join(event["event"].get("data", "") for event in polled["events"])
        cursor, done = polled["nextCursor"], polled["done"]
    return text


async def code(client, name):
    """Code needs no sandbox to be made first."""
    first = await answer(client, "sandbox_run_code", {"code": "x = 20 + 1"})
    made = first["data"]["name"]
    check(first["data"]["created"] and made in " ".join(first["warnings"]), first)
    second = await data(client, "sandbox_run_code", {"name": made, "code": "x * 2"})
    check(second["result"] == "42" and "created" not in second, second)
    named = await data(client, "sandbox_run_code", {"name": f"{name}-code", "code": "1"})
    check((named["name"], named["created"]) == (f"{name}-code", True), named)
    await refused(client, "sandbox_run_code", {"name": f"{name}-no", "code": "1", "create": False}, "not_found")
    for sandbox in (made, f"{name}-code"):
        await data(client, "sandbox_remove", {"name": sandbox, "force": True})


# What is the same over every transport, and takes longest, is tried over one of them.
BRIEF = (what_is_there, long_output, what_is_missing, images, commands, ports, code)
WHOLE = (*BRIEF, packages, changes)


async def day(client, name, tasks):
    try:
        for task in tasks:
            await task(client, name)
            print(f"  {name}: {task.__name__.replace('_', ' ')}")
    finally:
        await client.call("sandbox_remove", {"name": name, "force": True})


async def main(warren, url, key):
    server = StdioServerParameters(command=warren, args=["mcp"], env=dict(os.environ))
    async with connected(stdio_client(server)) as client:
        await asyncio.wait_for(day(client, "day-stdio", WHOLE), 300)
    headers = {"Authorization": f"Bearer {key}"}
    async with connected(streamablehttp_client(f"{url}/mcp", headers=headers)) as client:
        await asyncio.wait_for(day(client, "day-http", BRIEF), 300)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
