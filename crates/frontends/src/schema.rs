//! How types of the `sandbox` crate look in the OpenAPI document. That crate knows nothing of HTTP, so their shapes are
//! described here; a test holds each description against a real value.

use std::collections::BTreeMap;

use sandbox::{ErrorKind, SandboxState};
use utoipa::{
    ToSchema,
    openapi::schema::{ArrayBuilder, Object, ObjectBuilder, Schema, SchemaType, Type},
};

fn one_of(words: &[&str]) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words.iter().copied())).build()
}

fn text() -> Object {
    ObjectBuilder::new().schema_type(Type::String).build()
}

fn whole() -> Object {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0)).build()
}

pub(crate) fn error_kind() -> Object {
    one_of(&ErrorKind::ALL.map(ErrorKind::as_str))
}

pub(crate) fn error_subject() -> Object {
    ObjectBuilder::new()
        .property("what", text())
        .property("name", text())
        .required("what")
        .required("name")
        .build()
}

pub(crate) fn error_limit() -> Object {
    ObjectBuilder::new()
        .property("limit", text())
        .property("most", whole())
        .property("asked", whole())
        .required("limit")
        .required("most")
        .required("asked")
        .build()
}

pub(crate) fn error_next() -> Object {
    ObjectBuilder::new()
        .property("do", text())
        .property("with", ObjectBuilder::new().schema_type(SchemaType::AnyValue).build())
        .required("do")
        .build()
}

pub(crate) fn sandbox_state() -> Object {
    one_of(&SandboxState::ALL.map(SandboxState::as_str))
}

pub(crate) fn exec_state() -> Object {
    one_of(&["starting", "running", "done"])
}

pub(crate) fn context_state() -> Object {
    one_of(&["starting", "idle", "busy", "lost"])
}

pub(crate) fn file_kind() -> Object {
    one_of(&["file", "directory", "symlink", "fifo", "socket", "device"])
}

pub(crate) fn volume_kind() -> Object {
    one_of(&["directory", "disk"])
}

pub(crate) fn walls() -> Object {
    one_of(&["sharedKernel", "userSpaceKernel", "virtualMachine", "pod", "nothing"])
}

pub(crate) fn capabilities() -> Schema {
    let names = one_of(&[
        "pause",
        "memoryLimit",
        "cpuLimit",
        "pidsLimit",
        "hardDiskLimit",
        "images",
        "volumes",
        "snapshots",
        "hostPaths",
    ]);
    Schema::Array(ArrayBuilder::new().items(names).build())
}

/// What was asked of a new sandbox. Everything may be left out.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[serde(deny_unknown_fields)]
pub struct SandboxSpec {
    /// Made up when absent. Letters, digits, `-`, `_` and `.`, at most 63.
    pub name: Option<String>,
    #[schema(default = "default", required = false)]
    pub namespace: String,
    /// Chosen by what the host can do when absent.
    pub backend: Option<BackendKind>,
    /// `host`, or an OCI reference.
    #[schema(default = "host", required = false)]
    pub image: String,
    /// When the registry is asked.
    #[schema(required = false)]
    pub pull: PullPolicy,
    /// In place of an image.
    pub rootfs: Option<RootfsSpec>,
    #[schema(required = false)]
    pub mounts: Vec<MountSpec>,
    /// Applied in their order before anything runs; one that fails makes no sandbox.
    #[schema(required = false)]
    pub patches: Vec<Patch>,
    /// Programs for `/usr/local/bin`: name and text.
    #[schema(required = false)]
    pub scripts: BTreeMap<String, String>,
    #[schema(required = false)]
    pub limits: Limits,
    /// For every exec that does not ask for another of the same resource.
    #[schema(required = false)]
    pub rlimits: Vec<Rlimit>,
    #[schema(required = false)]
    pub env: BTreeMap<String, String>,
    /// Absolute.
    pub cwd: Option<String>,
    /// `name`, `uid`, `name:group` or `uid:gid`: the user of execs that name none.
    pub user: Option<String>,
    /// What reads command lines where none is named; the image's, or `sh`, when absent.
    pub shell: Option<String>,
    /// In place of the image's entry point, and of its command.
    #[schema(required = false)]
    pub entrypoint: Vec<String>,
    pub init: Option<InitSpec>,
    pub hostname: Option<String>,
    #[schema(required = false)]
    pub labels: BTreeMap<String, String>,
    #[schema(required = false)]
    pub lifetime: Lifetime,
    /// The same id again returns the first sandbox instead of making a second one.
    pub request_id: Option<String>,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "kebab-case")]
