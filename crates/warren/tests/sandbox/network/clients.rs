//! Programs that others wrote work unchanged where a rule allows their server's name, and nothing else is open.

use super::{
    services::{
        DATABASE, REGISTRY, SHELL, WEB, cargo, database, grpc_server, registry, repository, shell_server,
        trust, web,
    },
    world::{in_a_world, not_tested},
    zone::Zone,
};
use crate::harness::Daemon;

/// The variables that tell programs which authorities to trust.
const TRUST: &str = "export HOME=/tmp SSL_CERT_FILE=/tmp/ca.pem CURL_CA_BUNDLE=/tmp/ca.pem REQUESTS_CA_BUNDLE=/tmp/ca.pem \
    PIP_CERT=/tmp/ca.pem NODE_EXTRA_CA_CERTS=/tmp/ca.pem npm_config_cafile=/tmp/ca.pem GIT_SSL_CAINFO=/tmp/ca.pem\n";

/// The name of each client, the program that it needs, the command to run, and a part of what it prints.
const CLIENTS: &[(&str, &str, &str, &str)] = &[
    ("curl", "curl", "curl -sS https://web.example/", "served by nginx"),
    ("curl, HTTP/2", "curl", "curl -sS --http2 -o /dev/null -w '%{http_version}' https://web.example/", "2"),
    ("curl, IPv6", "curl", "curl -6 -sS https://web.example/", "served by nginx"),
    ("curl, plain", "curl", "curl -sS http://web.example/", "served by nginx"),
    ("wget", "wget", "wget -nv -O - --ca-certificate=/tmp/ca.pem https://web.example/", "served by nginx"),
    ("dig", "dig", "dig +short web.example A", WEB),
    ("dig over TCP", "dig", "dig +tcp +short @8.8.8.8 web.example A", WEB),
    (
        "Python urllib",
        "python3",
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"https://web.example/\").read())'",
        "served by nginx",
    ),
    (
        "Python requests",
        "python3 -c 'import requests'",
        "python3 -c 'import requests; print(requests.get(\"https://web.example/\").text)'",
        "served by nginx",
    ),
    (
        "Python httpx",
        "python3 -c 'import httpx'",
        "python3 -c 'import httpx; print(httpx.get(\"https://web.example/\").text)'",
        "served by nginx",
    ),
    (
        "Python aiohttp",
        "python3 -c 'import aiohttp'",
        "cat > /tmp/a.py <<'END'
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as session, session.get('https://web.example/') as answer:
        print(await answer.text())
asyncio.run(main())
END
python3 /tmp/a.py",
        "served by nginx",
    ),
    (
        "Node fetch",
        "node",
        "node -e 'fetch(\"https://web.example/\").then(a => a.text()).then(console.log)'",
        "served by nginx",
    ),
    (
        "pip",
        "/usr/bin/pip3",
        "/usr/bin/pip3 install -q --disable-pip-version-check -i https://web.example/pip/simple/ --target /tmp/pip burrow \
         && PYTHONPATH=/tmp/pip python3 -c 'import burrow; print(burrow.answer)'",
        "42",
    ),
    (
        "npm",
        "npm",
        "mkdir -p /tmp/npm && cd /tmp/npm && npm install -s --no-audit --no-fund --no-update-notifier \
         --registry https://web.example/npm/ hollow && node -e 'console.log(require(\"hollow\")())'",
        "hollow",
    ),
    (
        "git over https",
        "git",
        "cd /tmp && git clone -q https://web.example/git/code.git web && cd web && echo x > file && git add file \
         && git -c user.name=a -c user.email=a@b commit -qm first && git push -q origin HEAD:main && git ls-remote origin",
        "refs/heads/main",
    ),
    (
        "Go",
        "go",
        "GOPATH=/tmp/go GOCACHE=/tmp/gocache GOPROXY=https://web.example/go GOSUMDB=off GOFLAGS=-modcacherw \
         go mod download -json world.example/burrow@v1.0.0 && cat /tmp/go/pkg/mod/world.example/burrow@v1.0.0/burrow.go",
        "Answer = 42",
    ),
    (
        "Java",
        "javac",
        "cat > /tmp/Fetch.java <<'END'
import java.net.URI;
import java.net.http.*;
public class Fetch {
    public static void main(String[] arguments) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(arguments[0])).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.version() + \" \" + answer.body());
    }
}
END
cd /tmp && keytool -importcert -noprompt -alias world -file ca.pem -keystore keys -storepass changeit 2>/dev/null
java -Djavax.net.ssl.trustStore=/tmp/keys -Djavax.net.ssl.trustStorePassword=changeit Fetch.java https://web.example/",
        "HTTP_2 served by nginx",
    ),
    (
        "Chromium",
        "command -v chromium && command -v certutil",
        "mkdir -p /tmp/.pki/nssdb && certutil -d sql:/tmp/.pki/nssdb -N --empty-password \
         && certutil -d sql:/tmp/.pki/nssdb -A -t C,, -n world -i /tmp/ca.pem \
         && /usr/lib/chromium/chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
         --disable-background-networking --disable-component-update \
         --user-data-dir=/tmp/chromium --dump-dom https://web.example/ 2>/tmp/chromium.err",
        "served by nginx",
    ),
];

