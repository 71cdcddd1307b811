//! The groups of `warren --help`. Every command that help shows has one line here; a test says which one is missing.

use std::fmt::Write as _;

const RUN: &str = "Run things";
const SANDBOXES: &str = "Sandboxes";
const INSIDE: &str = "Look inside";
const NETWORK: &str = "Network and secrets";
const IMAGES: &str = "Images";
const STORAGE: &str = "Storage";
const DAEMON: &str = "Daemon and host";

/// In the order in which they are shown.
const ORDER: [&str; 7] = [RUN, SANDBOXES, INSIDE, NETWORK, IMAGES, STORAGE, DAEMON];

/// Commands within a group are shown in this order.
const COMMANDS: &[(&str, &str)] = &[
    ("run", RUN),
    ("exec", RUN),
    ("attach", RUN),
    ("code", RUN),
    ("repl", RUN),
    ("ssh", RUN),
    ("context", RUN),
    ("package", RUN),
    ("create", SANDBOXES),
    ("ps", SANDBOXES),
    ("inspect", SANDBOXES),
    ("start", SANDBOXES),
    ("stop", SANDBOXES),
    ("kill", SANDBOXES),
    ("restart", SANDBOXES),
    ("pause", SANDBOXES),
    ("resume", SANDBOXES),
    ("wait", SANDBOXES),
    ("rename", SANDBOXES),
    ("update", SANDBOXES),
    ("fork", SANDBOXES),
    ("rm", SANDBOXES),
    ("up", SANDBOXES),
    ("down", SANDBOXES),
    ("apply", SANDBOXES),
    ("logs", INSIDE),
    ("execs", INSIDE),
    ("top", INSIDE),
    ("stats", INSIDE),
    ("events", INSIDE),
    ("cp", INSIDE),
    ("diff", INSIDE),
    ("link", INSIDE),
    ("port", NETWORK),
    ("network", NETWORK),
    ("secret", NETWORK),
    ("images", IMAGES),
    ("image", IMAGES),
    ("build", IMAGES),
    ("pull", IMAGES),
    ("push", IMAGES),
    ("login", IMAGES),
    ("logout", IMAGES),
    ("load", IMAGES),
    ("save", IMAGES),
    ("history", IMAGES),
    ("tag", IMAGES),
    ("rmi", IMAGES),
    ("volume", STORAGE),
    ("snapshot", STORAGE),
    ("df", STORAGE),
    ("prune", STORAGE),
    ("serve", DAEMON),
    ("mcp", DAEMON),
    ("dashboard", DAEMON),
    ("doctor", DAEMON),
    ("self-check", DAEMON),
    ("key", DAEMON),
    ("ssh-key", DAEMON),
    ("ssh-config", DAEMON),
    ("audit", DAEMON),
    ("completions", DAEMON),
    ("version", DAEMON),
];

/// Shows the commands of `root` in groups, instead of in one list.
pub(crate) fn grouped(root: clap::Command) -> clap::Command {
    let groups = list(&root);
    root.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn list(root: &clap::Command) -> String {
    let width = COMMANDS.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for group in ORDER {
        writeln!(text, "{group}:").ok();
        for (name, _) in COMMANDS.iter().filter(|(_, of)| *of == group) {
            let Some(command) = root.find_subcommand(name) else { continue };
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases: Vec<_> = command.get_visible_aliases().collect();
            let also =
                if aliases.is_empty() { String::new() } else { format!(" (also {})", aliases.join(", ")) };
            writeln!(text, "  {name:<width$}  {about}{also}").ok();
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let root = Cli::command();
        let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
        let shown: BTreeSet<_> = shown.map(|command| command.get_name().to_owned()).collect();
        let grouped: BTreeSet<_> = COMMANDS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(shown, grouped, "commands/groups.rs has one line for each command");
        assert_eq!(COMMANDS.len(), grouped.len(), "a command is listed twice");
        assert!(COMMANDS.iter().all(|(_, group)| ORDER.contains(group)));
    }
}
