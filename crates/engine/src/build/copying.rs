//! `COPY` and `ADD`: what is copied, to where, and whose it becomes.

use std::{fs::File, io::Read, sync::Arc};

use ::images::{Digest, Image};
use build::{CopyStep, Pattern, clean};
use bytes::Bytes;
use futures_util::TryStreamExt as _;
use sandbox::{Error, ErrorKind, FileKind, NetworkSpec, Result};

use super::{
    Builder, MAX_CONTEXT,
    context::{self, Budget, Context, Entry, Kind, Odd, Owners, Reading, SourceMatch},
    holes::Filled,
    instruction_sandbox::InstructionSandbox,
    pieces::{self, Piece, Section, Source},
    spool::Limit,
};
use crate::disk::may_block;

/// Largest `/etc/passwd` or `/etc/group` that is looked into.
const MAX_ACCOUNTS_BYTES: u64 = 1024 * 1024;
/// Links on the way to a source in another stage.
const MAX_HOPS: usize = 40;
/// Sources that one pattern may stand for in another stage.
const MAX_GLOB: u32 = 10_000;

/// Bytes at the start of a file that show whether it is an archive.
const HEAD_BYTES: u64 = 512;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Directories of a sandbox that are no part of its image: nothing is copied from them, nor into them.
const NOT_OF_IMAGE: [&str; 4] = ["dev", "proc", "run", "sys"];
/// Files that every sandbox is given its own of.
const OF_SANDBOX: [&str; 3] = ["etc/hostname", "etc/hosts", "etc/resolv.conf"];

/// Everything that one instruction copies.
#[derive(Debug, Default)]
pub(super) struct Load {
    items: Vec<Item>,
    /// Sentences about what is not copied.
    pub(super) notes: Vec<String>,
}

#[derive(Debug)]
struct Item {
    found: SourceMatch,
    bytes: Source,
    owners: Owners,
}

impl Load {
    /// From the context and from the Dockerfile itself.
    pub(super) fn from_context(builder: &Arc<Builder>, context: &Context, step: &CopyStep) -> Result<Self> {
        let file = Arc::new(context.file().try_clone().map_err(unreadable)?);
        let mut load = Self::default();
        let mut room = Room { builder, budget: Budget::default(), bytes: MAX_CONTEXT.bytes() };
        for source in &step.sources {
            for found in context.find(source, &mut room.budget)? {
                let archive = if step.unpack { unpacked(&mut room, &file, &found)? } else { None };
                let item = match archive {
                    Some((item, n_left_out)) => {
                        load.note_left_out(n_left_out, &found.name);
                        item
                    }
                    None => Item { found, bytes: Source::Archive(Arc::clone(&file)), owners: Owners::Root },
                };
                load.items.push(item);
            }
        }
        load.items.extend(step.files.iter().map(|(name, content)| in_dockerfile(name, content)));
        Ok(load)
    }

    fn note_left_out(&mut self, n_left_out: usize, what: &str) {
        if n_left_out > 0 {
            self.notes.push(format!("skipped {n_left_out} devices, pipes and similar files of {what}"));
        }
    }

    pub(super) fn digest(&self) -> Digest {
        let digests = self.items.iter().flat_map(|item| context::digest(&item.found, item.owners));
        Digest::of(&digests.collect::<Vec<u8>>())
    }

    /// From the files of an image, which is looked into from a sandbox of its own.
    pub(super) async fn from_image(builder: &Arc<Builder>, image: &Image, step: &CopyStep) -> Result<Self> {
        let sandbox = InstructionSandbox::make(builder, image, NetworkSpec::default()).await?;
        let load = Self::from_sandbox(builder, &sandbox, step).await;
        sandbox.end().await;
        load
    }

