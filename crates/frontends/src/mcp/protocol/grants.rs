//! Directories that a client names as its roots become host paths that it may use, once the person at it agrees.
//!
//! Only for clients on stdio: they run on this machine, and `warren mcp` could allow the same on its command line. What
//! was agreed to holds until the connection ends.

#![expect(deprecated, reason = "a later revision of the protocol has no roots; the clients of all others do")]

use std::{path::PathBuf, time::Duration};

use rmcp::{
    RoleServer,
    model::{ElicitRequestParams, ElicitationAction, ElicitationSchema},
    service::RequestContext,
};
use serde_json::{Value, json};
use tokio::time::timeout;
use url::Url;

use super::client::{Client, Way};
use crate::{
    hostfs::{HostPolicy, HostRoot},
    mcp::{envelope::HOST_PATH_DENIED, surface::Reply},
};

/// Roots of a client that are looked at.
const MAX_ROOTS: usize = 64;
/// For the client's own answer, and for that of a person.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
const PERSON_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// Whether a client can be asked at all.
pub(super) fn can_be_asked(client: &Client, context: &RequestContext<RoleServer>) -> bool {
    let has =
        context.client_capabilities().is_some_and(|has| has.roots.is_some() && has.elicitation.is_some());
    has && client.way == Way::Connection
}

/// Asks for the host path that a call was refused, if it lies beneath a root of the client. Returns whether it may be
/// used now.
pub(super) async fn ask(client: &Client, reply: &Reply, context: &RequestContext<RoleServer>) -> bool {
    let Some(path) = denied_path(reply) else { return false };
    let Ok(Ok(listed)) = timeout(CLIENT_PATIENCE, context.peer.list_roots()).await else { return false };
    let roots: Vec<PathBuf> =
        listed.roots.iter().take(MAX_ROOTS).filter_map(|root| directory(&root.uri)).collect();
    let policy = client.session.settings(&client.settings).host.clone();
    let chosen = tokio::task::spawn_blocking(move || around(roots, &path)).await;
    let Ok(Some(root)) = chosen else { return false };
    // A person who said no, or has not answered yet, is not asked again.
    if !client.session.ask_about(&root) {
        return false;
    }
    let Some(write) = agreed(&root, context).await else { return false };
    let root = HostRoot { path: root, write };
    let allowed = tokio::task::spawn_blocking(move || is_sound(policy, root)).await;
    let Ok(Some(root)) = allowed else { return false };
    tracing::info!(who = %client.who.name, root = %root.path.display(), write, "a client's root is allowed");
    client.session.grant(root);
    true
}

fn denied_path(reply: &Reply) -> Option<PathBuf> {
    let is_denied = reply.error_code.as_deref() == Some(HOST_PATH_DENIED);
    let path = reply.data.as_ref()?.pointer("/error/details/path")?.as_str()?;
    is_denied.then(|| PathBuf::from(path))
}

/// The directory of a root, which is given as an address. The whole file system is nobody's project.
fn directory(uri: &str) -> Option<PathBuf> {
    let path = Url::parse(uri).ok().filter(|url| url.scheme() == "file")?.to_file_path().ok()?;
    path.parent().is_some().then_some(path)
}

/// The innermost root around a path.
fn around(roots: Vec<PathBuf>, path: &std::path::Path) -> Option<PathBuf> {
    let contains = |root: &PathBuf| HostRoot { path: root.clone(), write: false }.contains(path);
    roots.into_iter().filter(contains).max_by_key(|root| root.as_os_str().len())
}

/// The root, unless it would open what the operator allows for reading only.
fn is_sound(mut policy: HostPolicy, root: HostRoot) -> Option<HostRoot> {
    policy.roots.push(root.clone());
    policy.check().is_ok().then_some(root)
}

/// Whether the person agrees, and to writing too.
async fn agreed(root: &std::path::Path, context: &RequestContext<RoleServer>) -> Option<bool> {
    let message = format!(
        "Allow sandboxes to exchange files with {} on this machine, until this connection ends?",
        root.display()
    );
    let access = json!({
        "type": "string", "title": "Access", "description": "read: copy files from there; write: copy files to it, too",
        "enum": ["read", "write"],
    });
    let schema = json!({ "type": "object", "properties": { "access": access }, "required": ["access"] });
    let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
    let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
    let asked = timeout(PERSON_PATIENCE, context.peer.create_elicitation(params));
    let answer = context.ct.run_until_cancelled(asked).await?.ok()?.ok()?;
    if answer.action != ElicitationAction::Accept {
        return None;
    }
    match answer.content.as_ref()?.get("access").and_then(Value::as_str)? {
        "read" => Some(false),
        "write" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_directories_of_this_machine() {
        assert_eq!(directory("file:///home/ana/a%20b"), Some(PathBuf::from("/home/ana/a b")));
        for uri in ["file:///", "https://host/home", "file://elsewhere/home", "home", ""] {
            assert_eq!(directory(uri), None, "{uri}");
        }
    }

    #[test]
    fn the_innermost_root_decides() {
        let roots = || ["/a", "/a/b", "/c"].map(PathBuf::from).to_vec();
        assert_eq!(around(roots(), "/a/b/f".as_ref()), Some(PathBuf::from("/a/b")));
        assert_eq!(around(roots(), "/a/bc".as_ref()), Some(PathBuf::from("/a")));
        assert_eq!(around(roots(), "/d".as_ref()), None);
    }

    #[test]
    fn a_root_does_not_open_what_may_only_be_read() {
        let root = |path: &str, write| HostRoot { path: path.into(), write };
        let policy = HostPolicy { roots: vec![root("/a/b", false)], ..HostPolicy::default() };
        assert!(is_sound(policy.clone(), root("/a", true)).is_none());
        assert!(is_sound(policy, root("/a", false)).is_some());
    }
}
