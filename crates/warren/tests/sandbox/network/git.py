"""Hands requests below /git to `git http-backend`."""
import os, subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    def answer(self):
        path, _, query = self.path.partition("?")
        said = {
            "GIT_PROJECT_ROOT": os.path.abspath("www/git"), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "somebody",
            "PATH_INFO": path.removeprefix("/git"), "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        made = subprocess.run(["git", "http-backend"], input=body, env={**os.environ, **said}, stdout=subprocess.PIPE)
        head, _, rest = made.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(rest)

    do_GET = do_POST = answer

ThreadingHTTPServer(("127.0.0.1", 9000), Handler).serve_forever()
