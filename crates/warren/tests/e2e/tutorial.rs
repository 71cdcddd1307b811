//! Runs docs/tutorial.md from top to bottom, as somebody would who types it, and compares what is printed.

use std::{fs, process::Command};

use crate::support::{World, finish, repository};

/// Stands in the page for any text.
const ANY: char = '…';

/// A line after `$`, and the lines that it prints.
struct Step {
    command: String,
    expected: Vec<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), expected: Vec::new() }),
                (None, Some(step)) => step.expected.push(line.to_owned()),
                (None, None) => panic!("output before any command: {line}"),
            }
        }
    }
    steps
}

/// Whether a printed line is the one of the page.
fn fits(expected: &str, printed: &str) -> bool {
    let mut parts = expected.split(ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether what was printed is what the page shows. A line of `…` alone stands for any number of lines.
fn all_fit(expected: &[String], printed: &[&str]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first.trim() == "…" => {
            (0..=printed.len()).any(|n| all_fit(rest, &printed[n..]))
        }
        (Some((first, rest)), Some((line, lines))) => fits(first, line.trim_end()) && all_fit(rest, lines),
        _ => false,
    }
}

#[test]
fn every_block_of_the_tutorial_does_what_it_shows() {
    let world = World::new();
    let files = world.files();
    let program = world.command(&[]);
    // As installed: `warren` in the PATH.
    let bin = files.join("bin");
    let desk = files.join("desk");
    fs::create_dir_all(&bin).unwrap();
    fs::create_dir_all(&desk).unwrap();
    std::os::unix::fs::symlink(program.get_program(), bin.join("warren")).unwrap();

    let page = fs::read_to_string(repository().join("docs/tutorial.md")).unwrap();
    let steps = steps(&page);
    assert!(steps.len() > 20, "only {} commands found", steps.len());
    for Step { command, expected } in steps {
        let mut shell = Command::new("bash");
        // One stream, in the order in which things are printed.
        shell.args(["-c", &format!("exec 2>&1\n{command}")]).current_dir(&desk).env_clear();
        shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
        shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        let done = finish(shell.spawn().unwrap());
        let text = done.text();
        // A host that cannot hold a limit says so beside the rest.
        let is_aside = |line: &str| line.starts_with("warning: ") || line.starts_with("note: ");
        let is_shown = |line: &str| expected.iter().any(|shown| fits(shown, line));
        let printed: Vec<_> = text.lines().filter(|line| !is_aside(line) || is_shown(line)).collect();
        assert!(all_fit(&expected, &printed), "$ {command}\nexpected {expected:#?}\nprinted {text}");
    }
}
