//! Files that a new sandbox gets before anything runs in it: patches and scripts, applied in order by its guest.

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
use crate::{ByteStream, GivenSecrets, Principal, client::GuestClient, core::Core, error};

/// The request for a sandbox, with data that is not recorded.
#[derive(Debug, Default)]
pub struct CreateRequest {
    pub spec: SandboxSpec,
    /// Sources of `copyFile` and `copyDir` patches, by their index in `spec.patches`. The provider of a source has
    /// checked that the caller may read it: the engine opens no host path.
    pub sources: BTreeMap<usize, PatchSource>,
    pub secrets: GivenSecrets,
    /// The [hash](crate::request_hash()) of what the caller asked for, if the front end has changed the spec since.
    /// Without it, the spec is hashed.
    pub request_hash: Option<String>,
    /// An agent asks: a sandbox without a limit of time gets [`EngineConfig::agent_idle`](crate::EngineConfig).
    pub by_agent: bool,
}

impl CreateRequest {
    /// The request of an agent, which may forget what it made.
    pub fn of_agent(spec: SandboxSpec) -> Self {
        Self { spec, by_agent: true, ..Self::default() }
    }
}

impl From<SandboxSpec> for CreateRequest {
    fn from(spec: SandboxSpec) -> Self {
        Self { spec, ..Self::default() }
    }
}

/// A host file, or the contents of a host directory.
pub enum PatchSource {
    File {
        /// Permission bits if the patch sets none.
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

/// The remaining work in a sandbox in the making. Taken by its maker: a failed attempt leaves it for the next.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    patches: Arc<Mutex<Option<Patches>>>,
    pub(crate) secrets: GivenSecrets,
}

#[derive(Debug)]
pub(crate) struct Patches {
    who: Principal,
    steps: Vec<Step>,
    /// Mount points: their contents are not the new sandbox's own.
    mounts: Vec<String>,
}

#[derive(Debug)]
struct Step {
    /// Its position in the request: `patches[2]`.
    place: String,
    patch: Patch,
    source: Option<PatchSource>,
}

impl Pending {
    /// Takes the one-time parts out of the spec, which goes into the record.
    pub(crate) fn take_from(who: &Principal, request: &mut CreateRequest) -> Result<Self> {
        let CreateRequest { spec, sources, secrets, .. } = request;
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
        Ok(Self { patches: Arc::new(Mutex::new(patches)), secrets: std::mem::take(secrets) })
    }

    pub(crate) fn take(&self) -> Option<Patches> {
        // One take is all that ever happens in there.
        self.patches.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A host path is opened by the front end, under its policy, or not at all.
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
    /// Applies them in order; an error names the failed one by its position.
    pub(crate) async fn apply(self, core: &Core, client: &GuestClient) -> Result<()> {
        let work = Work { core, client };
        let fence = Fence::around(&work, &self.mounts).await?;
        for Step { place, patch, source } in self.steps {
            let applied = async {
                // A caller who lost all rights may not fill a sandbox either.
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
    if is_there { error.with_hint("Set replace: true on this patch to overwrite the file.") } else { error }
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
            // An existing file has kept its own.
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

/// A missing file need not be removed.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn no_source() -> Error {
    Error::new(ErrorKind::Internal, "no host file was opened for it")
}
