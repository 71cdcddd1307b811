//! Files that a new sandbox gets before anything runs in it: patches and scripts, through its guest, in their order.

mod fence;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use guest_protocol::{Request, Response, WriteMode};
use sandbox::{Error, ErrorKind, Patch, Result, SandboxSpec, Thing};

use self::fence::Fence;
use crate::{ByteStream, Principal, client::GuestClient, core::Core, error};

/// A sandbox that is to be made, with the bytes that belong into no record.
#[derive(Debug, Default)]
pub struct CreateRequest {
    pub spec: SandboxSpec,
    /// What patches of the kinds `copyFile` and `copyDir` copy, by their place in `spec.patches`. Whoever gives one has
    /// made sure that the caller may read it: the engine opens no path of the host.
    pub sources: BTreeMap<usize, PatchSource>,
}

impl From<SandboxSpec> for CreateRequest {
    fn from(spec: SandboxSpec) -> Self {
        Self { spec, sources: BTreeMap::new() }
    }
}

/// A file of the host, or all that is in a directory of it.
pub enum PatchSource {
    File {
        /// Permission bits it gets where the patch says nothing.
        mode: u32,
        bytes: ByteStream,
    },
    Directory {
        tar: ByteStream,
    },
}

impl fmt::Debug for PatchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File { .. } => "File",
            Self::Directory { .. } => "Directory",
        })
    }
}

/// What is left to do in a sandbox that is being made. Taken by the one who makes it: a try that came to nothing leaves it
/// for the next.
#[derive(Debug, Clone)]
pub(crate) struct Pending(Arc<Mutex<Option<Patches>>>);

#[derive(Debug)]
pub(crate) struct Patches {
    who: Principal,
    steps: Vec<Step>,
    /// Where something is mounted: nothing of that is the new sandbox's own.
    mounts: Vec<String>,
}

#[derive(Debug)]
struct Step {
    /// As the caller finds it in the request: `patches[2]`.
    place: String,
    patch: Patch,
    source: Option<PatchSource>,
}

impl Pending {
    /// Takes what is to be done once out of the spec, which goes into the record.
    pub(crate) fn take_from(who: &Principal, request: &mut CreateRequest) -> Result<Self> {
        let CreateRequest { spec, sources } = request;
        let mut steps = Vec::with_capacity(spec.patches.len() + spec.scripts.len());
        for (index, patch) in std::mem::take(&mut spec.patches).into_iter().enumerate() {
            let (place, source) = (format!("patches[{index}]"), sources.remove(&index));
            check_source(&place, &patch, source.as_ref())?;
            steps.push(Step { place, patch, source });
        }
        for (name, text) in std::mem::take(&mut spec.scripts) {
            let place = format!("scripts.{name}");
            steps.push(Step { place, patch: Patch::script(&name, text), source: None });
        }
        let mounts = spec.mounts.iter().map(|mount| mount.guest_path.clone()).collect();
        let patches = (!steps.is_empty()).then(|| Patches { who: who.clone(), steps, mounts });
        Ok(Self(Arc::new(Mutex::new(patches))))
    }

    pub(crate) fn take(&self) -> Option<Patches> {
        // One take is all that ever happens in there.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A host path is opened by the front end, under its policy, or by nobody.
fn check_source(place: &str, patch: &Patch, source: Option<&PatchSource>) -> Result<()> {
    let kind = patch.kind();
    match (patch, source) {
        (Patch::CopyFile { .. }, Some(PatchSource::File { .. }))
        | (Patch::CopyDir { .. }, Some(PatchSource::Directory { .. })) => Ok(()),
        (Patch::CopyFile { host_path, .. } | Patch::CopyDir { host_path, .. }, None) => {
            let message = format!("{place}: the host path {} may not be read", host_path.display());
            Err(Error::new(ErrorKind::Denied, message)
                .with_hint("Give the content in a patch of kind text or file, or use a volume."))
        }
        (_, None) => Ok(()),
        (_, Some(_)) => {
            Err(Error::new(ErrorKind::Internal, format!("{place}: another source than a {kind}")))
        }
    }
}

impl Patches {
    /// Applies them in their order; the first that fails is told by its place.
    pub(crate) async fn apply(self, core: &Core, client: &GuestClient) -> Result<()> {
        let work = Work { core, client };
        let fence = Fence::around(&work, &self.mounts).await?;
        for Step { place, patch, source } in self.steps {
            let applied = async {
                // Whoever may nothing any more may not fill a sandbox either.
                core.keys.admit(&self.who, core.clock.now())?;
                fence.check(&work, &patch).await?;
                work.apply(patch, source).await
            };
            applied.await.map_err(|error| at_place(&place, error))?;
        }
        Ok(())
    }
}

fn at_place(place: &str, error: Error) -> Error {
    let is_there = error.kind() == ErrorKind::AlreadyExists;
    let error = error
        .reworded(|words| format!("{place} failed, so the sandbox was not created: {words}"))
        .about(Thing::Patch, place);
    if is_there {
        error.with_hint("Set replace: true on this patch to overwrite the existing file.")
    } else {
        error
    }
}

struct Work<'a> {
    core: &'a Core,
    client: &'a GuestClient,
}

impl Work<'_> {
    async fn apply(&self, patch: Patch, source: Option<PatchSource>) -> Result<()> {
        match patch {
            Patch::Text { path, content, mode, replace } => {
                self.write(path, how(replace), mode, one(content.into())).await
            }
            Patch::File { path, content, mode, replace } => {
                self.write(path, how(replace), mode, one(content.into())).await
            }
            Patch::Append { path, content, mode } => {
                self.write(path, WriteMode::Append, mode, one(content.into())).await
            }
            Patch::Mkdir { path, mode } => self.order(Request::Mkdir { path, parents: true, mode }).await,
            Patch::Remove { path } => gone(self.order(Request::Remove { path, recursive: true }).await),
            Patch::Symlink { target, path, replace } => self.symlink(target, path, replace).await,
            Patch::CopyFile { path, mode, replace, .. } => match source {
                Some(PatchSource::File { mode: own, bytes }) => {
                    self.write(path, how(replace), mode.or(Some(own)), bytes).await
                }
                _ => Err(no_source()),
            },
            Patch::CopyDir { path, mode, replace, .. } => match source {
                Some(PatchSource::Directory { tar }) => self.copy_tree(path, mode, replace, tar).await,
                _ => Err(no_source()),
            },
        }
    }

