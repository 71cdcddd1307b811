//! Commands and flags of Docker that Warren calls otherwise or does not have: what to write instead.

use std::ffi::OsString;

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};

/// Commands that people try, those of a group with its name, and the tip for each.
const COMMANDS: &[(&str, &str)] = &[
    ("commit", "`warren snapshot create SANDBOX` keeps the files of a sandbox"),
    ("compose", "`warren up` makes the sandboxes of a Sandboxfile"),
    ("container", NO_GROUP),
    ("daemon", "`warren serve` runs the daemon in the foreground; other commands start one if none runs"),
    ("delete", "`warren rm SANDBOX` removes a sandbox"),
    (
        "export",
        "`warren cp SANDBOX:/ - > files.tar` writes the files of a sandbox, `warren snapshot save` a snapshot",
    ),
    ("image build", "`warren build -t NAME DIR` builds an image"),
    ("import", "`warren image import FILE NAME` makes an image of a root file system"),
    ("info", "`warren doctor` shows what this host can do, `warren version` the daemon"),
    ("remove", "`warren rm SANDBOX` removes a sandbox"),
    ("sandbox", NO_GROUP),
    ("search", "registries are searched on their web pages; `warren pull NAME` gets an image"),
    ("shutdown", "`warren serve --stop` stops the daemon, `warren stop SANDBOX` a sandbox"),
    ("shell", "`warren exec -it SANDBOX` runs its shell, `warren run -it bash` one in a new sandbox"),
    ("system", "`warren df`, `warren prune` and `warren events` are commands of their own"),
];
const NO_GROUP: &str = "commands for sandboxes have no group: `warren ps`, `warren rm`";

/// Flags that Warren does not have, or calls otherwise, and the tip for each.
const FLAGS: &[(&[&str], &str)] = &[
    (&["--cap-add", "--cap-drop", "--privileged", "--security-opt"], NO_RIGHTS),
    (&["--device"], "sandboxes have no devices of the host"),
    (&["--gpus"], "sandboxes have no devices of the host, and so no GPUs"),
    (
        &["--restart"],
        "commands are not restarted; --init names a program that runs each time the sandbox starts",
    ),
    (&["-P", "--publish-all", "--expose"], "publish each port by itself: -p HOST:INSIDE, such as -p 8080:80"),
    (
        &["--link"],
        "sandboxes do not see each other: publish a port with -p, and --allow host:PORT in the other one",
    ),
    (&["--add-host"], "add the line to /etc/hosts inside, and --allow the address"),
    (
        &["--read-only"],
        "a sandbox's own files can always be written, and go with it; -v SOURCE:PATH:ro mounts read-only",
    ),
    (
        &["--pid", "--ipc", "--uts", "--userns", "--cgroupns"],
        "a sandbox never shares namespaces with the host",
    ),
    (&["--platform"], "images are used for this machine's own platform"),
    (
        &["--health-cmd", "--health-interval", "--health-retries", "--health-timeout", "--no-healthcheck"],
        "there are no health checks; `warren exec SANDBOX PROGRAM` runs one, and its exit code says how it went",
    ),
    (&["--stop-signal"], "`warren kill --signal SIGNAL SANDBOX` sends a signal of your choice"),
    (&["--group-add"], "--user UID:GID chooses the group"),
    (&["--volumes-from"], "mount the same volumes: -v NAME:PATH"),
    (&["--attach"], "output is shown unless you pass --detach; --interactive passes stdin"),
    (&["--cidfile"], "--detach prints the sandbox's name, --json also its id"),
    (&["--log-driver", "--log-opt"], "the output is kept by Warren: `warren logs SANDBOX`"),
    (
        &["--dns", "--dns-search", "--dns-option"],
        "names are resolved as the host does, as far as the network policy allows",
    ),
    (&["--memory-swap"], "--swap is the swap in addition to --memory"),
    (&["--format"], "--json prints everything; jq picks from it: `… --json | jq`"),
    (&["--progress"], "--quiet prints only the result, --json every event"),
];