pub enum PullPolicy {
    /// Every time, so that a moved tag is noticed.
    Always,
    /// What is meant when absent.
    IfMissing,
    Never,
}

/// A root file system that is no image. Paths of the host are for the daemon's owner.
#[derive(Debug, ToSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RootfsSpec {
    /// By name, digest or the beginning of that.
    Snapshot { snapshot: String },
    /// A directory of the host, which is never written to.
    Directory { path: String },
    /// An ext4 file system in a file of the host, which is never written to.
    Disk { path: String },
}

/// A program that runs from each start of a sandbox on, beside whatever else is run in it.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InitSpec {
    pub path: String,
    #[schema(required = false)]
    pub args: Vec<String>,
    #[schema(required = false)]
    pub env: BTreeMap<String, String>,
}

/// Something mounted inside.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct MountSpec {
    /// Absolute, inside.
    pub guest_path: String,
    pub kind: MountKind,
    /// Of a volume of the sandbox's namespace: kind `named`.
    pub name: Option<String>,
    /// Kinds `bind` and `disk`: for the daemon's owner.
    pub host_path: Option<String>,
    /// Bytes of a `tmpfs`.
    pub size: Option<u64>,
    #[schema(required = false)]
    pub readonly: bool,
    #[schema(required = false)]
    pub noexec: bool,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum MountKind {
    Bind,
    Named,
    Tmpfs,
    Disk,
}

/// One change of a new sandbox's files. Which fields it has is told by `kind`.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[serde(deny_unknown_fields)]
pub struct Patch {
    pub kind: PatchKind,
    /// Absolute, inside.
    pub path: String,
    /// Kinds `text` and `append`.
    pub content: Option<String>,
    /// Kind `file`.
    pub content_base64: Option<String>,
    /// Of a `symlink`.
    pub target: Option<String>,
    /// Kinds `copyFile` and `copyDir`: for the daemon's owner.
    pub host_path: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Whether something that is there may be overwritten.
    #[schema(required = false)]
    pub replace: bool,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub enum PatchKind {
    Text,
    File,
    CopyFile,
    CopyDir,
    Mkdir,
    Append,
    Remove,
    Symlink,
}

/// Limits that were asked for. What is absent gets the daemon's default.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Bytes of swap on top of memory.
    pub swap: Option<u64>,
    /// Processors; 0.5 is half of one.
    #[schema(minimum = 0.001, maximum = 4096)]
    pub cpus: Option<f64>,
    pub pids: Option<u32>,
    pub open_files: Option<u32>,
    /// Bytes the sandbox may write to its own layer.
    pub disk: Option<u64>,
    /// Bytes of `/tmp`.
    pub tmp: Option<u64>,
    /// Bytes of `/dev/shm`.
    pub shm: Option<u64>,
}

/// The limits that were decided.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct LimitsPlan {
    pub memory: u64,
    pub swap: u64,
    pub cpus: f64,
    pub pids: u32,
    pub open_files: u32,
    pub disk: u64,
    /// Whether `disk` was asked for by name.
    pub disk_is_hard: bool,
    pub tmp: u64,
    pub shm: u64,
}

/// How long a sandbox lives.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[serde(deny_unknown_fields)]
pub struct Lifetime {
    /// From its start.
    pub ttl_ms: Option<u64>,
    /// Without a request and without a living process of the workload.
    pub idle_ms: Option<u64>,
    /// What happens then.
    #[schema(required = false)]
    pub on_expiry: OnExpiry,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum BackendKind {
    Namespace,
    /// A container runtime of the host's, such as `runc`.
    Oci,
    /// The same with gVisor's `runsc`.
    Gvisor,
    /// A plain process of the host, without any walls.
    Process,
    Fake,
}

#[derive(Debug, ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum OnExpiry {
    Stop,
    Remove,
}

/// The walls one sandbox got, stated by the back end that built them.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Isolation {
    pub backend: String,
    /// What stands between the workload and the host.
    #[schema(schema_with = walls)]
    pub walls: String,
    pub rootless: bool,
    pub id_map: String,
    pub namespaces: Vec<String>,
    pub capabilities: Vec<String>,
    pub no_new_privileges: bool,
    pub seccomp: Option<String>,
    pub network: String,
    pub cgroups: String,
    pub limits: Vec<LimitStatement>,
    pub warnings: Option<Vec<String>>,
}

/// How one limit is held.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct LimitStatement {
    pub limit: String,
    pub value: u64,
    pub enforcement: String,
    pub note: Option<String>,
}

