//! Layers and images that tests make themselves.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use images::{Digest, Options, Platform, Retry, Timeouts};
use serde_json::{Value, json};
use tar::{EntryType, Header};
pub(crate) use test_registry::run;

/// A tar whose entries may be anything, also what no honest writer writes.
#[derive(Default)]
pub(crate) struct Layer {
    bytes: Vec<u8>,
}

/// One entry before it is written.
pub(crate) struct Entry<'a> {
    pub(crate) path: &'a str,
    pub(crate) kind: EntryType,
    pub(crate) mode: u32,
    pub(crate) owner: (u64, u64),
    pub(crate) mtime: u64,
    pub(crate) link: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) pax: Vec<(&'a str, &'a [u8])>,
}

impl Default for Entry<'_> {
    fn default() -> Self {
        Self {
            path: "",
            kind: EntryType::Regular,
            mode: 0o644,
            owner: (0, 0),
            mtime: 1_700_000_000,
            link: "",
            data: b"",
            pax: Vec::new(),
        }
    }
}

impl Layer {
    pub(crate) fn entry(mut self, entry: &Entry<'_>) -> Self {
        if !entry.pax.is_empty() {
            let records: Vec<u8> = entry.pax.iter().flat_map(|(key, value)| record(key, value)).collect();
            self.raw(&header("pax", EntryType::XHeader, records.len() as u64), &records);
        }
        if entry.path.len() > 100 {
            let name = [entry.path.as_bytes(), b"\0"].concat();
            self.raw(&header("././@LongLink", EntryType::GNULongName, name.len() as u64), &name);
        }
        let mut header = header(entry.path, entry.kind, entry.data.len() as u64);
        header.set_mode(entry.mode);
        header.set_uid(entry.owner.0);
        header.set_gid(entry.owner.1);
        header.set_mtime(entry.mtime);
        let link = &mut header.as_old_mut().linkname;
        link[..entry.link.len()].copy_from_slice(entry.link.as_bytes());
        header.set_cksum();
        self.raw(&header, entry.data);
        self
    }

    pub(crate) fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(&Entry { path, data, ..Entry::default() })
    }

    pub(crate) fn directory(self, path: &str) -> Self {
        self.entry(&Entry { path, kind: EntryType::Directory, mode: 0o755, ..Entry::default() })
    }

    pub(crate) fn symlink(self, path: &str, link: &str) -> Self {
        self.entry(&Entry { path, link, kind: EntryType::Symlink, mode: 0o777, ..Entry::default() })
    }

    pub(crate) fn hard_link(self, path: &str, link: &str) -> Self {
        self.entry(&Entry { path, link, kind: EntryType::Link, ..Entry::default() })
    }

    pub(crate) fn raw(&mut self, header: &Header, data: &[u8]) {
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
    }

    pub(crate) fn tar(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 1024, 0);
        self.bytes
    }
}

pub(crate) fn header(path: &str, kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    let shown = path.len().min(100);
    header.as_old_mut().name[..shown].copy_from_slice(&path.as_bytes()[..shown]);
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    header
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let body = key.len() + value.len() + 3;
    let mut length = body + 1;
    while length != body + length.to_string().len() {
        length = body + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Bytes that do not compress, the same ones each time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}

/// An image as a registry has it.
#[derive(Clone)]
pub(crate) struct TestImage {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    /// As they are stored, lowest first.
    pub(crate) blobs: Vec<Vec<u8>>,
    pub(crate) diff_ids: Vec<Digest>,
}

impl TestImage {
    /// Makes an image of layers, each as (uncompressed tar, as stored).
    pub(crate) fn new(layers: &[(Vec<u8>, Vec<u8>)]) -> Self {
        Self::with_config(
            layers,
            &json!({
                "Env": ["PATH=/bin", "GREETING=hello"],
                "User": "1000:1000",
                "WorkingDir": "/data",
                "Entrypoint": ["/bin/busybox"],
                "Cmd": ["sh"],
                "ExposedPorts": {"80/tcp": {}, "53/udp": {}},
                "StopSignal": "SIGINT",
                "Labels": {"made-by": "a test"},
            }),
        )
    }

    pub(crate) fn with_config(layers: &[(Vec<u8>, Vec<u8>)], run: &Value) -> Self {
        let diff_ids: Vec<Digest> = layers.iter().map(|(tar, _)| Digest::of(tar)).collect();
        let config = json!({
            "architecture": Platform::host().architecture,
            "os": "linux",
            "created": "2024-01-02T03:04:05Z",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = serde_json::to_vec(&config).unwrap();
        let blobs: Vec<Vec<u8>> = layers.iter().map(|(_, blob)| blob.clone()).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": blobs.iter().map(|blob| descriptor(layer_type(blob), blob)).collect::<Vec<_>>(),
        });
        Self { manifest: serde_json::to_vec(&manifest).unwrap(), config, blobs, diff_ids }
    }

    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    /// Every blob by its digest.
    pub(crate) fn contents(&self) -> Vec<(Digest, Vec<u8>)> {
        let all = self.blobs.iter().chain([&self.config]);
        all.map(|blob| (Digest::of(blob), blob.clone())).collect()
    }

    /// The tar of an OCI layout, in which the image is called `tag`.
    pub(crate) fn layout(&self, tag: &str) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        self.write_layout(directory.path(), tag);
        tar_of(directory.path())
    }

    /// Writes an OCI layout, in which the image is called `tag`.
    pub(crate) fn write_layout(&self, directory: &Path, tag: &str) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        for (digest, bytes) in self.contents() {
            fs::write(blobs.join(digest.hex()), bytes).unwrap();
        }
        fs::write(blobs.join(self.digest().hex()), &self.manifest).unwrap();
        fs::write(directory.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let mut named = descriptor("application/vnd.oci.image.manifest.v1+json", &self.manifest);
        named["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "manifests": [named]});
        fs::write(directory.join("index.json"), index.to_string()).unwrap();
    }
}

/// A directory as one tar.
pub(crate) fn tar_of(directory: &Path) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_dir_all(".", directory).unwrap();
    tar.into_inner().unwrap()
}

