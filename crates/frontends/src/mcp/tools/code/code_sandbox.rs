//! The sandbox in which code runs: one that is there, or one made for it.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use engine::{Ensured, SandboxIdentity};
use sandbox::{Error, OnExpiry, RequestId, SandboxId};
use sha2::{Digest, Sha256};

use crate::mcp::{
    Call, Failure,
    tools::{
        create::{self, CreateFields, make},
        select,
    },
};

/// How long a sandbox that the caller did not name lives without use.
const UNNAMED_IDLE: Duration = Duration::from_secs(60 * 60);

/// The sandbox that the caller asked for.
#[derive(Debug)]
pub(super) struct SandboxChoice {
    pub(super) name: Option<String>,
    pub(super) image: Option<String>,
    /// A missing one is made.
    pub(super) creates: bool,
    /// The id of the request to run the code; its sandbox is found again by it, where it has no name.
    pub(super) request: Option<RequestId>,
}

#[derive(Debug)]
pub(super) struct CodeSandbox {
    /// Its name, or what the caller calls it.
    pub(super) name: String,
    pub(super) is_new: bool,
    pub(super) warnings: Vec<String>,
}

/// Finds the sandbox, or makes it where that was asked.
pub(super) async fn find(call: &Call, choice: SandboxChoice) -> Result<CodeSandbox, Failure> {
    // An id is of a sandbox that exists, or existed: no new one gets it.
    let is_id = choice.name.as_deref().is_some_and(|name| name.starts_with(SandboxId::PREFIX));
    if !choice.creates || is_id {
        let name = choice.name.ok_or_else(|| {
            Failure::invalid("name is missing, and create is false")
                .with_hint("Give the name of a sandbox (sandbox_list), or omit create to have one made.")
        })?;
        return Ok(CodeSandbox { name, is_new: false, warnings: Vec::new() });
    }
    let which = choice.name.as_deref().map(|name| call.sandbox(name)).transpose()?;
    let identity =
        SandboxIdentity { namespace: select::namespace(call), which, ..SandboxIdentity::default() };
    let mut warnings = Vec::new();
    let make = async {
        let prepared = create::prepare(call, fields(&choice)?)?;
        warnings.clone_from(&prepared.warnings);
        let made = make(call, prepared).await?;
        warnings.extend(made.view.warnings.iter().cloned());
        if choice.name.is_none() && made.is_new {
            warnings.push(made_up(made.view.name.as_str()));
        }
        Ok::<_, Failure>(made)
    };
    let Ensured { view, is_new } = call.engine().ensure_exists(&call.who, &identity, make).await?;
    Ok(CodeSandbox { name: choice.name.unwrap_or_else(|| view.name.to_string()), is_new, warnings })
}

fn fields(choice: &SandboxChoice) -> Result<CreateFields, Error> {
    let request = match (&choice.name, &choice.request) {
        (None, Some(request)) => Some(request_of_sandbox(request)?),
        _ => None,
    };
    // Nobody asked for one that stays, and a model that forgets its name makes the next.
    let is_passing = choice.name.is_none();
    Ok(CreateFields {
        name: choice.name.clone(),
        idle_timeout: is_passing.then_some(UNNAMED_IDLE.as_secs()),
        on_expiry: is_passing.then_some(OnExpiry::Remove),
        image: choice.image.clone(),
        request_id: request.map(|id| id.to_string()),
        ..CreateFields::default()
    })
}

fn made_up(name: &str) -> String {
    format!(
        "Sandbox {name} was made for this: pass name {name} to go on with its variables and files. It is removed after \
         {} minutes without use; sandbox_renew keeps it longer.",
        UNNAMED_IDLE.as_secs() / 60
    )
}

/// Never by accident the id of a `sandbox_create` or of a `sandbox_run`.
fn request_of_sandbox(id: &RequestId) -> Result<RequestId, Error> {
    let hash = Sha256::digest(id.as_str().as_bytes());
    Ok(format!("code.{}", BASE64_URL_SAFE_NO_PAD.encode(hash)).parse()?)
}
