//! `HTTPS_PROXY` and its kin.

use url::Url;

use super::Host;
use crate::config::Proxies;

pub(super) fn read(host: &Host<'_>) -> Proxies {
    let address = |names: &[&str]| {
        let text = host.env(names)?;
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        text.parse::<Url>().ok().filter(|url| matches!(url.scheme(), "http" | "https"))
    };
    Proxies {
        // Not `HTTP_PROXY`: where requests become variables, a client could set it.
        http: address(&["http_proxy", "all_proxy", "ALL_PROXY"]),
        https: address(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
        except: host
            .env(&["no_proxy", "NO_PROXY"])
            .map(|text| {
                text.split([',', ' '])
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(str::to_owned)
                    .collect()
            })
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::gathered;

    #[test]
    fn variables_become_proxies() {
        let found = gathered(
            &[],
            &[
                ("HTTPS_PROXY", "proxy.example:3128"),
                ("http_proxy", "socks5://x.example"),
                ("NO_PROXY", "a.example, .b"),
            ],
        );
        assert_eq!(found.proxies.https.unwrap().as_str(), "http://proxy.example:3128/");
        assert_eq!(found.proxies.http, None, "which cannot be spoken to");
        assert_eq!(found.proxies.except, ["a.example", ".b"]);
    }
}