pub(crate) fn descriptor(media_type: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(bytes), "size": bytes.len()})
}

fn layer_type(blob: &[u8]) -> &'static str {
    match blob {
        [0x1f, 0x8b, ..] => "application/vnd.oci.image.layer.v1.tar+gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "application/vnd.oci.image.layer.v1.tar+zstd",
        _ => "application/vnd.oci.image.layer.v1.tar",
    }
}

/// A small image of one plain layer with one file in it.
pub(crate) fn small_image(text: &str) -> TestImage {
    let tar = Layer::default().directory("etc").file("etc/text", text.as_bytes()).tar();
    TestImage::new(&[(tar.clone(), tar)])
}

/// A layer that is large as it comes and takes next to nothing when it is unpacked.
pub(crate) fn links(name: &str, count: usize) -> Vec<u8> {
    let link = |layer: Layer, number| layer.symlink(&format!("{name}-{number}"), name);
    (0..count).fold(Layer::default(), link).tar()
}

/// Three layers: a root with busybox, changes with whiteouts, and a last word.
fn stacked_layers() -> [Vec<u8>; 3] {
    let busybox = fs::read("/bin/busybox")
        .or_else(|_| fs::read("/usr/bin/busybox"))
        .expect("busybox-static is installed");
    let bottom = Layer::default()
        .directory("bin/")
        .entry(&Entry { path: "bin/busybox", mode: 0o4755, data: &busybox, ..Entry::default() })
        .hard_link("bin/sh", "bin/busybox")
        .symlink("bin/ash", "/bin/busybox")
        .directory("etc/")
        .file("etc/kept", b"kept")
        .file("etc/removed", b"removed")
        .directory("hidden/")
        .file("hidden/below", b"below")
        .directory("gone/")
        .file("gone/with-its-directory", b"gone")
        .directory("work/")
        .entry(&Entry {
            path: "work/owned",
            owner: (1000, 1001),
            mode: 0o600,
            data: b"mine",
            ..Entry::default()
        })
        .tar();
    let middle = Layer::default()
        .directory("etc/")
        .file("etc/.wh.removed", b"")
        .file(".wh.gone", b"")
        .directory("hidden/")
        .file("hidden/.wh..wh..opq", b"")
        .file("hidden/above", b"above")
        .tar();
    let top = Layer::default().directory("etc/").file("etc/kept", b"changed").file("etc/new", b"new").tar();
    [bottom, middle, top]
}

/// In three compressions.
pub(crate) fn stacked_image() -> TestImage {
    let [bottom, middle, top] = stacked_layers();
    TestImage::new(&[(bottom.clone(), gzip(&bottom)), (middle.clone(), zstd(&middle)), (top.clone(), top)])
}

/// In the one compression that all programs know.
pub(crate) fn stacked_image_of_gzip() -> TestImage {
    TestImage::new(&stacked_layers().map(|tar| (tar.clone(), gzip(&tar))))
}

/// Tries again soon, so that a test of failure does not wait; and no waiting for the disk. Silence is waited out: a
/// busy host is silent at times.
pub(crate) fn options() -> Options {
    Options {
        durable: false,
        retry: Retry {
            attempts: 3,
            first_wait: std::time::Duration::from_millis(5),
            longest_wait: std::time::Duration::from_secs(2),
        },
        timeouts: Timeouts {
            connect: std::time::Duration::from_secs(30),
            idle: std::time::Duration::from_secs(30),
            request: std::time::Duration::from_secs(60),
        },
        ..Options::default()
    }
}

/// For those who are silent for good.
pub(crate) fn hasty_options() -> Options {
    let mut options = options();
    options.timeouts.idle = std::time::Duration::from_secs(1);
    options
}

/// All names below a directory that a store of images keeps, half-made ones too.
pub(crate) fn everything_in(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["images/blobs/sha256", "images/partial", "layers"] {
        for entry in fs::read_dir(root.join(directory)).into_iter().flatten() {
            found.push(entry.unwrap().path());
        }
    }
    found.sort();
    found
}
