//! Out of a sandbox.

use std::{
    ffi::OsStr,
    fs, io,
    io::Write as _,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use bytes::Bytes;
use frontends::rest::v1::FileEntry;
use futures_util::{Stream, TryStreamExt as _};
use rustix::{fs::Mode, io::Errno};
use sandbox::{Error, ErrorKind, FileKind};
use tokio::io::AsyncWriteExt as _;

use super::{Progress, merge::merge, place::base_name, sparse::SparseFile, tree, unpack::open_directory};
use crate::{
    client::{Client, Within},
    error::{CommandResult, io_failure},
    interrupt::unless_interrupted,
    output,
};

/// Links followed before it is called a circle.
const MAX_LINKS: u32 = 40;
/// Names tried for a directory that must be fresh.
const MAX_STAGING_TRIES: u32 = 100;

/// What a link at the end of the path inside means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// The link itself is copied, as `docker cp` does.
    Keep,
    /// What it points to is copied.
    Follow,
}

/// One thing inside that is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) within: Within<'a>,
    pub(crate) path: &'a str,
    pub(crate) links: Links,
}

/// What was found there.
struct Found {
    /// Without slashes at its end; empty for the root.
    path: String,
    entry: FileEntry,
}

impl Source<'_> {
    /// `DIR/.` means what is in it.
    fn is_contents(&self) -> bool {
        self.path.ends_with("/.") || self.path.ends_with("/./")
    }

    /// The path without what only says how to read it.
    fn plain_path(&self) -> &str {
        let path = self.path.trim_end_matches('/');
        if self.is_contents() { path.trim_end_matches('.').trim_end_matches('/') } else { path }
    }

    /// What the copy is called where only a directory is named.
    fn name(&self) -> CommandResult<&str> {
        match base_name(self.plain_path()) {
            ".." => Err(Error::invalid(format!("{} has no name of its own", self.path))
                .with_hint("Write the path without .. at its end.")
                .into()),
            name => Ok(name),
        }
    }

    /// Looks inside. A slash at the end asks for what a link points to, as everywhere.
    async fn find(&self, client: &Client) -> CommandResult<Found> {
        let is_followed = self.links == Links::Follow || self.path.ends_with('/') || self.is_contents();
        let mut path = self.plain_path().to_owned();
        for _ in 0..MAX_LINKS {
            let asked = if path.is_empty() { "/" } else { &path };
            let entry = client.look(self.within, asked).await?;
            let target = match &entry.target {
                Some(target) if is_followed && entry.kind == FileKind::Symlink => target,
                _ => return Ok(Found { path, entry }),
            };
            let next = match (target.starts_with('/'), path.rsplit_once('/')) {
                (false, Some((parent, _))) => format!("{parent}/{target}"),
                _ => target.clone(),
            };
            path = next.trim_end_matches("/.").trim_end_matches('/').to_owned();
        }
        let message = format!("{} in {} leads through more than {MAX_LINKS} links", self.path, self.within);
        Err(Error::new(ErrorKind::WrongState, message).into())
    }
}

/// Copies a file, directory or link from inside to `local`; returns the bytes that came. Whoever interrupts it finds what was
/// there before.
pub(crate) async fn download(
    client: &Client,
    source: Source<'_>,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    unless_interrupted(download_found(client, source, local, progress)).await
}

async fn download_found(
    client: &Client,
    source: Source<'_>,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    let found = source.find(client).await?;
    match found.entry.kind {
        FileKind::Directory => download_directory(client, source, &found, local, progress).await,
        FileKind::File => {
            let target = Target::of(local, source)?;
            progress.expect(found.entry.size);
            let bytes = progress.count(client.read_file(source.within, &found.path).await?);
            write_file(std::pin::pin!(bytes), &target, &found.entry).await?;
            Ok(progress.n_bytes())
        }
        FileKind::Symlink => {
            make_link(&Target::of(local, source)?, found.entry.target.as_deref().unwrap_or_default())?;
            Ok(0)
        }
        FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{} in {} is neither a file nor a directory", source.path, source.within);
            Err(Error::new(ErrorKind::Unsupported, message).into())
        }
    }
}

/// Where one file or link goes.
struct Target {
    path: PathBuf,
    /// Whether the caller named it; otherwise its name came with the source, and a link of that name may be the sandbox's
    /// own, left here by an earlier copy.
    is_named: bool,
}

impl Target {
    fn of(local: &Path, source: Source<'_>) -> CommandResult<Self> {
        if local.is_dir() {
            return Ok(Self { path: local.join(source.name()?), is_named: false });
        }
        if local.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Error::not_found(format!("there is no directory {}", local.display()))
                .with_hint("Leave the slash at the end away to make a file of that name.")
                .into());
        }
        Ok(Self { path: local.to_owned(), is_named: true })
    }

    /// A device or pipe that the caller named is written to; everything else is replaced.
    fn is_written_to(&self) -> bool {
        self.is_named && fs::metadata(&self.path).is_ok_and(|found| !found.is_file())
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    /// Moves what is ready onto it, replacing a file or a link.
    fn take(&self, ready: &Path) -> CommandResult<()> {
        let is_replaceable = |found: fs::Metadata| found.is_file() || found.is_symlink();
        if fs::symlink_metadata(&self.path).is_ok_and(|found| !is_replaceable(found)) {
            let message = format!("{} is in the way", self.path.display());
            return Err(Error::new(ErrorKind::AlreadyExists, message).into());
        }
        fs::rename(ready, &self.path).map_err(|error| io_failure(self.path.display().to_string(), error))
    }
}

