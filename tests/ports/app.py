"""A server inside a sandbox, for tests: honest pages, and answers that no honest server gives. Standard library only."""

import base64
import hashlib
import http.server
import json
import socket
import struct
import sys
import urllib.parse

PAGE = """<!doctype html><meta charset=utf-8><title>waiting</title><script>
const told = {};
const tell = (name, value) => { told[name] = value; document.title = JSON.stringify(told); };
const look = (name, address, init) => fetch(address, init)
  .then(answer => answer.text().then(text => tell(name, answer.status + " " + text.slice(0, 40))))
  .catch(() => tell(name, "unreadable"));
const ws = new WebSocket((location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/ws");
const hears = new Promise(resolve => {
  ws.onopen = () => ws.send("hello");
  ws.onmessage = event => { tell("websocket", event.data); resolve(); };
  ws.onerror = () => { tell("websocket", "failed"); resolve(); };
});
const others = JSON.parse(decodeURIComponent(location.hash.slice(1) || "[]"));
document.cookie = "mine=1; path=/";
const asks = others.map(([name, address]) => look(name, address, { credentials: "include" }));
const sends = others.map(([name, address]) =>
  look(name + " post", address, { method: "POST", mode: "no-cors", credentials: "include", body: "x" }));
Promise.all([hears, look("own", "/hello"), look("absolute", "/deep/er"), ...asks, ...sends]).then(() => {
  tell("cookie", document.cookie);
  return fetch("/told", { method: "POST", body: JSON.stringify(told) });
}).then(() => {
  const then = new URLSearchParams(location.search).get("then");
  if (then) location = then;
});
</script><body>"""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    posts = []

    def log_message(self, *_):
        pass

    def answer(self, body, status=200, kind="text/plain", headers=()):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def raw(self, data):
        self.close_connection = True
        self.wfile.write(data)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        if path == "/":
            self.answer(PAGE, kind="text/html")
        elif path == "/headers":
            told = {"target": self.path, "headers": [[name.lower(), value] for name, value in self.headers.items()]}
            self.answer(json.dumps(told), kind="application/json")
        elif path == "/posts":
            self.answer(json.dumps(self.posts))
        elif path == "/big":
            left = int(asked["n"])
            self.send_response(200)
            self.send_header("Content-Length", str(left))
            self.end_headers()
            piece = bytes(range(256)) * 256
            while left:
                left -= self.wfile.write(piece[: min(left, len(piece))])
        elif path == "/events":
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"data: first\n\n")
            # Until the reader goes away.
            self.rfile.read(1)
            self.close_connection = True
        elif path == "/redirect":
            self.answer("", 302, headers=[
                ("Location", "/login"), ("Set-Cookie", "a=1; Domain=localhost; Path=/"), ("Set-Cookie", "warren_port=x"),
                ("Alt-Svc", 'h3=":1"'), ("Clear-Site-Data", '"*"'), ("Connection", "x-own"), ("X-Own", "1"),
            ])
        elif path == "/ws":
            self.websocket()
        elif path == "/bad/garbage":
            self.raw(b"this is not HTTP\r\n\r\n")
        elif path == "/bad/nothing":
            self.close_connection = True
        elif path == "/bad/headers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            try:
                while True:
                    self.wfile.write(b"X-More: " + b"x" * 4096 + b"\r\n")
            except OSError:
                self.close_connection = True
        elif path == "/bad/many":
            self.raw(b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(1000)) + b"\r\n")
        elif path == "/bad/short":
            self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")
        elif path == "/bad/lengths":
            self.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello")
        elif path == "/bad/upgrade":
            self.raw(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: evil\r\n\r\n")
        else:
            self.answer("this is " + path)

    do_HEAD = do_GET

    def do_POST(self):
        if self.path == "/told":
            print("told", b"".join(self.body()).decode(), flush=True)
            return self.answer("")
        digest, n_bytes = hashlib.sha256(), 0
        for piece in self.body():
            digest.update(piece)
            n_bytes += len(piece)
        self.posts.append(self.headers.get("Origin", ""))
        self.answer(json.dumps({"bytes": n_bytes, "sha256": digest.hexdigest()}))

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            while n_left := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(n_left)
                self.rfile.readline()
            self.rfile.readline()
            return
        n_left = int(self.headers.get("Content-Length", 0))
        while n_left:
            piece = self.rfile.read(min(n_left, 65536))
            if not piece:
                return
            n_left -= len(piece)
            yield piece

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == 8:
                return
            length = head[1] & 127
            if length == 126:
                length = struct.unpack(">H", self.rfile.read(2))[0]
            mask = self.rfile.read(4)
            text = bytes(byte ^ mask[n % 4] for n, byte in enumerate(self.rfile.read(length)))
            text = b"inside heard " + text
            self.wfile.write(bytes([129, len(text)]) + text)
            self.wfile.flush()


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        super().server_bind()

    def handle_error(self, *_):
        pass


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Handler)
    print("ready", flush=True)
    server.serve_forever()
