"""What a program that uses OpenSandbox's SDK does, with async; blocking.py is the same without."""

import asyncio
import http.client
import io
import json
import logging
import os
import sys
import time
from datetime import datetime, timedelta, timezone

import websockets
from opensandbox import Sandbox, SandboxManager
from opensandbox.config import ConnectionConfig
from opensandbox.exceptions import SandboxApiException, SandboxException
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    DirectoryListEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.sandboxes import (
    NetworkPolicy,
    NetworkRule,
    SandboxFilter,
    SnapshotFilter,
)

IMAGE = "host"
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{self.path} {self.headers.get('OpenSandbox-Secure-Access')}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 8000), Handler)
print("ready", flush=True)
server.serve_forever()
"""


def text(messages):
    return [message.text for message in messages]


async def refused(code, awaitable):
    """The call is refused, with this code."""
    try:
        await awaitable
    except SandboxException as error:
        # The code of a status that the SDK does not know stands in its message only.
        assert error.error.code == code or f'"code":"{code}"' in str(error), (error, error.error)
    else:
        raise AssertionError("it was not refused")


async def until(look):
    """Polls as a client does, as long as the daemon is not stuck."""
    for _ in range(600):
        if await look():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


async def commands(sandbox):
    ran = await sandbox.commands.run("echo 'Hello Sandbox!'; echo $A; echo e >&2")
    assert text(ran.logs.stdout) == ["Hello Sandbox!", "1"], ran
    assert text(ran.logs.stderr) == ["e"] and ran.exit_code == 0 and ran.complete, ran
    ran = await sandbox.commands.run("exit 3")
    assert (ran.exit_code, ran.error.name, ran.error.value, ran.complete) == (3, "CommandExecError", "3", None), ran
    opts = RunCommandOpts(working_directory="/tmp", timeout=timedelta(seconds=60), envs={"B": "2"})
    ran = await sandbox.commands.run("pwd; echo $B", opts=opts)
    assert text(ran.logs.stdout) == ["/tmp", "2"], ran
    ran = await sandbox.commands.run(["printf", "%s|", "a b", "$HOME"])
    assert text(ran.logs.stdout) == ["a b|$HOME|"], ran
    ran = await sandbox.commands.run("sleep 600", opts=RunCommandOpts(timeout=timedelta(milliseconds=300)))
    assert ran.exit_code == 124, ran
    ran = await sandbox.commands.run("id -u", opts=RunCommandOpts(uid=0, gid=0))
    assert text(ran.logs.stdout) == ["0"], ran

    seen = []

    async def on_stdout(message):
        seen.append(message.text)

    ran = await sandbox.commands.run("echo one; echo two", handlers=ExecutionHandlers(on_stdout=on_stdout))
    assert seen == ["one", "two"], seen

    await sandbox.commands.set_env("KEPT", "it's here")
    ran = await sandbox.commands.run("printenv KEPT")
    assert text(ran.logs.stdout) == ["it's here"], ran


async def background(sandbox):
    opts = RunCommandOpts(background=True)
    ran = await sandbox.commands.run("for i in 1 2 3; do echo $i; done; echo end >&2", opts=opts)
    assert ran.id and ran.exit_code is None and not ran.logs.stdout, ran

    async def is_done():
        return not (await sandbox.commands.get_command_status(ran.id)).running

    await until(is_done)
    status = await sandbox.commands.get_command_status(ran.id)
    assert status.exit_code == 0 and status.content.startswith("for i in"), status
    logs = await sandbox.commands.get_background_command_logs(ran.id)
    assert sorted(logs.content.split()) == ["1", "2", "3", "end"] and logs.cursor > 0, logs
    again = await sandbox.commands.get_background_command_logs(ran.id, cursor=logs.cursor)
    assert again.content == "" and again.cursor == logs.cursor, again

    ran = await sandbox.commands.run("echo up; exec sleep 600", opts=opts)
    await sandbox.commands.interrupt(ran.id)
    status = await sandbox.commands.get_command_status(ran.id)
    assert not status.running and status.exit_code != 0, status
    await refused("CONTEXT_NOT_FOUND", sandbox.commands.get_command_status("../../etc/passwd"))


async def sessions(sandbox):
    session = await sandbox.commands.create_session(working_directory="/tmp")
    ran = await sandbox.commands.run_in_session(session, "pwd; export X=5; cd /usr")
    assert text(ran.logs.stdout) == ["/tmp"] and ran.exit_code == 0, ran
    ran = await sandbox.commands.run_in_session(session, "echo $X; pwd; exit 7")
    assert text(ran.logs.stdout) == ["5", "/usr"] and ran.exit_code == 7, ran
    ran = await sandbox.commands.run_in_session(session, "echo $X; pwd", working_directory="/var")
    assert text(ran.logs.stdout) == ["5", "/var"], ran
    await sandbox.commands.delete_session(session)
    await refused("CONTEXT_NOT_FOUND", sandbox.commands.run_in_session(session, "true"))


async def files(sandbox):
    await sandbox.files.write_file("/tmp/deep/a.txt", "hello\nworld\nlast\n", mode=640)
    await sandbox.files.write_files(
        [
            WriteEntry(path="/tmp/deep/b.bin", data=bytes(range(256)), mode=600),
            WriteEntry(path="/tmp/deep/ü c.txt", data=io.BytesIO(b"x" * 3_000_000), mode=644, owner="root"),
        ]
    )
    assert await sandbox.files.read_file("/tmp/deep/a.txt") == "hello\nworld\nlast\n"
    assert await sandbox.files.read_bytes("/tmp/deep/b.bin") == bytes(range(256))
    assert len(await sandbox.files.read_bytes("/tmp/deep/ü c.txt")) == 3_000_000
    assert await sandbox.files.read_file("/tmp/deep/a.txt", range_header="bytes=6-10") == "world"
    assert await sandbox.files.read_file("/tmp/deep/a.txt", offset=2, limit=1) == "world\n"
    info = (await sandbox.files.get_file_info(["/tmp/deep/a.txt"]))["/tmp/deep/a.txt"]
    assert (info.mode, info.size, info.owner, info.entry_type) == (640, 17, "root", "file"), info
    await sandbox.files.set_permissions([SetPermissionEntry(path="/tmp/deep/a.txt", mode=755)])
    assert (await sandbox.files.get_file_info(["/tmp/deep/a.txt"]))["/tmp/deep/a.txt"].mode == 755
    found = await sandbox.files.search(SearchEntry(path="/tmp", pattern="*.txt"))
    assert {entry.path for entry in found} == {"/tmp/deep/a.txt", "/tmp/deep/ü c.txt"}, found
    counts = await sandbox.files.replace_contents_detailed(
        [ContentReplaceEntry(path="/tmp/deep/a.txt", old_content="l", new_content="L")]
    )
    assert counts[0].replaced_count == 4, counts
    await sandbox.files.replace_contents(
        [ContentReplaceEntry(path="/tmp/deep/a.txt", old_content="heLLo", new_content="bye")]
    )
    assert await sandbox.files.read_file("/tmp/deep/a.txt") == "bye\nworLd\nLast\n"
    await sandbox.files.move_files([MoveEntry(src="/tmp/deep/a.txt", dest="/tmp/deep/z.txt")])
    await sandbox.files.create_directories([WriteEntry(path="/tmp/dd/e/f", mode=700)])
    listed = await sandbox.files.list_directory(DirectoryListEntry(path="/tmp/dd", depth=1))
    assert [(entry.path, entry.entry_type) for entry in listed] == [("/tmp/dd/e", "directory")], listed
    listed = await sandbox.files.list_directory(DirectoryListEntry(path="/tmp/dd", depth=2))
    assert [entry.path for entry in listed] == ["/tmp/dd/e", "/tmp/dd/e/f"], listed
    await sandbox.files.delete_directories(["/tmp/dd"])
    await sandbox.files.delete_files(["/tmp/deep/z.txt", "/tmp/deep/never"])
    await refused("FILE_NOT_FOUND", sandbox.files.read_file("/tmp/deep/z.txt"))


async def endpoints(sandbox):
    """A server inside, at the address and with the headers that the endpoint says."""
    await sandbox.files.write_file("/tmp/server.py", SERVER)
    ran = await sandbox.commands.run("exec python3 /tmp/server.py", opts=RunCommandOpts(background=True))

    async def is_up():
        return "ready" in (await sandbox.commands.get_background_command_logs(ran.id)).content

    await until(is_up)
    endpoint = await sandbox.get_endpoint(8000)
    status, body = await asyncio.to_thread(get, endpoint.endpoint, "/a/b?c=1", endpoint.headers)
    assert (status, body) == (200, "/a/b?c=1 None"), (status, body)
    # Without the token nobody gets in, and the token is for this port only.
    assert (await asyncio.to_thread(get, endpoint.endpoint, "/", {}))[0] == 401
    other = await sandbox.get_endpoint(8001)
    assert (await asyncio.to_thread(get, endpoint.endpoint, "/", other.headers))[0] == 401
    execd = await sandbox.get_endpoint(44772)
    assert (await asyncio.to_thread(get, execd.endpoint, "/ping", {}))[0] == 401
    assert (await asyncio.to_thread(get, execd.endpoint, "/ping", execd.headers))[0] == 200
    signed = await sandbox.get_signed_endpoint(8000, int(time.time()) + 60)
    assert (await asyncio.to_thread(get, signed.endpoint, "/", signed.headers))[0] == 200


async def terminal(sandbox):
    """A terminal over WebSocket; one that comes back gets what it has missed."""
    execd = await sandbox.get_endpoint(44772)
    made = await asyncio.to_thread(send, execd.endpoint, "POST", "/pty", execd.headers, {"cwd": "/tmp"})
    address = f"ws://{execd.endpoint}/pty/{made['session_id']}/ws"
    async with websockets.connect(address, additional_headers=execd.headers) as socket:
        hello = json.loads(await socket.recv())
        assert hello == {"type": "connected", "session_id": made["session_id"], "mode": "pty"}, hello
        await socket.send(json.dumps({"type": "resize", "cols": 101, "rows": 33}))
        await socket.send(b"\x00stty size; echo is-\"up\"\n")
        shown = await read_until(socket, b"is-up")
        assert b"33 101" in shown, shown
        await socket.send(json.dumps({"type": "ping"}))
        await socket.send(b"\x07nonsense")
    async with websockets.connect(f"{address}?since=0", additional_headers=execd.headers) as socket:
        await read_until(socket, b"is-up", channel=3)
        await socket.send(b"\x00exit 5\n")
        while True:
            frame = await socket.recv()
            if isinstance(frame, str) and json.loads(frame)["type"] == "exit":
                assert json.loads(frame)["exit_code"] == 5, frame
                break
    status = await asyncio.to_thread(send, execd.endpoint, "GET", f"/pty/{made['session_id']}", execd.headers)
    assert status["running"] is False and status["output_offset"] > 0, status
    try:
        async with websockets.connect(address):
            raise AssertionError("it was let in without a token")
    except websockets.exceptions.InvalidStatus as error:
        assert error.response.status_code == 401, error


async def read_until(socket, wanted, channel=1):
    shown = b""
    while wanted not in shown:
        frame = await socket.recv()
        if isinstance(frame, bytes):
            assert frame[0] in (1, channel), frame
            shown += frame[9:] if frame[0] == 3 else frame[1:]
    return shown


def send(endpoint, method, path, headers, body=None):
    host, _, prefix = endpoint.partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    data = None if body is None else json.dumps(body)
    connection.request(method, f"/{prefix}{path}", data, {**headers, "content-type": "application/json"})
    return json.load(connection.getresponse())


def get(endpoint, path, headers):
    host, _, prefix = endpoint.partition("/")
    connection = http.client.HTTPConnection(host, timeout=60)
    connection.request("GET", f"/{prefix}{path}", headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


async def lifecycle(sandbox, config):
    info = await sandbox.get_info()
    assert info.status.state == "Running" and info.metadata == {"team": "x"} and info.image.image == IMAGE, info
    metrics = await sandbox.get_metrics()
    assert metrics.cpu_count == 1 and metrics.memory_total_in_mib == 512 and metrics.timestamp > 0, metrics
    renewed = await sandbox.renew(timedelta(minutes=30))
    left = renewed.expires_at - datetime.now(timezone.utc)
    assert timedelta(minutes=29) < left < timedelta(minutes=31), left
    assert (await sandbox.get_info()).expires_at == renewed.expires_at

    manager = await SandboxManager.create(connection_config=config)
    listed = await manager.list_sandbox_infos(SandboxFilter(states=["Running"], metadata={"team": "x"}, page_size=5))
    assert [one.id for one in listed.sandbox_infos] == [sandbox.id] and listed.pagination.total_items == 1, listed
    none = await manager.list_sandbox_infos(SandboxFilter(metadata={"team": "y"}))
    assert none.sandbox_infos == [] and not none.pagination.has_next_page, none
    patched = await manager.patch_sandbox_metadata(sandbox.id, {"team": None, "stage": "two"})
    assert patched.metadata == {"stage": "two"}, patched

    await sandbox.pause()
    assert (await sandbox.get_info()).status.state == "Paused"
    await refused("SANDBOX::INVALID_STATE", manager.pause_sandbox(sandbox.id))
    await manager.resume_sandbox(sandbox.id)
    again = await Sandbox.connect(sandbox.id, connection_config=config)
    assert text((await again.commands.run("echo awake")).logs.stdout) == ["awake"]
    await again.close()

    assert (await sandbox.get_egress_policy()).default_action == "deny"
    await sandbox.patch_egress_rules([NetworkRule(action="deny", target="a.example")])
    # The operator has not allowed more than package indexes.
    await refused("RUNTIME_ERROR", sandbox.patch_egress_rules([NetworkRule(action="allow", target="a.example")]))
    await manager.close()


async def snapshots(sandbox, config):
    manager = await SandboxManager.create(connection_config=config)
    await sandbox.commands.run("echo kept > /root/note")
    made = await manager.create_snapshot(sandbox.id, "story")
    assert made.sandbox_id == sandbox.id and made.name == "story" and made.status.state == "Ready", made
    assert (await manager.get_snapshot(made.id)).id == made.id
    listed = await manager.list_snapshots(SnapshotFilter(sandbox_id=sandbox.id))
    assert [one.id for one in listed.snapshot_infos] == [made.id], listed
    copy = await Sandbox.create(snapshot_id=made.id, timeout=timedelta(minutes=5), connection_config=config)
    assert text((await copy.commands.run("cat /root/note")).logs.stdout) == ["kept"]
    assert (await copy.get_info()).snapshot_id == made.id
    await copy.kill()
    await copy.close()
    await manager.delete_snapshot(made.id)
    await refused("SNAPSHOT::NOT_FOUND", manager.get_snapshot(made.id))
    await manager.close()


async def strangers(sandbox, config):
    other = ConnectionConfig(api_key=os.environ["OTHER_API_KEY"])
    await refused("SANDBOX::SANDBOX_NOT_FOUND", Sandbox.connect(sandbox.id, connection_config=other))
    wrong = ConnectionConfig(api_key="nobody")
    await refused("INVALID_API_KEY", Sandbox.connect(sandbox.id, connection_config=wrong))
    policy = NetworkPolicy(default_action="allow")
    await refused(
        "SANDBOX::FORBIDDEN",
        Sandbox.create(IMAGE, network_policy=policy, connection_config=config),
    )


async def create(config):
    return await Sandbox.create(
        IMAGE,
        timeout=timedelta(minutes=10),
        env={"A": "1"},
        metadata={"team": "x"},
        resource={"cpu": "1", "memory": "512Mi"},
        connection_config=config,
    )


async def whole():
    config = ConnectionConfig()
    sandbox = await create(config)
    for story in (commands, background, sessions, files, endpoints, terminal):
        await story(sandbox)
        print(f"ok: {story.__name__}")
    for story in (lifecycle, snapshots, strangers):
        await story(sandbox, config)
        print(f"ok: {story.__name__}")
    await sandbox.kill()
    await refused("SANDBOX::SANDBOX_NOT_FOUND", sandbox.get_info())
    await sandbox.close()


async def through_server():
    """Every request through the server, with the key."""
    config = ConnectionConfig(use_server_proxy=True)
    sandbox = await create(config)
    await commands(sandbox)
    await files(sandbox)
    await endpoints(sandbox)
    await sandbox.kill()
    await sandbox.close()
    print("ok: through the server")


async def below_a_prefix():
    """The address of a daemon that others share can say which of its interfaces is meant."""
    config = ConnectionConfig(domain=os.environ["OPEN_SANDBOX_DOMAIN"] + "/opensandbox")
    sandbox = await create(config)
    await commands(sandbox)
    await sandbox.kill()
    await sandbox.close()
    print("ok: below a prefix")


def main():
    # Refusals are part of the story; the SDK would log each of them with its traceback.
    logging.disable(logging.CRITICAL)
    if sys.argv[1:] == ["--briefly"]:
        asyncio.run(below_a_prefix())
        return
    asyncio.run(whole())
    asyncio.run(through_server())
    asyncio.run(below_a_prefix())


if __name__ == "__main__":
    main()
