"""What a program that uses OpenSandbox's SDK without async does: all that story.py does with it."""

import logging
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

from opensandbox import SandboxManagerSync, SandboxSync
from opensandbox.config.connection_sync import ConnectionConfigSync
from opensandbox.exceptions import SandboxException
from opensandbox.models.execd import RunCommandOpts
from opensandbox.models.execd_sync import ExecutionHandlersSync
from opensandbox.models.filesystem import MoveEntry, SearchEntry, WriteEntry
from opensandbox.models.sandboxes import NetworkRule, SandboxFilter, SnapshotFilter

from story import IMAGE, SERVER, get, text


def refused(code, call, *arguments, **named):
    """The call is refused, with this code."""
    try:
        call(*arguments, **named)
    except SandboxException as error:
        assert error.error.code == code or f'"code":"{code}"' in str(error), (error, error.error)
    else:
        raise AssertionError("it was not refused")


def until(look):
    """Polls as a client does, as long as the daemon is not stuck."""
    for _ in range(600):
        if look():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def commands(sandbox):
    ran = sandbox.commands.run("echo $A; echo e >&2; exit 4")
    assert text(ran.logs.stdout) == ["1"] and text(ran.logs.stderr) == ["e"] and ran.exit_code == 4, ran
    opts = RunCommandOpts(working_directory="/tmp", timeout=timedelta(seconds=60), envs={"B": "2"})
    assert text(sandbox.commands.run("pwd; echo $B", opts=opts).logs.stdout) == ["/tmp", "2"]
    assert text(sandbox.commands.run(["printf", "%s|", "a b"]).logs.stdout) == ["a b|"]
    seen = []
    handlers = ExecutionHandlersSync(on_stdout=lambda message: seen.append(message.text))
    sandbox.commands.run("echo one; echo two", handlers=handlers)
    assert seen == ["one", "two"], seen
    sandbox.commands.set_env("KEPT", "it's here")
    assert text(sandbox.commands.run("printenv KEPT").logs.stdout) == ["it's here"]
    # Commands at the same time do not wait for each other.
    results = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(sandbox.commands.run(f"echo {n}").logs.stdout[0].text))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [str(n) for n in range(8)], results


def background(sandbox):
    opts = RunCommandOpts(background=True)
    ran = sandbox.commands.run("for i in 1 2 3; do echo $i; done; echo end >&2", opts=opts)
    assert ran.id and ran.exit_code is None and not ran.logs.stdout, ran
    until(lambda: not sandbox.commands.get_command_status(ran.id).running)
    status = sandbox.commands.get_command_status(ran.id)
    assert status.exit_code == 0 and status.content.startswith("for i in"), status
    logs = sandbox.commands.get_background_command_logs(ran.id)
    assert sorted(logs.content.split()) == ["1", "2", "3", "end"] and logs.cursor > 0, logs
    again = sandbox.commands.get_background_command_logs(ran.id, cursor=logs.cursor)
    assert again.content == "" and again.cursor == logs.cursor, again
    ran = sandbox.commands.run("echo up; exec sleep 600", opts=opts)
    sandbox.commands.interrupt(ran.id)
    status = sandbox.commands.get_command_status(ran.id)
    assert not status.running and status.exit_code != 0, status
    refused("CONTEXT_NOT_FOUND", sandbox.commands.get_command_status, "../../etc/passwd")


def sessions(sandbox):
    session = sandbox.commands.create_session(working_directory="/tmp")
    ran = sandbox.commands.run_in_session(session, "pwd; x=1; cd /usr")
    assert text(ran.logs.stdout) == ["/tmp"] and ran.exit_code == 0, ran
    ran = sandbox.commands.run_in_session(session, "echo $x; pwd; exit 7")
    assert text(ran.logs.stdout) == ["1", "/usr"] and ran.exit_code == 7, ran
    sandbox.commands.delete_session(session)
    refused("CONTEXT_NOT_FOUND", sandbox.commands.run_in_session, session, "true")


def files(sandbox):
    sandbox.files.write_file("/tmp/deep/a.txt", "sync\n", mode=640)
    assert sandbox.files.read_file("/tmp/deep/a.txt") == "sync\n"
    assert sandbox.files.get_file_info(["/tmp/deep/a.txt"])["/tmp/deep/a.txt"].mode == 640
    sandbox.files.write_files([WriteEntry(path="/tmp/deep/b.bin", data=bytes(range(256)), mode=600)])
    assert sandbox.files.read_bytes("/tmp/deep/b.bin") == bytes(range(256))
    found = sandbox.files.search(SearchEntry(path="/tmp/deep", pattern="*.txt"))
    assert [entry.path for entry in found] == ["/tmp/deep/a.txt"], found
    sandbox.files.move_files([MoveEntry(src="/tmp/deep/a.txt", dest="/tmp/deep/z.txt")])
    sandbox.files.create_directories([WriteEntry(path="/tmp/dd/e", mode=700)])
    sandbox.files.delete_directories(["/tmp/dd"])
    sandbox.files.delete_files(["/tmp/deep/z.txt"])
    refused("FILE_NOT_FOUND", sandbox.files.read_file, "/tmp/deep/z.txt")


