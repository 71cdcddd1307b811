//! The cost of a secret: requests over TLS that the edge opens and puts a value into, beside the same requests passed
//! through untouched; each on one warm connection, in turns.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::{io::AsyncWriteExt as _, process::Child};

use crate::{daemon::Daemon, report::Report, samples::Samples};

/// The directory with certificates and nginx's files; set in the process that runs in the namespaces.
const PLACE: &str = "WARREN_BENCH_PLACE";

/// Certificates for the server, and a resolver that is found by everybody in here.
pub(super) const SETUP: &str = r#"
cd "$WARREN_BENCH_PLACE"
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
openssl req -x509 $key -subj /CN=world -keyout ca.key -out ca.pem -addext basicConstraints=critical,CA:TRUE 2>/dev/null
openssl req $key -subj /CN=bench -keyout web.key -out web.csr 2>/dev/null
echo 'subjectAltName=DNS:secret.example,DNS:plain.example' > names
openssl x509 -req -in web.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out web.pem 2>/dev/null
echo 'nameserver 10.88.0.2' > resolv.conf
mount --bind resolv.conf /etc/resolv.conf
cd /
"#;

const NGINX: &str = "
worker_processes 1;
daemon off;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 64; }
http {
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {
        listen 93.184.216.34:443 ssl;
        ssl_certificate web.pem;
        ssl_certificate_key web.key;
        location / { return 200 'hello'; }
    }
}
";

/// Every name is the server's.
const DNS: &str = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('10.88.0.2', 53))
while True:
    asked, who = s.recvfrom(512)
    end = asked.index(0, 12) + 5
    has = asked[end - 4:end - 2] == b'\\0\\1'
    answer = b'\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\1\\0\\0\\4' + bytes([93, 184, 216, 34]) if has else b''
    s.sendto(asked[:2] + b'\\x81\\x80\\0\\1\\0' + bytes([has]) + b'\\0\\0\\0\\0' + asked[12:end] + answer, who)
";

/// Prints the times of requests in seconds, in turns: `plain` or `secret`, and the time.
const CLIENT: &str = "
import http.client, os, ssl, sys, time
trusting = ssl._create_unverified_context()
hosts = [http.client.HTTPSConnection(name + '.example', context=trusting) for name in ('plain', 'secret')]
headers = {'authorization': 'Bearer ' + os.environ['BENCH']}
for n in range(int(sys.argv[1]) + 20):
    for host in hosts:
        begin = time.perf_counter()
        host.request('GET', '/', headers=headers)
        assert host.getresponse().read() == b'hello'
        took = time.perf_counter() - begin
        if n >= 20: print(host.host.split('.')[0], took)
";

pub(super) fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// The variables for the process in the namespaces: where the files are, and whom the daemon trusts.
pub(super) fn variables(place: &Path) -> [(&'static str, PathBuf); 2] {
    [(PLACE, place.to_owned()), ("SSL_CERT_FILE", place.join("ca.pem"))]
}

/// Starts the servers behind the host.
pub(super) fn servers(place: &Path) -> Result<[Child; 2]> {
    fs::write(place.join("nginx.conf"), NGINX)?;
    let place = place.to_string_lossy();
    let nginx = ["netns", "exec", "server", "/usr/sbin/nginx", "-p", &place, "-c", "nginx.conf"];
    Ok([super::start("ip", &nginx)?, super::start("ip", &["netns", "exec", "server", "python3", "-c", DNS])?])
}

pub(super) async fn measure(report: &mut Report, daemon: &Daemon, requests: u32) -> Result<()> {
    let mut set = daemon.command();
    let set = set.args(["secret", "set", "BENCH", "--host", "secret.example"]);
    let mut set = set.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn()?;
    if let Some(mut stdin) = set.stdin.take() {
        stdin.write_all(b"a value that nobody inside sees\n").await?;
    }
    ensure!(set.wait().await?.success(), "the secret could not be set");
    let network = json!({ "preset": "none", "allow": ["*.example"] });
    let spec = json!({ "name": "bench-secret", "network": network, "secrets": ["BENCH"] });
    let id = daemon.create(spec).await?;
    let told = daemon.exec(&id, &["python3", "-c", CLIENT, &requests.to_string()]).await?;
    daemon.remove(&id).await?;
    let of = |name: &str| -> Result<Samples> {
        let times = told.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let times = times.map(|time| Ok(Duration::try_from_secs_f64(time.parse()?)?));
        Ok(Samples::from(times.collect::<Result<Vec<_>>>()?))
    };
    let compared =
        vec![("passed through".to_owned(), of("plain")?), ("with a secret".to_owned(), of("secret")?)];
    report.compare("request over TLS, warm connection", compared);
    Ok(())
}
