"""A real journal takes the daemon's log with its fields, chosen by itself where systemd started it. Run in a mount
namespace of its own, so that the host's journal is left alone."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from daemon import Daemon, until

SOCKET = Path("/run/systemd/journal/socket")


def entries():
    found = subprocess.run(
        ["journalctl", "-D", "/run/log/journal", "-o", "json", "SYSLOG_IDENTIFIER=warren"],
        capture_output=True, text=True,
    )
    return [json.loads(line) for line in found.stdout.splitlines()]


def main(program, place):
    for path in ("/run/systemd", "/run/log"):
        os.makedirs(path, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
    os.makedirs(SOCKET.parent)
    journal = subprocess.Popen(["/lib/systemd/systemd-journald"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until("the journal listens", SOCKET.exists)
        # As systemd does it: stderr is the journal's stream, and a variable says so.
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(SOCKET.with_name("stdout")))
            about = os.fstat(stream.fileno())
            daemon = Daemon(program, place, flags=["--log", "debug"])
            daemon.env["JOURNAL_STREAM"] = f"{about.st_dev}:{about.st_ino}"
            daemon.log = Path(f"/proc/self/fd/{stream.fileno()}")
            start(daemon, stream)
        try:
            daemon.run("create", "--name", "lab")
            ready = until("the journal has it", lambda: [one for one in entries() if one["MESSAGE"] == "ready"])
            assert ready[0]["PRIORITY"] == "5" or ready[0]["PRIORITY"] == "6", ready
            assert ready[0]["BACKENDS"].startswith("namespace"), ready
            stands = until("a sandbox is in it", lambda: [one for one in entries() if one["MESSAGE"] == "cage stands"])
            assert stands[0]["SANDBOX"].startswith("sbx-"), stands
        finally:
            daemon.run("rm", "--force", "lab")
            daemon.stop_quietly()
        print(f"journal: {len(entries())} entries, chosen by JOURNAL_STREAM")
    finally:
        journal.terminate()
        journal.wait()


def start(daemon, stream):
    daemon.work.mkdir(parents=True, exist_ok=True)
    daemon.process = subprocess.Popen(
        [daemon.program, "serve", "--listen", "none", *daemon.flags], env=daemon.env, stderr=stream.fileno()
    )
    until("the daemon serves", (daemon.work / "run" / "warren.sock").exists)
    daemon.stop_quietly = lambda: (daemon.process.terminate(), daemon.process.wait())


main(sys.argv[1], sys.argv[2])
