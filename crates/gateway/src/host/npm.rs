//! npm: variables and `.npmrc`.

use std::{collections::BTreeMap, path::PathBuf};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use url::Url;

use super::{Host, HostPackages};
use crate::config::{Credential, Manager};

/// In ascending precedence.
const GLOBAL: &[&str] = &["/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc"];

pub(super) fn read(host: &Host<'_>, found: &mut HostPackages) {
    let mut settings = BTreeMap::new();
    let own = host
        .env(&["npm_config_userconfig", "NPM_CONFIG_USERCONFIG"])
        .map_or_else(|| host.home.join(".npmrc"), PathBuf::from);
    for path in GLOBAL.iter().map(PathBuf::from).chain([own]) {
        if let Some(text) = host.text(&path) {
            settings.extend(parse(&text, host));
        }
    }
    let registry = host
        .env(&["npm_config_registry", "NPM_CONFIG_REGISTRY"])
        .or_else(|| settings.get("registry").cloned());
    if let Some(text) = registry {
        found.npm_registry = found.address(&text, "The registry of npm");
    }
    for key in settings.keys().filter(|key| key.starts_with('@') && key.ends_with(":registry")) {
        found
            .notes
            .push(format!("The setting {key} of npm is not used: all packages come from one registry."));
    }
    found.credentials.extend(credentials(&settings));
}

fn parse(text: &str, host: &Host<'_>) -> BTreeMap<String, String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';', '[']))
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| {
            let value = value.trim().trim_matches(['"', '\'']);
            (key.trim().to_owned(), filled(value, host))
        })
        .collect()
}

/// `${NAME}` is the variable of that name, or stays as it is.
fn filled(value: &str, host: &Host<'_>) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, behind)) = after.split_once('}') else {
            out.push_str("${");
            rest = after;
            break;
        };
        match (host.env)(name) {
            Some(value) => out.push_str(&value),
            None => out.push_str(&format!("${{{name}}}")),
        }
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// `//host/path/:_authToken=…` and its older relatives.
fn credentials(settings: &BTreeMap<String, String>) -> Vec<Credential> {
    let mut found = Vec::new();
    for (key, value) in settings {
        let Some((place, name)) = key.rsplit_once(':').filter(|(place, _)| place.starts_with("//")) else {
            continue;
        };
        let authorization = match name {
            "_authToken" => format!("Bearer {value}"),
            "_auth" => format!("Basic {value}"),
            "username" => {
                let Some(password) =
                    settings.get(&format!("{place}:_password")).and_then(|text| STANDARD.decode(text).ok())
                else {
                    continue;
                };
                let pair = [value.as_bytes(), b":", &password].concat();
                format!("Basic {}", STANDARD.encode(pair))
            }
            _ => continue,
        };
        // The scheme does not matter; the port does, where one is named.
        let Ok(url) = format!("https:{place}").parse::<Url>() else { continue };
        if let Some(host) = url.host_str() {
            found.push(Credential {
                manager: Some(Manager::Npm),
                host: host.to_owned(),
                port: url.port(),
                authorization,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::tests::gathered, *};

    #[test]
    fn the_nearest_registry_wins() {
        let etc = ("/etc/npmrc", "registry=https://etc.example/npm/\n");
        let own = (
            "/home/me/.npmrc",
            "; mine\nregistry = \"https://${NAME}.example/npm\"\n@corp:registry=https://x.example\n",
        );
        let name = ("NAME", "own");
        let registry = |files: &[(&str, &str)], variables: &[(&str, &str)]| {
            gathered(files, variables).npm_registry.map(String::from)
        };
        assert_eq!(registry(&[etc], &[]).as_deref(), Some("https://etc.example/npm/"));
        assert_eq!(registry(&[etc, own], &[name]).as_deref(), Some("https://own.example/npm"));
        let variable = ("npm_config_registry", "https://variable.example/");
        assert_eq!(registry(&[etc, own], &[name, variable]).as_deref(), Some(variable.1));
        assert!(gathered(&[own], &[name]).notes[0].contains("@corp:registry"));
    }

    #[test]
    fn credentials_are_bound_to_their_host() {
        let text = "//a.example/npm/:_authToken=${TOKEN}\n//b.example:8443/:_auth=bWU6cHc=\n\
                    //c.example/:username=me\n//c.example/:_password=cHc=\n//d.example/:username=alone\n";
        let found = gathered(&[("/home/me/.npmrc", text)], &[("TOKEN", "t")]).credentials;
        let expected = |host: &str, port, authorization: &str| Credential {
            manager: Some(Manager::Npm),
            host: host.to_owned(),
            port,
            authorization: authorization.to_owned(),
        };
        assert_eq!(
            found,
            [
                expected("a.example", None, "Bearer t"),
                expected("b.example", Some(8443), "Basic bWU6cHc="),
                expected("c.example", None, "Basic bWU6cHc="),
            ]
        );
    }
}
