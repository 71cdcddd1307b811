//! Warnings about sandboxes that were just made.

use std::{collections::BTreeSet, io::IsTerminal as _};

use frontends::rest::v1;
use sandbox::Limits;

use crate::output;

/// Says the warnings about new sandboxes, each once, and those about a host that holds sandboxes weakly in one line.
pub(crate) fn tell<'a>(sandboxes: impl IntoIterator<Item = &'a v1::Sandbox>) {
    let mut told = BTreeSet::new();
    let mut is_weak = false;
    for sandbox in sandboxes {
        let of_host = sandbox.isolation.as_ref().map(|held| held.warnings.as_slice()).unwrap_or_default();
        for warning in &sandbox.warnings {
            if of_host.contains(warning) {
                is_weak = true;
            } else if told.insert(warning) {
                output::warn(warning);
            }
        }
    }
    if is_weak {
        output::warn(&summary(&[]));
    }
}

/// Says the warnings about one sandbox: those about a host that holds sandboxes weakly in one line, since they are the
/// same for every sandbox.
pub(crate) fn tell_in_brief(sandbox: &v1::Sandbox, asked: &Limits) {
    say(sandbox, asked, true);
}

/// The same beside a command that prints: warnings about weak isolation are for people, and a program that reads our
/// stderr wants only the command's own. A warning that the sandbox is not what was asked for, such as another image or
/// a limit that is not held, is always shown.
pub(crate) fn tell_beside_output(sandbox: &v1::Sandbox, asked: &Limits) {
    say(sandbox, asked, std::io::stderr().is_terminal());
}

fn say(sandbox: &v1::Sandbox, asked: &Limits, has_people: bool) {
    let isolation = sandbox.isolation.as_ref();
    let weaknesses = isolation.map(|held| engine::weaknesses(held, asked)).unwrap_or_default();
    let not_held = isolation.and_then(|held| engine::not_held_as_asked(held, asked));
    let is_own = |warning: &&String| !weaknesses.contains(*warning) || not_held.as_ref() == Some(*warning);
    sandbox.warnings.iter().filter(is_own).for_each(|warning| output::warn(warning));
    let of_host: Vec<_> = sandbox.warnings.iter().filter(|warning| !is_own(warning)).collect();
    match of_host.as_slice() {
        _ if !has_people => {}
        [] => {}
        [one] => output::warn(one),
        _ => {
            let limits = isolation.map(|held| engine::names_of_defaults_not_held(held, asked));
            output::warn(&summary(&limits.unwrap_or_default()));
        }
    }
}

fn summary(limits: &[&str]) -> String {
    let limits = match limits {
        [] => String::new(),
        limits => format!(" (not held: {})", limits.join(", ")),
    };
    format!("this host does not hold sandboxes as tightly as it could{limits}; see `warren doctor`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_are_not_held_are_named_in_the_one_line() {
        assert!(summary(&["memory", "swap"]).contains("could (not held: memory, swap); see `warren doctor`"));
        assert!(summary(&[]).contains("could; see `warren doctor`"));
    }
}
