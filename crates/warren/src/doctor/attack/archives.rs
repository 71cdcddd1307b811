//! Hostile trees and archives, checked against canaries on the host: snapshots, image layers, build contexts, file
//! archives.

use std::{fs, os::unix::fs::FileTypeExt as _, path::Path};

use attack::hostile::{Plant, lay_tree, random_tree};
use bytes::Bytes;
use frontends::rest::v1;
use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::{
    Seen, inside,
    secrets::contains,
    stage::{CANARY_TEXT, OURS, Stage, random_number},
    words,
};
use crate::{
    client::{SaveChoice, Target, Within},
    error::CommandResult,
};

/// The file that archives try to write outside.
const EVIL: &str = "attack-evil";

/// A tree of the attacker's own making, which only an archive can contain.
pub(super) async fn snapshot(
    stage: &Stage,
    name: &'static str,
    tree: &[(&'static str, Plant)],
) -> CommandResult<Seen> {
    let source = Source::make(stage, name).await?;
    let tried = source.try_tree(stage, name, tree).await;
    stage.remove(&source.id).await;
    match tried? {
        Ok(Restored { breaches, held, .. }) => Ok(Seen::unless(&breaches, held)),
        Err(error) => Ok(Seen::untried(format!("cannot create the tree without root: {error}"))),
    }
}

/// Random trees, for cases that nobody thought of.
const RANDOM_TREES: u64 = 20;

pub(super) async fn random_snapshots(stage: &Stage, name: &'static str) -> CommandResult<Seen> {
    let seed = random_number()?;
    let (mut breaches, mut n_made) = (Vec::new(), 0);
    for n in 0..RANDOM_TREES {
        let tree = random_tree(seed.wrapping_add(n));
        let source = Source::make(stage, name).await?;
        let tried = source.try_tree(stage, name, &tree).await;
        stage.remove(&source.id).await;
        match tried? {
            Ok(restored) => {
                n_made += usize::from(restored.is_made);
                breaches.extend(restored.breaches.iter().map(|breach| format!("{breach} by {tree:?}")));
            }
            Err(error) => {
                return Ok(Seen::untried(format!("cannot create the tree without root: {error}")));
            }
        }
    }
    let n_refused = RANDOM_TREES as usize - n_made;
    Ok(Seen::unless(
        &breaches,
        format!("{n_made} restored with full isolation, {n_refused} refused (seed {seed})"),
    ))
}

/// A stopped sandbox whose tree becomes a snapshot.
struct Source {
    id: String,
}

/// The result of restoring a hostile tree.
struct Restored {
    is_made: bool,
    breaches: Vec<String>,
    held: String,
}

impl Source {
    async fn make(stage: &Stage, name: &str) -> CommandResult<Self> {
        let made = stage.create(json!({ "name": format!("{name}-src"), "namespace": OURS })).await?;
        stage.operator.act_with_grace(made.id.as_str(), "stop", None).await?;
        Ok(Self { id: made.id.to_string() })
    }

    /// Creates the tree, saves it, loads the same bytes and restores them. No file on the host may change, and a
    /// restored sandbox must be fully isolated. The inner error: the tree could not be created.
    async fn try_tree(
        &self,
        stage: &Stage,
        name: &str,
        tree: &[(&'static str, Plant)],
    ) -> CommandResult<std::io::Result<Restored>> {
        let upper = stage.home().join("sandboxes").join(&self.id).join("fs/root/upper");
        if let Err(error) = lay_tree(&upper, tree, &stage.canary.directory) {
            return Ok(Err(error));
        }
        let came = restore(stage, name, &self.id).await;
        let mut breaches = stage.canary.changes();
        let is_made = came.is_ok();
        let held = match came {
            Ok(restored) => {
                breaches.extend(weak_walls(stage, &restored).await);
                stage.remove(&restored).await;
                "restored with full isolation, nothing written outside".to_owned()
            }
            Err(error) => format!("refused: {}", words(&error)),
        };
        breaches.extend(stage.canary.changes());
        breaches.dedup();
        Ok(Ok(Restored { is_made, breaches, held }))
    }
}

async fn restore(stage: &Stage, name: &str, source: &str) -> CommandResult<String> {
    let request = v1::SnapshotRequest {
        sandbox: source.to_owned(),
        namespace: None,
        name: Some(name.parse()?),
        labels: Default::default(),
        replace: true,
    };
    let taken = stage.operator.create_snapshot(&request).await?;
    let choice = SaveChoice { parents: true, image: false, plain: true };
    let pieces: Vec<_> = stage.operator.save_snapshot(taken.id.as_str(), choice).await?.collect().await;
    let archive: Vec<u8> = pieces.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    stage.operator.remove_snapshot(taken.id.as_str(), true).await?;
    // With an ordinary key: every key may load and restore.
    let target = format!("/v1/snapshots/load?name={name}");
    let (status, body) =
        stage.ask(&stage.key, "POST", &target, Some(("application/octet-stream", archive))).await?;
    if !(200..300).contains(&status) {
        return Err(sandbox::Error::invalid(message(&body)).into());
    }
    let target = format!("/v1/snapshots/{name}/restore");
    let body = json!({ "name": format!("{name}-new") }).to_string().into_bytes();
    let (status, body) = stage.ask(&stage.key, "POST", &target, Some(("application/json", body))).await?;
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    match (status, answer["id"].as_str()) {
        (200..300, Some(id)) => Ok(id.to_owned()),
        _ => Err(sandbox::Error::invalid(message(&body)).into()),
    }
}

/// The message in the body of an error.
fn message(body: &[u8]) -> String {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    answer.pointer("/error/message").and_then(|text| text.as_str()).unwrap_or("no reason given").to_owned()
}

/// Isolation that a sandbox made from a hostile tree lacks.
async fn weak_walls(stage: &Stage, sandbox: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in ["proc-masks", "proc-writes", "sys-writes", "mount-flags"] {
        let Ok(report) = inside::run(stage, sandbox, name, &[]).await else {
            // Programs cannot run in its own tree; check what can be read through the API instead.
            return unmasked(stage, sandbox).await;
        };
        found.extend(
            report.breaches.iter().take(2).map(|breach| format!("{name}: {} {}", breach.what, breach.answer)),
        );
    }
    found
}

/// Writes a tar with any names: libraries refuse the ones that matter here.
#[derive(Debug, Default)]
pub(super) struct Tar(Vec<u8>);

impl Tar {
    fn entry(mut self, kind: u8, name: &str, link: &str, device: (u32, u32), data: &[u8]) -> Self {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(data.len() as u64);
        header.set_entry_type(tar::EntryType::new(kind));
        if let Some(ustar) = header.as_ustar_mut() {
            put(&mut ustar.name, name);
            put(&mut ustar.linkname, link);
            ustar.set_device_major(device.0);
            ustar.set_device_minor(device.1);
        }
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(super) fn file(self, name: &str, text: &str) -> Self {
        self.entry(b'0', name, "", (0, 0), text.as_bytes())
    }

    fn link(self, name: &str, to: &str) -> Self {
        self.entry(b'2', name, to, (0, 0), b"")
    }

    fn hard_link(self, name: &str, to: &str) -> Self {
        self.entry(b'1', name, to, (0, 0), b"")
    }

    fn device(self, name: &str, major: u32, minor: u32) -> Self {
        self.entry(b'3', name, "", (major, minor), b"")
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

fn put(field: &mut [u8], text: &str) {
    let n = text.len().min(field.len());
    field[..n].copy_from_slice(&text.as_bytes()[..n]);
}

/// Names that lead out of a directory, whichever it is.
fn ways_out(canary: &str) -> Vec<String> {
    let up = "../".repeat(12);
    vec![
        format!("../{EVIL}"),
        format!("{up}tmp/{EVIL}"),
        format!("a/../../{EVIL}"),
        // Longer names do not fit a plain header; shorter ones do.
        format!("{canary}/{EVIL}").chars().take(100).collect(),
    ]
}

/// A layer, as `image import` accepts it.
pub(super) async fn layer(stage: &Stage, name: &'static str) -> CommandResult<Seen> {
    let canary = stage.canary.path();
    let mut tar = Tar::default();
    match name {
        "layer-parent" => {
            for way in ways_out(&canary) {
                tar = tar.file(&way, "evil");
            }
        }
        "layer-through-link" => {
            tar = tar.link("out", &canary).file(&format!("out/{EVIL}"), "evil").file("out/file", "evil");
            tar = tar.link("up", "../../../../../../..").file(&format!("up/tmp/{EVIL}"), "evil");
        }
        "layer-hard-link" => {
            tar = tar.hard_link("stolen", &format!("{canary}/file")).file("stolen", "evil");
            tar = tar.hard_link("up", "../../../../../../../etc/passwd");
        }
        "layer-devices" => tar = tar.device("mem", 1, 1).device("dev/kmsg", 1, 11).device("null", 1, 3),
        "layer-whiteouts" => {
            for name in [".wh...", ".wh..", ".wh.", "a/.wh..wh..opq", "../.wh.canary", "a/.wh.../../x"] {
                tar = tar.file(name, "");
            }
        }
        _ => return Ok(Seen::untried("no such layer")),
    }
    let imported = import(stage, name, tar.end()).await;
    let mut breaches = stage.canary.changes();
    breaches.extend(evil_files(stage));
    breaches.extend(device_files(&stage.home().join("layers"), 0));
    let held = match imported {
        Ok(()) => "imported, nothing written outside",
        Err(_) => "refused",
    };
    Ok(Seen::unless(&breaches, held))
}

async fn import(stage: &Stage, name: &str, tar: Vec<u8>) -> CommandResult<()> {
    let bytes = stream::iter([Ok(Bytes::from(tar))]);
    stage.operator.import_image(&format!("attack/{name}:1"), None, None, bytes).await.map(drop)
}

/// Files of the attack in places where they do not belong.
fn evil_files(stage: &Stage) -> Vec<String> {
    let home = stage.home();
    let places = [home.to_owned(), home.join("layers"), home.join("images"), "/tmp".into(), "/".into()];
    let found = places.iter().map(|place| place.join(EVIL)).filter(|path| fs::symlink_metadata(path).is_ok());
    found.map(|path| format!("{} was written on the host", path.display())).collect()
}

/// Device nodes among the unpacked files, except whiteouts.
fn device_files(directory: &Path, depth: usize) -> Vec<String> {
    use std::os::unix::fs::MetadataExt as _;
    const DEEPEST: usize = 6;
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        let kind = about.file_type();
        if (kind.is_char_device() || kind.is_block_device()) && about.rdev() != 0 {
            found.push(format!("{} is a device", entry.path().display()));
        } else if kind.is_dir() && depth < DEEPEST {
            found.extend(device_files(&entry.path(), depth + 1));
        }
    }
    found
}

/// Images whose own `/proc`, `/sys` or `/dev` leads elsewhere, as roots of sandboxes.
pub(super) async fn image_root(stage: &Stage, name: &'static str) -> CommandResult<Seen> {
    let canary = stage.canary.path();
    let tar = match name {
        "image-proc-link" => Tar::default().link("proc", &canary).link("sys", &canary),
        "image-dev-null-link" => Tar::default()
            .entry(b'5', "dev/", "", (0, 0), b"")
            .link("dev/null", "/proc/sys/kernel/core_pattern")
            .link("dev/console", &format!("{canary}/file"))
            .link("dev/pts", &canary),
        _ => Tar::default().link("etc", &format!("{canary}/etc")).link("tmp", &canary).link("run", &canary),
    };
    import(stage, name, tar.end()).await?;
    let spec = json!({ "image": format!("attack/{name}:1"), "pull": "never", "namespace": OURS });
    let created = stage.create(spec).await;
    let mut breaches = stage.canary.changes();
    let held = match created {
        Ok(sandbox) => {
            let id = sandbox.id.to_string();
            breaches.extend(unmasked(stage, &id).await);
            stage.remove(&id).await;
            "created with its masks, nothing written outside".to_owned()
        }
        Err(error) => format!("refused: {}", words(&error)),
    };
    breaches.extend(stage.canary.changes());
    breaches.dedup();
    Ok(Seen::unless(&breaches, held))
}

/// Checks through the file API, for images without programs: `/proc` must be the kernel's, and masked.
async fn unmasked(stage: &Stage, sandbox: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !can_be_read(stage, sandbox, "/proc/self/status").await {
        found.push("/proc is not the kernel's".to_owned());
    }
    for path in ["/proc/timer_list", "/proc/keys", "/proc/kcore"] {
        if can_be_read(stage, sandbox, path).await {
            found.push(format!("{path} can be read"));
        }
    }
    found
}

async fn can_be_read(stage: &Stage, sandbox: &str, path: &str) -> bool {
    let Ok(stream) = stage.operator.read_file(Within::Sandbox(sandbox), path).await else { return false };
    let first: Vec<_> = stream.take(1).collect().await;
    first.iter().flatten().any(|bytes| !bytes.is_empty())
}

/// A build context with names that lead out, and a copy of a link that leads to the host.
pub(super) async fn build(stage: &Stage, name: &'static str) -> CommandResult<Seen> {
    let canary = stage.canary.path();
    let mut tar = Tar::default();
    match name {
        "build-context-parent" => {
            tar = tar.file("Dockerfile", "FROM scratch\nCOPY . /\n");
            for way in ways_out(&canary) {
                tar = tar.file(&way, "evil");
            }
        }
        _ => {
            tar = tar.link("leak", &format!("{canary}/file")).link("all", &canary);
            tar = tar.file("Dockerfile", "FROM scratch\nCOPY leak /leak\nCOPY all/ /all/\n");
        }
    }
    let target = Target::new(&["images", "build"]).with("tag", format!("attack/{name}:1"));
    let bytes = stream::iter([Ok(Bytes::from(tar.end()))]);
    let (answer, held) = match stage.operator.build_image(target, bytes).await {
        Ok(lines) => (lines.collect::<Vec<_>>().await.into_iter().flatten().collect::<String>(), "built"),
        Err(error) => (words(&error), "refused"),
    };
    let mut breaches = stage.canary.changes();
    breaches.extend(evil_files(stage));
    if answer.contains(CANARY_TEXT) || saved_with_canary(stage, &format!("attack/{name}:1")).await {
        breaches.push("a file of the host was copied into an image".to_owned());
    }
    Ok(Seen::unless(&breaches, format!("{held}, nothing read or written outside")))
}

/// Whether the image, if there is one, contains the canary.
async fn saved_with_canary(stage: &Stage, image: &str) -> bool {
    let Ok(stream) = stage.operator.save_images(&[image.to_owned()], "oci").await else { return false };
    let pieces: Vec<_> = stream.collect().await;
    let bytes: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
    contains(&bytes, CANARY_TEXT.as_bytes())
}

/// A tar for the file API, with names and links that lead out.
pub(super) async fn files_tar(stage: &Stage) -> CommandResult<Seen> {
    let canary = stage.canary.path();
    let plain = stream::iter([Ok(Bytes::from(Tar::default().file("plain", "text").end()))]);
    stage.operator.unpack(Within::Sandbox(&stage.sandbox), "/root", false, plain).await?;
    let mut n_refused = 0;
    let tars = ways_out(&canary).into_iter().map(|way| Tar::default().file(&way, "evil").end()).chain([
        Tar::default().link("out", &canary).file(&format!("out/{EVIL}"), "evil").end(),
        Tar::default().hard_link("hard", &format!("{canary}/file")).end(),
        Tar::default().device("mem", 1, 1).end(),
    ]);
    for tar in tars {
        let bytes = stream::iter([Ok(Bytes::from(tar))]);
        let within = Within::Sandbox(&stage.sandbox);
        n_refused += usize::from(stage.operator.unpack(within, "/root", false, bytes).await.is_err());
    }
    let mut breaches = stage.canary.changes();
    breaches.extend(evil_files(stage));
    Ok(Seen::unless(&breaches, format!("{n_refused} of 7 refused, nothing written outside")))
}

/// Links inside, read and written from outside: they must lead to the sandbox's own files or nowhere.
pub(super) async fn files_links(stage: &Stage) -> CommandResult<Seen> {
    let canary = stage.canary.path();
    let within = Within::Sandbox(&stage.sandbox);
    let mut breaches = Vec::new();
    let links = [
        format!("{canary}/file"),
        format!("../../../../../..{canary}/file"),
        format!("/proc/self/root{canary}/file"),
        format!("/proc/1/root{canary}/file"),
        format!("/proc/1/cwd/..{canary}/file"),
    ];
    for (n, to) in links.iter().enumerate() {
        let path = format!("/root/link-{n}");
        let body = json!({ "path": path, "target": to });
        let target = Target::new(&["sandboxes", &stage.sandbox, "files", "symlink"]);
        stage.operator.post_json_quiet(target, &body).await?;
        if let Ok(stream) = stage.operator.read_file(within, &path).await {
            let pieces: Vec<_> = stream.collect().await;
            let bytes: Vec<u8> = pieces.into_iter().flatten().flatten().collect();
            if contains(&bytes, CANARY_TEXT.as_bytes()) {
                breaches.push(format!("a link to {to} was read"));
            }
        }
        stage.write(&stage.sandbox, &path, "evil").await.ok();
    }
    breaches.extend(stage.canary.changes());
    Ok(Seen::unless(&breaches, format!("{} links lead nowhere", links.len())))
}
