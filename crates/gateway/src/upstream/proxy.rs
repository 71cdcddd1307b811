//! Which proxy a request goes through.

use url::Url;

use crate::config::Proxies;

impl Proxies {
    /// The proxy for this URL, unless `NO_PROXY` excepts its host. A word of it may name a port, which `reqwest` does
    /// not know.
    pub(super) fn find(&self, url: &Url) -> Option<&Url> {
        let proxy = match url.scheme() {
            "https" => self.https.as_ref(),
            _ => self.http.as_ref(),
        }?;
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        let port = url.port_or_known_default();
        let is_excepted = self.except.iter().any(|word| {
            let word = word.trim().to_ascii_lowercase();
            let (name, only) = match word.rsplit_once(':') {
                Some((name, digits)) if digits.parse::<u16>().is_ok() => (name, digits.parse::<u16>().ok()),
                _ => (word.as_str(), None),
            };
            let name = name.trim_start_matches("*.").trim_start_matches('.');
            let is_name =
                name == "*" || host == name || (!name.is_empty() && host.ends_with(&format!(".{name}")));
            is_name && (only.is_none() || only == port)
        });
        (!is_excepted).then_some(proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_have_exceptions() {
        let proxies = Proxies {
            http: Some("http://plain.example:3128".parse().unwrap()),
            https: Some("http://secure.example:3128".parse().unwrap()),
            except: ["corp.example", ".inner.example", "10.0.0.1", "port.example:8080"]
                .map(str::to_owned)
                .into(),
        };
        let used =
            |url: &str| proxies.find(&url.parse().unwrap()).map(|proxy| proxy.host_str().unwrap().to_owned());
        assert_eq!(used("http://index.example/").as_deref(), Some("plain.example"));
        assert_eq!(used("https://index.example/").as_deref(), Some("secure.example"));
        assert_eq!(used("https://corp.example/"), None);
        assert_eq!(used("https://a.corp.example/"), None);
        assert_eq!(used("https://notcorp.example/").as_deref(), Some("secure.example"));
        assert_eq!(used("https://b.inner.example/"), None);
        assert_eq!(used("http://10.0.0.1/"), None);
        assert_eq!(used("http://port.example:8080/"), None);
        assert_eq!(used("http://port.example/").as_deref(), Some("plain.example"));
    }
}
