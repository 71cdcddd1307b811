//! The user name of a login: `[namespace/]sandbox[+user]`.

use engine::SandboxRef;
use sandbox::{Error, Namespace, Result};

/// The destination of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) namespace: Option<Namespace>,
    /// A name or an id.
    pub(crate) sandbox: String,
    /// The user inside; the sandbox's own if absent.
    pub(crate) user: Option<String>,
}

impl Destination {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let (place, user) = match text.split_once('+') {
            Some((_, "")) => return Err(Error::invalid("there is no user after the +")),
            Some((place, user)) => (place, Some(user.to_owned())),
            None => (text, None),
        };
        let (namespace, sandbox) = match place.split_once('/') {
            Some((namespace, sandbox)) => (Some(namespace.parse()?), sandbox),
            None => (None, place),
        };
        let destination = Self { namespace, sandbox: sandbox.to_owned(), user };
        destination.sandbox()?;
        Ok(destination)
    }

    pub(crate) fn sandbox(&self) -> Result<SandboxRef> {
        SandboxRef::new(&self.sandbox, self.namespace.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_sandboxes_and_users() {
        let check = |text: &str, namespace: Option<&str>, sandbox: &str, user: Option<&str>| {
            let found = Destination::parse(text).unwrap();
            let namespace = namespace.map(|name| name.parse().unwrap());
            let (sandbox, user) = (sandbox.to_owned(), user.map(str::to_owned));
            assert_eq!(found, Destination { namespace, sandbox, user }, "{text}");
        };
        check("lab", None, "lab", None);
        check("lab+ana", None, "lab", Some("ana"));
        check("lab+1000:1000", None, "lab", Some("1000:1000"));
        check("red/lab", Some("red"), "lab", None);
        check("red/sbx-0000000000000+root", Some("red"), "sbx-0000000000000", Some("root"));
    }

    #[test]
    fn names_that_are_paths_lead_nowhere() {
        for text in ["", "+", "lab+", "/", "a/", "/lab", "../lab", "a/b/c", "a/../b", "la b", "lab\0", "a/+b"]
        {
            assert!(Destination::parse(text).is_err(), "{text:?}");
        }
    }
}
