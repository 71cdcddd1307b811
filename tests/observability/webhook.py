"""A receiver that fails, is slow and comes back gets every event, signed as the Standard Webhooks libraries want it."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

from daemon import Daemon, free_port, get, until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjUPD8ILPZI"

# In place of a status: no answer, for longer than the sender waits.
SLOW = 0
LONGER_THAN_IT_WAITS = 17


class Receiver:
    """Keeps what it took. `mood` is called with each message before it is taken, and may refuse it by a status."""

    def __init__(self, port):
        self.taken, self.seen, self.mood = [], [], lambda: 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                message = Webhook(SECRET).verify(body, headers)
                status = receiver.mood()
                receiver.seen.append((headers["webhook-id"], status))
                if status == SLOW:
                    time.sleep(LONGER_THAN_IT_WAITS)
                    self.close_connection = True
                    return
                if status == 200:
                    receiver.taken.append(message)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def events(self):
        return [event for message in self.taken for event in message["data"]["events"]]

    def has(self, kind, name):
        return any(event["kind"] == kind and event.get("name") == name for event in self.events())

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def check_signature():
    """The verifier is one: it refuses another secret."""
    try:
        Webhook(SECRET).verify(b"{}", {"webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,x"})
    except WebhookVerificationError:
        return
    raise AssertionError("anything is accepted")


def main(program, place):
    check_signature()
    port = free_port()
    secret = Path(place) / "secret"
    secret.parent.mkdir(parents=True)
    secret.write_text(SECRET + "\n")
    config = f'[events]\nwebhook = "http://127.0.0.1:{port}/hook"\nsecret_file = "{secret}"\n'
    refused = Daemon(program, place, config, ["--log", "info"])
    secret.chmod(0o644)
    refused.env["WARREN_LISTEN"] = "none"
    refused.run("serve", code=125)
    secret.chmod(0o600)

    receiver = Receiver(port)
    with Daemon(program, place, config, ["--log", "info"]) as daemon:
        daemon.run("create", "--name", "first")
        until("the first event came", lambda: receiver.has("sandbox_created", "first"))

        # It fails three times, and is slow once.
        answers = iter([500, 429, 302, SLOW])
        receiver.mood = lambda: next(answers, 200)
        daemon.run("create", "--name", "second")
        until("what failed came again", lambda: receiver.has("sandbox_created", "second"))
        ids = {}
        for name, status in receiver.seen:
            ids.setdefault(name, []).append(status)
        assert [500, 429, 302, SLOW, 200] in ids.values(), ids

        # It is away; the daemon is replaced meanwhile by force; both come back.
        receiver.close()
        daemon.run("create", "--name", "third")
        daemon.kill()
        receiver_two = Receiver(port)
        receiver_two.taken = receiver.taken
        daemon.start()
        until("what was missed came", lambda: receiver_two.has("sandbox_created", "third"))
        numbers = [event["number"] for event in receiver_two.events()]
        assert sorted(set(numbers)) == list(range(min(numbers), max(numbers) + 1)), numbers
        assert not any(event["kind"] == "events_lost" for event in receiver_two.events())

        # More events than the store keeps, while nobody takes any: the loss is told.
        receiver_two.mood = lambda: 503
        n_flood = flood(daemon)
        receiver_two.mood = lambda: 200
        until("the loss was told", lambda: any(event["kind"] == "events_lost" for event in receiver_two.events()))
        lost = next(event for event in receiver_two.events() if event["kind"] == "events_lost")
        assert lost["count"] > 0, lost
        key = daemon.key("--label", "all", "--all-namespaces")
        text = get(f"{daemon.url}/metrics", {"authorization": f"Bearer {key}"})[1]
        assert f"warren_webhook_lost_events_total {lost['count']}\n" in text, text
        print(f"webhook: {len(numbers)} events over failures and a kill; then {lost['count']} of {n_flood} told as lost")


def flood(daemon):
    """Fills the store's table of events by hand: ten thousand real ones would take minutes."""
    import sqlite3

    daemon.kill()
    base = sqlite3.connect(f"{daemon.work}/home/warren.db")
    row = base.execute("SELECT at, kind, sandbox, name, namespace, exec, detail FROM events LIMIT 1").fetchone()
    n = 10_100
    base.executemany(
        "INSERT INTO events (at, kind, sandbox, name, namespace, exec, detail) VALUES (?, ?, ?, ?, ?, ?, ?)", [row] * n
    )
    last = base.execute("SELECT max(number) FROM events").fetchone()[0]
    base.execute("DELETE FROM events WHERE number <= ?", (last - 10_000,))
    base.commit()
    base.close()
    daemon.start()
    return n


main(sys.argv[1], sys.argv[2])
