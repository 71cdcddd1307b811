//! Images that a test makes, and a registry on loopback that has them.
#![expect(clippy::expect_used, reason = "what a test needs and does not find, it names")]

use std::{
    collections::HashMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const PLAIN_LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A layer as a tar.
pub(crate) struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// One with busybox and a shell, from which a sandbox can be started.
    pub(crate) fn busybox() -> Self {
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find_map(|path| fs::read(path).ok());
        let busybox = busybox.expect("busybox-static is needed; scripts/install-test-needs installs it");
        let mut layer = Self::new().directory("bin", 0o755).entry("bin/busybox", 0o755, (0, 0), &busybox);
        for name in [
            "sh", "cat", "ls", "id", "stat", "echo", "env", "pwd", "find", "readlink", "mount", "sleep",
            "test",
        ] {
            layer = layer.link(&format!("bin/{name}"), "busybox");
        }
        layer
    }

    fn append(mut self, kind: EntryType, path: &str, mode: u32, owner: (u64, u64), data: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(data.len() as u64);
        header.set_mode(mode);
        header.set_uid(owner.0);
        header.set_gid(owner.1);
        header.set_mtime(1_700_000_000);
        self.0.append_data(&mut header, path, data).unwrap();
        self
    }

    pub(crate) fn entry(self, path: &str, mode: u32, owner: (u64, u64), data: &[u8]) -> Self {
        self.append(EntryType::Regular, path, mode, owner, data)
    }

    pub(crate) fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(path, 0o644, (0, 0), data)
    }

    pub(crate) fn directory(self, path: &str, mode: u32) -> Self {
        self.append(EntryType::Directory, path, mode, (0, 0), b"")
    }

    pub(crate) fn link(mut self, path: &str, to: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        header.set_uid(0);
        header.set_gid(0);
        self.0.append_link(&mut header, path, to).unwrap();
        self
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// An image as a registry has it.
#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) digest: String,
    manifest: Vec<u8>,
    blobs: HashMap<String, Vec<u8>>,
}

impl TestImage {
    /// Makes an image of these layers, the lowest first, with a configuration that says how it is run.
    pub(crate) fn new(layers: Vec<Layer>, run: &Value) -> Self {
        let layers: Vec<Vec<u8>> = layers.into_iter().map(Layer::bytes).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|tar| digest(tar)).collect::<Vec<_>>()},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": descriptor(CONFIG, &config),
            "layers": layers.iter().map(|tar| descriptor(PLAIN_LAYER, tar)).collect::<Vec<_>>(),
        });
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let blobs = layers.into_iter().chain([config]).map(|blob| (digest(&blob), blob)).collect();
        Self { digest: digest(&manifest), manifest, blobs }
    }

    /// Writes an OCI layout, in which it is called `it`, for programs that read such.
    pub(crate) fn write_layout(&self, directory: &Path) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for (digest, bytes) in self.blobs.iter().chain([(&self.digest, &self.manifest)]) {
            fs::write(blobs.join(digest.trim_start_matches("sha256:")), bytes).unwrap();
        }
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let mut named = descriptor(MANIFEST, &self.manifest);
        named["annotations"] = json!({"org.opencontainers.image.ref.name": "it"});
        let index = json!({"schemaVersion": 2, "manifests": [named]});
        fs::write(directory.join("index.json"), index.to_string()).unwrap();
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

/// How a registry sends blobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blobs {
    Whole,
    /// Sends the first half of the large ones and then nothing.
    Hang,
}

struct Shelf {
    images: HashMap<String, TestImage>,
    blobs: Blobs,
    n_halves: usize,
    n_resumed: usize,
}

/// A registry of a few lines. It lives as long as the test's process.
pub(crate) struct Registry {
    address: SocketAddr,
    shelf: Arc<Mutex<Shelf>>,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shelf = Shelf { images: HashMap::new(), blobs: Blobs::Whole, n_halves: 0, n_resumed: 0 };
        let shelf = Arc::new(Mutex::new(shelf));
        let served = Arc::clone(&shelf);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shelf = Arc::clone(&served);
                thread::spawn(move || serve(stream, &shelf));
            }
        });
        Self { address, shelf }
    }

    /// Takes the image in; returns what it is called by those who pull it.
    pub(crate) fn push(&self, name: &str, image: &TestImage) -> String {
        self.shelf.lock().unwrap().images.insert(name.to_owned(), image.clone());
        format!("{}/{name}:1", self.address)
    }

    pub(crate) fn send_blobs(&self, blobs: Blobs) {
        self.shelf.lock().unwrap().blobs = blobs;
    }

    /// How often it stopped half-way.
    pub(crate) fn n_halves(&self) -> usize {
        self.shelf.lock().unwrap().n_halves
    }

    /// How often somebody wanted the rest of a blob.
    pub(crate) fn n_resumed(&self) -> usize {
        self.shelf.lock().unwrap().n_resumed
    }
}

fn serve(mut stream: TcpStream, shelf: &Mutex<Shelf>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut start = 0;
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) == 0 {
                return;
            }
            if let Some(range) = header.to_ascii_lowercase().strip_prefix("range: bytes=") {
                start = range.trim().trim_end_matches('-').parse().unwrap_or(0);
            }
            if header.trim().is_empty() {
                break;
            }
        }
        let Some((kind, body)) = find(&path, shelf) else {
            if stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}").is_err() {
                return;
            }
            continue;
        };
        let total = body.len();
        let body = &body[start.min(total)..];
        let status = if start > 0 {
            shelf.lock().unwrap().n_resumed += 1;
            format!("206 Partial Content\r\ncontent-range: bytes {start}-{}/{total}", total - 1)
        } else {
            "200 OK".to_owned()
        };
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        let hangs = shelf.lock().unwrap().blobs == Blobs::Hang && body.len() > 100_000;
        let sent = if hangs { &body[..body.len() / 2] } else { body };
        if stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(sent)).is_err() {
            return;
        }
        if hangs {
            shelf.lock().unwrap().n_halves += 1;
            // Until the other side has gone.
            reader.read_line(&mut String::new()).ok();
            return;
        }
    }
}

fn find(path: &str, shelf: &Mutex<Shelf>) -> Option<(&'static str, Vec<u8>)> {
    let shelf = shelf.lock().unwrap();
    let rest = path.strip_prefix("/v2/")?;
    if rest.is_empty() {
        return Some(("application/json", b"{}".to_vec()));
    }
    if let Some((name, _tag)) = rest.split_once("/manifests/") {
        return Some((MANIFEST, shelf.images.get(name)?.manifest.clone()));
    }
    let (name, digest) = rest.split_once("/blobs/")?;
    Some(("application/octet-stream", shelf.images.get(name)?.blobs.get(digest)?.clone()))
}
