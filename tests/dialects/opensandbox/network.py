"""OpenSandbox's network policies through its own SDK, with a server at an address of the internet that is ours here."""

import asyncio
import http.server
import logging
import threading
from datetime import timedelta

from opensandbox import Sandbox
from opensandbox.config import ConnectionConfig
from opensandbox.exceptions import SandboxException
from opensandbox.models.sandboxes import NetworkPolicy, NetworkRule

SERVER = "93.184.216.34"
FETCH = f"python3 -c 'import urllib.request as u; print(u.urlopen(\"http://{SERVER}/\", timeout=20).read().decode())'"


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    def log_message(self, *_):
        pass


async def reaches(sandbox):
    ran = await sandbox.commands.run(FETCH)
    return [line.text for line in ran.logs.stdout] == ["hello"]


def allow(target):
    return NetworkRule(action="allow", target=target)


def deny(target):
    return NetworkRule(action="deny", target=target)


async def create(policy):
    config = ConnectionConfig()
    return await Sandbox.create(
        "host", timeout=timedelta(minutes=10), network_policy=policy, connection_config=config
    )


async def story():
    sandbox = await create(NetworkPolicy(default_action="deny", egress=[allow(SERVER), allow("*.example.org")]))
    assert await reaches(sandbox)
    policy = await sandbox.get_egress_policy()
    assert policy.default_action == "deny", policy
    assert [rule.target for rule in policy.egress] == [SERVER, "*.example.org"], policy

    await sandbox.delete_egress_rules([SERVER, "never.example"])
    assert not await reaches(sandbox)
    await sandbox.patch_egress_rules([allow(SERVER), deny("evil.example.org")])
    assert await reaches(sandbox)
    await sandbox.patch_egress_rules([deny(SERVER)])
    assert not await reaches(sandbox)
    policy = await sandbox.get_egress_policy()
    rules = [(rule.action, rule.target) for rule in policy.egress]
    assert rules == [("deny", SERVER), ("deny", "evil.example.org"), ("allow", "*.example.org")], rules
    await sandbox.kill()
    await sandbox.close()

    sandbox = await create(NetworkPolicy(default_action="allow"))
    assert await reaches(sandbox)
    await sandbox.patch_egress_rules([deny("93.184.216.0/24")])
    assert not await reaches(sandbox)
    await sandbox.kill()
    await sandbox.close()

    try:
        await create(NetworkPolicy(egress=[allow("10.0.0.1")]))
        raise AssertionError("it was not refused")
    except SandboxException as error:
        assert "SANDBOX::FORBIDDEN" in f"{error.error.code} {error}", error
    print("ok: network policies")


def main():
    logging.disable(logging.CRITICAL)
    server = http.server.ThreadingHTTPServer((SERVER, 80), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asyncio.run(story())


main()
