"""A package index on loopback with one package, and another that never comes: prints its address and serves until it is
killed."""

import hashlib, http.server, io, threading, zipfile

NAME, VERSION = "burrow", "1.2"
INFO = f"{NAME}-{VERSION}.dist-info"
FILES = {
    f"{NAME}.py": "answer = 42\n",
    f"{INFO}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n",
    f"{INFO}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
FILES[f"{INFO}/RECORD"] = "".join(f"{path},,\n" for path in [*FILES, f"{INFO}/RECORD"])
WHEEL = io.BytesIO()
with zipfile.ZipFile(WHEEL, "w") as archive:
    for path, text in FILES.items():
        archive.writestr(path, text)
WHEEL = WHEEL.getvalue()
FILE = f"{NAME}-{VERSION}-py3-none-any.whl"
PAGE = f'<a href="/files/{FILE}#sha256={hashlib.sha256(WHEEL).hexdigest()}">{FILE}</a>'.encode()
SERVED = {f"/simple/{NAME}/": PAGE, f"/files/{FILE}": WHEEL}


class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/simple/molasses/":
            threading.Event().wait()
        body = SERVED.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
