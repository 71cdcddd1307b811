//! Reading an archive, which may be damaged or hostile: nothing of it is visible before its seal was found right.

use std::{
    io::{self, Read},
    sync::{Arc, OnceLock},
};

use archive::{Content, Kind, Member, ReadLimits, Reader};
use sandbox::{
    BackendError, Error, ErrorKind, EventKind, MAX_SNAPSHOT_CHAIN, Namespace, Next, Result, SnapshotId,
    SnapshotManifest, SnapshotName, Subject, Thing, TreeFacts,
};
use store::SnapshotRecord;
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::{JoinHandle, spawn_blocking},
};

use super::{
    FORMAT, IMAGE_PREFIX, INDEX_NAME, Index, MAX_INDEX_BYTES, PART_BYTES, manifest_name,
    part::{Parts, parts},
    seal::{Format, Sealed},
    tree_prefix,
};
use crate::{
    Engine, Principal, SnapshotView,
    core::{Core, until},
    error, names,
    snapshots::{
        disk, made_up_name, make,
        manifest::{self, MAX_MANIFEST_BYTES},
        registry::{ArchiveTurn, Hold, Room},
        remove,
    },
};

/// Largest window of a compressed archive, as a power of two: above our own archives', and a bound on its memory.
const MAX_WINDOW_LOG: u32 = 25;

impl Engine {
    /// Takes in the snapshots of an archive, and its image where it has one that is not here. Returns the snapshot that
    /// was saved; what is here already is left as it is. Nothing is taken in from an archive that was changed.
    pub async fn load_snapshot(
        &self,
        who: &Principal,
        namespace: &Namespace,
        name: Option<SnapshotName>,
        archive: impl Read + Send + 'static,
    ) -> Result<SnapshotView> {
        self.load_from(who, namespace, name, Box::new(archive)).await
    }

    #[crate::boxed]
    async fn load_from(
        &self,
        who: &Principal,
        namespace: &Namespace,
        name: Option<SnapshotName>,
        archive: Box<dyn Read + Send>,
    ) -> Result<SnapshotView> {
        who.may_create_in(namespace)?;
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let loader = Loader {
            core: Arc::clone(core),
            who: who.clone(),
            namespace: namespace.clone(),
            name,
            saved_as: Arc::default(),
            runtime: Handle::current(),
            _turn: Arc::new(core.snapshots.begin_archive(who)?),
        };
        let saved_as = Arc::clone(&loader.saved_as);
        let (tell, told) = oneshot::channel();
        let closing = core.closing.clone();
        core.drivers.spawn(async move {
            // The caller may have gone away; what is half there is taken away all the same.
            until(&closing, async { drop(tell.send(loader.load(archive).await)) }).await;
        });
        let held = told.await.map_err(|_dropped| error::closing())??;
        Ok(SnapshotView { saved_as: saved_as.get().cloned(), ..core.snapshot_view(&held.snapshot) })
    }
}

#[derive(Debug, Clone)]
struct Loader {
    core: Arc<Core>,
    who: Principal,
    namespace: Namespace,
    name: Option<SnapshotName>,
    /// The name of the topmost snapshot, once it was read.
    saved_as: Arc<OnceLock<SnapshotName>>,
    runtime: Handle,
    _turn: Arc<ArchiveTurn>,
}

/// One snapshot of the archive.
#[derive(Debug)]
enum Taken {
    Here(Hold),
    New { record: Box<SnapshotRecord>, source: sandbox::SandboxName, _room: Room },
}

impl Loader {
    async fn load(self, archive: Box<dyn Read + Send>) -> Result<Hold> {
        let reader = self.clone();
        let read = spawn_blocking(move || {
            let mut taken = Vec::new();
            let outcome = reader.read(archive, &mut taken);
            (taken, outcome)
        });
        let (taken, outcome) = read.await.map_err(|_panicked| error::closing())?;
        match outcome {
            Ok(()) => self.publish(taken).await,
            Err(error) => {
                for one in &taken {
                    if let Taken::New { record, .. } = one {
                        disk::remove(&self.core, &record.id).await;
                    }
                }
                Err(error)
            }
        }
    }