/// What was asked of one exec.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[serde(deny_unknown_fields)]
pub struct ExecSpec {
    /// Program and arguments; a program without a slash is looked for in `PATH`. Left out where `cell` is given.
    #[schema(required = false)]
    pub command: Vec<String>,
    /// Added to the sandbox's own environment.
    #[schema(required = false)]
    pub env: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub user: Option<String>,
    #[schema(required = false)]
    pub rlimits: Vec<Rlimit>,
    /// Present: the exec gets a terminal of this size, and stderr joins stdout.
    pub terminal: Option<TerminalSize>,
    /// Whether stdin stays open for writing.
    #[schema(required = false)]
    pub stdin: bool,
    /// After this long the whole process group is killed.
    pub timeout_ms: Option<u64>,
    /// The same id again returns the first exec instead of starting a second one.
    pub request_id: Option<String>,
    /// Code instead of a command.
    pub cell: Option<CellSpec>,
    /// Whether to tell which files beneath the working directory it made or changed.
    #[schema(required = false)]
    pub track_files: bool,
}

/// A piece of code and where it runs.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct CellSpec {
    /// `python`, `javascript`, `bash`…, by any of their usual names.
    pub language: String,
    /// The interpreter whose variables it shares; the language's own when absent, made when it is not there.
    pub context: Option<String>,
    /// At most 1 MiB.
    pub code: String,
}

/// What a cell is, without its code.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct CellView {
    pub language: String,
    /// Absent for languages that keep no variables.
    pub context: Option<String>,
}

/// An interpreter as it is now.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ContextView {
    pub name: String,
    pub language: String,
    #[schema(schema_with = context_state)]
    pub state: String,
    /// Absent while no interpreter runs.
    pub pid: Option<i32>,
    /// Cells that ended in it.
    pub cells: u64,
    /// Cells that wait for their turn.
    pub queued: u32,
    pub cwd: String,
    /// The context that it was branched from.
    pub parent: Option<String>,
    pub memory_bytes: u64,
}

/// A language that the sandbox can run.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct LanguageView {
    pub name: String,
    /// What runs it.
    pub program: String,
    /// Whether cells share variables.
    pub stateful: bool,
}

#[derive(Debug, ToSchema)]
pub struct Rlimit {
    /// As in `ulimit`: `nofile`, `cpu`, `core`…
    pub resource: String,
    pub soft: u64,
    pub hard: u64,
}

#[derive(Debug, ToSchema)]
pub struct TerminalSize {
    pub rows: u16,
    pub cols: u16,
}

/// How a command ended. None of these is a failure of the request.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ExecOutcome {
    Exited {
        code: u8,
        #[schema(rename = "memoryLimitHit")]
        memory_limit_hit: bool,
    },
    Signaled {
        signal: i32,
    },
    NotStarted {
        reason: String,
        message: String,
    },
    Killed {
        reason: String,
    },
}

/// What a sandbox uses now. Absent: this back end cannot tell on this host.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Usage {
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    /// Microseconds of processor time since the sandbox started.
    pub cpu_micros: Option<u64>,
    pub pids: Option<u64>,
    pub disk_bytes: Option<u64>,
    pub oom_kills: Option<u64>,
}

/// One process inside.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct ProcessEntry {
    pub pid: i32,
    pub parent: i32,
    pub user: u32,
    /// One letter, as in `ps`.
    pub state: String,
    pub memory_bytes: u64,
    pub cpu_micros: u64,
    pub command: Vec<String>,
    pub exec: Option<String>,
}

/// One numbered line of the audit.
#[derive(Debug, ToSchema)]
#[schema(rename_all = "camelCase")]
pub struct Call {
    pub number: u64,
    /// When it was answered.
    #[schema(format = DateTime)]
    pub at: String,
    /// Absent: nobody found out who asked, and so it was refused.
    pub who: Option<String>,
    pub key: Option<String>,
    /// `mcp` or `rest`.
    pub frontend: String,
    /// Name of the tool, or method and route.
    pub action: String,
    /// As the caller named it.
    pub sandbox: Option<String>,
    pub namespace: Option<String>,
    /// Code of the error; absent when it went well.
    pub error: Option<String>,
    pub duration_ms: u64,
    /// Program that the caller says it is.
    pub client: Option<String>,
}

/// One numbered fact.
#[derive(Debug, ToSchema)]
pub struct Event {
    pub number: u64,
    #[schema(format = DateTime)]
    pub at: String,
    /// Such as `sandbox_created` or `exec_ended`.
    pub kind: String,
    pub sandbox: Option<String>,
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub exec: Option<String>,
    pub detail: Option<String>,
}
