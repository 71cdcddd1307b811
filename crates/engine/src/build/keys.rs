//! Digests of what instructions are made of: the same key means that the layer can be used again.

use ::images::Digest;
use build::{CopyStep, RunStep};
use serde_json::json;

/// Grows when what a build does for the same words changes, so that no older layer is taken for a new one.
const VERSION: u32 = 2;

fn key(parent: &Digest, what: serde_json::Value) -> Digest {
    Digest::of(json!({ "version": VERSION, "parent": parent, "what": what }).to_string().as_bytes())
}

/// Proxies say where things are fetched, not what is built. Whether anything could be fetched does count: a command may
/// get along without, and make something else. What could be reached beyond that does not.
pub(super) fn of_run(parent: &Digest, step: &RunStep, is_cut_off: bool) -> Digest {
    let RunStep { command, env, proxies: _, user, workdir, network: _ } = step;
    let what = json!({ "run": command, "env": env, "user": user, "workdir": workdir, "cutOff": is_cut_off });
    key(parent, what)
}

pub(super) fn of_workdir(parent: &Digest, path: &str) -> Digest {
    key(parent, json!({ "workdir": path }))
}

/// `content` is the digest of what is copied, or of the image it is copied from.
pub(super) fn of_copy(parent: &Digest, step: &CopyStep, content: &Digest) -> Digest {
    let CopyStep { from, sources, files, to, chown, chmod, unpack } = step;
    // From the context the names themselves do not matter, only what they stand for.
    let sources = from.as_ref().map(|_| sources);
    key(
        parent,
        json!({
            "copy": { "sources": sources, "files": files, "to": to, "chown": chown, "chmod": chmod, "unpack": unpack },
            "content": content,
        }),
    )
}

#[cfg(test)]
mod tests {
    use build::Network;

    use super::*;

    fn run(command: &str) -> RunStep {
        RunStep {
            command: vec![command.to_owned()],
            env: vec![("A".to_owned(), "1".to_owned())],
            proxies: Vec::new(),
            user: None,
            workdir: "/".to_owned(),
            network: Network::Default,
        }
    }

    #[test]
    fn a_key_changes_with_everything_that_counts() {
        let (one, other) = (Digest::of(b"one"), Digest::of(b"other"));
        let base = of_run(&one, &run("x"), false);
        assert_eq!(
            base,
            of_run(&one, &RunStep { proxies: vec![("http_proxy".into(), "p".into())], ..run("x") }, false)
        );
        let changed = [
            of_run(&other, &run("x"), false),
            of_run(&one, &run("y"), false),
            of_run(&one, &RunStep { env: Vec::new(), ..run("x") }, false),
            of_run(&one, &RunStep { user: Some("u".into()), ..run("x") }, false),
            of_run(&one, &RunStep { workdir: "/w".into(), ..run("x") }, false),
            of_run(&one, &run("x"), true),
            of_workdir(&one, "x"),
        ];
        for key in changed {
            assert_ne!(key, base);
        }
    }
}
