"""A daemon of a data directory of its own, and small helpers."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

PATIENCE = 120


def until(what, look):
    """Waits for what has no event to listen to, and returns what `look` found."""
    end = time.monotonic() + PATIENCE
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < end, f"gave up waiting until {what}"
        time.sleep(0.05)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(url, headers=None):
    request = urllib.request.Request(url, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


class Daemon:
    def __init__(self, program, work, config="", flags=(), env=()):
        self.program, self.work = program, Path(work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.config = self.work / "config.toml"
        self.config.write_text(config)
        self.config.chmod(0o600)
        kept = {name: os.environ[name] for name in ("PATH",)}
        self.env = kept | dict(env) | {
            "HOME": str(self.work),
            "WARREN_HOME": str(self.work / "home"),
            "WARREN_RUN": str(self.work / "run"),
            "WARREN_CONFIG": str(self.config),
        }
        self.flags = list(flags)
        self.process = None
        self.log = self.work / "daemon.log"

    def start(self, **more):
        self.process = subprocess.Popen(
            [self.program, "serve", "--listen", "127.0.0.1:0", *self.flags],
            env=self.env, stderr=self.log.open("ab"), **more,
        )
        note = self.work / "run" / "http.json"

        def ready():
            assert self.process.poll() is None, self.log.read_text()
            found = json.loads(note.read_text()) if note.exists() else {}
            return found if found.get("pid") == self.process.pid else None

        self.url = until("the daemon is ready", ready)["url"]
        return self

    def run(self, *args, code=0, text=None):
        done = subprocess.run(
            [self.program, *args], env=self.env, input=text, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, (args, done)
        return done.stdout

    def key(self, *args):
        return self.run("key", "create", *args).strip()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.log.read_text()

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_error):
        try:
            ids = self.run("ps", "--all", "--quiet").split()
            if ids:
                self.run("rm", "--force", *ids)
        finally:
            if kind:
                print(self.log.read_text()[-4000:])
            if self.process.poll() is None:
                self.stop()
