//! The caller's sandboxes: `create_sandbox`, `list_sandboxes`, and how all others find the one that is meant.
//!
//! A sandbox belongs to the key that made it. What another key made does not exist here, even in the same namespace.

use std::collections::BTreeMap;

use engine::{CreateRequest, Engine, Principal, SandboxFilter, SandboxRef, SandboxView};
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, Label, Namespace, PackageManager, Patch, Result, SandboxSpec, SandboxState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MAX_SANDBOXES, WORK_DIRECTORY, words};
use crate::{
    dialects::python,
    mcp::{Answer, Call, Failure, ToolResult},
};

/// Sandboxes whose packages are looked for at the same time.
const MAX_AT_ONCE: usize = 4;
/// Marks the sandboxes of this dialect.
const DIALECT_LABEL: (&str, &str) = ("warren.dialect", super::DIALECT.name);
/// The label that holds the user's name for a sandbox: any text, also one that another sandbox has.
const NAME_LABEL: &str = "mcp-sandbox.name";

/// The user whose sandboxes are meant.
#[derive(Debug, Clone)]
pub(super) struct User<'a> {
    pub(super) engine: &'a Engine,
    pub(super) who: &'a Principal,
    namespace: Namespace,
}

impl<'a> User<'a> {
    pub(super) fn new(engine: &'a Engine, who: &'a Principal, namespace: Option<Namespace>) -> Self {
        Self { engine, who, namespace: namespace.unwrap_or_else(|| who.home_namespace()) }
    }

    pub(super) fn of(call: &'a Call) -> Self {
        Self::new(call.engine(), &call.who, call.namespace.clone())
    }

    pub(super) fn id(&self) -> String {
        self.who.key.as_ref().map_or_else(|| self.who.name.clone(), ToString::to_string)
    }

    /// Every one that the key made, also by another interface. Oldest first.
    pub(super) async fn sandboxes(&self) -> Result<Vec<SandboxView>> {
        let filter = SandboxFilter { namespace: Some(self.namespace.clone()), ..SandboxFilter::default() };
        let mut own = self.engine.sandboxes(self.who, &filter).await?;
        own.retain(|view| self.owns(view));
        own.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(own)
    }

    /// The sandbox with this id. A wrong one, one of somebody else and one that is gone read the same.
    pub(super) async fn find(&self, id: &str) -> Result<SandboxView> {
        let which = SandboxRef::new(id, Some(self.namespace.clone())).map_err(|_malformed| no_access())?;
        let view = match self.engine.sandbox(self.who, &which).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(no_access()),
            found => found?,
        };
        if self.owns(&view) { Ok(view) } else { Err(no_access()) }
    }

    fn owns(&self, view: &SandboxView) -> bool {
        view.owner == self.who.key
    }
}

/// Whether it was made here: only such a sandbox counts for the limit.
fn is_of_dialect(view: &SandboxView) -> bool {
    view.spec.labels.get(DIALECT_LABEL.0).is_some_and(|name| name == DIALECT_LABEL.1)
}

/// Finds the sandbox of a call.
pub(super) async fn find(call: &Call, id: &str) -> Result<SandboxView, Failure> {
    User::of(call).find(id).await.map_err(words::failure)
}

fn no_access() -> Error {
    Error::not_found("Access denied. You don't have permission to access this sandbox.")
        .with_hint(words::YOURS)
}

/// Returns the user's name for a sandbox.
pub(super) fn name_of(view: &SandboxView) -> String {
    view.spec.labels.get(NAME_LABEL).cloned().unwrap_or_else(|| view.name.to_string())
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct CreateArguments {
    #[serde(default)]
    #[schemars(with = "Option<String>", default)]
    name: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Created {
    sandbox_id: String,
    user_id: String,
    name: String,
    status: &'static str,
}

pub(super) async fn create(call: Call, arguments: CreateArguments) -> ToolResult<Created> {
    let user = User::of(&call);
    // So that nobody gets past the limit by asking twice at once.
    let _one_at_a_time = call.mcp.creations().take(user.id()).await;
    let mut own = user.sandboxes().await.map_err(words::failure)?;
    own.retain(is_of_dialect);
    if own.len() >= MAX_SANDBOXES as usize {
        return Err(words::failure(full(&own)));
    }
    let asked = arguments.name.filter(|name| !name.trim().is_empty());
    let name = asked.unwrap_or_else(|| format!("Sandbox {}", own.len() + 1));
    if Label::new(NAME_LABEL, &name).is_err() {
        return Err(Failure::invalid("the name is too long, or has control characters")
            .with_hint("Give a short text, or none."));
    }
    let made = user
        .engine
        .create_sandbox(user.who, CreateRequest::of_agent(spec(&user, &name)))
        .await
        .map_err(words::failure)?;
    python::add(user.engine, user.who, &SandboxRef::from(&made.id)).await;
    let created = Created { sandbox_id: made.id.to_string(), user_id: user.id(), name, status: "active" };
    Ok(Answer::new(created).warn_all(made.warnings))
}

fn spec(user: &User<'_>, name: &str) -> SandboxSpec {
    let (key, value) = DIALECT_LABEL;
    SandboxSpec {
        namespace: user.namespace.clone(),
        cwd: Some(WORK_DIRECTORY.to_owned()),
        patches: vec![Patch::Mkdir { path: WORK_DIRECTORY.to_owned(), mode: None }],
        labels: BTreeMap::from([
            (key.to_owned(), value.to_owned()),
            (NAME_LABEL.to_owned(), name.to_owned()),
        ]),
        ..SandboxSpec::default()
    }
}

/// Says which sandboxes can be used instead, and how to make room: an agent that fills its share must not be stuck.
fn full(own: &[SandboxView]) -> Error {
    let listed: Vec<_> = own.iter().map(|view| format!("{} ({})", view.id, name_of(view))).collect();
    let message = format!(
        "You have reached the maximum limit of {MAX_SANDBOXES} sandboxes. \
         Please delete an existing sandbox before creating a new one."
    );
    Error::new(ErrorKind::LimitReached, message).with_hint(format!(
        "Or use one of yours: {}. {}",
        listed.join(", "),
        words::HOW_TO_DELETE
    ))
}

#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct NoArguments {}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Listed {
    sandbox_id: String,
    name: String,
    installed_packages: Vec<Installed>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Installed {
    name: String,
    version: String,
}

pub(super) async fn list(call: Call, _: NoArguments) -> ToolResult<Vec<Listed>> {
    let user = User::of(&call);
    let own = user.sandboxes().await.map_err(words::failure)?;
    let listed = stream::iter(own).map(|view| listed(user.clone(), view)).buffered(MAX_AT_ONCE);
    Ok(Answer::new(listed.collect().await))
}

/// A sandbox that does not run is not started for it, and shows no packages.
async fn listed(user: User<'_>, view: SandboxView) -> Listed {
    let found = match view.state {
        SandboxState::Running => {
            let which = SandboxRef::from(&view.id);
            user.engine.packages(user.who, &which, Some(PackageManager::Pip)).await.unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let packages = found.into_iter().flat_map(|listing| listing.packages);
    Listed {
        sandbox_id: view.id.to_string(),
        name: name_of(&view),
        installed_packages: packages
            .map(|package| Installed { name: package.name, version: package.version })
            .collect(),
    }
}
