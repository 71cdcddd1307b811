"""Tells one story through clients that others wrote: story.py URL KEY OTHER_KEY SUPERGATEWAY."""

import asyncio, sys, urllib.error, urllib.request

from fastmcp import Client
from fastmcp.client.transports import SSETransport, StdioTransport
from fastmcp.exceptions import ToolError

url, key, other_key, supergateway = sys.argv[1:]
TOOLS = [
    "list_sandboxes",
    "create_sandbox",
    "install_package_in_sandbox",
    "check_package_installation_status",
    "execute_python_code",
    "execute_terminal_command",
    "upload_file_to_sandbox",
]


def fetch(address, method="GET"):
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method=method), timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


async def story(client):
    assert [tool.name for tool in await client.list_tools()] == TOOLS

    async def call(tool, **arguments):
        return (await client.call_tool(tool, arguments)).data

    made = await call("create_sandbox", name="Analysis of the week")
    assert made["name"] == "Analysis of the week" and made["status"] == "active", made
    sandbox = made["sandbox_id"]
    listed = await call("list_sandboxes")
    assert [(one["sandbox_id"], one["name"]) for one in listed] == [(sandbox, made["name"])], listed

    ran = await call("execute_python_code", sandbox_id=sandbox, code="x = 6 * 7\nprint(x)")
    assert ran == {"stdout": "42\n", "stderr": "", "exit_code": 0, "files": [], "file_links": []}, ran
    ran = await call("execute_terminal_command", sandbox_id=sandbox, command="echo $((x = 2)) | cat && pwd")
    assert ran == {"stdout": "2\n/app/results\n", "stderr": "", "exit_code": 0}, ran

    state = await call("install_package_in_sandbox", sandbox_id=sandbox, package_name="burrow")
    while state["status"] == "installing":
        assert state["success"] is None and not state["complete"], state
        state = await call("check_package_installation_status", sandbox_id=sandbox, package_name="burrow")
    assert state["status"] == "success" and state["success"] and state["complete"], state
    absent = await call("check_package_installation_status", sandbox_id=sandbox, package_name="absent")
    assert absent["status"] == "not_found", absent

    uploaded = await call("upload_file_to_sandbox", sandbox_id=sandbox, local_file_path="/data/in.csv", content="1,2,3\n")
    assert uploaded["success"], uploaded
    code = "import burrow\nrow = open('in.csv').read().strip().split(',')\nopen('out.txt', 'w').write(str(burrow.answer + x + len(row)))"
    ran = await call("execute_python_code", sandbox_id=sandbox, code=code)
    assert ran["files"] == ["/app/results/out.txt"] and ran["exit_code"] == 0, ran
    (link,) = ran["file_links"]
    assert link.startswith(url) and key not in link, link
    assert fetch(link) == (200, b"87")
    plain = f"{url}/sandbox/file?sandbox_id={sandbox}&file_path=/app/results/out.txt"
    assert fetch(f"{plain}&api_key={key}") == (200, b"87")
    assert [fetch(plain)[0], fetch(f"{plain}&api_key={other_key}")[0]] == [401, 404]

    try:
        await call("execute_python_code", sandbox_id="../../etc", code="1")
        raise AssertionError("a sandbox that is none was found")
    except ToolError as refused:
        assert "Access denied" in str(refused), refused
    status, _ = fetch(f"{url}/api/users/me/sandboxes/{sandbox}?api_key={key}", "DELETE")
    assert status == 200 and await call("list_sandboxes") == []


async def tell():
    address = f"{url}/sse?api_key={key}"
    for name, transport in [
        ("fastmcp over SSE", SSETransport(address)),
        ("supergateway --sse", StdioTransport(supergateway, ["--sse", address, "--logLevel", "none"])),
    ]:
        async with asyncio.timeout(300):
            async with Client(transport) as client:
                await story(client)
        print(f"{name}: ok")


asyncio.run(tell())
