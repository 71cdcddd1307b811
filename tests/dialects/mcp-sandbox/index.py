"""Package indexes on loopback, for pip below /simple/ and for npm below /npm/, with a few packages of one file, and one
for pip that never comes: prints the address and serves until it is killed."""

import base64, hashlib, http.server, io, json, tarfile, threading, zipfile

VERSION = "1.2"
PYTHON = ("burrow", "den", "sett")
NODE = ("holt", "drey")
NODE_VERSION = "1.2.0"


def wheel(name):
    info = f"{name}-{VERSION}.dist-info"
    files = {
        f"{name}.py": "answer = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return packed.getvalue()


def tarball(name):
    about = json.dumps({"name": name, "version": NODE_VERSION, "main": "index.js"})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in {"package.json": about, "index.js": "module.exports = 42\n"}.items():
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def served(address):
    """What is at which path."""
    found = {}
    for name in PYTHON:
        file, data = f"{name}-{VERSION}-py3-none-any.whl", wheel(name)
        found[f"/files/{file}"] = data
        link = f'<a href="/files/{file}#sha256={hashlib.sha256(data).hexdigest()}">{file}</a>'
        found[f"/simple/{name}/"] = link.encode()
    for name in NODE:
        path, data = f"/npm/{name}/-/{name}-{NODE_VERSION}.tgz", tarball(name)
        found[path] = data
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        version = {"name": name, "version": NODE_VERSION, "dist": {"tarball": address + path, "integrity": integrity}}
        about = {"name": name, "dist-tags": {"latest": NODE_VERSION}, "versions": {NODE_VERSION: version}}
        found[f"/npm/{name}"] = json.dumps(about).encode()
    return found


class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/simple/molasses/":
            threading.Event().wait()
        body = SERVED.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "application/json" if self.path.startswith("/npm/") else "text/html")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
ADDRESS = f"http://127.0.0.1:{server.server_port}"
SERVED = served(ADDRESS)
print(ADDRESS, flush=True)
server.serve_forever()
