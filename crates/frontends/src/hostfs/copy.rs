//! Copying out of a sandbox to the host.

use engine::{ByteStream, Engine, SandboxRef};
use hostfiles::{Counts, behind_links, feed, receive_file, receive_tree};
use sandbox::{Error, ErrorKind, FileKind, Result};

use super::{
    HostCaller, RULES,
    error::worded,
    location::{Access, Location, meant},
};

/// The result of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// The host's side, absolute.
    pub(crate) host_path: String,
    pub(crate) counts: Counts,
}

impl Copied {
    /// Returns a warning for the caller if entries were left out.
    pub(crate) fn warning(&self) -> Option<String> {
        let Counts { left_out, left_out_paths, .. } = &self.counts;
        (*left_out > 0).then(|| {
            let what = if *left_out == 1 { "1 entry was" } else { &format!("{left_out} entries were") };
            let more = if *left_out > left_out_paths.len() as u64 { ", …" } else { "" };
            format!(
                "{what} skipped: pipes, sockets, devices, links that lead out of the tree, and files that disappeared meanwhile \
                 ({}{more}).",
                left_out_paths.join(", "),
            )
        })
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let broken = |error| Error::new(ErrorKind::Internal, "the copy broke off").with_source(error);
    tokio::task::spawn_blocking(work).await.map_err(broken)?
}

pub(super) async fn locate(caller: HostCaller<'_>, path: &str, access: Access) -> Result<Location> {
    let meant = meant(caller, path)?;
    if access == Access::Write {
        // The engine never sees this write, so it cannot refuse it.
        caller.who.may_change()?;
    }
    let policy = caller.policy.clone();
    let location = blocking(move || Location::find(&policy, &meant, access)).await;
    location.map_err(|error| caller.how_to_allow(error))
}

/// Copies a file or directory of a sandbox to the host. A file becomes `host_path`; what is in a directory comes
/// beneath it. Missing directories are made.
///
/// `watched` sees the bytes go by.
pub(crate) async fn copy_out(
    caller: HostCaller<'_>,
    engine: &Engine,
    which: &SandboxRef,
    path: &str,
    host_path: &str,
    watched: impl Fn(ByteStream) -> ByteStream,
) -> Result<Copied> {
    let location = locate(caller, host_path, Access::Write).await?;
    let host_path = location.shown.to_string_lossy().into_owned();
    // A tree is packed from its own path, never from a link to it.
    let look = async |path: String| {
        let mut entry = engine.stat(caller.who, which, &path, false).await?;
        let target = entry.target.take().filter(|_| entry.kind == FileKind::Symlink);
        Ok::<_, Error>((entry, target))
    };
    let found = behind_links(path, look).await?;
    let (path, entry) = found.ok_or_else(|| {
        Error::new(ErrorKind::WrongState, format!("{path} leads through too many symbolic links"))
    })?;
    let counts = match entry.kind {
        FileKind::File => {
            let draft = blocking(move || location.begin_file(entry.mode)).await;
            let draft = draft.map_err(|error| caller.how_to_allow(error))?;
            let (_, bytes) = engine.read_file(caller.who, which, &path, 0, None).await?;
            feed(watched(bytes), move |reader| receive_file(reader, draft, RULES)).await?
        }
        FileKind::Directory => {
            let shown = location.shown.clone();
            let into = blocking(move || location.make_directory()).await;
            let into = into.map_err(|error| caller.how_to_allow(error))?;
            let tar = watched(engine.pack(caller.who, which, &path).await?);
            // Entries are named beneath the directory's name; the root has none.
            let n_stripped = usize::from(path != "/");
            feed(tar, move |reader| receive_tree(reader, &into, &shown, n_stripped, RULES)).await?
        }
        FileKind::Symlink | FileKind::Fifo | FileKind::Socket | FileKind::Device => {
            let message = format!("{path} is neither a file nor a directory");
            return Err(Error::new(ErrorKind::WrongState, message)
                .with_hint("Pipes, sockets and devices cannot be copied; give a file or a directory."));
        }
    };
    let counts = counts.map_err(|error| caller.how_to_allow(worded(error)))?;
    Ok(Copied { host_path, counts })
}
