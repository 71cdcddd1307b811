//! `warren completions`

use std::{io::Write as _, process::ExitCode};

use clap_complete::Shell;

use crate::{cli, error::CommandResult};

/// Bash splits words at colons and equals signs, so the line is split at blanks instead, and what bash regards as done
/// is cut off the answers. Bash inserts answers as they are, and file names come from sandboxes: each is quoted, so
/// that no name becomes a command of the shell.
const BASH: &str = r#"_warren() {
    local line="${COMP_LINE:0:COMP_POINT}" words current done offered one
    # Without -r: a backslash keeps a blank in its word, and goes.
    read -a words <<< "$line"
    [[ "$line" == *[[:space:]] ]] && words+=("")
    current="${words[-1]}"
    done="${current%"${current##*[:=]}"}"
    mapfile -t offered < <(warren complete -- "${words[@]}" 2> /dev/null)
    COMPREPLY=()
    for one in "${offered[@]}"; do
        printf -v one %q "${one#"$done"}"
        COMPREPLY+=("$one")
    done
    [[ "${#COMPREPLY[@]}" == 1 && "${COMPREPLY[0]}" == *[/:=] ]] && compopt -o nospace
}
complete -o bashdefault -o default -F _warren warren
"#;

const ZSH: &str = r#"#compdef warren
_warren() {
    local -a offered open closed
    offered=("${(@f)$(warren complete -- "${(@)words[1,CURRENT]}" 2> /dev/null)}")
    open=(${(M)offered:#*[/:=]})
    closed=(${offered:#*[/:=]})
    (( $#open )) && compadd -S '' -a open
    (( $#closed )) && compadd -a closed
    (( $#open + $#closed )) || _files
}
compdef _warren warren
"#;

const FISH: &str = r#"complete -c warren -e
complete -c warren -f -a '(warren complete --described -- (commandline -opc) (commandline -ct) 2> /dev/null)'
"#;

/// Print a completion script for a shell
///
/// In bash, zsh and fish, names of sandboxes, images, volumes and snapshots are completed too, and paths in sandboxes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren completions bash > ~/.local/share/bash-completion/completions/warren
  warren completions zsh > ~/.zfunc/_warren")]
pub(crate) struct Args {
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut script = Vec::new();
    match args.shell {
        Shell::Bash => script.extend_from_slice(BASH.as_bytes()),
        Shell::Zsh => script.extend_from_slice(ZSH.as_bytes()),
        Shell::Fish => script.extend_from_slice(FISH.as_bytes()),
        other => clap_complete::generate(other, &mut cli::command(), "warren", &mut script),
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(ExitCode::SUCCESS)
}
