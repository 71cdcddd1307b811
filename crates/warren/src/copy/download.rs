//! Out of a sandbox.

use std::{
    convert::Infallible,
    ffi::OsStr,
    fs,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::mpsc,
};

use frontends::rest::v1::FileEntry;
use hostfiles::{base_name, behind_links, plain_path, receive_tree};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use sandbox::{Error, ErrorKind, FileKind};

use super::{
    Landing, Progress, RULES,
    error::{warn_of_left_out, worded},
    landing::open_directory_of,
    pour,
};
use crate::{
    client::{Client, Within},
    error::{CommandError, CommandResult, io_failure},
    interrupt::unless_interrupted,
    output,
};

/// How a link at the end of the path inside is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// The link itself is copied, as `docker cp` does.
    Keep,
    /// The link's target is copied.
    Follow,
}

/// One thing inside that is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) within: Within<'a>,
    pub(crate) path: &'a str,
    pub(crate) links: Links,
}

impl Source<'_> {
    /// `DIR/.` means what is in it.
    fn is_contents(&self) -> bool {
        self.path == "." || self.path.ends_with("/.") || self.path.ends_with("/./")
    }

    /// Returns the name of the copy where only a directory is named.
    fn name(&self) -> CommandResult<&str> {
        match base_name(plain_path(self.path)) {
            ".." => Err(Error::invalid(format!("{} has no name of its own", self.path))
                .with_hint("Write the path without .. at its end.")
                .into()),
            name => Ok(name),
        }
    }

    /// Returns the path inside, and the entry there. A slash at the end asks for what a link points to, as everywhere.
    async fn look(&self, client: &Client) -> CommandResult<(String, FileEntry)> {
        let is_followed = self.links == Links::Follow || self.path.ends_with('/') || self.is_contents();
        let look = async |path: String| {
            let entry = client.look(self.within, &path).await?;
            let is_link = is_followed && entry.kind == FileKind::Symlink;
            let target = entry.target.clone().filter(|_| is_link);
            Ok::<_, CommandError>((entry, target))
        };
        behind_links(self.path, look).await?.ok_or_else(|| {
            let message = format!("{} in {} leads through too many links", self.path, self.within);
            Error::new(ErrorKind::WrongState, message).into()
        })
    }
}

/// Copies a file, directory or link from inside to `local`; returns the bytes that came. Whoever interrupts it finds
/// what was there before.
pub(crate) async fn download(
    client: &Client,
    source: Source<'_>,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    unless_interrupted(download_one(client, source, local, progress)).await
}

async fn download_one(
    client: &Client,
    source: Source<'_>,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    let (path, entry) = source.look(client).await?;
    match entry.kind {
        FileKind::Directory => download_directory(client, source, &path, local, progress).await,
        FileKind::File => {
            let target = Target::of(local, source)?;
            progress.expect(entry.size);
            let bytes = client.read_file(source.within, &path).await?;
            let landing = Landing::of_copy(&target.path, target.is_named, entry.mode.0).await?;
            landing.take(std::pin::pin!(progress.count(bytes))).await
        }
        FileKind::Symlink => {
            make_link(&Target::of(local, source)?.path, entry.target.as_deref().unwrap_or_default())?;
            Ok(0)
        }
        FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{} in {} is neither a file nor a directory", source.path, source.within);
            Err(Error::new(ErrorKind::Unsupported, message).into())
        }
    }
}

/// The place on this machine that one file or link goes to.
struct Target {
    path: PathBuf,
    /// Whether the caller named it; otherwise its name came with the source, and a link of that name may be the
    /// sandbox's own, left here by an earlier copy.
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
}

/// The link is made, and says what it is: whoever asked may have wanted what it points to.
fn make_link(path: &Path, points_to: &str) -> CommandResult<()> {
    let directory = open_directory_of(path).map_err(worded)?;
    hostfiles::replace_link(directory, path.to_owned(), OsStr::new(points_to)).map_err(worded)?;
    output::note(&format!(
        "{} is a link to {}; -L copies what a link points to",
        path.display(),
        output::printable(points_to)
    ));
    Ok(())
}

async fn download_directory(
    client: &Client,
    source: Source<'_>,
    path: &str,
    local: &Path,
    progress: &Progress,
) -> CommandResult<u64> {
    let (target, into) = directory_target(local, source)?;
    let bytes = std::pin::pin!(progress.count(client.pack(source.within, path).await?));
    // Entries are named beneath the directory's name; the root has none.
    let n_stripped = usize::from(path != "/");
    let (at_work, ended) = mpsc::channel();
    let _ended = UntilEnded(ended);
    let received = hostfiles::feed(bytes, move |reader| {
        let _at_work = at_work;
        receive_tree(reader, &into, &target, n_stripped, RULES)
    });
    let counts = received.await.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "the tree could not be read to its end").with_source(error)
    })?;
    warn_of_left_out(&counts.map_err(worded)?);
    Ok(progress.n_bytes())
}

/// Waits for the thread that unpacks: an interrupted command must not end before it has removed what it made.
struct UntilEnded(mpsc::Receiver<Infallible>);

impl Drop for UntilEnded {
    fn drop(&mut self) {
        // Nothing comes; it is closed when the thread is done.
        self.0.recv().ok();
    }
}

/// Makes and opens the directory that receives what is in the source.
fn directory_target(local: &Path, source: Source<'_>) -> CommandResult<(PathBuf, OwnedFd)> {
    let failed = |error| io_failure(local.display().to_string(), error);
    let is_fresh = match fs::metadata(local) {
        Ok(there) if !there.is_dir() => {
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
    let mode = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    // The caller did not name this one: a link here may be the sandbox's own, left by an earlier copy.
    match hostfiles::make_directory(opened, OsStr::new(name), mode, OFlags::RDONLY) {
        Ok(into) => Ok((target, into)),
        Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => {
            let message = format!("{} is in the way: it is not a directory", target.display());
            Err(Error::new(ErrorKind::AlreadyExists, message).with_source(errno).into())
        }
        Err(errno) => Err(io_failure(target.display().to_string(), errno.into())),
    }
}

/// Writes a tar stream to stdout.
pub(crate) async fn stream_out(client: &Client, source: Source<'_>) -> CommandResult<u64> {
    let (path, _) = source.look(client).await?;
    let bytes = client.pack(source.within, &path).await?;
    Ok(pour(bytes, &mut tokio::io::stdout()).await?)
}