    fn read(&self, archive: impl Read, taken: &mut Vec<Taken>) -> Result<()> {
        let sealed = Sealed::open(archive).map_err(unreadable)?;
        let most = self.core.config.max_snapshot_bytes;
        match sealed.format() {
            Format::Tar => {
                let mut content = Bounded { inner: sealed, left: most };
                let members = self.members(&mut content, taken);
                if members.is_err() {
                    io::copy(&mut content, &mut io::sink()).map_err(unreadable)?;
                }
                self.settle(content.inner, members)
            }
            Format::Zstd => {
                let mut decoder =
                    zstd::stream::read::Decoder::new(sealed).map_err(unreadable)?.single_frame();
                decoder.window_log_max(MAX_WINDOW_LOG).map_err(unreadable)?;
                let mut content = Bounded { inner: decoder, left: most };
                let members = self.members(&mut content, taken);
                // What is left of the frame, its checksum among it.
                io::copy(&mut content, &mut io::sink()).map_err(unreadable)?;
                let buffered = content.inner.finish();
                if !buffered.buffer().is_empty() {
                    return Err(changed());
                }
                self.settle(buffered.into_inner(), members)
            }
        }
    }

    /// Lets the image in once the seal is right. Where it is not, that is why whatever else was wrong.
    fn settle(&self, sealed: Sealed<impl Read>, members: Result<Option<LoadingImage>>) -> Result<()> {
        let is_right = sealed.check().map_err(unreadable);
        let image = match members {
            Ok(Some(image)) => image,
            Ok(None) => return is_right?.then_some(()).ok_or_else(changed),
            // What does not even begin like one was never sealed.
            Err(error) if error.is_about(Thing::Archive) => return Err(error),
            Err(error) => return is_right?.then_some(()).ok_or_else(changed).and(Err(error)),
        };
        match is_right {
            Ok(true) => {
                image.parts.finish();
                self.runtime.block_on(image.task).map_err(|_panicked| error::closing())?
            }
            other => {
                image.parts.fail();
                drop(self.runtime.block_on(image.task));
                other.and(Err(changed()))
            }
        }
    }

    fn members(&self, content: &mut impl Read, taken: &mut Vec<Taken>) -> Result<Option<LoadingImage>> {
        let mut members = Members { archive: content, next: None };
        match members.peek() {
            Ok(Some((name, _))) if name == INDEX_NAME => {}
            Err(error) if error.kind() != ErrorKind::InvalidRequest => return Err(error),
            _ => return Err(not_ours()),
        }
        let index = self.index(&members.whole(INDEX_NAME, MAX_INDEX_BYTES)?)?;
        for (at, indexed) in index.snapshots.iter().enumerate() {
            let bytes = members.whole(&manifest_name(&indexed.digest), MAX_MANIFEST_BYTES)?;
            if manifest::digest_of(&bytes) != indexed.digest {
                return Err(changed());
            }
            let manifest = manifest::parse(&bytes)?;
            manifest.config.check()?;
            if manifest.host_path.is_some() {
                // Whoever wrote it would choose which files of this host its sandboxes see.
                return Err(not_ours());
            }
            let beneath = at.checked_sub(1).map(|at| index.snapshots[at].digest.as_str());
            self.check_parent(&manifest, beneath)?;
            let name = indexed.name.clone();
            let is_top = at + 1 == index.snapshots.len();
            if let (true, Some(name)) = (is_top, &name) {
                self.saved_as.get_or_init(|| name.clone());
            }
            self.snapshot(&mut members, &indexed.digest, bytes, manifest, (name, is_top), taken)?;
        }
        match &index.image {
            Some(digest) => self.image(&mut members, digest),
            None => Ok(None),
        }
    }