    async fn from_sandbox(
        builder: &Arc<Builder>,
        sandbox: &InstructionSandbox<'_>,
        step: &CopyStep,
    ) -> Result<Self> {
        let mut load = Self::default();
        let mut room = Room { builder, budget: Budget::default(), bytes: MAX_CONTEXT.bytes() };
        for source in &step.sources {
            for path in sources(builder, sandbox, source).await? {
                let path = followed(builder, sandbox, path).await?;
                let bytes = builder.engine.pack(&builder.who, &sandbox.which, &path).await?;
                let file = builder.spool.take(bytes, &mut room.bytes, "what is copied").await?;
                let wanted = || builder.still_wanted();
                let reading = Reading { what: source, odd: Odd::LeftOut, wanted: &wanted };
                let packed = may_block(|| Context::read(file, reading))?;
                load.note_left_out(packed.n_left_out, source);
                // The members begin with the last part of the path.
                let name = path.rsplit('/').next().unwrap_or_default();
                let asked = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                let keeps_name = Pattern::is_wild(asked) || asked.is_empty();
                let name_or_top = if name.is_empty() { "." } else { name };
                for mut found in packed.find(name_or_top, &mut room.budget)? {
                    found.name = if keeps_name { name.to_owned() } else { asked.to_owned() };
                    if found.is_directory {
                        found.entries.retain(|(name, _)| is_of_image(&format!("{path}/{name}")));
                    }
                    let file = Arc::new(packed.file().try_clone().map_err(unreadable)?);
                    load.items.push(Item { found, bytes: Source::Archive(file), owners: Owners::Kept });
                }
            }
        }
        load.items.extend(step.files.iter().map(|(name, content)| in_dockerfile(name, content)));
        Ok(load)
    }

    /// Puts everything into the sandbox.
    pub(super) async fn put(
        self,
        builder: &Arc<Builder>,
        sandbox: &InstructionSandbox<'_>,
        step: &CopyStep,
    ) -> Result<()> {
        let Builder { engine, who, .. } = &**builder;
        let owner = match &step.chown {
            Some(chown) => Some(owner(builder, sandbox, chown).await?),
            None => None,
        };
        let to = step.to.trim_end_matches('/');
        let to = if to.is_empty() { "/" } else { to };
        let there = match engine.stat(who, &sandbox.which, to, true).await {
            Ok(entry) => Some(entry.kind),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_many = self.items.len() > 1 || self.items.iter().any(|item| item.found.is_directory);
        let into = if step.to.ends_with('/') || is_many || there == Some(FileKind::Directory) {
            (to.to_owned(), None)
        } else {
            let (above, name) = to.rsplit_once('/').unwrap_or(("", to));
            (if above.is_empty() { "/" } else { above }.to_owned(), Some(name.to_owned()))
        };
        let (directory, name) = into;
        engine.mkdir(who, &sandbox.which, &directory, true, None).await?;
        if there.is_none() && name.is_none() {
            self.dress(builder, sandbox, step, &directory, owner).await?;
        }
        let pieces = self.pieces(step, &directory, name.as_deref(), owner);
        let bytes = pieces::stream_of(pieces);
        engine.unpack(who, &sandbox.which, &directory, true, bytes).await.map(drop)
    }

    /// A directory that was made for the copy is as the one that is copied, where that is one.
    async fn dress(
        &self,
        builder: &Builder,
        sandbox: &InstructionSandbox<'_>,
        step: &CopyStep,
        directory: &str,
        owner: Option<(u32, u32)>,
    ) -> Result<()> {
        let Builder { engine, who, .. } = builder;
        let (top, owners) = match &self.items[..] {
            [Item { found: SourceMatch { top: Some(top), .. }, owners, .. }] => (Some(top), *owners),
            _ => (None, Owners::Root),
        };
        let kept = top.filter(|_| owners == Owners::Kept).map(|top| (top.uid, top.gid));
        if let Some((uid, gid)) = owner.or(kept) {
            engine.chown(who, &sandbox.which, directory, Some(uid), Some(gid), false).await?;
        }
        if let Some(mode) = top.map(|top| step.chmod.unwrap_or(top.mode)) {
            engine.chmod(who, &sandbox.which, directory, mode, false).await?;
        }
        Ok(())
    }

    fn pieces(
        self,
        step: &CopyStep,
        directory: &str,
        name: Option<&str>,
        owner: Option<(u32, u32)>,
    ) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for item in self.items {
            let Item { found, bytes, owners } = item;
            for (relative, mut entry) in found.entries {
                let name = match (relative.is_empty(), name) {
                    (true, Some(name)) => name.to_owned(),
                    (true, None) => found.name.clone(),
                    (false, _) => relative,
                };
                if !can_be_kept(&format!("{directory}/{name}")) {
                    continue;
                }
                (entry.uid, entry.gid) = match (owner, owners) {
                    (Some(owner), _) => owner,
                    (None, Owners::Root) => (0, 0),
                    (None, Owners::Kept) => (entry.uid, entry.gid),
                };
                if let Some(mode) = step.chmod
                    && !matches!(entry.kind, Kind::Symlink { .. })
                {
                    entry.mode = mode;
                }
                pieces.push(Piece { name, entry, bytes: bytes.clone() });
            }
        }
        pieces
    }
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "cannot read the copied files again").with_source(error)
}

