//! Tells a repeated request from another one that came with the same request id.
//!
//! A record keeps a hash of what was asked, because it does not keep all of it: patches are applied once, and of code
//! it has only the beginning.

use sandbox::{Error, ExecSpec, RequestId, Result};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a request, in hexadecimal. Secrets are not part of it: a spec only names them.
pub fn request_hash(request: &impl Serialize) -> Option<String> {
    // Specs are made of maps with text keys, so this cannot fail; without a hash the request id alone counts.
    let json = serde_json::to_vec(request).ok()?;
    Some(Sha256::digest(json).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// None without a request id: nobody will compare it.
pub(crate) fn of_exec(spec: &ExecSpec) -> Option<String> {
    spec.request_id.as_ref()?;
    let mut asked = spec.clone();
    // Which shell reads a line is often the sandbox's choice, and the line itself may have installed a better one.
    if let [program, option, _line, ..] = &mut asked.command[..]
        && option == "-c"
    {
        program.clear();
    }
    // Whether the answer lists changed files does not make it another request.
    asked.track_files = false;
    request_hash(&asked)
}

/// Refuses what is not the request that the id belongs to. Records of earlier releases have no hash and match all.
pub(crate) fn check(request: Option<&RequestId>, known: Option<&str>, asked: Option<&str>) -> Result<()> {
    let (Some(request), Some(known), Some(asked)) = (request, known, asked) else { return Ok(()) };
    if known == asked { Ok(()) } else { Err(taken(request)) }
}

pub(crate) fn taken(request: &RequestId) -> Error {
    Error::invalid(format!("requestId {request} belongs to another request"))
        .with_hint("Use a new requestId; only an unchanged request may be sent again with the same one.")
}