    fn index(&self, bytes: &[u8]) -> Result<Index> {
        let index: Index = serde_json::from_slice(bytes).map_err(|error| {
            Error::invalid(format!("cannot read the archive's index: {error}"))
                .with_next(Next::Archive(Thing::Snapshot))
        })?;
        if index.format != FORMAT {
            let message = format!("the archive has format {}; only {FORMAT} is supported", index.format);
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("Use the newer version of Warren that wrote it."));
        }
        let n = index.snapshots.len();
        if n == 0 || n > MAX_SNAPSHOT_CHAIN {
            return Err(Error::invalid(format!(
                "the archive has {n} snapshots; it must have 1 to {MAX_SNAPSHOT_CHAIN}"
            )));
        }
        let digests = index.snapshots.iter().map(|indexed| &indexed.digest).chain(&index.image);
        for digest in digests {
            if !sandbox::is_digest(digest) {
                return Err(Error::invalid("a digest is missing in the archive's index"));
            }
        }
        Ok(index)
    }

    /// Whatever it is made on is in the archive or here.
    fn check_parent(&self, manifest: &SnapshotManifest, beneath: Option<&str>) -> Result<()> {
        let depth = match (&manifest.parent, beneath) {
            (None, None) => 0,
            (Some(parent), Some(beneath)) if parent == beneath => 0,
            (Some(parent), None) => match self.core.snapshots.by_digest(&self.namespace, parent) {
                Some(found) => self.core.snapshots.chain(&found)?.len(),
                None => {
                    let message =
                        format!("the archive's snapshot is based on {parent}, which does not exist here");
                    return Err(Error::new(ErrorKind::NotFound, message)
                        .with_hint("Load that snapshot first, or save this one again with its parents."));
                }
            },
            _ => return Err(Error::invalid("the archive's snapshots are not based on each other")),
        };
        if depth >= MAX_SNAPSHOT_CHAIN {
            return Err(crate::snapshots::registry::too_deep(&Subject::new(
                Thing::Snapshot,
                "in the archive",
            )));
        }
        Ok(())
    }

    fn snapshot(
        &self,
        members: &mut Members<'_, impl Read>,
        digest: &str,
        bytes: Vec<u8>,
        manifest: SnapshotManifest,
        (name, is_top): (Option<SnapshotName>, bool),
        taken: &mut Vec<Taken>,
    ) -> Result<()> {
        let prefix = tree_prefix(digest);
        if let Some(here) = self.core.snapshots.by_digest(&self.namespace, digest)
            && let Some(held) = self.core.snapshots.hold(&here)
        {
            taken.push(Taken::Here(held));
            while members.part(&prefix)?.is_some() {}
            return Ok(());
        }
        let room = self.core.snapshots.make_room(&self.who)?;
        room.keep_image(manifest.image_digest.as_ref());
        let id = SnapshotId::from_random(names::random_bytes()?);
        let text = String::from_utf8(bytes).map_err(|_not_text| changed())?;
        let record = SnapshotRecord {
            id: id.clone(),
            namespace: self.namespace.clone(),
            name: self.name_for(name, is_top, &manifest)?,
            digest: digest.to_owned(),
            manifest: text,
            held_micros: None,
            owner: self.who.key.clone(),
            created_at: self.core.clock.now(),
        };
        disk::begin(&self.core.snapshots.directory, &id)?;
        // From here on it is known to whoever takes half of it away.
        let source = manifest.source.sandbox.clone();
        taken.push(Taken::New { record: Box::new(record), source, _room: room });
        let (from, to) = io::pipe().map_err(unreadable)?;
        let core = Arc::clone(&self.core);
        let unpacking: JoinHandle<Result<TreeFacts>> = self.runtime.spawn(async move {
            core.backends.snapshots()?.import(&id, from.into()).await.map_err(|error| match error {
                BackendError::Failed { .. } | BackendError::Unsupported { .. } => {
                    let message = format!("cannot unpack the archive's snapshot: {error}");
                    Error::invalid(message).with_next(Next::Archive(Thing::Snapshot)).with_source(error)
                }
                other => error::from_backend(other, &Subject::new(Thing::Snapshot, "in the archive")),
            })
        });
        let fed = feed(members, &prefix, to);
        let facts = self.runtime.block_on(unpacking).map_err(|_panicked| error::closing())?;
        // What the archive says of itself comes before what the unpacking made of that.
        fed?;
        if facts? != manifest.tree {
            return Err(changed());
        }
        Ok(())
    }

    fn name_for(
        &self,
        indexed: Option<SnapshotName>,
        is_top: bool,
        manifest: &SnapshotManifest,
    ) -> Result<Option<SnapshotName>> {
        let is_free = |name: &SnapshotName| self.core.snapshots.named(&self.namespace, name).is_none();
        match (&self.name, indexed, is_top) {
            (Some(name), _, true) if is_free(name) => Ok(Some(name.clone())),
            (Some(name), _, true) => {
                let message = format!("snapshot {name} already exists in namespace {}", self.namespace);
                let taken = Subject::new(Thing::Snapshot, name.as_str());
                Err(Error::new(ErrorKind::AlreadyExists, message).with_next(Next::FreeName(taken)))
            }
            (_, Some(name), _) if is_free(&name) => Ok(Some(name)),
            (_, _, true) => Ok(Some(made_up_name(&manifest.source.sandbox)?)),
            // It is kept for the one above it.
            (_, _, false) => Ok(None),
        }
    }

    fn image(&self, members: &mut Members<'_, impl Read>, digest: &str) -> Result<Option<LoadingImage>> {
        if self.runtime.block_on(self.core.image_by_digest(digest)).is_ok() {
            while members.part(IMAGE_PREFIX)?.is_some() {}
            return Ok(None);
        }
        let (mut parts, reader) = parts();
        let (core, who) = (Arc::clone(&self.core), self.who.clone());
        let digest = digest.to_owned();
        let task = self.runtime.spawn(async move { core.load_image_from(&who, &digest, reader).await });
        while let Some(part) = members.part(IMAGE_PREFIX)? {
            if !parts.push(part) {
                // The image was refused; the task's error says why.
                self.runtime.block_on(task).map_err(|_panicked| error::closing())??;
                return Err(changed());
            }
        }
        Ok(Some(LoadingImage { parts, task }))
    }

    /// Makes them visible, the lowest first. Returns the topmost.
    async fn publish(&self, taken: Vec<Taken>) -> Result<Hold> {
        let (mut here, mut new) = (Vec::new(), Vec::new());
        let (mut failed, mut top) = (None, None);
        for one in taken {
            match one {
                Taken::Here(hold) => {
                    top = Some(Arc::clone(&hold.snapshot));
                    here.push(hold);
                }
                Taken::New { record, .. } if failed.is_some() => disk::remove(&self.core, &record.id).await,
                Taken::New { record, source, .. } => {
                    let id = record.id.clone();
                    match self.publish_one(*record, &source).await {
                        Ok(hold) => {
                            top = Some(Arc::clone(&hold.snapshot));
                            new.push(hold);
                        }
                        Err(error) => {
                            disk::remove(&self.core, &id).await;
                            failed = Some(error);
                        }
                    }
                }
            }
        }
        if let Some(error) = failed {
            self.take_back(new).await;
            return Err(error);
        }
        for hold in &new {
            self.core.emit_of_snapshot(EventKind::SnapshotCreated, &hold.snapshot).await;
        }
        self.core.hold_snapshot(&top.ok_or_else(changed)?)
    }

    async fn publish_one(&self, mut record: SnapshotRecord, source: &sandbox::SandboxName) -> Result<Hold> {
        if let Some(name) = &record.name
            && self.name.is_none()
            && self.core.snapshots.named(&self.namespace, name).is_some()
        {
            record.name = Some(made_up_name(source)?);
        }
        make::publish(&self.core, record, false).await
    }

    /// All of an archive or nothing: without a name they go, unless somebody has used one already.
    async fn take_back(&self, new: Vec<Hold>) {
        for hold in new {
            if let Err(error) = remove::take_name(&self.core, &hold.snapshot).await {
                tracing::warn!(snapshot = %hold.snapshot.record.id, error = &error as &dyn std::error::Error, "a part of an archive stays");
            }
        }
        remove::collect(&self.core).await;
    }
}