def endpoints(sandbox):
    """A server inside, at the address and with the headers that the endpoint says."""
    sandbox.files.write_file("/tmp/server.py", SERVER)
    ran = sandbox.commands.run("exec python3 /tmp/server.py", opts=RunCommandOpts(background=True))
    until(lambda: "ready" in sandbox.commands.get_background_command_logs(ran.id).content)
    endpoint = sandbox.get_endpoint(8000)
    assert get(endpoint.endpoint, "/a/b?c=1", endpoint.headers) == (200, "/a/b?c=1 None")
    assert get(endpoint.endpoint, "/", {})[0] == 401
    assert get(endpoint.endpoint, "/", sandbox.get_endpoint(8001).headers)[0] == 401
    signed = sandbox.get_signed_endpoint(8000, int(time.time()) + 60)
    assert get(signed.endpoint, "/", signed.headers)[0] == 200


def lifecycle(sandbox, config):
    info = sandbox.get_info()
    assert info.status.state == "Running" and info.metadata == {"team": "sync"} and info.image.image == IMAGE, info
    metrics = sandbox.get_metrics()
    assert metrics.cpu_count == 1 and metrics.memory_total_in_mib == 512 and metrics.timestamp > 0, metrics
    renewed = sandbox.renew(timedelta(minutes=30))
    left = renewed.expires_at - datetime.now(timezone.utc)
    assert timedelta(minutes=29) < left < timedelta(minutes=31), left
    assert sandbox.get_info().expires_at == renewed.expires_at
    with SandboxManagerSync.create(connection_config=config) as manager:
        wanted = SandboxFilter(states=["Running"], metadata={"team": "sync"}, page_size=5)
        listed = manager.list_sandbox_infos(wanted)
        assert [one.id for one in listed.sandbox_infos] == [sandbox.id], listed
        assert listed.pagination.total_items == 1 and not listed.pagination.has_next_page, listed
        none = manager.list_sandbox_infos(SandboxFilter(metadata={"team": "y"}))
        assert none.sandbox_infos == [], none
        assert manager.get_sandbox_info(sandbox.id).id == sandbox.id
        patched = manager.patch_sandbox_metadata(sandbox.id, {"team": None, "stage": "two"})
        assert patched.metadata == {"stage": "two"}, patched
        sandbox.pause()
        assert sandbox.get_info().status.state == "Paused"
        refused("SANDBOX::INVALID_STATE", manager.pause_sandbox, sandbox.id)
        manager.resume_sandbox(sandbox.id)
        assert sandbox.get_info().status.state == "Running"
        assert manager.renew_sandbox(sandbox.id, timedelta(minutes=20)).expires_at < renewed.expires_at
    sandbox.pause()
    again = SandboxSync.resume(sandbox.id, connection_config=config)
    assert text(again.commands.run("echo awake").logs.stdout) == ["awake"]
    again.close()
    again = SandboxSync.connect(sandbox.id, connection_config=config)
    assert again.is_healthy()
    again.close()


def looking(sandbox):
    """What has happened, and what may be reached."""
    logs = sandbox.get_diagnostic_logs("all")
    assert "printenv KEPT" in logs.content and logs.kind == "logs", logs
    assert sandbox.get_diagnostic_events("all").content
    assert sandbox.get_egress_policy().default_action == "deny"
    sandbox.patch_egress_rules([NetworkRule(action="deny", target="a.example")])
    sandbox.delete_egress_rules(["a.example"])


def snapshots(sandbox, config):
    sandbox.commands.run("echo kept > /root/note")
    with SandboxManagerSync.create(connection_config=config) as manager:
        made = manager.create_snapshot(sandbox.id, "sync-story")
        assert (made.sandbox_id, made.name, made.status.state) == (sandbox.id, "sync-story", "Ready"), made
        assert manager.get_snapshot(made.id).id == made.id
        listed = manager.list_snapshots(SnapshotFilter(sandbox_id=sandbox.id))
        assert [one.id for one in listed.snapshot_infos] == [made.id], listed
        copy = SandboxSync.create(snapshot_id=made.id, timeout=timedelta(minutes=5), connection_config=config)
        assert text(copy.commands.run("cat /root/note").logs.stdout) == ["kept"]
        assert copy.get_info().snapshot_id == made.id
        copy.kill()
        copy.close()
        manager.delete_snapshot(made.id)
        refused("SNAPSHOT::NOT_FOUND", manager.get_snapshot, made.id)
        own = sandbox.create_snapshot()
        manager.delete_snapshot(own.id)


def create(config):
    return SandboxSync.create(
        IMAGE,
        timeout=timedelta(minutes=10),
        env={"A": "1"},
        metadata={"team": "sync"},
        resource={"cpu": "1", "memory": "512Mi"},
        connection_config=config,
    )


def whole():
    config = ConnectionConfigSync()
    sandbox = create(config)
    for story in (commands, background, sessions, files, endpoints, looking):
        story(sandbox)
    for story in (lifecycle, snapshots):
        story(sandbox, config)
    sandbox.kill()
    refused("SANDBOX::SANDBOX_NOT_FOUND", sandbox.get_info)
    sandbox.close()
    print("ok: without async")


def through_server():
    """Every request through the server, with the key."""
    sandbox = create(ConnectionConfigSync(use_server_proxy=True))
    for story in (commands, files, endpoints):
        story(sandbox)
    sandbox.kill()
    sandbox.close()
    print("ok: without async, through the server")


def briefly():
    sandbox = create(ConnectionConfigSync())
    commands(sandbox)
    sandbox.kill()
    sandbox.close()
    print("ok: without async")


if __name__ == "__main__":
    # Refusals are part of the story; the SDK would log each of them with its traceback.
    logging.disable(logging.CRITICAL)
    if sys.argv[1:] == ["--briefly"]:
        briefly()
    else:
        whole()
        through_server()