    async fn symlink(&self, target: String, path: String, replace: bool) -> Result<()> {
        self.make_parent(&path).await?;
        if replace {
            gone(self.order(Request::Remove { path: path.clone(), recursive: false }).await)?;
        }
        self.order(Request::Symlink { target, path }).await
    }

    async fn copy_tree(&self, path: String, mode: Option<u32>, replace: bool, tar: ByteStream) -> Result<()> {
        if !replace && self.is_there(&path).await? {
            return Err(Error::new(ErrorKind::AlreadyExists, format!("{path} exists")));
        }
        self.order(Request::Mkdir { path: path.clone(), parents: true, mode: None }).await?;
        let request = Request::TarIn { path: path.clone(), keep_ids: false };
        self.upload(&request, tar, self.core.config.deadlines.long_answer).await?;
        match mode {
            Some(mode) => self.order(Request::Chmod { path, mode, recursive: false }).await,
            None => Ok(()),
        }
    }

    async fn make_parent(&self, path: &str) -> Result<()> {
        match path.trim_end_matches('/').rsplit_once('/') {
            Some((parent, _)) if !parent.is_empty() => {
                self.order(Request::Mkdir { path: parent.to_owned(), parents: true, mode: None }).await
            }
            _ => Ok(()),
        }
    }

    async fn is_there(&self, path: &str) -> Result<bool> {
        match self.ask(&Request::Stat { path: path.to_owned(), follow: false }).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn write(
        &self,
        path: String,
        write: WriteMode,
        mode: Option<u32>,
        bytes: ByteStream,
    ) -> Result<()> {
        let request = Request::Write { path: path.clone(), write, mode, parents: true };
        self.upload(&request, bytes, self.core.config.deadlines.answer).await?;
        match mode {
            // A file that was there has kept its own.
            Some(mode) if write != WriteMode::CreateNew => {
                self.order(Request::Chmod { path, mode, recursive: false }).await
            }
            _ => Ok(()),
        }
    }

    async fn upload(
        &self,
        request: &Request,
        bytes: ByteStream,
        patience: std::time::Duration,
    ) -> Result<()> {
        let answer = self.client.upload(request, bytes, Some(patience)).await;
        match answer.map_err(|error| error::from_guest(error, self.client.label()))? {
            Response::Written { .. } => Ok(()),
            other => Err(crate::files::Answer(other, self.client.label().to_owned()).wrong()),
        }
    }

    async fn order(&self, request: Request) -> Result<()> {
        match self.ask(&request).await? {
            Response::Done => Ok(()),
            other => Err(crate::files::Answer(other, self.client.label().to_owned()).wrong()),
        }
    }

    async fn ask(&self, request: &Request) -> Result<Response> {
        let answer = self.client.call(request).await;
        answer.map_err(|error| error::from_guest(error, self.client.label()))
    }
}

fn how(replace: bool) -> WriteMode {
    if replace { WriteMode::Replace } else { WriteMode::CreateNew }
}

fn one(bytes: Bytes) -> ByteStream {
    stream::iter([Ok(bytes)]).boxed()
}

/// What is not there need not be removed.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn no_source() -> Error {
    Error::new(ErrorKind::Internal, "no host file was opened for it")
}
