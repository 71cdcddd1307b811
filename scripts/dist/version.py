"""What the Python scripts beside it have in common."""

import os
import re
import subprocess
import time
from pathlib import Path

SUMMARY = "Sandboxes for AI agents: made in milliseconds, without Docker, KVM or root"

# A lower one is faster, for tests.
LEVEL = int(os.environ.get("WARREN_DIST_LEVEL", "9"))


def root():
    return Path(__file__).resolve().parent.parent.parent


def read(path, **more):
    """A text, as UTF-8 whatever the caller's locale is."""
    return Path(path).read_text(encoding="utf-8", **more)


def version():
    package = read(root() / "Cargo.toml").split("[workspace.package]")[1]
    return re.search(r'^version = "(.*)"$', package, re.MULTILINE)[1]


def epoch():
    """The one date of everything that is made: the commit's."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return int(os.environ["SOURCE_DATE_EPOCH"])
    asked = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=root(), stdout=subprocess.PIPE, text=True)
    return int(asked.stdout) if asked.returncode == 0 else int(time.time())