/// A file is written beside its place and moved there, so that nobody sees half of it.
async fn write_file(
    mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    target: &Target,
    entry: &FileEntry,
) -> CommandResult<()> {
    let failed = |error| io_failure(target.path.display().to_string(), error);
    if target.is_written_to() {
        let file = tokio::fs::OpenOptions::new().write(true).open(&target.path).await.map_err(failed)?;
        return pour(bytes, file).await;
    }
    let beside = Staging::new(target.directory(), &target.path)?;
    let path = beside.path.join("file");
    let mut file = SparseFile::new(fs::File::create(&path).map_err(failed)?);
    while let Some(piece) = bytes.try_next().await? {
        file.append(&piece).map_err(failed)?;
    }
    file.finish().map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode.0 & 0o777)).map_err(failed)?;
    target.take(&path)
}

/// The link is made, and says what it is: whoever asked may have wanted what it points to.
fn make_link(target: &Target, points_to: &str) -> CommandResult<()> {
    let beside = Staging::new(target.directory(), &target.path)?;
    let path = beside.path.join("link");
    std::os::unix::fs::symlink(points_to, &path)
        .map_err(|error| io_failure(target.path.display().to_string(), error))?;
    target.take(&path)?;
    output::note(&format!(
        "{} is a link to {}; -L copies what a link points to",
        target.path.display(),
        output::printable(points_to)
    ));
    Ok(())
}

async fn pour(
    mut bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    mut file: tokio::fs::File,
) -> CommandResult<()> {
    while let Some(piece) = bytes.try_next().await? {
        file.write_all(&piece).await?;
    }
    file.flush().await?;
    Ok(())
}

async fn download_directory(
    client: &Client,
    source: Source<'_>,
    found: &Found,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    let (target, into) = directory_target(local, source)?;
    let failed = |error| io_failure(target.display().to_string(), error);
    let staging = Staging::new(&target, &target)?;
    let fresh: OwnedFd = fs::File::open(&staging.path).map_err(failed)?.into();
    let asked = if found.path.is_empty() { "/" } else { &found.path };
    let bytes = progress.count(client.pack(source.within, asked).await?);
    tree::unpack(Box::pin(bytes), fresh.try_clone().map_err(failed)?).await?;
    // Entries are named beneath the directory's name; the root has none.
    let root = match base_name(&found.path) {
        "" => fresh,
        name => open_directory(&fresh, OsStr::new(name)).map_err(|error| {
            let message = format!("{} in {} did not come as a directory", source.path, source.within);
            Error::new(ErrorKind::WrongState, message)
                .with_hint("It may have changed while it was copied; try again.")
                .with_source(error)
        })?,
    };
    merge(&root, &into, &target).map_err(failed)?;
    Ok(progress.n_bytes())
}

/// Makes and opens the directory that receives what is in the source.
fn directory_target(local: &Path, source: Source<'_>) -> CommandResult<(PathBuf, OwnedFd)> {
    let failed = |error| io_failure(local.display().to_string(), error);
    let is_fresh = match fs::metadata(local) {
        Ok(found) if !found.is_dir() => {
            let message = format!("{} is a file; a directory cannot be copied onto it", local.display());
            return Err(Error::new(ErrorKind::WrongState, message).into());
        }
        Ok(_) => false,
        Err(_not_there) => true,
    };
    fs::create_dir_all(local).map_err(failed)?;
    let opened: OwnedFd = fs::File::open(local).map_err(failed)?.into();
    let name = if is_fresh || source.is_contents() { "" } else { source.name()? };
    if name.is_empty() {
        return Ok((local.to_owned(), opened));
    }
    let target = local.join(name);
    match rustix::fs::mkdirat(&opened, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(io_failure(target.display().to_string(), error.into())),
    }
    // The caller did not name this one: a link here may be the sandbox's own, left by an earlier copy.
    let into = open_directory(&opened, OsStr::new(name)).map_err(|error| {
        let message = format!("{} is in the way: it is not a directory", target.display());
        Error::new(ErrorKind::AlreadyExists, message).with_source(error)
    })?;
    Ok((target, into))
}

/// A fresh directory beside the target, removed with what is left in it.
struct Staging {
    path: PathBuf,
}

impl Staging {
    /// `wanted` is what its user asked for, for messages.
    fn new(directory: &Path, wanted: &Path) -> CommandResult<Self> {
        let mut n = 0;
        loop {
            let path = directory.join(format!(".warren-cp-{}-{n}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                // Left by a command that was killed and had our number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && n < MAX_STAGING_TRIES => n += 1,
                Err(error) => return Err(io_failure(wanted.display().to_string(), error)),
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // What cannot be removed is named after us; there is nobody to tell.
        fs::remove_dir_all(&self.path).ok();
    }
}

/// Writes a tar stream to stdout.
pub(crate) async fn stream_out(client: &Client, source: Source<'_>) -> CommandResult<u64> {
    let found = source.find(client).await?;
    let path = if found.path.is_empty() { "/" } else { &found.path };
    let mut bytes = client.pack(source.within, path).await?;
    let mut n_bytes = 0;
    while let Some(piece) = bytes.try_next().await? {
        // Blocking is right here: there is nothing else to do until the reader has taken it.
        io::stdout().lock().write_all(&piece)?;
        n_bytes += piece.len() as u64;
    }
    io::stdout().lock().flush()?;
    Ok(n_bytes)
}
