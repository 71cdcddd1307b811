//! The options that the owner of a store of images decides.

use std::{
    collections::BTreeMap,
    env, fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    digest::Digest,
    error::{Error, Result},
    unpack::{InProcess, OpaqueMark, Unpacker},
};

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

#[derive(Debug, Clone)]
pub struct Options {
    /// Most bytes that images may take on disk. The least recently used ones go first; none that is used or held goes
    /// at all.
    pub disk_cap: Option<u64>,
    /// How many layers are downloaded at a time, over all pulls.
    pub downloads: usize,
    /// How many layers are unpacked at a time, over all pulls.
    pub unpacks: usize,
    /// Asked in this order before the registry itself.
    pub mirrors: Vec<Mirror>,
    /// Registries (`host` or `host:port`) that are spoken to without TLS. Those on loopback always are.
    pub insecure: Vec<String>,
    /// The only registries that pulls with [`Reach::Public`] may ask, wherever they are; any at a public address, where
    /// there is no such list. Those of `insecure` and the mirrors belong to it. Such pulls use the credentials of
    /// `auth` only at registries of this list.
    pub registries: Option<Vec<String>>,
    /// Certificate authorities (PEM) beyond the system's.
    pub ca_files: Vec<PathBuf>,
    pub auth: Auth,
    pub timeouts: Timeouts,
    pub retry: Retry,
    pub limits: Limits,
    pub opaque: OpaqueMark,
    /// Where layers are unpacked and removed: in this process, or by a helper with other rights.
    pub unpacker: Arc<dyn Unpacker>,
    /// The other users of images, beyond those who hold an [`Image`](crate::Image).
    pub users: Arc<dyn Users>,
    /// Whether a layer is on the disk, and not only in memory, before it is used. Without, a power cut may leave a
    /// layer with empty files; a crash of this process never does.
    pub durable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            disk_cap: None,
            downloads: 4,
            unpacks: 2,
            mirrors: Vec::new(),
            insecure: Vec::new(),
            registries: None,
            ca_files: Vec::new(),
            auth: Auth::Anonymous,
            timeouts: Timeouts::default(),
            retry: Retry::default(),
            limits: Limits::default(),
            opaque: OpaqueMark::default(),
            unpacker: Arc::new(InProcess),
            users: Arc::new(NoUsers),
            durable: true,
        }
    }
}

impl Options {
    /// Registries that the operator named, so that they may be at any address.
    pub(crate) fn named_registries(&self) -> impl Iterator<Item = &String> {
        self.insecure.iter().chain(self.registries.iter().flatten())
    }

    /// Whether pulls with [`Reach::Public`] use the operator's credentials at this registry: only if the operator
    /// listed it for them. What the operator may read is otherwise not theirs to have.
    pub(crate) fn lends_login_for(&self, registry: &str) -> bool {
        self.registries.iter().flatten().any(|listed| listed == registry)
    }

    /// Refuses a registry that is not in the operator's list.
    pub(crate) fn check_allowed(&self, registry: &str) -> Result<()> {
        if self.registries.is_none() || self.named_registries().any(|named| named == registry) {
            return Ok(());
        }
        let what = format!("registry {registry}");
        Err(Error::Denied { what, why: "it is not among the registries that are allowed here".to_owned() })
    }
}

/// Where a pull may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Wherever the reference and the registry say. For whoever runs this program.
    #[default]
    Everywhere,
    /// To public addresses and to what [`Options`] name, at every step. For everybody else.
    Public,
}

/// Knows who uses images, from records of its own: nothing about users is written down here.
pub trait Users: fmt::Debug + Send + Sync {
    /// Everybody who uses an image now, by the digest of its manifest, in words such as `sandbox web`. Asked whenever
    /// images are removed, listed or collected, so it must be quick, and must not ask the store of images anything.
    /// `None`: it cannot be told now, so every image may be in use.
    ///
    /// Whoever begins to use an image holds an [`Image`](crate::Image) of it until this tells of them.
    fn of_images(&self) -> Option<BTreeMap<Digest, Vec<String>>>;
}

/// Nobody but those who hold an [`Image`](crate::Image).
#[derive(Debug, Clone, Copy, Default)]
pub struct NoUsers;

impl Users for NoUsers {
    fn of_images(&self) -> Option<BTreeMap<Digest, Vec<String>>> {
        Some(BTreeMap::new())
    }
}

/// Another place to ask for the images of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The registry whose images it has: `docker.io`.
    pub registry: String,
    /// `https://mirror.example`, to which `/v2/…` is added.
    pub url: String,
}

/// Where credentials come from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    #[default]
    Anonymous,
    /// `config.json` as Docker keeps it, with its credential helpers. Read at every pull; it need not exist.
    DockerConfig(PathBuf),
    /// By registry, as it is written in references.
    Given(BTreeMap<String, Credentials>),
}

impl Auth {
    /// `$DOCKER_CONFIG/config.json`, or the one in the home directory.
    pub fn of_environment() -> Self {
        let directory = env::var_os("DOCKER_CONFIG")
            .map(PathBuf::from)
            .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".docker")));
        directory.map_or(Self::Anonymous, |directory| Self::DockerConfig(directory.join("config.json")))
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    pub connect: Duration,
    /// Longest silence while an answer is read.
    pub idle: Duration,
    /// Longest time for a manifest, a token or a credential helper, from question to last byte.
    pub request: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            request: Duration::from_secs(60),
        }
    }
}

/// How often and how soon a registry is asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Attempts that bring nothing new, before giving up.
    pub attempts: u32,
    /// The wait after the first; it doubles each time.
    pub first_wait: Duration,
    /// The longest wait, also when the registry asks for a longer one: then the pull fails and says how long.
    pub longest_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 5, first_wait: Duration::from_millis(250), longest_wait: Duration::from_secs(60) }
    }
}

/// Limits beyond which no image is honest. Everything in an image comes from strangers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Largest manifest, index or configuration; they are held in memory.
    pub max_document_bytes: u64,
    /// Most layers of an image: the kernel stacks no more than 500.
    pub max_layers: usize,
    /// Largest layer as it is downloaded.
    pub max_blob_bytes: u64,
    /// Largest layer, uncompressed: the end of a decompression bomb.
    pub max_layer_bytes: u64,
    /// Most entries of one layer, and most directories.
    pub max_entries: u64,
    /// Most bytes of names and attributes of the directories of one layer: whoever unpacks holds them in memory.
    pub max_directory_bytes: u64,
    /// Most members of an archive that is loaded.
    pub max_archive_members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_document_bytes: 4 * MIB,
            max_layers: 255,
            max_blob_bytes: 32 * GIB,
            max_layer_bytes: 64 * GIB,
            max_entries: 1_000_000,
            max_directory_bytes: 256 * MIB,
            max_archive_members: 10_000,
        }
    }
}
