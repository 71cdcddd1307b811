//! "Did you mean lab?": the name of a sandbox that was nearly typed.

use sandbox::{ErrorKind, Thing};

use super::Context;
use crate::{client::StartMode, error::CommandError};

/// How similar a name must be to be suggested.
const LIKENESS: f64 = 0.6;

/// Adds the nearest name to an error about a sandbox that does not exist. Any other error stays as it is.
pub(super) async fn explain(context: &Context, error: CommandError) -> CommandError {
    let Some(typed) = missing_sandbox(&error) else { return error };
    let Ok(client) = context.client_that(StartMode::Never).await else { return error };
    let Ok(sandboxes) = client.list(&[]).await else { return error };
    let names = sandboxes.iter().map(|sandbox| sandbox.name.as_str());
    match nearest(&typed, names) {
        Some(name) => {
            let hint = format!("Did you mean {name}? `warren ps -a` lists all sandboxes.");
            error.map(|error| error.with_hint(hint))
        }
        None => error,
    }
}

fn missing_sandbox(error: &CommandError) -> Option<String> {
    let CommandError::Failed { error, .. } = error else { return None };
    let subject = error.subject().filter(|subject| subject.what == Thing::Sandbox)?;
    (error.kind() == ErrorKind::NotFound).then(|| subject.name.clone())
}

fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        // The beginning of a name is as good as a slip of the finger.
        let begins = typed.len() >= 2 && name.starts_with(&typed);
        if begins { 1.0 } else { strsim::normalized_damerau_levenshtein(&typed, &name) }
    };
    let scored = names.map(|name| (likeness(name), name)).filter(|(score, _)| *score >= LIKENESS);
    scored.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_names_are_not() {
        let names = ["lab", "web-1", "brave-otter"];
        for (typed, meant) in [
            ("lba", Some("lab")),
            ("LAB", Some("lab")),
            ("web1", Some("web-1")),
            ("brave", Some("brave-otter")),
            ("production", None),
            ("x", None),
        ] {
            assert_eq!(nearest(typed, names.into_iter()), meant, "{typed}");
        }
    }
}
