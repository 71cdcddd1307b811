//! pip: variables and `pip.conf`.

use std::path::PathBuf;

use super::{Host, HostPackages};

pub(super) fn read(host: &Host<'_>, found: &mut HostPackages) {
    let mut index = None;
    for path in paths(host) {
        let Some(text) = host.text(&path) else { continue };
        // Later files win, as with pip.
        if let Some(url) = setting(&text, "index-url") {
            index = Some((url, format!("The index-url of {}", path.display())));
        }
        if setting(&text, "extra-index-url").is_some() {
            found.notes.push(format!(
                "The extra-index-url of {} is not used: with two indexes, whoever owns a name in one can take it in the other.",
                path.display()
            ));
        }
    }
    for name in ["UV_INDEX_URL", "UV_DEFAULT_INDEX"] {
        if let (None, Some(url)) = (&index, host.env(&[name])) {
            index = Some((url, format!("The variable {name}")));
        }
    }
    if let Some(url) = host.env(&["PIP_INDEX_URL"]) {
        index = Some((url, "The variable PIP_INDEX_URL".to_owned()));
    }
    if let Some((url, whose)) = index {
        found.pip_index = found.address(&url, &whose);
    }
}

fn paths(host: &Host<'_>) -> Vec<PathBuf> {
    let named = host.env(&["PIP_CONFIG_FILE"]);
    if named.as_deref() == Some("/dev/null") {
        return Vec::new();
    }
    let own = host.env(&["XDG_CONFIG_HOME"]).map_or_else(|| host.home.join(".config"), PathBuf::from);
    let mut paths = vec![
        PathBuf::from("/etc/xdg/pip/pip.conf"),
        PathBuf::from("/etc/pip.conf"),
        host.home.join(".pip/pip.conf"),
        own.join("pip/pip.conf"),
    ];
    paths.extend(named.map(PathBuf::from));
    paths
}

/// A setting in `[install]`, which takes precedence, or `[global]`.
fn setting(text: &str, wanted: &str) -> Option<String> {
    let mut section = String::new();
    let mut values: [Option<String>; 2] = [None, None];
    let mut open: Option<usize> = None;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with(char::is_whitespace) {
            // A continued value. Only its first line can be the index.
            if let Some(value) =
                open.and_then(|place| values[place].as_mut()).filter(|value| value.is_empty())
            {
                trimmed.clone_into(value);
            }
            continue;
        }
        open = None;
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_ascii_lowercase();
            continue;
        }
        let Some((key, value)) = trimmed.split_once(['=', ':']) else { continue };
        let place = match section.as_str() {
            "global" => 0,
            "install" => 1,
            _ => continue,
        };
        if key.trim().to_ascii_lowercase().replace('_', "-") == wanted {
            values[place] = Some(value.trim().to_owned());
            open = Some(place);
        }
    }
    let [global, install] = values;
    install.or(global).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::tests::gathered;

    fn index(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Option<String> {
        gathered(files, variables).pip_index.map(String::from)
    }

    #[test]
    fn the_nearest_setting_wins() {
        let etc = ("/etc/pip.conf", "[global]\nindex-url = https://etc.example/simple\n");
        let old = ("/home/me/.pip/pip.conf", "[global]\nindex_url: https://old.example/simple\n");
        let own = (
            "/home/me/.config/pip/pip.conf",
            "# mine\n[install]\nINDEX-URL =\n    https://own.example/simple\n",
        );
        assert_eq!(index(&[etc], &[]).as_deref(), Some("https://etc.example/simple"));
        assert_eq!(index(&[etc, old], &[]).as_deref(), Some("https://old.example/simple"));
        assert_eq!(index(&[etc, old, own], &[]).as_deref(), Some("https://own.example/simple"));
        let variable = ("PIP_INDEX_URL", "https://me:pw@variable.example/simple/");
        assert_eq!(index(&[etc, own], &[variable]).as_deref(), Some(variable.1));
        let uv = ("UV_DEFAULT_INDEX", "https://uv.example/simple");
        assert_eq!(index(&[], &[uv]).as_deref(), Some(uv.1));
        assert_eq!(index(&[etc], &[uv]).as_deref(), Some("https://etc.example/simple"));
        assert_eq!(index(&[etc], &[("PIP_CONFIG_FILE", "/dev/null")]), None);
        let named = ("/srv/pip.conf", "[global]\nindex-url=https://named.example/simple\n");
        assert_eq!(
            index(&[etc, own, named], &[("PIP_CONFIG_FILE", "/srv/pip.conf")]).as_deref(),
            Some("https://named.example/simple")
        );
    }

    #[test]
    fn what_cannot_be_used_is_noted() {
        let text = "[list]\nindex-url = https://other.example\n[global]\nindex-url = file:///srv/secret\nextra-index-url = x\n";
        let found = gathered(&[("/etc/pip.conf", text)], &[]);
        assert_eq!(found.pip_index, None);
        assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
        assert!(found.notes.iter().all(|note| note.contains("/etc/pip.conf") && !note.contains("secret")));
    }
}
