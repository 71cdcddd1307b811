//! The sandbox that a call is about: a name in a namespace.

use engine::SandboxRef;
use sandbox::{Error, ErrorKind, Namespace};

use crate::mcp::{Call, Failure};

#[derive(Debug)]
pub(super) struct Target {
    /// As the caller wrote it.
    pub(super) name: String,
    pub(super) which: SandboxRef,
    /// The call, within the namespace that it names.
    pub(super) call: Call,
}

impl Target {
    pub(super) fn new(call: &Call, name: &str, namespace: &str) -> Result<Self, Failure> {
        let namespace = namespace_of(call, namespace)?;
        let call = Call { namespace: Some(namespace.clone()), ..call.clone() };
        let which = SandboxRef::new(name, Some(namespace))?;
        Ok(Self { name: name.to_owned(), which, call })
    }
}

/// A namespace that the caller may see. Others are refused whether they exist or not.
pub(super) fn namespace_of(call: &Call, text: &str) -> Result<Namespace, Failure> {
    let namespace: Namespace = text.parse().map_err(Error::from)?;
    if call.who.sees(&namespace) {
        return Ok(namespace);
    }
    let message = format!("access denied: {} has no access to namespace {namespace}", call.who.name);
    Err(Error::new(ErrorKind::Denied, message).into())
}
