"""Writes a registry for cargo and a proxy for Go's modules beneath the directory that is named."""

import hashlib
import io
import json
import pathlib
import sys
import tarfile
import zipfile

top = pathlib.Path(sys.argv[1])


def write(path, content):
    path = top / path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w:gz") as tar:
    for name, text in {
        "Cargo.toml": '[package]\nname = "burrow"\nversion = "1.0.0"\nedition = "2021"\n',
        "src/lib.rs": "pub const ANSWER: u32 = 42;\n",
    }.items():
        member = tarfile.TarInfo(f"burrow-1.0.0/{name}")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
crate = packed.getvalue()
write("crates/burrow-1.0.0.crate", crate)
write("cargo/config.json", json.dumps({"dl": "https://web.example/crates/{crate}-{version}.crate"}))
entry = {"name": "burrow", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(), "features": {}, "yanked": False}
write("cargo/bu/rr/burrow", json.dumps(entry) + "\n")

module = "go/world.example/burrow/@v"
write(f"{module}/list", "v1.0.0\n")
write(f"{module}/v1.0.0.info", json.dumps({"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}))
write(f"{module}/v1.0.0.mod", "module world.example/burrow\n")
packed = io.BytesIO()
with zipfile.ZipFile(packed, "w") as archive:
    for name, text in {"go.mod": "module world.example/burrow\n", "burrow.go": "package burrow\n\nconst Answer = 42\n"}.items():
        archive.writestr(f"world.example/burrow@v1.0.0/{name}", text)
write(f"{module}/v1.0.0.zip", packed.getvalue())
