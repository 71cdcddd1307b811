//! How fast servers inside are reached: Warren's proxy to nginx in a sandbox, and a published port of it, beside nginx
//! as a reverse proxy to the same nginx outside, and beside no proxy at all.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{
    Request,
    client::conn::http1::{self, SendRequest},
    header::HOST,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use crate::{
    daemon::{Daemon, machine, text},
    progress,
    report::Report,
    samples::Samples,
};

/// Listens on TCP, without keys and without a rate limit.
const ARGUMENTS: [&str; 5] = ["--dev", "--listen", "127.0.0.1:0", "--rate-limit", "0"];
const NGINX: &str = "/usr/sbin/nginx";
/// The port inside.
const INSIDE: u16 = 8000;
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many small answers are fetched each way
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    runs: u32,
    /// Size of the large answer in MiB
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    mib: u32,
    /// How many large answers are fetched each way
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    large_runs: u32,
}

pub(crate) async fn measure(program: &Path, options: &Options) -> Result<Report> {
    ensure!(Path::new(NGINX).exists(), "{NGINX} is missing: scripts/install-test-needs installs it");
    let daemon = Daemon::start(program, &ARGUMENTS).await?;
    let measured = compare(&daemon, options).await;
    daemon.stop().await;
    measured
}

async fn compare(daemon: &Daemon, options: &Options) -> Result<Report> {
    let mut report = machine();
    let origin = Nginx::serve(&daemon.scratch().join("origin"), options.mib).await?;
    let proxy = Nginx::forward(&daemon.scratch().join("proxy"), origin.address).await?;
    let (own_host, published) = serve_inside(daemon, options.mib).await?;
    let ours = daemon.address().await?;
    let mut ways = [
        Way::connect("no proxy", origin.address, "localhost").await?,
        Way::connect("nginx", proxy.address, "localhost").await?,
        Way::connect("warren", ours, &own_host).await?,
        Way::connect("warren, published port", published, "localhost").await?,
    ];

    let mut small = [const { Vec::new() }; 4];
    for run in 0..options.runs {
        for (way, times) in ways.iter_mut().zip(&mut small) {
            let began = Instant::now();
            way.fetch("/small").await?;
            times.push(began.elapsed());
        }
        progress("small answers", run as usize, options.runs as usize);
    }
    let names = ways.each_ref().map(|way| way.who.to_owned());
    let small = small.map(Samples::from);
    let p50 = small.each_ref().map(|samples| samples.summary().map_or(0.0, |summary| summary.p50_ms));
    report.compare("small answer", names.iter().cloned().zip(small).collect());
    report.fact("small answer, added by nginx, p50", p50[1] - p50[0], "ms");
    report.fact("small answer, added by warren, p50", p50[2] - p50[0], "ms");

    let mut large = [const { Vec::new() }; 4];
    for run in 0..options.large_runs {
        for (way, times) in ways.iter_mut().zip(&mut large) {
            let began = Instant::now();
            let n_bytes = way.fetch("/large").await?;
            times.push(began.elapsed());
            ensure!(n_bytes == u64::from(options.mib) << 20, "{}: {n_bytes} bytes", way.who);
        }
        progress("large answers", run as usize, options.large_runs as usize);
    }
    let large = large.map(Samples::from);
    let best =
        large.each_ref().map(|samples| samples.summary().map_or(f64::INFINITY, |summary| summary.min_ms));
    report.compare("large answer", names.iter().cloned().zip(large).collect());
    for (who, ms) in names.iter().zip(best) {
        report.fact(format!("large answer, {who}, best"), f64::from(options.mib) / (ms / 1000.0), "MiB/s");
    }
    report.fact("large answer, throughput of warren beside nginx", best[1] / best[2], "×");
    report.fact("large answer, throughput of the published port beside nginx", best[1] / best[3], "×");
    Ok(report)
}

