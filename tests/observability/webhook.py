"""A receiver that fails, is slow and comes back gets every event, signed as the Standard Webhooks libraries want it."""

import json
import subprocess
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
    """Keeps what it took. `mood` is called with each message before it is taken, and may refuse it by a status, or by one
    with headers."""

    def __init__(self, port):
        self.taken, self.seen, self.mood = [], [], lambda _: 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                message = Webhook(SECRET).verify(body, headers)
                answer = receiver.mood(message)
                status, more = answer if isinstance(answer, tuple) else (answer, {})
                receiver.seen.append((headers["webhook-id"], status, time.monotonic()))
                if status == SLOW:
                    time.sleep(LONGER_THAN_IT_WAITS)
                    self.close_connection = True
                    return
                if status == 200:
                    receiver.taken.append(message)
                self.send_response(status)
                self.send_header("content-length", "0")
                for name, value in more.items():
                    self.send_header(name, value)
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
        receiver.mood = lambda _: next(answers, 200)
        daemon.run("create", "--name", "second")
        until("what failed came again", lambda: receiver.has("sandbox_created", "second"))
        ids = {}
        for name, status, _ in receiver.seen:
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
        receiver_two.mood = lambda _: 503
        n_flood = flood(daemon)
        receiver_two.mood = lambda _: 200
        until("the loss was told", lambda: any(event["kind"] == "events_lost" for event in receiver_two.events()))
        lost = next(event for event in receiver_two.events() if event["kind"] == "events_lost")
        assert lost["count"] > 0, lost
        key = daemon.key("--label", "all", "--all-namespaces")
        text = get(f"{daemon.url}/metrics", {"authorization": f"Bearer {key}"})[1]
        assert f"warren_webhook_lost_events_total {lost['count']}\n" in text, text
        check_refusals(daemon, receiver_two, key)
        check_damaged_place(daemon, receiver_two)
        check_lost_records(daemon, receiver_two)
        print(f"webhook: {len(numbers)} events over failures and a kill; then {lost['count']} of {n_flood} told as lost")


def metric(daemon, key, name):
    text = get(f"{daemon.url}/metrics", {"authorization": f"Bearer {key}"})[1]
    found = [line.split(" ")[1] for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(found[0]) if found else None


def check_refusals(daemon, receiver, key):
    """A receiver that takes small batches only, and one event never, gets all others. It gets the pause that it asks
    for, and the backlog is seen meanwhile."""
    until("the flood is over", lambda: metric(daemon, key, "warren_webhook_pending_events") == 0)
    receiver.mood = lambda _: 503
    daemon.run("create", "--name", "poison")
    daemon.run("create", "--name", "healthy")
    until("the backlog shows", lambda: (metric(daemon, key, "warren_webhook_pending_events") or 0) >= 4)

    pauses = iter([(429, {"retry-after": "3"})])
    is_poison = lambda event: event["kind"] == "sandbox_created" and event.get("name") == "poison"

    def mood(message):
        events = message["data"]["events"]
        if len(events) > 2:
            return 413
        return 400 if any(map(is_poison, events)) else next(pauses, 200)

    receiver.mood = mood
    until("what follows the bad event came", lambda: receiver.has("sandbox_created", "healthy"))
    assert not receiver.has("sandbox_created", "poison") and receiver.has("sandbox_started", "poison")
    asked = next(n for n, (_, status, _) in enumerate(receiver.seen) if status == 429 and n > 10)
    assert receiver.seen[asked + 1][2] - receiver.seen[asked][2] >= 3, receiver.seen[asked:]
    daemon.run("create", "--name", "next")
    until("the next batch came", lambda: receiver.has("sandbox_started", "next"))
    assert any(event["kind"] == "events_lost" and event["count"] == 1 for event in receiver.events())
    until("nothing waits", lambda: metric(daemon, key, "warren_webhook_pending_events") == 0)
    assert time.time() - metric(daemon, key, "warren_webhook_last_success_timestamp_seconds") < 60


def check_damaged_place(daemon, receiver):
    """A machine that lost its power left an empty file: events come twice, and none is skipped."""
    receiver.mood = lambda _: 503
    daemon.run("create", "--name", "during")
    daemon.kill()
    (daemon.work / "home" / "webhook.next").write_text("")
    receiver.mood = lambda _: 200
    daemon.start()
    until("what was not taken came", lambda: receiver.has("sandbox_created", "during"))
    assert "the webhook's place among the events cannot be read" in daemon.log.read_text()


def check_lost_records(daemon, receiver):
    """The database was lost, and numbers begin with 1: the receiver is told, and misses nothing of what comes."""
    follower = subprocess.Popen([daemon.program, "events", "-f", "--json"], env=daemon.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    seen = []

    def read():
        for line in follower.stdout:
            seen.append(json.loads(line))

    threading.Thread(target=read, daemon=True).start()
    receiver.taken.clear()
    names = iter(f"before-{n}" for n in range(1000))

    def is_followed():
        daemon.run("create", "--name", next(names))
        return seen

    until("the follower sees events", is_followed)
    daemon.stop()
    (daemon.work / "home" / "warren.db").write_bytes(b"nonsense" * 1000)
    daemon.run("doctor", "--recover")
    receiver.taken.clear()
    daemon.start()
    daemon.run("create", "--name", "after")
    until("events of the new records came", lambda: receiver.has("sandbox_started", "after"))
    events = receiver.events()
    assert (events[0]["kind"], events[0]["count"]) == ("events_lost", None), events[0]
    assert [event["number"] for event in events[1:]] == list(range(1, len(events))), events
    until("the follower began anew", lambda: any(event.get("name") == "after" for event in seen))
    follower.terminate()
    assert "begin anew" in follower.stderr.read()
    refused = subprocess.run([daemon.program, "events", "-f", "--from", "100000"], env=daemon.env, capture_output=True,
                             text=True, timeout=60)
    assert refused.returncode and "there is no event 100000 yet" in refused.stderr, refused


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
