//! Where code runs: a sandbox that is there, or one made for it.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use engine::{Ensured, SandboxIdentity};
use sandbox::{Error, RequestId};
use sha2::{Digest, Sha256};

use crate::mcp::{
    Call, Failure,
    tools::{
        create::{self, CreateFields, make},
        select,
    },
};

/// Which sandbox the caller asked for.
#[derive(Debug)]
pub(super) struct SandboxChoice {
    pub(super) name: Option<String>,
    pub(super) image: Option<String>,
    pub(super) create: bool,
    /// Of the code; its sandbox is found again by it, where it has no name.
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
    if !choice.create {
        let name = choice.name.ok_or_else(|| {
            Failure::invalid("name is missing")
                .with_hint("Give the name of a sandbox (sandbox_list), or set create: true to create one.")
        })?;
        return Ok(CodeSandbox { name, is_new: false, warnings: Vec::new() });
    }
    let which = choice.name.as_deref().map(|name| call.sandbox(name)).transpose()?;
    let identity = SandboxIdentity { namespace: select::namespace(call), which, request_id: None };
    let mut warnings = Vec::new();
    let make = async {
        let prepared = create::prepare(call, fields(&choice)?)?;
        warnings.clone_from(&prepared.warnings);
        let made = make(call, prepared).await?;
        warnings.extend(made.view.warnings.iter().cloned());
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
    Ok(CreateFields {
        name: choice.name.clone(),
        image: choice.image.clone(),
        request_id: request.map(|id| id.to_string()),
        ..CreateFields::default()
    })
}

/// Never by accident the id of a `sandbox_create` or of a `sandbox_run`.
fn request_of_sandbox(id: &RequestId) -> Result<RequestId, Error> {
    let hash = Sha256::digest(id.as_str().as_bytes());
    Ok(format!("code.{}", BASE64_URL_SAFE_NO_PAD.encode(hash)).parse()?)
}