/// A file whose content stands in the Dockerfile.
fn in_dockerfile(name: &str, content: &str) -> Item {
    use sha2::{Digest as _, Sha256};
    let sha256 = Sha256::digest(content).into();
    let kind = Kind::File { offset: 0, size: content.len() as u64, parts: None, sha256 };
    let entry = Entry { mode: 0o644, uid: 0, gid: 0, mtime: 0, kind };
    let found = SourceMatch {
        name: name.to_owned(),
        is_directory: false,
        entries: vec![(String::new(), entry)],
        top: None,
    };
    Item { found, bytes: Source::Memory(Bytes::copy_from_slice(content.as_bytes())), owners: Owners::Root }
}

/// The files and bytes that one instruction may still take.
struct Room<'a> {
    builder: &'a Builder,
    budget: Budget,
    bytes: u64,
}

fn first_part(cleaned: &str) -> &str {
    cleaned.split('/').next().unwrap_or_default()
}

/// Whether what is at this path of a sandbox came from its image, or from what ran in it.
fn is_of_image(path: &str) -> bool {
    let cleaned = clean(path);
    can_be_kept(path) && !OF_SANDBOX.contains(&cleaned.as_str())
}

/// Whether what is put there will be in the layer.
fn can_be_kept(path: &str) -> bool {
    !NOT_OF_IMAGE.contains(&first_part(&clean(path)))
}

/// An archive as `ADD` has it: what is in it, in place of itself; and how many of its members stay out.
fn unpacked(room: &mut Room<'_>, file: &Arc<File>, found: &SourceMatch) -> Result<Option<(Item, usize)>> {
    let [(name, entry)] = &found.entries[..] else { return Ok(None) };
    if !name.is_empty() {
        return Ok(None);
    }
    let Some((file, at, left)) = whole(room, file, &found.name, &entry.kind)? else { return Ok(None) };
    let mut start = Vec::new();
    let section = || Section { file: &file, at, left };
    section().take(HEAD_BYTES).read_to_end(&mut start).map_err(unreadable)?;
    let mut reader: Box<dyn Read + '_> = match &start[..] {
        start if start.starts_with(&GZIP) => Box::new(flate2::read::MultiGzDecoder::new(section())),
        [b'B', b'Z', b'h', ..] => return Err(unsupported(&found.name, "bzip2")),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => return Err(unsupported(&found.name, "xz")),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(unsupported(&found.name, "zstd")),
        _ => Box::new(section()),
    };
    let mut head = Vec::new();
    if reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head).is_err() || !is_tar(&head) {
        return Ok(None);
    }
    let builder = room.builder;
    let wanted = || builder.still_wanted();
    let mut limit = Limit { what: &found.name, left: room.bytes, wanted: &wanted };
    let plain = builder.spool.fill(head.as_slice().chain(reader), &mut limit)?;
    room.bytes = limit.left;
    let archive = Context::read(plain, Reading { what: &found.name, odd: Odd::LeftOut, wanted: &wanted })?;
    let bytes = Source::Archive(Arc::new(archive.file().try_clone().map_err(unreadable)?));
    let mut all = archive.find(".", &mut room.budget)?;
    let item = all.pop().map(|found| Item { found, bytes, owners: Owners::Kept });
    Ok(item.map(|item| (item, archive.n_left_out)))
}

