//! Where code runs: a sandbox that is there, or one made for it.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sandbox::{Error, ErrorKind, RequestId, SandboxState};
use sha2::{Digest, Sha256};

use crate::mcp::{
    call::Call,
    envelope::Failure,
    tools::create::{self, CreateFields, Made, make},
};

/// How long a sandbox that another call is making may take.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// What was asked of the place.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: Option<String>,
    pub(super) image: Option<String>,
    pub(super) create: bool,
    /// Of the code; its sandbox is found again by it, where it has no name.
    pub(super) request: Option<RequestId>,
}

#[derive(Debug)]
pub(super) struct Place {
    /// Its name, or what the caller calls it.
    pub(super) name: String,
    pub(super) is_new: bool,
    pub(super) warnings: Vec<String>,
}

/// Finds the sandbox, or makes it where that was asked.
pub(super) async fn find(call: &Call, wanted: Wanted) -> Result<Place, Failure> {
    if !wanted.create {
        let name = wanted.name.ok_or_else(|| {
            Failure::invalid("name is missing")
                .with_hint("Give the name of a sandbox (sandbox_list), or create: true to have one made.")
        })?;
        return Ok(Place { name, is_new: false, warnings: Vec::new() });
    }
    if let Some(name) = &wanted.name
        && exists(call, name).await?
    {
        return Ok(Place { name: name.clone(), is_new: false, warnings: Vec::new() });
    }
    match (create(call, &wanted).await, wanted.name) {
        // Someone else makes it meanwhile, which is as good.
        (Err(failure), Some(name))
            if failure.code == ErrorKind::AlreadyExists.as_str() && exists(call, &name).await? =>
        {
            Ok(Place { name, is_new: false, warnings: Vec::new() })
        }
        (made, _) => made,
    }
}

/// Whether it is there. One that another call is making is waited for.
async fn exists(call: &Call, name: &str) -> Result<bool, Failure> {
    let (engine, who, which) = (call.engine(), &call.who, call.sandbox(name)?);
    match engine.sandbox(who, &which).await {
        Ok(view) if view.state == SandboxState::Creating => {
            engine.wait_sandbox(who, &which, SandboxState::Running, Some(START_PATIENCE)).await?;
            Ok(true)
        }
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn create(call: &Call, wanted: &Wanted) -> Result<Place, Failure> {
    let request = match (&wanted.name, &wanted.request) {
        (None, Some(request)) => Some(request_of_place(request)?),
        _ => None,
    };
    let fields = CreateFields {
        name: wanted.name.clone(),
        image: wanted.image.clone(),
        request_id: request.map(|id| id.to_string()),
        ..CreateFields::default()
    };
    let prepared = create::prepare(call, fields)?;
    let mut warnings = prepared.warnings.clone();
    let Made { view, is_new } = make(call, prepared).await?;
    warnings.extend(view.warnings);
    Ok(Place { name: view.name.to_string(), is_new, warnings })
}

/// Never by accident the id of a `sandbox_create` or of a `sandbox_run`.
fn request_of_place(id: &RequestId) -> Result<RequestId, Error> {
    let hash = Sha256::digest(id.as_str().as_bytes());
    Ok(format!("code.{}", BASE64_URL_SAFE_NO_PAD.encode(hash)).parse()?)
}
