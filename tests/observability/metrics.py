"""Prometheus reads a daemon that worked; the dashboard asks for nothing that is not there, in Grafana's own words."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import urllib.parse
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grafana_foundation_sdk.cog.plugins as plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as text_string_to_plain_families

from daemon import Daemon, free_port, get, until

DASHBOARD = Path(__file__).parent / "../../docs/grafana/warren.json"


def work(daemon):
    """Some of everything."""
    daemon.run("create", "--name", "zebra")
    daemon.run("exec", "zebra", "sh", "-c", "echo hello; echo sorry >&2")
    daemon.run("exec", "zebra", "false", code=1)
    daemon.run("code", "--sandbox", "zebra", "python", "-c", "print(6 * 7)")
    daemon.run("create", "--name", "zebra", code=125)
    daemon.run("run", "true")


def exported(daemon, url, headers=None):
    status, text, about = get(url, {"accept": "application/openmetrics-text"} | (headers or {}))
    assert status == 200, (status, text)
    assert about["content-type"].startswith("application/openmetrics-text"), about
    # A strict reader: it refuses what the format does not allow.
    families = list(text_string_to_metric_families(text))
    # What is not known yet is declared, and has no sample.
    names = {family.name for family in families} | {sample.name for family in families for sample in family.samples}
    return text, names, families


def value(families, name, **labels):
    found = [
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert found, (name, labels)
    return sum(found)


def check_formats(url):
    """Readers of the older format get it, with the same samples; Prometheus' own checker has nothing to say of it."""
    for accept in ("text/plain;version=0.0.4", "*/*"):
        status, text, about = get(url, {"accept": accept})
        assert status == 200 and about["content-type"] == "text/plain; version=0.0.4; charset=utf-8", about
    names = lambda families: {sample.name for family in families for sample in family.samples}
    plain = names(text_string_to_plain_families(text))
    open_metrics = get(url, {"accept": "application/openmetrics-text"})[1]
    assert plain == names(text_string_to_metric_families(open_metrics)), plain
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked


def check_counts(families):
    assert value(families, "warren_sandboxes", backend="namespace", state="running") == 1
    assert value(families, "warren_creates_total", result="ok") == 2
    assert value(families, "warren_creates_total", result="already_exists") == 1
    assert value(families, "warren_create_seconds_count") == 2
    assert value(families, "warren_execs_total", kind="command", result="ok") == 3
    assert value(families, "warren_execs_total", kind="cell", result="ok") == 1
    assert value(families, "warren_exec_ends_total", result="failed") == 1
    assert value(families, "warren_output_bytes_total") >= len("hello\nsorry\n42\n")
    assert value(families, "warren_events_total", kind="sandbox_created") == 2
    assert value(families, "process_resident_memory_bytes") > 1 << 20
    assert value(families, "process_open_fds") > 5
    assert value(families, "process_cpu_seconds_total") > 0


