//! A pull compared with plain downloads of the same blobs, from Debian's `docker-registry` on loopback.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures_util::future;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Method, Request, Response,
    body::Incoming,
    client::conn::http1,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, LOCATION},
};
use hyper_util::rt::TokioIo;
use images::Digest;
use serde_json::json;
use tokio::net::TcpStream;

use super::{MIB, Storage};
use crate::{progress, samples::Samples};

const LAYERS: usize = 4;
const LAYER_BYTES: u64 = 64 * MIB;
const PULLS: usize = 5;
const REPOSITORY: &str = "bench/pull";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

impl Storage<'_> {
    /// From the registry to usable layers, compared in turns with plain downloads to files.
    pub(super) async fn pulls(&mut self) -> Result<()> {
        let place = self.daemon.scratch().join("registry");
        fs::create_dir_all(&place)?;
        let Some(registry) = Registry::start(&place).context("could not start docker-registry")? else {
            writeln!(io::stderr(), "pull: left out, docker-registry is not installed")?;
            return Ok(());
        };
        let blobs = registry.fill().await?;
        let files = place.join("downloads");
        let (mut kept, mut dropped, mut pulled) =
            (Samples::default(), Samples::default(), Samples::default());
        // The first run fills caches.
        for run in 0..=PULLS {
            let took = [
                registry.download(&blobs, Some(&files)).await?,
                registry.download(&blobs, None).await?,
                self.pull(&registry).await?,
            ];
            if run > 0 {
                kept.push(took[0]);
                dropped.push(took[1]);
                pulled.push(took[2]);
            }
            progress("pull", run, PULLS);
        }
        let who = vec![
            ("plain downloads, synced".to_owned(), kept),
            ("plain downloads, dropped".to_owned(), dropped),
            ("warren, verified and unpacked".to_owned(), pulled),
        ];
        let what = format!("{LAYERS} layers of {} MiB from a registry", LAYER_BYTES / MIB);
        self.report.compare(&what, who);
        drop(registry);
        Ok(fs::remove_dir_all(place)?)
    }

    async fn pull(&self, registry: &Registry) -> Result<Duration> {
        let reference = format!("{}/{REPOSITORY}:1", registry.address);
        rustix::fs::sync();
        let start = Instant::now();
        let last = self.daemon.post_for_last_line("/images/pull", json!({ "reference": reference })).await?;
        let took = start.elapsed();
        ensure!(last["type"] == "done", "the pull ended with {last}");
        self.daemon.delete(&format!("/images/{}?force=true", reference.replace('/', "%2F"))).await?;
        Ok(took)
    }
}

struct Registry {
    child: Child,
    address: String,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Registry {
    /// `None` if it is not installed.
    fn start(place: &Path) -> io::Result<Option<Self>> {
        let config = place.join("config.yml");
        let data = place.join("data");
        let text = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            data.display()
        );
        fs::write(&config, text)?;
        let mut registry = Command::new("docker-registry");
        let started = registry.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            started => started?,
        };
        let log = child.stderr.take();
        let mut registry = Self { child, address: String::new() };
        let mut lines = BufReader::new(log.ok_or_else(|| io::Error::other("it has no log"))?).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, after) = line.split_once("listening on ")?;
            Some(after.chars().take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':')).collect())
        });
        // An unread log would block it.
        thread::spawn(move || lines.for_each(drop));
        registry.address = address.ok_or_else(|| io::Error::other("it ended at once"))?;
        Ok(Some(registry))
    }

    /// Pushes the image and returns the digests of its layers.
    async fn fill(&self) -> Result<Vec<Digest>> {
        let mut layers = Vec::new();
        let mut diff_ids = Vec::new();
        for number in 0..LAYERS {
            let (tar, blob) = layer(number)?;
            diff_ids.push(Digest::of(&tar));
            layers.push((Digest::of(&blob), blob.len()));
            self.push(blob).await?;
        }
        let config = json!({
            "architecture": images::Platform::host().architecture,
            "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = config.to_string().into_bytes();
        let described = |kind: &str, digest: &Digest, size: usize| json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": size });
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": described("config.v1+json", &Digest::of(&config), config.len()),
            "layers": layers.iter().map(|(digest, size)| described("layer.v1.tar+gzip", digest, *size)).collect::<Vec<_>>(),
        });
        self.push(config).await?;
        let target = format!("/v2/{REPOSITORY}/manifests/1");
        self.ask(Method::PUT, &target, MANIFEST_TYPE, manifest.to_string().into()).await?;
        Ok(layers.into_iter().map(|(digest, _)| digest).collect())
    }

    async fn push(&self, blob: Vec<u8>) -> Result<()> {
        let digest = Digest::of(&blob);
        let target = format!("/v2/{REPOSITORY}/blobs/uploads/");
        let begun = self.ask(Method::POST, &target, "", Bytes::new()).await?;
        let location = begun.headers().get(LOCATION).and_then(|place| place.to_str().ok());
        let location: hyper::Uri =
            location.and_then(|place| place.parse().ok()).context("no place to push to")?;
        let query = location.query().unwrap_or_default();
        let target = format!("{}?{query}&digest={digest}", location.path());
        self.ask(Method::PUT, &target, "application/octet-stream", blob.into()).await?;
        Ok(())
    }

    /// How long all of them take at once, into files below `keep` or discarded.
    async fn download(&self, blobs: &[Digest], keep: Option<&Path>) -> Result<Duration> {
        if let Some(directory) = keep {
            fs::create_dir(directory)?;
        }
        // Earlier writes are on the disk before the clock starts.
        rustix::fs::sync();
        let start = Instant::now();
        future::try_join_all(blobs.iter().map(|digest| async move {
            let target = format!("/v2/{REPOSITORY}/blobs/{digest}");
            let body = self.ask(Method::GET, &target, "", Bytes::new()).await?.into_body();
            receive(body, keep.map(|directory| directory.join(digest.hex()))).await
        }))
        .await?;
        let took = start.elapsed();
        if let Some(directory) = keep {
            fs::remove_dir_all(directory)?;
        }
        Ok(took)
    }

    async fn ask(
        &self,
        method: Method,
        target: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, &self.address)
            .header(CONTENT_TYPE, content_type)
            .header(CONTENT_LENGTH, body.len())
            .body(Full::new(body))?;
        let answer = sender.send_request(request).await?;
        ensure!(answer.status().is_success(), "{target}: {}", answer.status());
        Ok(answer)
    }
}

async fn receive(mut body: Incoming, file: Option<PathBuf>) -> Result<()> {
    let Some(file) = file else {
        while let Some(frame) = body.frame().await {
            frame?;
        }
        return Ok(());
    };
    // Written on a thread of its own, while the next bytes arrive.
    let (queue, mut chunks) = tokio::sync::mpsc::channel::<Bytes>(64);
    let writer = tokio::task::spawn_blocking(move || {
        let mut file = File::create(file)?;
        while let Some(chunk) = chunks.blocking_recv() {
            file.write_all(&chunk)?;
        }
        file.sync_all()
    });
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            queue.send(chunk).await?;
        }
    }
    drop(queue);
    Ok(writer.await??)
}

/// A layer with one incompressible file: as a tar, and as a registry keeps it.
fn layer(number: usize) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut header = tar::Header::new_gnu();
    header.set_size(LAYER_BYTES);
    header.set_mode(0o644);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, format!("data/{number}"), File::open("/dev/urandom")?.take(LAYER_BYTES))?;
    let tar = tar.into_inner()?;
    let mut blob = GzEncoder::new(Vec::new(), Compression::none());
    blob.write_all(&tar)?;
    Ok((tar, blob.finish()?))
}
