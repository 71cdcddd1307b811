//! "Did you mean lab?": the name of something that was nearly typed.

use sandbox::{Error, ErrorKind, ImageRef, Next, Subject, Thing};

use super::{Context, image};
use crate::{
    client::{Client, StartMode},
    error::{CommandError, CommandResult, in_words},
};

/// How similar a name must be to be suggested.
const LIKENESS: f64 = 0.6;

/// Adds the nearest name to an error about something that does not exist. Any other error stays as it is.
pub(super) async fn explain(context: &Context, error: CommandError) -> CommandError {
    let Some(missing) = missing(&error) else { return error };
    if missing.what == Thing::Image && missing.name.parse::<ImageRef>().is_ok_and(|image| image.is_host()) {
        return error.map(|_| no_stored_image());
    }
    let Ok(client) = context.client_that(StartMode::Never).await else { return error };
    let names = names(&client, missing.what).await.unwrap_or_default();
    match nearest(&missing.name, names.iter().map(String::as_str)) {
        Some(name) => {
            let all = in_words(&Next::List(missing.what));
            error.map(|error| error.with_hint(format!("Did you mean {name}? {all}")))
        }
        None => error,
    }
}

fn missing(error: &CommandError) -> Option<Subject> {
    let CommandError::Failed { error, .. } = error else { return None };
    let is_missing = error.kind() == ErrorKind::NotFound;
    error.subject().filter(|_| is_missing).cloned()
}

fn no_stored_image() -> Error {
    Error::not_found("`host` is this machine's own programs and no stored image")
        .with_next(Next::List(Thing::Image))
}

/// All names of that sort which the caller may see.
async fn names(client: &Client, what: Thing) -> CommandResult<Vec<String>> {
    Ok(match what {
        Thing::Sandbox => client.list(&[]).await?.into_iter().map(|one| one.name.to_string()).collect(),
        Thing::Volume => client.volumes().await?.into_iter().map(|one| one.name.to_string()).collect(),
        Thing::Secret => {
            client.secrets().await?.secrets.into_iter().map(|one| one.name.to_string()).collect()
        }
        Thing::Snapshot => {
            let snapshots = client.snapshots().await?.into_iter();
            snapshots.filter_map(|one| Some(one.name?.to_string())).collect()
        }
        Thing::Image => {
            let images = client.images().await?;
            let names = images.iter().flat_map(|image| &image.references);
            names.map(|name| image::familiar(name).to_owned()).collect()
        }
        _ => Vec::new(),
    })
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
