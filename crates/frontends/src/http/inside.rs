//! The token by which OpenSandbox's clients reach into a sandbox. They send no key there, but every header that they
//! were given together with the address.

use axum::http::request::Parts;
use engine::{LinkTarget, OpenLink};
use sandbox::{Error, ErrorKind, SandboxId, Thing};

use super::theirs::OPENSANDBOX;

/// Given with the address of a port, and sent with every request to it.
pub(crate) const HEADER: &str = "opensandbox-secure-access";

/// A request that shows a token for what its path names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) token: &'a str,
    sandbox: &'a str,
    port: &'a str,
}

/// Tokens count only below the address that they were given with.
pub(super) fn asked(request: &Parts) -> Option<Asked<'_>> {
    let token = request.headers.get(HEADER)?.to_str().ok()?;
    let path = request.uri.path().strip_prefix(OPENSANDBOX)?.strip_prefix("/sandboxes/")?;
    let mut parts = path.split('/');
    let (sandbox, proxy, port) = (parts.next()?, parts.next()?, parts.next()?);
    (proxy == "proxy").then_some(Asked { token, sandbox, port })
}

impl Asked<'_> {
    /// The refusal of a token that was valid until its sandbox ended. It says so only to requests for that sandbox.
    pub(super) fn refused_without(self, sandbox: &SandboxId) -> Error {
        match self.sandbox == sandbox.as_str() {
            true => Error::no_such(Thing::Sandbox, sandbox.as_str()),
            false => refused(),
        }
    }

    /// Whether a token is for this sandbox and port.
    pub(super) fn opens(self, link: &OpenLink) -> bool {
        let is_port = match link.target {
            LinkTarget::Inside => true,
            LinkTarget::Port { port } => self.port == port.to_string(),
            LinkTarget::File { .. } | LinkTarget::Output { .. } => false,
        };
        link.sandbox.as_str() == self.sandbox && is_port
    }
}

/// The same words for a token that was never made, has ended, or is for something else.
pub(super) fn refused() -> Error {
    let message = format!("the token in the header {HEADER} does not open this address");
    Error::new(ErrorKind::Unauthenticated, message)
        .with_hint("Ask for the endpoint again, and send the headers that come with it.")
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use engine::{LinkLasts, Principal};

    use super::*;

    #[test]
    fn a_token_opens_its_own_sandbox_and_port_at_their_address_only() {
        let own = SandboxId::from_random([1; 8]);
        let lasts = LinkLasts::WithItsKey;
        let link =
            |target| OpenLink { who: Principal::developer("dev"), sandbox: own.clone(), target, lasts };
        let check = |path: &str, target: LinkTarget| {
            let request = Request::builder().uri(path).header(HEADER, "t").body(()).unwrap().into_parts().0;
            asked(&request).map(|asked| asked.opens(&link(target)))
        };
        let at =
            |sandbox: &SandboxId, port: &str| format!("/opensandbox/v1/sandboxes/{sandbox}/proxy/{port}");
        let other = SandboxId::from_random([2; 8]);
        assert_eq!(check(&at(&own, "44772/ping"), LinkTarget::Inside), Some(true));
        assert_eq!(check(&at(&own, "8000"), LinkTarget::Port { port: 8000 }), Some(true));
        assert_eq!(check(&at(&own, "80"), LinkTarget::Port { port: 8000 }), Some(false));
        assert_eq!(check(&at(&own, "08000"), LinkTarget::Port { port: 8000 }), Some(false));
        assert_eq!(check(&at(&other, "44772/ping"), LinkTarget::Inside), Some(false));
        assert_eq!(check(&at(&own, "44772/ping"), LinkTarget::File { path: "/a".into() }), Some(false));
        for path in
            ["/v1/sandboxes", "/opensandbox/v1/sandboxes", &format!("/opensandbox/v1/sandboxes/{own}/pause")]
        {
            assert_eq!(check(path, LinkTarget::Inside), None, "{path}");
        }
    }
}
