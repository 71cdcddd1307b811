//! Warnings about sandboxes that were just made.

use std::{collections::BTreeSet, io::IsTerminal as _};

use frontends::rest::v1;
use sandbox::Limits;

use crate::output;

/// Says the warnings about new sandboxes, each once.
pub(crate) fn tell<'a>(sandboxes: impl IntoIterator<Item = &'a v1::Sandbox>) {
    let mut told = BTreeSet::new();
    for warning in sandboxes.into_iter().flat_map(|sandbox| &sandbox.warnings) {
        if told.insert(warning) {
            output::warn(warning);
        }
    }
}

/// The same beside a command that prints: warnings about weak isolation are for people, and a program that reads our
/// stderr wants only the command's own. A warning that the sandbox is not what was asked for, such as another image or
/// a limit that is not held, is always shown.
pub(crate) fn tell_beside_output(sandbox: &v1::Sandbox, asked: &Limits) {
    let isolation = sandbox.isolation.as_ref();
    let weaknesses = isolation.map(|held| engine::weaknesses(held, asked)).unwrap_or_default();
    let not_held = isolation.and_then(|held| engine::not_held_as_asked(held, asked));
    let has_people = std::io::stderr().is_terminal();
    let is_told = |warning: &&String| {
        has_people || !weaknesses.contains(*warning) || not_held.as_ref() == Some(*warning)
    };
    sandbox.warnings.iter().filter(is_told).for_each(|warning| output::warn(warning));
}
