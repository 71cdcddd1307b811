//! Paths as `execd` reads them: `~` is the home directory of the sandbox's user, and the sandbox's variables are
//! replaced by their values.

use std::collections::BTreeMap;

use sandbox::{Result, SandboxPlan};

use crate::dialects::opensandbox::handle::SandboxHandle;

/// Longest path that the kernel takes. Expansion stops beyond it, since the path is refused anyway.
const MAX_PATH_BYTES: usize = 4096;
/// Most bytes of `/etc/passwd` that are read.
const MAX_PASSWD_BYTES: usize = 1024 * 1024;

/// A path as the sandbox has it.
pub(super) async fn expanded(sandbox: SandboxHandle<'_>, path: &str) -> Result<String> {
    if !path.starts_with('~') && !path.contains('$') {
        return Ok(path.to_owned());
    }
    let plan = sandbox.view().await?.plan;
    let path = match path.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            format!("{}{rest}", home(sandbox, &plan).await.trim_end_matches('/'))
        }
        // `~user` is not expanded, as in execd.
        _ => path.to_owned(),
    };
    Ok(with_values(&path, &plan.env))
}

/// The same from the sandbox's working directory, where it is relative.
pub(super) async fn absolute(sandbox: SandboxHandle<'_>, path: &str) -> Result<String> {
    let path = expanded(sandbox, path).await?;
    match path.starts_with('/') {
        true => Ok(path),
        false => Ok(sandbox::path_from(&sandbox.view().await?.plan.cwd, &path)),
    }
}

pub(super) async fn all_expanded(sandbox: SandboxHandle<'_>, paths: &[&str]) -> Result<Vec<String>> {
    let mut all = Vec::with_capacity(paths.len());
    for path in paths {
        all.push(expanded(sandbox, path).await?);
    }
    Ok(all)
}

/// The entries of a request with their paths expanded.
pub(super) async fn keys_expanded<T>(
    sandbox: SandboxHandle<'_>,
    asked: BTreeMap<String, T>,
) -> Result<Vec<(String, T)>> {
    let mut all = Vec::with_capacity(asked.len());
    for (path, entry) in asked {
        all.push((expanded(sandbox, &path).await?, entry));
    }
    Ok(all)
}

async fn home(sandbox: SandboxHandle<'_>, plan: &SandboxPlan) -> String {
    if let Some(home) = plan.env.get("HOME") {
        return home.clone();
    }
    let passwd = sandbox.read("/etc/passwd", 0, MAX_PASSWD_BYTES).await;
    let found = passwd.ok().and_then(|(_, text, _)| home_in(&String::from_utf8_lossy(&text), &plan.user));
    found.unwrap_or_else(|| "/".to_owned())
}

/// The home directory of a user, who may be a name, a number, or one of them with a group.
fn home_in(passwd: &str, user: &str) -> Option<String> {
    let user = user.split(':').next().unwrap_or(user);
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let is_user = fields.first() == Some(&user) || fields.get(2) == Some(&user);
        is_user.then(|| fields.get(5).map(|home| (*home).to_owned()))?
    })
}

/// Replaces `$NAME` and `${NAME}`; a variable that is not set is empty.
fn with_values(text: &str, env: &BTreeMap<String, String>) -> String {
    let (mut made, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        made.push_str(&rest[..at]);
        let (name, behind) = name_in(&rest[at + 1..]);
        match name {
            "" => made.push('$'),
            name => made.push_str(env.get(name).map_or("", String::as_str)),
        }
        rest = behind;
        // A path that long is refused, so the rest does not matter.
        if made.len() > MAX_PATH_BYTES {
            break;
        }
    }
    made.push_str(rest);
    made
}

/// The name behind a `$`, and what follows it.
fn name_in(text: &str) -> (&str, &str) {
    if let Some((name, behind)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return (name, behind);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let env = BTreeMap::from([("A".to_owned(), "/a".to_owned()), ("B_1".to_owned(), "b".to_owned())]);
        for (text, made) in [
            ("$A/x", "/a/x"),
            ("/y/${B_1}z$B_1", "/y/bzb"),
            ("/$NONE/x", "//x"),
            ("/a$", "/a$"),
            ("/a$/b", "/a$/b"),
            ("/ü${A", "/ü${A"),
        ] {
            assert_eq!(with_values(text, &env), made, "{text}");
        }
    }

    #[test]
    fn a_users_home_directory_is_found_by_name_and_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nana:x:1000:1000::/home/ana:/bin/sh";
        let home = |user| home_in(passwd, user);
        assert_eq!(home("ana").as_deref(), Some("/home/ana"));
        assert_eq!(home("1000:50").as_deref(), Some("/home/ana"));
        assert_eq!(home("0").as_deref(), Some("/root"));
        assert_eq!(home("eve"), None);
    }
}
