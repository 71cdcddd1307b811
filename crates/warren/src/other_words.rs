//! Commands and flags of Docker that Warren calls otherwise or does not have: what to write instead.

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Commands that people try, and the tip for each.
const COMMANDS: &[(&str, &str)] = &[
    ("commit", "`warren snapshot create SANDBOX` keeps the files of a sandbox"),
    ("compose", "`warren up` makes the sandboxes of a Sandboxfile"),
    ("container", "commands for sandboxes have no group: `warren ps`, `warren rm`"),
    ("import", "`warren image import FILE NAME` makes an image of a root file system"),
    ("info", "`warren doctor` shows what this host can do, `warren version` the daemon"),
    ("shell", "`warren exec -it SANDBOX` runs its shell, `warren run -it bash` one in a new sandbox"),
    ("system", "`warren df`, `warren prune` and `warren events` are commands of their own"),
];

/// Flags that Warren does not have on purpose.
const FLAGS: &[(&str, &str)] = &[
    ("--cap-add", NO_RIGHTS),
    ("--cap-drop", NO_RIGHTS),
    ("--device", "sandboxes have no devices of the host"),
    ("--gpus", "sandboxes have no devices of the host, and so no GPUs"),
    ("--privileged", NO_RIGHTS),
    (
        "--restart",
        "commands are not restarted; --init names a program that runs each time the sandbox starts",
    ),
    ("--security-opt", NO_RIGHTS),
];
const NO_RIGHTS: &str =
    "nothing weakens the walls: programs can be root inside, without any right on the host";

/// Puts our tip in the place of clap's, which knows only spelling and takes hidden commands for an answer.
pub(crate) fn explain(error: &mut clap::Error, root: &clap::Command) {
    match error.kind() {
        ErrorKind::InvalidSubcommand => explain_command(error, root),
        ErrorKind::UnknownArgument => explain_flag(error),
        _ => {}
    }
}

fn explain_command(error: &mut clap::Error, root: &clap::Command) {
    if let Some(tip) = text(error, ContextKind::InvalidSubcommand).and_then(|word| known(COMMANDS, &word)) {
        error.remove(ContextKind::SuggestedSubcommand);
        put(error, tip);
        return;
    }
    let is_hidden = |name: &String| root.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) else { return };
    let shown: Vec<_> = names.iter().filter(|name| !is_hidden(name)).cloned().collect();
    error.remove(ContextKind::SuggestedSubcommand);
    if !shown.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(shown));
    }
}

fn explain_flag(error: &mut clap::Error) {
    let flag = text(error, ContextKind::InvalidArg).unwrap_or_default();
    let name = flag.split_once('=').map_or(flag.as_str(), |(name, _)| name);
    if let Some(tip) = known(FLAGS, name) {
        error.remove(ContextKind::SuggestedArg);
        put(error, tip);
    }
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

fn known(table: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| *name == word).map(|(_, tip)| *tip)
}

fn put(error: &mut clap::Error, tip: &'static str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn said(words: &[&str]) -> String {
        let mut root = cli::command();
        let mut error = root.try_get_matches_from_mut(words).unwrap_err();
        explain(&mut error, &root);
        error.render().to_string()
    }

    #[test]
    fn what_docker_calls_otherwise_is_explained() {
        assert!(said(&["warren", "commit", "lab"]).contains("tip: `warren snapshot create"));
        assert!(said(&["warren", "system", "df"]).contains("`warren df`"));
        for flag in ["--privileged", "--cap-add=NET_ADMIN", "--restart", "--gpus"] {
            let text = said(&["warren", "run", flag, "sh"]);
            assert!(text.contains("tip: ") && !text.contains("as a value"), "{text}");
        }
        assert!(said(&["warren", "run", "--nonesuch", "sh"]).contains("as a value"));
    }

    #[test]
    fn hidden_commands_are_no_suggestions() {
        assert!(!said(&["warren", "complet"]).contains("'complete'"));
        assert!(said(&["warren", "creat"]).contains("'create'"));
    }
}
