//! From a request's parts to values, with refusals of our own shape.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use engine::{Principal, SandboxRef, SecretRef, SnapshotRef, VolumeRef};
use sandbox::{ContextName, Error, ErrorKind, ExecId, Namespace, NetworkRequestId, PackageJobId, ShareId};
use serde::de::DeserializeOwned;

use super::{below, packages, v1};
pub(super) use crate::http::{JsonBody, byte_stream};
use crate::{
    code::MAX_OUTPUT_NUMBER,
    http::{ApiError, MAX_JSON_BYTES, caller, path_parameters},
};

/// Longest JSON body of a new sandbox: its patches have up to [`sandbox::MAX_PATCH_BYTES`], which base64 or JSON
/// escapes make longer. As much as a message over MCP may have.
pub(super) const MAX_CREATE_BYTES: usize = 16 * 1024 * 1024;
const _: () = assert!(MAX_CREATE_BYTES > sandbox::MAX_PATCH_BYTES / 3 * 4 + MAX_JSON_BYTES);

/// A query that may say in which namespace a name is looked up.
pub(super) trait InNamespace: DeserializeOwned {
    fn namespace(&self) -> Option<Namespace>;
}

macro_rules! in_namespace {
    ($($query:ident),* $(,)?) => {$(
        impl InNamespace for v1::$query {
            fn namespace(&self) -> Option<Namespace> {
                self.namespace.clone()
            }
        }
    )*};
}

in_namespace!(
    ArchiveInQuery,
    ArchiveQuery,
    ConnectQuery,
    DiffQuery,
    DrainQuery,
    EntriesQuery,
    ExecQuery,
    GlobQuery,
    GrepQuery,
    InstallQuery,
    ListQuery,
    LiveQuery,
    NamespaceQuery,
    NetworkAnswerQuery,
    NetworkLogQuery,
    OutputFormQuery,
    OutputQuery,
    PackagesQuery,
    ReadQuery,
    RemoveQuery,
    RemoveSecretQuery,
    RemoveSnapshotQuery,
    SaveSnapshotQuery,
    SearchOutputQuery,
    StatQuery,
    StdinQuery,
    StopQuery,
    TerminalQuery,
    VerifySnapshotQuery,
    WaitExecQuery,
    WaitQuery,
    WatchQuery,
    WriteQuery,
);

/// A thing that a path names: a sandbox, a volume, a secret or a snapshot.
pub(super) trait Named: Sized {
    /// The parameter of the path.
    const PARAMETER: &'static str;

    fn named(text: &str, namespace: Option<Namespace>) -> Result<Self, Error>;
}

impl Named for SandboxRef {
    const PARAMETER: &'static str = "sandbox";

    fn named(text: &str, namespace: Option<Namespace>) -> Result<Self, Error> {
        Self::typed(text, namespace)
    }
}

impl Named for VolumeRef {
    const PARAMETER: &'static str = "volume";

    fn named(text: &str, namespace: Option<Namespace>) -> Result<Self, Error> {
        Ok(Self { namespace, name: text.parse()? })
    }
}

impl Named for SecretRef {
    const PARAMETER: &'static str = "secret";

    fn named(text: &str, namespace: Option<Namespace>) -> Result<Self, Error> {
        Ok(Self { namespace, name: text.parse()? })
    }
}

impl Named for SnapshotRef {
    const PARAMETER: &'static str = "snapshot";

    fn named(text: &str, namespace: Option<Namespace>) -> Result<Self, Error> {
        Self::new(text, namespace)
    }
}

/// The asker of a request, what it is about, and its query.
pub(super) struct Ask<Q = v1::NamespaceQuery, W = SandboxRef> {
    pub(super) who: Principal,
    pub(super) which: W,
    pub(super) query: Q,
}

pub(super) type AskVolume<Q = v1::NamespaceQuery> = Ask<Q, VolumeRef>;
pub(super) type AskSnapshot<Q = v1::NamespaceQuery> = Ask<Q, SnapshotRef>;

/// The same about one exec of the sandbox.
pub(super) struct AskExec<Q = v1::NamespaceQuery> {
    pub(super) who: Principal,
    pub(super) which: SandboxRef,
    pub(super) exec: ExecId,
    pub(super) query: Q,
}

impl<S: Send + Sync, Q: InNamespace + Send, W: Named> FromRequestParts<S> for Ask<Q, W> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::of(parts)
    }
}

impl<Q: InNamespace, W: Named> Ask<Q, W> {
    fn of(parts: &mut Parts) -> Result<Self, ApiError> {
        let who = caller(parts)?;
        let query: Q = query(parts)?;
        let which = W::named(&path_parameter(parts, W::PARAMETER)?, query.namespace())?;
        Ok(Self { who, which, query })
    }
}