const GRPC: &str = "cat > /tmp/g.py <<'END'
import grpc
trusting = grpc.ssl_channel_credentials(open('/tmp/ca.pem', 'rb').read())
with grpc.secure_channel('web.example:50051', trusting) as channel:
    print(channel.unary_unary('/world.Greeter/Hello')(b'sandbox').decode())
    print(sum(int(n) for n in channel.unary_stream('/world.Greeter/Count')(b'')))
    print(channel.stream_unary('/world.Greeter/Sum')(iter([b'1', b'2', b'3'])).decode())
END
python3 /tmp/g.py";

const IMAGES: &str = "mkdir -p /tmp/trusted && cp /tmp/ca.pem /tmp/trusted/ca.crt && cd /tmp
at=docker://registry.example/burrow
skopeo inspect --cert-dir /tmp/trusted --format '{{.Name}} has {{len .Layers}} layer' $at:1
skopeo --insecure-policy copy -q --src-cert-dir /tmp/trusted $at:1 dir:/tmp/burrow
skopeo --insecure-policy copy -q --dest-cert-dir /tmp/trusted dir:/tmp/burrow $at:2
skopeo list-tags --cert-dir /tmp/trusted $at | grep -o '\"[12]\"' | sort | xargs echo with";
const SEEN_OF_IMAGES: &str = "registry.example/burrow has 1 layer\nwith 1 2";

const CARGO: &str = "mkdir -p /tmp/crate/src /tmp/crate/.cargo && cd /tmp/crate && touch src/lib.rs
printf '[package]\nname = \"lab\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nburrow = { version = \"1\", registry = \"world\" }\n' > Cargo.toml
printf '[registries.world]\nindex = \"sparse+https://web.example/cargo/\"\n' > .cargo/config.toml
CARGO_HOME=/tmp/cargo-home CARGO_HTTP_CAINFO=/tmp/ca.pem /tmp/cargo vendor -q > /dev/null && cat vendor/burrow/src/lib.rs";

/// Runs a program; what went wrong, if something did.
fn try_out(daemon: &Daemon, (what, needs, script, expected): (&str, &str, &str, &str)) -> Option<String> {
    // A command that looks for it, or the name of a program.
    let is_there = if needs.contains(' ') { needs.to_owned() } else { format!("command -v {needs}") };
    if !needs.is_empty() && daemon.sh("lab", &format!("({is_there}) >/dev/null 2>&1")).0 != 0 {
        not_tested(&format!("{what} is not installed"));
        return None;
    }
    let (code, out, err) = daemon.sh("lab", &format!("{TRUST}{script}"));
    let is_right = code == 0 && out.contains(expected);
    (!is_right).then(|| format!("{what}: exit {code}\n{out}{err}"))
}

#[test]
fn everyday_programs_work_unchanged() {
    in_a_world(|| {
        let _zone = Zone::start(&format!(
            "web.example {WEB}, web.example 2606:4700::1, shell.example {SHELL}, db.example {DATABASE}, \
             registry.example {REGISTRY}"
        ));
        web();
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "*.example", "--memory", "2GiB"]);
        trust(&daemon, "lab");
        let mut failed: Vec<_> = CLIENTS.iter().filter_map(|client| try_out(&daemon, *client)).collect();
        if grpc_server() {
            failed.extend(try_out(
                &daemon,
                ("gRPC", "python3 -c 'import grpc'", GRPC, "hello sandbox\n499500\n6"),
            ));
        }
        if cargo(&daemon, "lab") {
            failed.extend(try_out(&daemon, ("cargo", "", CARGO, "ANSWER: u32 = 42")));
        }
        if registry() {
            failed.extend(try_out(&daemon, ("skopeo", "skopeo", IMAGES, SEEN_OF_IMAGES)));
        }
        if shell_server(&daemon, "lab") {
            let ssh = "ssh -i /tmp/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/tmp/known";
            let run = format!("{ssh} root@shell.example echo here");
            failed.extend(try_out(&daemon, ("ssh", "ssh", &run, "here")));
            let clone = format!(
                "cd /tmp && GIT_SSH_COMMAND='{ssh}' git clone -q root@shell.example:{} ssh && cat ssh/file",
                repository()
            );
            failed.extend(try_out(&daemon, ("git over ssh", "git", &clone, "x")));
        }
        if database() {
            let ask = "$(ls /usr/lib/postgresql/*/bin/psql | tail -n 1) -h db.example -U postgres -Atc 'select 6 * 7'";
            failed.extend(try_out(&daemon, ("psql", "", ask, "42")));
        }
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    });
}