/// An image on its way in, of which the end is held back.
struct LoadingImage {
    parts: Parts,
    task: JoinHandle<Result<()>>,
}

/// Writes the parts of a tree into a pipe.
fn feed(members: &mut Members<'_, impl Read>, prefix: &str, mut to: io::PipeWriter) -> Result<()> {
    use std::io::Write;
    let mut is_read = true;
    while let Some(part) = members.part(prefix)? {
        // Who reads may have seen enough: then it tells what was wrong.
        is_read = is_read && to.write_all(&part).is_ok();
        if !is_read {
            break;
        }
    }
    Ok(())
}

/// Members of the container in their order. Nothing but plain files with the names that are expected.
struct Members<'a, R> {
    archive: &'a mut R,
    /// The header of the next one, where it was looked at.
    next: Option<(String, u64)>,
}

impl<R: Read> Members<'_, R> {
    /// Name and length of the next member; `None` at the end.
    fn peek(&mut self) -> Result<Option<(String, u64)>> {
        if self.next.is_some() {
            return Ok(self.next.clone());
        }
        let mut block = [0; archive::BLOCK];
        let n = read_up_to(self.archive, &mut block).map_err(unreadable)?;
        if n == 0 || archive::is_zero(&block) {
            return Ok(None);
        }
        if n < block.len() {
            return Err(changed());
        }
        let limits = ReadLimits { header_bytes: 0, parts: 0 };
        let member = Reader::new(&block[..], archive::Format::Own, limits).next();
        let Ok(Some(Member { path, kind: Kind::File(Content { size: len, .. }), .. })) = member else {
            return Err(not_ours());
        };
        let name = String::from_utf8(path).map_err(|_not_text| changed())?;
        // Exactly as we write it: nothing else of a header is looked at, so nothing else may be in it.
        if block[..] != super::header(&name, len) {
            return Err(not_ours());
        }
        self.next = Some((name, len));
        Ok(self.next.clone())
    }

    /// The member that must come next.
    fn whole(&mut self, name: &str, most: usize) -> Result<Vec<u8>> {
        match self.peek()? {
            Some((next, len)) if next == name => self.take(len, most),
            _ => Err(not_ours()),
        }
    }

    /// The next part; `None` when another member follows, or nothing.
    fn part(&mut self, prefix: &str) -> Result<Option<Vec<u8>>> {
        match self.peek()? {
            Some((next, len)) if next.starts_with(prefix) => self.take(len, PART_BYTES).map(Some),
            _ => Ok(None),
        }
    }

    fn take(&mut self, len: u64, most: usize) -> Result<Vec<u8>> {
        self.next = None;
        let len = usize::try_from(len).ok().filter(|len| (1..=most).contains(len)).ok_or_else(not_ours)?;
        let mut content = vec![0; len.next_multiple_of(512)];
        if read_up_to(self.archive, &mut content).map_err(unreadable)? < content.len() {
            return Err(changed());
        }
        content.truncate(len);
        Ok(content)
    }
}

fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match from.read(&mut buffer[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

/// Passes on so much and no more.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(n as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the archive unpacks to more than the limit")
        })?;
        Ok(n)
    }
}

fn not_ours() -> Error {
    Error::invalid("this is not a snapshot archive, or it was changed after it was saved")
        .about(Thing::Archive, "")
        .with_next(Next::Archive(Thing::Snapshot))
}

fn changed() -> Error {
    Error::invalid("the archive was changed or truncated after it was saved")
        .with_hint("Copy the archive again from where it was saved.")
}

fn unreadable(source: io::Error) -> Error {
    let (kind, hint) = match source.kind() {
        io::ErrorKind::FileTooLarge => {
            (ErrorKind::LimitReached, "If you trust the archive, raise the daemon's limit for archives.")
        }
        _ => (ErrorKind::InvalidRequest, "Copy the archive again from where it was saved."),
    };
    Error::new(kind, format!("cannot read the archive: {source}")).with_hint(hint).with_source(source)
}