/// The same for flags that mean something else, or nothing, with other commands.
const FLAGS_OF: &[(&str, &[&str], &str)] = &[
    ("run", &["-a"], "output is shown unless you pass -d; -i passes stdin"),
    ("run", &["-q", "--quiet"], "progress is shown only on a terminal: redirect stderr to be rid of it"),
    ("inspect", &["-f"], "it prints JSON; jq picks from it: `warren inspect SANDBOX | jq .state`"),
    (
        "start",
        &["-a", "-i", "--interactive"],
        "`warren logs -f SANDBOX` or `warren attach SANDBOX` follows it",
    ),
    ("events", &["--until"], "without --follow, it ends by itself; --since says where to begin"),
    ("events", &["--filter"], "--sandbox, --kind and --since choose events"),
    (
        "events",
        &["-n", "--tail"],
        "--from N or --since TIME says where to begin; `| tail -n N` keeps the last",
    ),
    (
        "cp",
        &["-a", "--archive"],
        "permissions and times are always kept; --keep-ids keeps owners of a tar stream",
    ),
    (
        "prune",
        &["-a"],
        "images go even if they have names; --all also removes sandboxes, snapshots and volumes",
    ),
];

const NO_RIGHTS: &str =
    "nothing weakens the walls: programs can be root inside, without any right on the host";

/// Puts our tip in the place of clap's, which knows only spelling and takes hidden commands for an answer.
pub(crate) fn explain(error: &mut clap::Error, root: &clap::Command, line: &[OsString]) {
    match error.kind() {
        ErrorKind::InvalidSubcommand => explain_command(error, root, line),
        ErrorKind::UnknownArgument => {
            let (verbs, first) = verbs(root, line, None);
            explain_argument(error, &verbs, first.as_deref());
        }
        _ => {}
    }
}

/// The commands that a line names before the one that is `unknown`, such as `image`, and the first word behind them
/// that is no flag.
fn verbs(root: &clap::Command, line: &[OsString], unknown: Option<&str>) -> (Vec<String>, Option<String>) {
    let (mut command, mut verbs) = (root, Vec::new());
    for word in line.iter().skip(1).filter_map(|word| word.to_str()).filter(|word| !word.starts_with('-')) {
        match command.find_subcommand(word).filter(|_| unknown != Some(word)) {
            Some(inner) => {
                verbs.push(inner.get_name().to_owned());
                command = inner;
            }
            // The value of a global flag.
            None if verbs.is_empty() && unknown != Some(word) => {}
            None => return (verbs, Some(word.to_owned())),
        }
    }
    (verbs, None)
}