class World:
    """A package index with one wheel, and a large file, on loopback."""

    BLOB = bytes(300_000)

    def __init__(self):
        self.wheel = io.BytesIO()
        info = "burrow-1.2.dist-info"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("burrow.py", "answer = 42\n")
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: burrow\nVersion: 1.2\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        name = "burrow-1.2-py3-none-any.whl"
        digest = hashlib.sha256(self.wheel.getvalue()).hexdigest()
        pages = {
            "/simple/burrow/": ("text/html", f'<a href="/files/{name}#sha256={digest}">{name}</a>'.encode()),
            f"/files/{name}": ("application/octet-stream", self.wheel.getvalue()),
            "/blob": ("application/octet-stream", self.BLOB),
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                kind, body = pages.get(self.path, (None, b""))
                self.send_response(200 if kind else 404)
                self.send_header("content-type", kind or "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def check_images_and_disks(daemon, scrape):
    """What is kept on the disk is what the daemon was given."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        member = tarfile.TarInfo("etc/large")
        member.size = 1 << 20
        tar.addfile(member, io.BytesIO(os.urandom(member.size)))
    subprocess.run([daemon.program, "image", "import", "-", "team/app:1"], env=daemon.env, input=layer.getvalue(),
                   check=True, capture_output=True)
    daemon.run("create", "--name", "imaged", "--image", "team/app:1")
    families = scrape()
    assert value(families, "warren_images") == 1
    for kept in ("warren_image_blobs_bytes", "warren_image_layers_bytes"):
        assert 1 << 20 <= value(families, kept) < 2 << 20, (kept, value(families, kept))
    home = os.statvfs(daemon.work / "home")
    assert value(families, "warren_home_size_bytes") == home.f_blocks * home.f_frsize
    free, now = value(families, "warren_home_free_bytes"), home.f_bavail * home.f_frsize
    # Others write meanwhile.
    assert abs(free - now) < max(now // 4, 1 << 30), (free, now)
    daemon.run("rm", "--force", "imaged")


def check_packages(daemon, world, scrape):
    """Two sandboxes install the same wheel: it is fetched once, kept, and served twice."""
    size = len(world.wheel.getvalue())
    for name in ("first", "second"):
        daemon.run("create", "--name", name)
        daemon.run("package", "install", name, "pip", "burrow")
        assert daemon.run("exec", name, "python3", "-c", "import burrow; print(burrow.answer)") == "42\n"
        daemon.run("rm", "--force", name)
    families = scrape()
    # Each asks for the project's page and for the file, and the second gets both from the cache.
    for what, expected in [("requests", 4), ("cache_misses", 2), ("cache_hits", 2), ("errors", 0), ("mismatches", 0)]:
        assert value(families, f"warren_package_{what}_total") == expected, (what, expected)
    fetched, served = (value(families, f"warren_package_{what}_bytes_total") for what in ("fetched", "served"))
    assert size < fetched < size + 1000 and 2 * size < served < 2 * (size + 1000), (size, fetched, served)
    assert value(families, "warren_package_cache_files") >= 2
    assert size < value(families, "warren_package_cache_bytes") < size + 4096


def check_network(daemon, world, scrape):
    """As many bytes are counted as came, and what HTTP and TCP need besides."""
    url = f"http://host.warren.internal:{world.port}/blob"
    code = f"import urllib.request; print(len(urllib.request.urlopen({url!r}).read()))"
    made = subprocess.run([daemon.program, "create", "--name", "online", "--allow", f"host:{world.port}"], env=daemon.env,
                          capture_output=True, text=True)
    if made.returncode:
        assert "network" in made.stderr, made
        return print("skipped: sandboxes have no network here:", made.stderr.strip())
    n = len(world.BLOB)
    assert daemon.run("exec", "online", "python3", "-c", code) == f"{n}\n"
    counted = lambda direction: value(scrape(), "warren_network_bytes_total", direction=direction)
    received = until("the traffic is counted", lambda: counted("received"))
    assert n <= received < n + 2000, received
    assert 50 < counted("sent") < 2000, counted("sent")
    daemon.run("rm", "--force", "online")


def check_access(daemon, everyone):
    """The owner, and keys for all namespaces; nobody else."""
    bearer = lambda key: {"authorization": f"Bearer {key}"}
    one = daemon.key("--label", "one", "--namespace", "default")
    assert get(f"{daemon.url}/metrics")[0] == 401
    assert get(f"{daemon.url}/metrics", bearer(one))[0] == 403
    _, names, families = exported(daemon, f"{daemon.url}/metrics", bearer(everyone))
    assert value(families, "warren_refused_calls_total", frontend="rest", reason="unauthenticated") >= 1
    assert value(families, "warren_refused_calls_total", frontend="rest", reason="denied") >= 1
    return names


def check_bounds(daemon, url, everyone):
    """Callers cannot make series: not by paths, methods, names, tools or hosts."""
    bearer = {"authorization": f"Bearer {everyone}", "content-type": "application/json"}

    def ask(n):
        for method, path in [("GET", f"/no/zebra/{n}"), (f"ODD{n}", "/v1/sandboxes"), ("GET", f"/v1/sandboxes/zebra{n}")]:
            subprocess.run(["curl", "-s", "-o", "/dev/null", "-X", method, f"{daemon.url}{path}",
                            "-H", f"authorization: Bearer {everyone}"], check=True)

    ask(0)
    before = exported(daemon, url)[0].count("\n")
    for n in range(1, 40):
        ask(n)
    after = exported(daemon, url)[0]
    assert after.count("\n") == before, (before, after)
    assert "zebra" not in after and "ODD" not in after, after


def names_in(query):
    return set(re.findall(r"\b(?:warren|process)_[a-z0-9_]+", query))


def check_dashboard(names, ask):
    plugins.register_default_plugins()
    shown = json.loads(DASHBOARD.read_text())
    back = json.loads(JSONEncoder().encode(Dashboard.from_json(shown)))
    assert not list(lost(shown, back)), list(lost(shown, back))
    queries = [target["expr"] for panel in shown["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 20 and len({panel["id"] for panel in shown["panels"]}) == len(shown["panels"])
    for panel in shown["panels"]:
        for target in panel.get("targets", []):
            # Several daemons in one panel can be told apart, or are summed up.
            assert "sum" in target["expr"] or "{{instance}}" in target["legendFormat"], target
    for query in queries:
        missing = names_in(query) - names
        assert not missing, f"{query} asks for {missing}"
        filled = query.replace("$__rate_interval", "5m").replace("$instance", ".*")
        answer = ask(filled)
        assert answer["status"] == "success", (filled, answer)
    return queries


def lost(own, back, path="dashboard"):
    """What Grafana's types do not know of ours."""
    if isinstance(own, dict):
        for key, inner in own.items():
            if key in back:
                yield from lost(inner, back[key], f"{path}.{key}")
            elif inner not in (None, [], {}, False, ""):
                yield f"{path}.{key}"
    elif isinstance(own, list):
        if len(own) != len(back):
            yield path
        for n, (one, other) in enumerate(zip(own, back)):
            yield from lost(one, other, f"{path}[{n}]")
    elif own != back:
        yield path


def main(program, place):
    port = free_port()
    config = f'[metrics]\nlisten = "127.0.0.1:{port}"\n'
    check_values(program, f"{place}/values")
    url = f"http://127.0.0.1:{port}/metrics"
    with Daemon(program, place, config, ["--log", "info"]) as daemon:
        work(daemon)
        text, _, families = exported(daemon, url)
        check_counts(families)
        check_formats(url)
        assert get(f"http://127.0.0.1:{port}/v1/sandboxes")[0] == 404, "nothing else is served there"
        assert get(url, {"host": "evil.example"})[0] == 403, "a page of another name may not read it"
        everyone = daemon.key("--label", "all", "--all-namespaces")
        names = check_access(daemon, everyone)
        check_bounds(daemon, url, everyone)
        prometheus(place, f"127.0.0.1:{port}", names)


def check_values(program, place):
    """What is counted and measured is what there was. Disks are measured at most once a minute, so each look at them has a
    daemon of its own."""
    world, port = World(), free_port()
    config = (f'[metrics]\nlisten = "127.0.0.1:{port}"\n[pip]\nindex_url = "http://127.0.0.1:{world.port}/simple/"\n')
    for name, check in [
        ("disks", lambda daemon, scrape: check_images_and_disks(daemon, scrape)),
        ("packages", lambda daemon, scrape: check_packages(daemon, world, scrape)),
        ("network", lambda daemon, scrape: check_network(daemon, world, scrape)),
    ]:
        with Daemon(program, f"{place}/{name}", config, ["--log", "info"]) as daemon:
            check(daemon, lambda: exported(daemon, f"http://127.0.0.1:{port}/metrics")[2])
    world.server.shutdown()
    print("metrics: what is counted of disks, images, packages and networks is what there was")


def prometheus(place, target, names):
    web = free_port()
    config = Path(place) / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n- job_name: warren\n  scrape_interval: 1s\n"
        f"  static_configs:\n  - targets: ['{target}']\n"
    )
    server = subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={place}/tsdb",
         f"--web.listen-address=127.0.0.1:{web}", "--log.level=warn"],
    )
    try:
        def ask(query):
            # It may not listen yet, or say in plain text that it is not ready.
            try:
                status, text, _ = get(f"http://127.0.0.1:{web}/api/v1/query?query={urllib.parse.quote(query)}")
            except OSError:
                return {}
            return {} if status == 503 else json.loads(text)

        def answered(query):
            found = ask(query).get("data", {}).get("result")
            return found and float(found[0]["value"][1])

        assert until("Prometheus has scraped", lambda: answered("up")) == 1
        assert answered('sum(warren_sandboxes{state="running"})') == 1
        assert answered("sum(warren_creates_total)") == 3
        half = 'histogram_quantile(0.5, sum by (le) (warren_create_seconds_bucket))'
        assert 0 < answered(half) < 60
        metadata = json.loads(get(f"http://127.0.0.1:{web}/api/v1/metadata?metric=warren_creates")[1])
        assert metadata["data"]["warren_creates"][0]["type"] == "counter", metadata
        queries = check_dashboard(names, ask)
        print(f"metrics: Prometheus scraped {len(names)} names; {len(queries)} queries of the dashboard hold")
    finally:
        server.terminate()
        server.wait()


main(sys.argv[1], sys.argv[2])
