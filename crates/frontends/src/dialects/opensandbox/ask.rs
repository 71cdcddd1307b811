//! The parts of a request that every route reads: who asks, about which sandbox, and with which query.

use axum::{
    extract::{FromRequestParts, MatchedPath, Query},
    http::request::Parts,
};
use engine::{Engine, Principal, SandboxRef, SandboxView};
use sandbox::{Error, Result, SandboxState, Thing};

use super::{
    handle::{SandboxHandle, shown},
    listed::{self, Parameters},
};
use crate::{
    http::{ApiError, OPENSANDBOX, caller, path_parameters},
    mcp::Mcp,
    ports::Proxy,
};

/// Most parameters of one query.
const MAX_PAIRS: usize = 1024;

#[derive(Debug, Clone)]
pub(super) struct Front {
    pub(super) mcp: Mcp,
    pub(super) proxy: Proxy,
}

impl Front {
    pub(super) fn engine(&self) -> &Engine {
        self.mcp.engine()
    }
}

/// The caller, with the parameters of path and query.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) who: Principal,
    path: Vec<(String, String)>,
    pub(super) query: Pairs,
}

impl FromRequestParts<Front> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Front) -> Result<Self, ApiError> {
        let caller = Self::of(parts)?;
        caller.query.check(parts)?;
        Ok(caller)
    }
}

impl Caller {
    fn of(parts: &mut Parts) -> Result<Self, ApiError> {
        let who = caller(parts)?;
        let path = path_parameters(parts)?;
        let path = path.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Self { who, path, query: Pairs::of(parts)? })
    }

    pub(super) fn parameter(&self, name: &str) -> &str {
        self.path.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(super) fn port(&self) -> Result<u16> {
        let text = self.parameter("port");
        let port =
            text.parse().ok().filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()));
        port.ok_or_else(|| {
            Error::invalid(format!("{:?} is not a port", shown(text))).with_hint("Ports go from 1 to 65535.")
        })
    }
}

/// A request about one sandbox.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) caller: Caller,
    pub(super) which: SandboxRef,
    engine: Engine,
}

impl FromRequestParts<Front> for Ask {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, front: &Front) -> Result<Self, ApiError> {
        let caller = Caller::of(parts)?;
        let which = sandbox_of(caller.parameter("sandbox"))?;
        // Before anything else of the request is looked at: what is wrong with that must not tell a stranger more.
        front.engine().sandbox(&caller.who, &which).await?;
        caller.query.check(parts)?;
        Ok(Self { caller, which, engine: front.engine().clone() })
    }
}

impl Ask {
    pub(super) fn sandbox(&self) -> SandboxHandle<'_> {
        SandboxHandle { engine: &self.engine, who: &self.caller.who, which: &self.which }
    }

    pub(super) fn who(&self) -> &Principal {
        &self.caller.who
    }

    pub(super) fn query(&self) -> &Pairs {
        &self.caller.query
    }

    pub(super) async fn view(&self) -> Result<SandboxView> {
        self.sandbox().view().await
    }

    /// Starts a sandbox that is stopped. Its clients know no such state: what exists can be used.
    pub(super) async fn awake(&self) -> Result<SandboxHandle<'_>> {
        if matches!(self.view().await?.state, SandboxState::Stopped | SandboxState::Stopping) {
            self.engine.ensure_running(self.who(), &self.which).await?;
        }
        Ok(self.sandbox())
    }
}

/// Ids are opaque to its clients: a text that is none names a sandbox that does not exist.
fn sandbox_of(text: &str) -> Result<SandboxRef> {
    text.parse().map_err(|_malformed: Error| Error::no_such(Thing::Sandbox, shown(text)))
}

/// The parameters of a query, in their order.
#[derive(Debug)]
pub(super) struct Pairs(Vec<(String, String)>);

/// The pairs of a route that answers everyone.
impl FromRequestParts<Front> for Pairs {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Front) -> Result<Self, ApiError> {
        let pairs = Self::of(parts)?;
        pairs.check(parts)?;
        Ok(pairs)
    }
}

impl Pairs {
    fn of(parts: &Parts) -> Result<Self> {
        let Query(pairs): Query<Vec<(String, String)>> =
            Query::try_from_uri(&parts.uri).map_err(|_unreadable| Error::invalid("invalid query"))?;
        if pairs.len() > MAX_PAIRS {
            let message = format!("the query has {} parameters; the limit is {MAX_PAIRS}", pairs.len());
            return Err(Error::invalid(message));
        }
        Ok(Self(pairs))
    }

    /// Refuses parameters that the route does not have: one that is misspelt must not be ignored.
    fn check(&self, parts: &Parts) -> Result<()> {
        let path = parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str).unwrap_or_default();
        let path = path.strip_prefix(OPENSANDBOX).unwrap_or(path);
        let Parameters::Only(known) = listed::parameters(&parts.method, path) else { return Ok(()) };
        let Some((name, _)) = self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) else {
            return Ok(());
        };
        let hint = match known {
            [] => "This route takes no parameters.".to_owned(),
            _ => format!("This route takes {}.", known.join(", ")),
        };
        Err(Error::invalid(format!("unknown parameter {:?}", shown(name))).with_hint(hint))
    }

    pub(super) fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn one(&self, name: &str) -> Result<Option<&str>> {
        let mut found = self.all(name);
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(Error::invalid(format!("the parameter {name} was given twice"))),
        }
    }

    pub(super) fn required(&self, name: &str) -> Result<&str> {
        self.one(name)?.filter(|value| !value.is_empty()).ok_or_else(|| missing(name))
    }

    /// At least one value.
    pub(super) fn several(&self, name: &str) -> Result<Vec<&str>> {
        let found: Vec<_> = self.all(name).collect();
        if found.is_empty() {
            return Err(missing(name));
        }
        Ok(found)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.one(name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
        let number = text.parse().map_err(|_not_one| {
            Error::invalid(format!("the parameter {name} must be a whole number, not {:?}", shown(text)))
        })?;
        Ok(Some(number))
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        match self.one(name)?.map(str::to_ascii_lowercase).as_deref() {
            None | Some("" | "false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(Error::invalid(format!("the parameter {name} must be true or false"))),
        }
    }
}

fn missing(name: &str) -> Error {
    Error::invalid(format!("the parameter {name} is missing")).about(Thing::Route, name)
}