impl<S: Send + Sync, Q: InNamespace + Send> FromRequestParts<S> for AskExec<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Ask { who, which, query } = Ask::of(parts)?;
        let text = path_parameter(parts, "exec")?;
        let exec = text.parse().map_err(|_malformed| {
            let shown: String = text.chars().take(64).collect();
            Error::not_found(format!("no exec {shown:?}"))
                .with_hint("An exec's id is exc- and 13 characters; GET …/execs lists them.")
        })?;
        Ok(Self { who, which, exec, query })
    }
}

/// The same about one package job of the sandbox.
pub(super) struct AskJob<Q = v1::NamespaceQuery> {
    pub(super) who: Principal,
    pub(super) which: SandboxRef,
    pub(super) job: PackageJobId,
    pub(super) query: Q,
}

impl<S: Send + Sync, Q: InNamespace + Send> FromRequestParts<S> for AskJob<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Ask { who, which, query } = Ask::of(parts)?;
        let text = path_parameter(parts, "job")?;
        let job = text.parse().map_err(|_malformed| packages::no_such_job(&text))?;
        Ok(Self { who, which, job, query })
    }
}

/// The same about one request for more network of the sandbox.
pub(super) struct AskNetworkRequest<Q = v1::NamespaceQuery> {
    pub(super) who: Principal,
    pub(super) which: SandboxRef,
    pub(super) request: NetworkRequestId,
    pub(super) query: Q,
}

impl<S: Send + Sync, Q: InNamespace + Send> FromRequestParts<S> for AskNetworkRequest<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let Ask { who, which, query } = Ask::of(parts)?;
        let text = path_parameter(parts, "request")?;
        let request = text.parse().map_err(|_malformed| {
            let shown: String = text.chars().take(64).collect();
            Error::not_found(format!("no request {shown:?}"))
                .with_hint("A request's id is ask- and 13 characters; GET /v1/network/requests lists them.")
        })?;
        Ok(Self { who, which, request, query })
    }
}

fn path_parameter(parts: &mut Parts, name: &str) -> Result<String, ApiError> {
    let parameters = path_parameters(parts)?;
    let found = parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    found.ok_or_else(|| {
        Error::new(ErrorKind::Internal, format!("this route has no {name} in its path")).into()
    })
}

fn query<Q: DeserializeOwned>(parts: &Parts) -> Result<Q, ApiError> {
    match Query::try_from_uri(&parts.uri) {
        Ok(Query(query)) => Ok(query),
        Err(rejection) => {
            let text = std::error::Error::source(&rejection)
                .map_or_else(|| rejection.to_string(), ToString::to_string);
            Err(Error::invalid(format!("invalid query for this route: {text}")).into())
        }
    }
}

/// The key that the path names: an id or a label.
pub(super) struct PathKey(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathKey {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        path_parameter(parts, "key").map(Self)
    }
}

/// The share that the path names.
pub(super) struct PathShare(pub(super) ShareId);

impl<S: Send + Sync> FromRequestParts<S> for PathShare {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let text = path_parameter(parts, "share")?;
        let share = text.parse().map_err(|_malformed| {
            let shown: String = text.chars().take(64).collect();
            Error::not_found(format!("no share {shown:?}"))
                .with_hint("A share's id is shr- and 13 characters; GET /v1/shares lists them.")
        })?;
        Ok(Self(share))
    }
}

/// The port that the path names.
pub(super) struct PathPort(pub(super) u16);

impl<S: Send + Sync> FromRequestParts<S> for PathPort {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self(below::port_of(&path_parameter(parts, "port")?)?))
    }
}

/// The image that the path names: a reference, a digest, or the beginning of that.
pub(super) struct PathImage(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PathImage {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        path_parameter(parts, "image").map(Self)
    }
}

/// The output of a cell that the path names.
pub(super) struct PathNumber(pub(super) u32);

impl<S: Send + Sync> FromRequestParts<S> for PathNumber {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let text = path_parameter(parts, "number")?;
        let number = text.parse().ok().filter(|number| (1..=MAX_OUTPUT_NUMBER).contains(number));
        number.map(Self).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Error::not_found(format!("no output {shown:?}")).with_hint("Outputs are numbered from 1.").into()
        })
    }
}

/// The context that the path names.
pub(super) struct PathContext(pub(super) ContextName);

impl<S: Send + Sync> FromRequestParts<S> for PathContext {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let text = path_parameter(parts, "context")?;
        let name = text.parse().map_err(|_malformed| {
            let shown: String = text.chars().take(64).collect();
            Error::not_found(format!("no context {shown:?}")).with_hint("GET …/contexts lists them.")
        });
        name.map(Self).map_err(ApiError::from)
    }
}

/// A query that names no sandbox.
pub(super) struct Params<Q>(pub(super) Q);

impl<S: Send + Sync, Q: DeserializeOwned> FromRequestParts<S> for Params<Q> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        query(parts).map(Self)
    }
}

/// The asker of a request.
pub(super) struct Caller(pub(super) Principal);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        caller(parts).map(Self)
    }
}
