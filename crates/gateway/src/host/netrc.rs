//! `~/.netrc`: the host's credentials at its indexes.

use std::{collections::BTreeMap, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Host, HostPackages};
use crate::config::Credential;

pub(super) fn read(host: &Host<'_>, found: &mut HostPackages) {
    let path = host.env(&["NETRC"]).map_or_else(|| host.home.join(".netrc"), PathBuf::from);
    if let Some(text) = host.text(path) {
        // Only those of the indexes themselves: the file holds much else that is none of a gateway's business.
        let hosts: Vec<String> = [found.pip_index.as_ref(), found.npm_registry.as_ref()]
            .into_iter()
            .flatten()
            .chain(found.apt_sources.iter().map(|source| &source.uri))
            .filter_map(|url| url.host_str().map(str::to_owned))
            .collect();
        found.credentials.extend(parse(&text).into_iter().filter(|one| hosts.contains(&one.host)));
    }
}

fn parse(text: &str) -> Vec<Credential> {
    let mut found = Vec::new();
    let mut words =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_ascii_whitespace);
    let mut machine: Option<&str> = None;
    let mut entry: BTreeMap<&str, &str> = BTreeMap::new();
    loop {
        let word = words.next();
        if matches!(word, None | Some("machine" | "default" | "macdef")) {
            if let (Some(host), Some(login)) = (machine.take(), entry.remove("login")) {
                let password = entry.remove("password").unwrap_or_default();
                let authorization = format!("Basic {}", STANDARD.encode(format!("{login}:{password}")));
                let host = host.to_owned();
                found.push(Credential { manager: None, host, port: None, authorization });
            }
            entry.clear();
        }
        match word {
            None => return found,
            Some("machine") => machine = words.next(),
            Some(key @ ("login" | "password" | "account")) => {
                if let Some(value) = words.next() {
                    entry.insert(key, value);
                }
            }
            // `default` has no host, and macros are not for us.
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::gathered, *};

    #[test]
    fn only_the_indexes_credentials_are_taken() {
        let netrc = "# hosts\nmachine bank.example login me password rich\nmachine index.example\n  login me\n  password pw\n\
                     default login anonymous password x\nmachine broken.example password";
        let variable = ("PIP_INDEX_URL", "https://index.example/simple");
        let found = gathered(&[("/home/me/.netrc", netrc)], &[variable]).credentials;
        let authorization = format!("Basic {}", STANDARD.encode("me:pw"));
        let host = "index.example".to_owned();
        assert_eq!(found, [Credential { manager: None, host, port: None, authorization }]);
    }
}
