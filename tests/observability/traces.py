"""Creates and execs are one trace each, from the front end to the guest, as two readers that others wrote see them:
OpenTelemetry's own protobuf types, and a collector."""

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import rotel
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from daemon import Daemon, free_port, get, until


class Receiver:
    def __init__(self):
        self.spans, self.resources, self.headers, self.failures = [], [], [], 2
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                # The first ones are refused, and must come again.
                receiver.failures -= 1
                status = 503 if receiver.failures >= 0 else 200
                if status == 200:
                    receiver.take(self.path, self.headers, body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, headers, body):
        assert path == "/v1/traces" and headers["content-type"] == "application/json", path
        self.headers.append(headers["x-team"])
        # Ids are hexadecimal in OTLP's JSON, and base64 in that of protobuf; nothing else differs.
        shown = json.loads(body)
        for one in shown["resourceSpans"]:
            for scope in one["scopeSpans"]:
                for span in scope["spans"]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in span:
                            span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        # Unknown fields and wrong types are errors.
        request = Parse(json.dumps(shown), ExportTraceServiceRequest())
        for one in request.resource_spans:
            self.resources.append({item.key: item.value.string_value for item in one.resource.attributes})
            for scope in one.scope_spans:
                self.spans += scope.spans

    def trace(self, top):
        """The spans of the trace whose topmost span of ours has this name, by name."""
        tops = [span for span in self.spans if span.name == top]
        if not tops:
            return None
        return {span.name: span for span in self.spans if span.trace_id == tops[-1].trace_id}


def chain(trace, name):
    """From a span up to the top of its trace."""
    by_id = {span.span_id: span for span in trace.values()}
    names, span = [], trace[name]
    while span is not None:
        names.append(span.name)
        span = by_id.get(span.parent_span_id)
    return names


def complete(receiver, top, *names):
    def look():
        trace = receiver.trace(top)
        return trace if trace and set(names) <= set(trace) else None

    return until(f"the trace {top} came", look)


def check_others_variables(program, place):
    """What is meant for other programs keeps no daemon from starting, not even one that a command starts."""
    for n, (name, value) in enumerate([
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ]):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", name: value}
        with Daemon(program, f"{place}/others-{n}", flags=["--log", "info"], env=env.items()) as daemon:
            daemon.run("ps")
            warnings = [line for line in daemon.log.read_text().splitlines() if " WARN " in line and "OTEL_" in line]
            assert len(warnings) == 1 and name in warnings[0], warnings