/// Where the bytes of a possible archive are. One that has holes itself is written out: decompressors know none.
fn whole(
    room: &mut Room<'_>,
    file: &Arc<File>,
    name: &str,
    kind: &Kind,
) -> Result<Option<(Arc<File>, u64, u64)>> {
    let Kind::File { offset, size, parts, .. } = kind else { return Ok(None) };
    let Some(parts) = parts else { return Ok(Some((Arc::clone(file), *offset, *size))) };
    let filled = || Filled::new(file, *offset, *size, parts);
    let mut head = Vec::new();
    filled().take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
    if !is_tar(&head) && !head.starts_with(&GZIP) {
        return Ok(None);
    }
    let builder = room.builder;
    let wanted = || builder.still_wanted();
    let mut limit = Limit { what: name, left: room.bytes, wanted: &wanted };
    let filled = builder.spool.fill(filled(), &mut limit)?;
    room.bytes = limit.left;
    Ok(Some((Arc::new(filled), 0, *size)))
}

fn is_tar(head: &[u8]) -> bool {
    head.len() as u64 == HEAD_BYTES && &head[257..262] == b"ustar"
}

fn unsupported(name: &str, what: &str) -> Error {
    let message = format!("{name} is compressed with {what}, which ADD does not unpack");
    Error::new(ErrorKind::Unsupported, message)
        .with_hint("Compress it with gzip, or copy it with COPY and unpack it with RUN.")
}

/// The paths that a source stands for inside.
async fn sources(
    builder: &Arc<Builder>,
    sandbox: &InstructionSandbox<'_>,
    source: &str,
) -> Result<Vec<String>> {
    let cleaned = clean(source);
    if !Pattern::is_wild(&cleaned) {
        return Ok(vec![format!("/{cleaned}")]);
    }
    let found = builder.engine.glob(&builder.who, &sandbox.which, "/", &cleaned, MAX_GLOB).await?;
    if found.paths.is_empty() {
        return Err(Error::not_found(format!("{source} does not exist")));
    }
    Ok(found.paths.into_iter().map(|path| format!("/{}", path.trim_start_matches('/'))).collect())
}

/// Where a path leads when it is a link.
async fn followed(
    builder: &Arc<Builder>,
    sandbox: &InstructionSandbox<'_>,
    mut path: String,
) -> Result<String> {
    for _ in 0..MAX_HOPS {
        if path == "/" {
            return Ok(path);
        }
        let entry = builder.engine.stat(&builder.who, &sandbox.which, &path, false).await?;
        if entry.kind != FileKind::Symlink {
            return Ok(path);
        }
        let target = builder.engine.read_link(&builder.who, &sandbox.which, &path).await?;
        let above = path.rsplit_once('/').map_or("", |(above, _)| above);
        path = if target.starts_with('/') {
            format!("/{}", clean(&target))
        } else {
            format!("/{}", clean(&format!("{above}/{target}")))
        };
    }
    Err(Error::invalid(format!("{path} has too many levels of symbolic links")))
}

/// `user:group` as numbers; names are looked up in the image. A user alone is its own group, as Docker has it.
async fn owner(builder: &Arc<Builder>, sandbox: &InstructionSandbox<'_>, chown: &str) -> Result<(u32, u32)> {
    let (user, group) = chown.split_once(':').unwrap_or((chown, ""));
    let uid = id_of(builder, sandbox, user, "/etc/passwd").await?;
    let gid = if group.is_empty() { uid } else { id_of(builder, sandbox, group, "/etc/group").await? };
    Ok((uid, gid))
}

async fn id_of(
    builder: &Arc<Builder>,
    sandbox: &InstructionSandbox<'_>,
    name: &str,
    accounts: &str,
) -> Result<u32> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let unknown = || {
        Error::not_found(format!("{name} is not in the image's {accounts}"))
            .with_hint("Use numbers with --chown, or create the user with RUN first.")
    };
    let read =
        builder.engine.read_file(&builder.who, &sandbox.which, accounts, 0, Some(MAX_ACCOUNTS_BYTES)).await;
    let bytes = match read {
        Ok((_, bytes)) => bytes.try_fold(Vec::new(), async |mut all, chunk| {
            all.extend_from_slice(&chunk);
            Ok(all)
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(unknown()),
        Err(error) => return Err(error),
    };
    let text = String::from_utf8_lossy(&bytes.await?).into_owned();
    let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let found =
        lines.find(|fields| fields.first() == Some(&name)).and_then(|fields| fields.get(2)?.parse().ok());
    found.ok_or_else(unknown)
}
