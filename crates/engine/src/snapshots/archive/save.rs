//! Writing an archive.

use std::{
    io::{self, PipeReader, Read, Write},
    os::fd::OwnedFd,
    sync::Arc,
};

use sandbox::{Error, ErrorKind, Result, RootfsPlan};
use tokio::{
    runtime::Handle,
    task::{JoinHandle, spawn_blocking},
};

use super::{
    FORMAT, IMAGE_PREFIX, INDEX_NAME, Index, Indexed, PART_BYTES, SaveOptions, header, manifest_name,
    seal::{Format, Sealing},
    tree_prefix,
};
use crate::{
    Engine, Principal,
    core::Core,
    error,
    snapshots::{
        SnapshotRef,
        registry::{ArchiveTurn, Hold},
    },
};

/// As `zstd` without a word about it.
const ZSTD_LEVEL: i32 = 3;

impl Engine {
    /// Writes a snapshot as an archive that [`Engine::load_snapshot`] takes, here or elsewhere. Returns what is worth
    /// knowing of it, as sentences.
    pub async fn save_snapshot(
        &self,
        who: &Principal,
        which: &SnapshotRef,
        writer: impl Write + Send + 'static,
        options: SaveOptions,
    ) -> Result<Vec<String>> {
        let writer: Box<dyn Write + Send> = Box::new(writer);
        self.save_to(who, which, writer, options).await
    }

    #[crate::boxed]
    async fn save_to(
        &self,
        who: &Principal,
        which: &SnapshotRef,
        writer: Box<dyn Write + Send>,
        options: SaveOptions,
    ) -> Result<Vec<String>> {
        let core = Arc::clone(self.core());
        let top = core.find_snapshot(who, which)?;
        let mut warnings = Vec::new();
        let chain = match (options.with_parents, &top.manifest.parent) {
            (true, _) => core.snapshots.chain(&top)?,
            (false, None) => vec![Arc::clone(&top)],
            (false, Some(parent)) => {
                warnings.push(format!("The archive loads only where its parent exists: {parent}."));
                vec![Arc::clone(&top)]
            }
        };
        if let Some(RootfsPlan::Directory { path, .. } | RootfsPlan::Disk { image: path, .. }) =
            &top.manifest.host_path
        {
            let message =
                format!("{} is based on {}, which an archive cannot include", top.label(), path.display());
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_hint("Import that path as an image, and take snapshots of sandboxes based on it."));
        }
        let held = chain.iter().rev().map(|snapshot| core.hold_snapshot(snapshot)).collect::<Result<_>>()?;
        let image = top.manifest.image_digest.clone().filter(|_| options.with_image);
        if let Some(digest) = &image {
            core.image_by_digest(digest).await?;
        }
        let _turn = core.snapshots.begin_archive(who)?;
        let runtime = Handle::current();
        let saver = Saver { core, held, image, runtime, _turn };
        let saved = spawn_blocking(move || match options.plain {
            true => saver.plain(writer),
            false => saver.compressed(writer),
        });
        saved.await.map_err(|_panicked| error::closing())??;
        Ok(warnings)
    }
}

struct Saver {
    core: Arc<Core>,
    /// The lowest first.
    held: Vec<Hold>,
    image: Option<String>,
    runtime: Handle,
    _turn: ArchiveTurn,
}

impl Saver {
    fn plain(&self, writer: impl Write) -> Result<()> {
        let mut sealing = Sealing::new(writer);
        self.members(&mut sealing)?;
        sealing.finish(Format::Tar).map_err(written)
    }

    fn compressed(&self, writer: impl Write) -> Result<()> {
        let mut encoder =
            zstd::stream::write::Encoder::new(Sealing::new(writer), ZSTD_LEVEL).map_err(written)?;
        encoder.include_checksum(true).map_err(written)?;
        self.members(&mut encoder)?;
        // The end of every tar: plain ones have it in their seal.
        encoder.write_all(&[0; 1024]).map_err(written)?;
        encoder.finish().and_then(|sealing| sealing.finish(Format::Zstd)).map_err(written)
    }

    fn members(&self, to: &mut impl Write) -> Result<()> {
        let indexed = self.held.iter().map(|held| Indexed {
            digest: held.snapshot.record.digest.clone(),
            name: held.snapshot.record.name.clone(),
        });
        let index = Index { format: FORMAT, snapshots: indexed.collect(), image: self.image.clone() };
        let index = serde_json::to_vec(&index).map_err(|source| {
            Error::new(ErrorKind::Internal, "could not write the archive's index").with_source(source)
        })?;
        member(to, INDEX_NAME, &index).map_err(written)?;
        for held in &self.held {
            let record = &held.snapshot.record;
            member(to, &manifest_name(&record.digest), record.manifest.as_bytes()).map_err(written)?;
            let label = held.snapshot.label();
            let (from, into) = pipe()?;
            let (core, id) = (Arc::clone(&self.core), record.id.clone());
            let packing = self.runtime.spawn(async move {
                let packed = core.backends.snapshots()?.export(&id, into).await;
                packed.map_err(|error| error::from_backend(error, &label))
            });
            self.parts(to, &tree_prefix(&record.digest), from, packing)?;
        }
        if let Some(digest) = self.image.clone() {
            let (from, into) = pipe()?;
            let core = Arc::clone(&self.core);
            let packing = self
                .runtime
                .spawn(async move { core.save_image_to(&digest, std::fs::File::from(into)).await });
            self.parts(to, IMAGE_PREFIX, from, packing)?;
        }
        Ok(())
    }

    /// Writes what `packing` puts into the pipe.
    fn parts(
        &self,
        to: &mut impl Write,
        prefix: &str,
        mut from: PipeReader,
        packing: JoinHandle<Result<()>>,
    ) -> Result<()> {
        let mut part = Vec::with_capacity(PART_BYTES);
        let mut write = || -> io::Result<()> {
            for number in 0_u64.. {
                part.clear();
                from.by_ref().take(PART_BYTES as u64).read_to_end(&mut part)?;
                if part.is_empty() {
                    break;
                }
                member(to, &format!("{prefix}{number:08}"), &part)?;
            }
            Ok(())
        };
        let wrote = write();
        drop(from);
        let packed = self.runtime.block_on(packing).map_err(|_panicked| error::closing())?;
        // Where writing failed, packing failed because of that.
        wrote.map_err(written)?;
        packed
    }
}

fn pipe() -> Result<(PipeReader, OwnedFd)> {
    let (from, into) = io::pipe().map_err(|source| {
        Error::new(ErrorKind::Unavailable, "could not create a pipe").with_source(source)
    })?;
    Ok((from, into.into()))
}

fn member(to: &mut impl Write, name: &str, content: &[u8]) -> io::Result<()> {
    to.write_all(&header(name, content.len() as u64))?;
    to.write_all(content)?;
    let n_over = content.len() % 512;
    if n_over > 0 {
        to.write_all(&[0; 512][n_over..])?;
    }
    Ok(())
}

fn written(source: io::Error) -> Error {
    let (kind, hint) = match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            (ErrorKind::Unavailable, "Free some space, or write the archive elsewhere.")
        }
        io::ErrorKind::BrokenPipe => (ErrorKind::Cancelled, "Read the archive to its end."),
        _ => (ErrorKind::Unavailable, "Check the destination."),
    };
    Error::new(kind, format!("could not write the archive: {source}")).with_hint(hint).with_source(source)
}