def main(program, place):
    check_others_variables(program, place)
    receiver = Receiver()
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=burrow%20one",
        "OTEL_SERVICE_NAME": "lab-warren",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=test",
    }
    with Daemon(program, place, flags=["--log", "info"], env=env.items()) as daemon:
        daemon.run("create", "--name", "lab")
        trace = complete(receiver, "POST /v1/sandboxes", "create", "make", "make instance", "guest ready")
        assert chain(trace, "guest ready") == ["guest ready", "make instance", "make", "create", "POST /v1/sandboxes"]
        assert not trace["POST /v1/sandboxes"].parent_span_id
        for span in trace.values():
            assert span.start_time_unix_nano <= span.end_time_unix_nano, span
            assert span.start_time_unix_nano >= trace["POST /v1/sandboxes"].start_time_unix_nano, span
        made = {item.key: item.value.string_value for item in trace["create"].attributes}
        assert made["sandbox.backend"] == "namespace" and made["sandbox.id"].startswith("sbx-"), made

        daemon.run("exec", "lab", "true")
        top = "POST /v1/sandboxes/{sandbox}/execs"
        trace = complete(receiver, top, "exec", "start in guest")
        assert chain(trace, "start in guest") == ["start in guest", "exec", top]

        # One request makes a sandbox and begins in it: one trace has both.
        daemon.run("run", "true")
        top = "POST /v1/runs"
        trace = complete(receiver, top, "guest ready", "start in guest")
        assert chain(trace, "guest ready") == ["guest ready", "make instance", "make", "create", top]
        assert chain(trace, "start in guest") == ["start in guest", "exec", "create", top]

        # A caller's trace goes on here, over REST and over MCP.
        key = daemon.key("--label", "all", "--all-namespaces")
        parent, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        get(f"{daemon.url}/v1/sandboxes", {"authorization": f"Bearer {key}", "traceparent": f"00-{parent}-{caller}-01"})
        trace = complete(receiver, "GET /v1/sandboxes")
        span = trace["GET /v1/sandboxes"]
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (parent, caller), span
        before = len(receiver.spans)
        get(f"{daemon.url}/v1/version", {"authorization": f"Bearer {key}", "traceparent": f"00-{parent}-{caller}-00"})
        by_meta, by_header = "0af7651916cd43dd8448eb211c803000", "0af7651916cd43dd8448eb211c803001"
        for other, meta, headers, above in [
            (by_meta, {"traceparent": f"00-{by_meta}-{caller}-01"}, {}, []),
            (by_header, {}, {"traceparent": f"00-{by_header}-{caller}-01"}, ["POST /mcp"]),
        ]:
            tool_call(daemon, key, meta, headers)
            names = {"tool sandbox_exec", "exec", "start in guest", *above}
            trace = until("the tool's trace came", lambda: whole(receiver, other, names))
            assert chain(trace, "start in guest") == ["start in guest", "exec", "tool sandbox_exec", *above]
        assert not any(span.name == "GET /v1/version" for span in receiver.spans[before:]), "its caller did not want it"
        error = daemon.run("create", "--name", "lab", code=125)
        trace = until("the failure came", lambda: failed(receiver))
        assert trace.status.code == 2 and trace.status.message == "already_exists", trace

        assert set(receiver.headers) == {"burrow one"}
        assert all(found["service.name"] == "lab-warren" for found in receiver.resources)
        assert receiver.resources[0]["deployment.environment"] == "test"
        assert len({found["service.instance.id"] for found in receiver.resources}) == 1
        assert receiver.resources[0]["host.name"] == os.uname().nodename
        # A method that a caller made up names no span.
        subprocess.run(["curl", "-s", "-o", "/dev/null", "-X", "EVILMETHOD", f"{daemon.url}/v1/sandboxes",
                        "-H", f"authorization: Bearer {key}"], check=True)
        until("the span came", lambda: any(span.name == "HTTP /v1/sandboxes" for span in receiver.spans))
        assert not any("EVIL" in str(span) for span in receiver.spans)
        n_before = len(receiver.spans)
        daemon.run("exec", "lab", "true")
        daemon.stop()
        assert len(receiver.spans) > n_before, "what is left is sent at the end"
        daemon.start()
    print(f"traces: {len(receiver.spans)} spans, decoded by OpenTelemetry's own types")
    collector(program, place)


def whole(receiver, trace, names):
    """The spans of this trace, once all of these names are there."""
    found = {span.name: span for span in receiver.spans if span.trace_id.hex() == trace}
    return found if names <= set(found) else None


def failed(receiver):
    return next((span for span in receiver.spans if span.name == "create" and span.status.code == 2), None)


def tool_call(daemon, key, meta, headers):
    import urllib.request

    body = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "sandbox_exec", "arguments": {"name": "lab", "command": "true"},
            "_meta": meta,
        },
    }
    request = urllib.request.Request(f"{daemon.url}/mcp", json.dumps(body).encode(), {
        "authorization": f"Bearer {key}", "content-type": "application/json", "accept": "application/json",
        **headers,
    })
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read().decode()
    assert '"isError":true' not in text, text


def collector(program, place):
    """Rotel, a collector: it prints the spans that it took."""
    port = free_port()
    agent = Path(rotel.__file__).parent / "rotel-agent"
    log = Path(place) / "collector.log"
    running = subprocess.Popen(
        [agent, "start", "--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}",
         "--exporter", "blackhole", "--debug-log", "traces", "--debug-log-verbosity", "detailed"],
        stdout=log.open("wb"), stderr=subprocess.STDOUT,
    )
    try:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
        with Daemon(program, f"{place}/2", flags=["--log", "info"], env=env.items()) as daemon:
            daemon.run("create", "--name", "lab")
            until("the collector took the spans", lambda: "guest ready" in log.read_text(errors="replace"))
            assert "did not take spans" not in daemon.log.read_text(), daemon.log.read_text()
    finally:
        running.terminate()
        running.wait()
    print("traces: taken by a collector")


main(sys.argv[1], sys.argv[2])
