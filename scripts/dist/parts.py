"""What the program is made of: the crates that it links, the packages in its dashboard, and the C libraries in them."""

import json
import re
import subprocess
from pathlib import Path

from version import read, root

TARGET = "x86_64-unknown-linux-gnu"


def cargo(*arguments):
    """What cargo says, from the crates that were fetched for the build."""
    command = ["cargo", *arguments, "--locked", "--offline"]
    return subprocess.run(command, cwd=root(), stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout


class Crates:
    """The crates that `warren` links: not those that run while it is built (macros, build scripts) or in tests."""

    def __init__(self):
        metadata = json.loads(cargo("metadata", "--format-version=1", f"--filter-platform={TARGET}"))
        self.packages = {package["id"]: package for package in metadata["packages"]}
        self.start = next(one for one, package in self.packages.items() if package["name"] == "warren")
        # Only the tree is without what a feature of a test brings in; only the metadata has the details.
        tree = cargo("tree", "--package=warren", "--edges=normal,no-proc-macro", "--prefix=none", f"--target={TARGET}", "--format={p}")
        linked = {tuple(line.split()[:2]) for line in tree.splitlines()}
        nodes = {node["id"]: node for node in metadata["resolve"]["nodes"] if self.name_of(node["id"]) in linked}
        # By id, with what each links in turn.
        self.linked = {
            one: sorted(dep["pkg"] for dep in node["deps"] if dep["pkg"] in nodes and any(kind["kind"] is None for kind in dep["dep_kinds"]))
            for one, node in nodes.items()
        }

    def name_of(self, one):
        return self.packages[one]["name"], "v" + self.packages[one]["version"]

    def is_ours(self, one):
        return self.packages[one]["source"] is None

    def directory(self, one):
        return Path(self.packages[one]["manifest_path"]).parent

    def directory_of(self, name):
        return self.directory(next(one for one in self.linked if self.packages[one]["name"] == name))


def bundled(crates):
    """C libraries in the program: name, version, licence, the crate that brings it, what is remarkable."""
    sqlite = read(crates.directory_of("libsqlite3-sys") / "sqlite3/sqlite3.h")
    zstd = read(crates.directory_of("zstd-sys") / "zstd/lib/zstd.h")
    asked = subprocess.run(["getconf", "GNU_LIBC_VERSION"], stdout=subprocess.PIPE, check=False, encoding="utf-8").stdout
    return [
        ("sqlite", re.search(r'#define SQLITE_VERSION\s+"(.*)"', sqlite)[1], "blessing", "libsqlite3-sys", None),
        ("zstd", ".".join(re.findall(r"#define ZSTD_VERSION_(?:MAJOR|MINOR|RELEASE)\s+(\d+)", zstd)), "BSD-3-Clause", "zstd-sys", None),
        ("glibc", asked.split()[-1] if asked else None, "LGPL-2.1-or-later", None, "only in the static program"),
    ]


def dashboard():
    """The npm packages that end in the dashboard: what its build lists with a licence, and fonts, which it does not list."""
    lock = json.loads(read(root() / "web/package-lock.json"))["packages"]
    names = re.findall(r"^## (\S+) - ", read(root() / "web/dist/assets/licenses.txt"), re.MULTILINE)
    names += json.loads(read(root() / "web/package.json"))["dependencies"]
    return {name: lock[f"node_modules/{name}"] for name in sorted(set(names))}