fn explain_command(error: &mut clap::Error, root: &clap::Command, line: &[OsString]) {
    let typed = text(error, ContextKind::InvalidSubcommand).unwrap_or_default();
    let (verbs, _) = verbs(root, line, Some(&typed));
    let whole = verbs.iter().chain([&typed]).cloned().collect::<Vec<_>>().join(" ");
    if let Some((_, tip)) = COMMANDS.iter().find(|(known, _)| *known == whole) {
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

fn explain_argument(error: &mut clap::Error, verbs: &[String], first: Option<&str>) {
    let argument = text(error, ContextKind::InvalidArg).unwrap_or_default();
    let verb = verbs.first().map_or("", String::as_str);
    let tip = match argument.starts_with('-') {
        true => flag(verb, argument.split_once('=').map_or(argument.as_str(), |(name, _)| name)),
        false => word(verb, first.unwrap_or_default(), &argument),
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedArg);
        put(error, &tip);
    }
}

fn flag(verb: &str, name: &str) -> Option<String> {
    let of_verb = FLAGS_OF.iter().find(|(of, names, _)| *of == verb && names.contains(&name));
    let of_any = || FLAGS.iter().find(|(names, _)| names.contains(&name)).map(|(_, tip)| *tip);
    of_verb.map(|(.., tip)| *tip).or_else(of_any).map(str::to_owned)
}

/// A word too many. It was typed, so that it may be repeated.
fn word(verb: &str, first: &str, word: &str) -> Option<String> {
    match verb {
        "create" => Some(format!("an image is named by --image: `warren create --image {word}`")),
        "ps" => Some(format!(
            "`warren execs {word}` lists the commands that ran in a sandbox, `warren top {word}` its processes, \
             `warren inspect {word}` shows all about it"
        )),
        "top" => Some(format!("`warren exec {first} ps {word}` runs ps with its options")),
        "load" => Some(format!("`warren load -i {word}` reads a file")),
        "network" => Some(NO_NETWORKS.to_owned()),
        _ => None,
    }
}

/// Docker's verbs for networks.
pub(crate) const NETWORK_VERBS: &[&str] =
    &["connect", "create", "disconnect", "inspect", "list", "ls", "prune", "remove", "rm"];
pub(crate) const NO_NETWORKS: &str = "there are no networks to make: each sandbox has a policy of its own, which \
     `warren network SANDBOX` shows and changes";

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    }
}

fn put(error: &mut clap::Error, tip: &str) {
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip.to_owned())]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    fn said(words: &[&str]) -> String {
        let mut root = cli::command();
        let mut error = root.try_get_matches_from_mut(words).unwrap_err();
        let line: Vec<_> = words.iter().map(OsString::from).collect();
        explain(&mut error, &root, &line);
        error.render().to_string()
    }

    #[test]
    fn what_docker_calls_otherwise_is_explained() {
        for (line, expected) in [
            ("commit lab", "tip: `warren snapshot create"),
            ("system df", "`warren df`"),
            ("image build .", "`warren build -t NAME DIR`"),
            ("sandbox ls", "`warren ps`"),
            ("delete lab", "`warren rm SANDBOX`"),
            ("create alpine", "`warren create --image alpine`"),
            ("ps lab", "`warren execs lab`"),
            ("top lab aux", "`warren exec lab ps aux`"),
            ("--home /x load app.tar", "`warren load -i app.tar`"),
            ("network create lan", "`warren network SANDBOX`"),
            ("inspect -f {{.State}} lab", "jq"),
            ("start -ai lab", "`warren logs -f SANDBOX`"),
            ("events -n 3", "--since"),
            ("cp -a lab:/a b", "always kept"),
        ] {
            let words: Vec<_> = ["warren"].into_iter().chain(line.split(' ')).collect();
            let text = said(&words);
            assert!(text.contains("tip: ") && text.contains(expected), "{line}: {text}");
            assert!(!text.contains("similar"), "{line}: {text}");
        }
        let flags = "--privileged --cap-add=NET_ADMIN --restart --gpus -P --expose --link --add-host --read-only --pid \
            --ipc --platform --health-cmd --stop-signal --group-add --volumes-from --userns -a -q --cidfile --log-driver \
            --dns --quiet --memory-swap";
        for flag in flags.split_whitespace() {
            let text = said(&["warren", "run", flag, "sh"]);
            assert!(text.contains("tip: ") && !text.contains("as a value"), "{text}");
            assert!(!text.contains("similar"), "{text}");
        }
        for line in
            ["ps --format", "images --format", "stats --format", "build --platform", "build --progress"]
        {
            let words: Vec<_> = ["warren"].into_iter().chain(line.split(' ')).collect();
            assert!(said(&words).contains("tip: "), "{line}");
        }
        assert!(said(&["warren", "run", "--nonesuch", "sh"]).contains("as a value"));
    }

    #[test]
    fn hidden_commands_are_no_suggestions() {
        assert!(!said(&["warren", "complet"]).contains("'complete'"));
        assert!(said(&["warren", "creat"]).contains("'create'"));
    }
}
