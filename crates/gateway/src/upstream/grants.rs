//! Who the host is at its indexes, and to which requests that is said: those of the index's own manager, below the
//! index's own path.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use url::Url;

use crate::config::{Credential, Manager};

/// The last part of the path of a Python index, beside which its files lie.
const SIMPLE: &[&str] = &["/simple/", "/+simple/"];

#[derive(Debug, Default)]
pub(super) struct Grants {
    grants: Vec<Grant>,
}

struct Grant {
    manager: Manager,
    /// No credentials in it.
    below: Url,
    authorization: String,
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant").field("manager", &self.manager).finish_non_exhaustive()
    }
}

impl Grants {
    /// The index's own credentials, or else those that are configured for its host.
    pub(super) fn add(&mut self, manager: Manager, index: &Url, credentials: &[Credential]) {
        let authorization = basic(index).or_else(|| {
            let (host, port) = (index.host_str()?, index.port_or_known_default());
            let found = credentials.iter().find(|one| {
                one.manager.is_none_or(|only| only == manager)
                    && one.host.eq_ignore_ascii_case(host)
                    && (one.port.is_none() || one.port == port)
            });
            found.map(|one| one.authorization.clone())
        });
        let (Some(authorization), Ok(mut below)) = (authorization, crate::config::base(index)) else {
            return;
        };
        let parent = SIMPLE.iter().find_map(|last| below.path().strip_suffix(last));
        if let (Manager::Pip, Some(parent)) = (manager, parent) {
            let parent = format!("{parent}/");
            below.set_path(&parent);
        }
        self.grants.push(Grant { manager, below, authorization });
    }

    pub(super) fn authorization(&self, manager: Manager, url: &Url) -> Option<&str> {
        if leads_up(url.path()) {
            return None;
        }
        // The longest: two sources may lie within each other.
        self.grants
            .iter()
            .filter(|one| one.manager == manager && one.below.origin() == url.origin())
            .filter(|one| url.path().starts_with(one.below.path()))
            .max_by_key(|one| one.below.path().len())
            .map(|one| one.authorization.as_str())
    }
}

/// `Basic …` for the credentials in a URL.
fn basic(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let user = percent_decode_str(url.username()).decode_utf8_lossy();
    let password = percent_decode_str(url.password().unwrap_or_default()).decode_utf8_lossy();
    Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// Plain `..` is resolved in every address; what a server may take for it after decoding is not.
fn leads_up(path: &str) -> bool {
    let decoded = percent_decode_str(path).collect::<Vec<u8>>();
    decoded.split(|byte| matches!(byte, b'/' | b'\\')).any(|part| part == b"..")
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn credentials_of_a_url_become_a_header() {
        let with_credentials = url("https://me%40corp:a%3Ab@index.example/");
        assert_eq!(basic(&with_credentials).unwrap(), format!("Basic {}", STANDARD.encode("me@corp:a:b")));
        assert_eq!(basic(&url("https://index.example/")), None);
    }

    #[test]
    fn credentials_stay_with_their_manager_and_below_their_index() {
        let token = Credential {
            manager: Some(Manager::Npm),
            host: "host.example".to_owned(),
            port: None,
            authorization: "Bearer npm".to_owned(),
        };
        let mut grants = Grants::default();
        grants.add(
            Manager::Pip,
            &url("https://me:pw@host.example/team/pypi/simple"),
            slice::from_ref(&token),
        );
        grants.add(Manager::Npm, &url("https://host.example/team/npm/"), slice::from_ref(&token));
        grants.add(Manager::Apt, &url("https://host.example/debian/"), slice::from_ref(&token));
        let says = |manager, text: &str| grants.authorization(manager, &url(text)).map(str::to_owned);
        let pip = Some("Basic bWU6cHc=".to_owned());
        assert_eq!(says(Manager::Pip, "https://host.example/team/pypi/simple/six/"), pip);
        assert_eq!(says(Manager::Pip, "https://host.example/team/pypi/files/six.whl"), pip, "beside it");
        assert_eq!(says(Manager::Npm, "https://host.example/team/npm/@a%2fb"), Some("Bearer npm".to_owned()));
        for (manager, text) in [
            (Manager::Npm, "https://host.example/team/pypi/simple/six/"),
            (Manager::Pip, "https://host.example/team/npm/x"),
            (Manager::Apt, "https://host.example/debian/dists/x"),
            (Manager::Pip, "https://host.example/team/pypi-secret/x"),
            (Manager::Pip, "https://host.example/api/tokens"),
            (Manager::Pip, "https://host.example/team/pypi/../../api"),
            (Manager::Pip, "https://host.example/team/pypi/..%2f..%2fapi"),
            (Manager::Pip, "http://host.example/team/pypi/simple/six/"),
            (Manager::Pip, "https://host.example:8443/team/pypi/simple/six/"),
            (Manager::Pip, "https://other.example/team/pypi/simple/six/"),
        ] {
            assert_eq!(says(manager, text), None, "{manager:?} {text}");
        }
    }
}