/// The same server in a sandbox; returns its host name, and where its port is published.
async fn serve_inside(daemon: &Daemon, mib: u32) -> Result<(String, SocketAddr)> {
    let made = daemon.post("/sandboxes", json!({ "name": "bench" })).await?;
    let id = text(&made, "/id")?;
    let configuration = origin_configuration(Path::new("/tmp/origin"), INSIDE);
    let script = format!(
        "mkdir -p /tmp/origin && cd /tmp/origin && truncate -s {mib}M large && cat >nginx.conf <<'EOF'\n{configuration}EOF\n\
         exec {NGINX} -p /tmp/origin -c /tmp/origin/nginx.conf -e /dev/stderr"
    );
    daemon.post(&format!("/sandboxes/{id}/execs"), json!({ "command": ["sh", "-c", script] })).await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = daemon.get(&format!("/sandboxes/{id}/ports")).await?;
        let ports = listed["ports"].as_array().cloned().unwrap_or_default();
        if ports.iter().any(|port| port["port"] == INSIDE && port["listening"] == true) {
            let exposed =
                daemon.post(&format!("/sandboxes/{id}/ports"), json!({ "port": INSIDE, "host": 0 })).await?;
            return Ok((format!("{INSIDE}-bench.localhost"), text(&exposed, "/published")?.parse()?));
        }
        ensure!(Instant::now() < deadline, "nginx does not listen in the sandbox");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A connection that is kept, and the host that is asked for over it.
struct Way {
    who: &'static str,
    address: SocketAddr,
    host: String,
    sender: SendRequest<Empty<Bytes>>,
}

impl Way {
    async fn connect(who: &'static str, address: SocketAddr, host: &str) -> Result<Self> {
        let sender = connect(address).await?;
        Ok(Self { who, address, host: host.to_owned(), sender })
    }

    /// Reads the whole answer; returns its length.
    async fn fetch(&mut self, path: &str) -> Result<u64> {
        if self.sender.ready().await.is_err() {
            self.sender = connect(self.address).await?;
        }
        let request = Request::get(path).header(HOST, &self.host).body(Empty::new())?;
        let response = self.sender.send_request(request).await?;
        if !response.status().is_success() {
            bail!("{}: {path} was answered with {}", self.who, response.status());
        }
        let (mut body, mut n_bytes) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            n_bytes += frame?.data_ref().map_or(0, |data| data.len() as u64);
        }
        Ok(n_bytes)
    }
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

struct Nginx {
    address: SocketAddr,
    _process: Child,
}

impl Nginx {
    async fn serve(directory: &Path, mib: u32) -> Result<Self> {
        fs::create_dir_all(directory)?;
        fs::File::create(directory.join("large"))?.set_len(u64::from(mib) << 20)?;
        let port = free_port()?;
        Self::start(directory, port, &origin_configuration(directory, port)).await
    }

    async fn forward(directory: &Path, to: SocketAddr) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let port = free_port()?;
        let server = format!(
            "upstream origin {{ server {to}; keepalive 8; }}\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://origin; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; proxy_buffers 16 64k; proxy_buffer_size 64k; proxy_busy_buffers_size 128k; \
             proxy_max_temp_file_size 0; }} }}"
        );
        Self::start(directory, port, &configuration(directory, &server)).await
    }

    async fn start(directory: &Path, port: u16, configuration: &str) -> Result<Self> {
        let file: PathBuf = directory.join("nginx.conf");
        fs::write(&file, configuration)?;
        let process = Command::new(NGINX)
            .arg("-p")
            .arg(directory)
            .arg("-c")
            .arg(&file)
            .args(["-e", "/dev/stderr"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("could not start nginx")?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).await.is_err() {
            ensure!(Instant::now() < deadline, "nginx does not listen on {address}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Self { address, _process: process })
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn origin_configuration(directory: &Path, port: u16) -> String {
    let root = directory.display();
    let server = format!(
        "server {{ listen 127.0.0.1:{port}; root {root}; location = /small {{ default_type text/plain; return 200 ok; }} }}"
    );
    configuration(directory, &server)
}

/// One process that logs nothing and keeps its files in the directory.
fn configuration(directory: &Path, server: &str) -> String {
    let place = directory.display();
    format!(
        "daemon off;\nmaster_process off;\npid {place}/pid;\nerror_log /dev/null;\nevents {{ worker_connections 256; }}\n\
         http {{\naccess_log off;\nsendfile on;\nkeepalive_requests 10000000;\n\
         client_body_temp_path {place}/body;\nproxy_temp_path {place}/proxied;\nfastcgi_temp_path {place}/fastcgi;\n\
         uwsgi_temp_path {place}/uwsgi;\nscgi_temp_path {place}/scgi;\n{server}\n}}\n"
    )
}
