"""What a program that uses microsandbox's SDK does, line by line."""

import asyncio
import os

from microsandbox import NodeSandbox, PythonSandbox


async def python():
    async with PythonSandbox.create(name="story-python") as sandbox:
        ran = await sandbox.run("name = 'World'\nprint(f'Hello {name}!')")
        assert await ran.output() == "Hello World!", await ran.output()
        assert ran.status == "success" and ran.language == "python" and not ran.has_error()
        ran = await sandbox.run("def twice(n):\n    m = n * 2\n\n    return m\n\nprint(name, twice(21))")
        assert await ran.output() == "World 42", (await ran.output(), await ran.error())
        ran = await sandbox.run("raise ValueError('no')")
        assert ran.has_error() and "ValueError: no" in await ran.error(), await ran.error()
        await check_commands(sandbox)
        await check_metrics(sandbox, "story-python")


async def node():
    async with NodeSandbox.create(name="story-node") as sandbox:
        ran = await sandbox.run("const greeting = 'hi from node'; console.log(greeting)")
        assert await ran.output() == "hi from node", (await ran.output(), await ran.error())
        ran = await sandbox.run("console.log(greeting.length)")
        assert await ran.output() == "12", (await ran.output(), await ran.error())
        await check_commands(sandbox)
        await check_metrics(sandbox, "story-node")


async def check_commands(sandbox):
    ran = await sandbox.command.run("ls", ["-la", "/"])
    assert ran.success and ran.exit_code == 0 and "usr" in await ran.output(), await ran.output()
    ran = await sandbox.command.run("sh", ["-c", "echo err >&2; exit 3"])
    assert ran.exit_code == 3 and not ran.success and await ran.error() == "err", await ran.error()
    ran = await sandbox.command.run("sleep", ["600"], timeout=1)
    assert ran.exit_code == 124 and not ran.success, ran.exit_code


async def check_metrics(sandbox, name):
    metrics = await sandbox.metrics.all()
    assert metrics["name"] == name and metrics["namespace"] == "default" and metrics["running"], metrics
    assert await sandbox.metrics.cpu() is not None
    assert await sandbox.metrics.memory() > 0
    assert await sandbox.metrics.disk() >= 0
    assert await sandbox.metrics.is_running()


async def started_again():
    """Files are kept over a stop; the same name with the same configuration is the same sandbox."""
    async with PythonSandbox.create(name="story-again") as sandbox:
        await sandbox.command.run("sh", ["-c", "echo kept > /root/note"])
    async with PythonSandbox.create(name="story-again") as sandbox:
        ran = await sandbox.command.run("sh", ["-c", "cat /root/note"])
        assert await ran.output() == "kept", (await ran.output(), await ran.error())


async def refused():
    for changed in ({"namespace": "other"}, {"api_key": "msb_e30.e30.e30"}):
        try:
            async with PythonSandbox.create(name="story-refused", **changed):
                raise AssertionError("it was let in")
        except RuntimeError as error:
            assert "Failed to start sandbox" in str(error), error


def main():
    asyncio.run(python())
    print("ok: PythonSandbox")
    if any(os.path.isfile(f"{place}/node") for place in ("/usr/bin", "/usr/local/bin")):
        asyncio.run(node())
        print("ok: NodeSandbox")
    else:
        # The setup script installs it, if root runs that.
        assert os.environ.get("CI") != "true" or os.getuid() != 0, "this host has no node"
        print("skipped: NodeSandbox (this host has no node)")
    asyncio.run(started_again())
    print("ok: started again")
    asyncio.run(refused())
    print("ok: refused")


main()
