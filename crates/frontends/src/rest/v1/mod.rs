//! The types that cross the wire in version 1 of the REST API. A later version gets a folder of its own.
//!
//! Requests refuse fields they do not know; responses may gain fields, so readers must ignore what they do not know.

/// Defines the query of a route: these fields, and the namespace in which its names are looked up. The query refuses
/// what it does not know.
macro_rules! query {
    ($(#[$about:meta])* $name:ident { $($fields:tt)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, serde::Deserialize, utoipa::IntoParams)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        #[into_params(parameter_in = Query)]
        pub struct $name {
            /// The namespace in which the name is looked up; the caller's own when absent.
            pub namespace: Option<sandbox::Namespace>,
            $($fields)*
        }
    };
}

mod builds;
mod calls;
mod code;
mod entries;
mod events;
mod execs;
mod files;
mod fleet;
mod images;
mod keys;
mod links;
mod live;
mod network;
mod packages;
mod ports;
mod runs;
mod sandboxes;
mod secrets;
mod session;
mod snapshots;
mod system;
mod volumes;

pub use crate::{
    http::{ErrorBody, ErrorDetail},
    images::ImageConfig,
};
pub use builds::BuildEvent;
pub use calls::{CallList, CallResult, CallsQuery};
pub use code::{
    CodeEvent, CodeRequest, CodeResult, ContextList, ContextMade, ContextRequest, ForkRequest, LanguageList,
    OutputFormQuery,
};
pub use entries::{ENTRIES_MEDIA_TYPE, EntryKind, ExecEntry, FrameError, decode_frames, encode_frame};
pub use events::EventsQuery;
pub use execs::{
    CapturedOutput, EntriesQuery, Exec, ExecList, ExecQuery, ExecRequest, ExecResult, OutputFound,
    OutputLine, OutputQuery, OutputStream, ResizeRequest, SearchOutputQuery, SignalRequest, SignalScope,
    StdinQuery, StdinWritten, WaitExecQuery,
};
pub use files::{
    ArchiveInQuery, ArchiveQuery, ChmodRequest, ChownRequest, CopyRequest, FileEntry, FileList, GlobQuery,
    GrepMatch, GrepMatches, GrepQuery, LinkTarget, ListQuery, MkdirRequest, Octal, PathList, ReadQuery,
    RemoveRequest, RenameRequest, StatQuery, SymlinkRequest, WatchEvent, WatchQuery, WriteQuery, Written,
};
pub use fleet::{Check, CheckStatus, Diagnosis, Fleet};
pub use images::{
    ArchiveFormat, Image, ImageDetail, ImageLayer, ImageList, ImageStep, ImagesFreed, ImagesUsage,
    ImportQuery, LoadQuery, LoginRequest, PullEvent, PullLayer, PullRequest, PullState, PushRequest, Pushed,
    RemoveImageQuery, TagRequest,
};
pub use keys::{Key, KeyList, KeyRequest, NewKey, SshKey, SshKeyList, SshKeyRequest};
pub use links::{Link, LinkRequest};
pub use live::{
    LiveGone, LiveHello, LiveLagged, LiveMessage, LiveQuery, LiveReady, LiveUsage, TerminalQuery,
};
pub use network::{
    NetworkAnswerQuery, NetworkGrantRequest, NetworkLog, NetworkLogQuery, NetworkRefusal, NetworkRequestList,
    NetworkRequestsQuery,
};
pub use packages::{
    InstallQuery, ManagerPackages, Package, PackageJob, PackageJobList, PackageRequest, PackageStatus,
    Packages, PackagesQuery,
};
pub use ports::{Endpoint, ExposeRequest, Port, PortList};
pub use runs::{RunQuery, RunRequest, RunResult};
pub use sandboxes::{
    ConnectQuery, DrainQuery, NamespaceQuery, ProcessList, RemoveQuery, Sandbox, SandboxChange, SandboxList,
    StopQuery, WaitQuery,
};
pub use secrets::{RemoveSecretQuery, Secret, SecretList, SecretRequest};
pub use session::{NewSession, NewShare, PageAddress, Session, ShareList, ShareRequest, SignInRequest};
pub use snapshots::{
    Diff, DiffQuery, FileChange, ForkList, ForkSandboxRequest, LoadSnapshotQuery, RemoveSnapshotQuery,
    RestoreRequest, SaveSnapshotQuery, Snapshot, SnapshotList, SnapshotRemoved, SnapshotRequest,
    SnapshotVerified, SnapshotsIndexed, VerifySnapshotQuery,
};
pub use system::{Capabilities, Health, Version};
pub use volumes::{Volume, VolumeList, VolumeRequest};
