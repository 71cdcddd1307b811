//! Which language is meant, and what a sandbox has where it is not there.

use engine::{Engine, Principal, SandboxRef};
use sandbox::{Error, Language, Result};

/// What an absent language means.
pub(crate) const DEFAULT: Language = Language::Python;

/// The language that a caller means by `text`, by any of its names.
pub(crate) async fn named(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    text: &str,
) -> Result<Language> {
    match text.parse() {
        Ok(language) => Ok(language),
        Err(unknown) => Err(refusal(engine, who, which, unknown.to_string()).await),
    }
}

/// What to say of a language whose program the sandbox does not have.
pub(crate) async fn missing(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    language: Language,
    told: &str,
) -> Error {
    let message = format!("the sandbox cannot run {language}: {told}");
    refusal(engine, who, which, message).await
}

/// Names those that the sandbox has, as far as it can be asked.
async fn refusal(engine: &Engine, who: &Principal, which: &SandboxRef, message: String) -> Error {
    let hint = match engine.languages(who, which).await {
        Ok(found) if !found.is_empty() => {
            let names: Vec<_> = found.iter().map(|language| language.name.as_str()).collect();
            format!("This sandbox has {}.", names.join(", "))
        }
        // Whether there is a sandbox is said by whoever asks it for something; this is about the word.
        _ => {
            let names: Vec<_> = Language::all().map(Language::as_str).collect();
            format!("The languages are {}; a sandbox has those whose programs are in it.", names.join(", "))
        }
    };
    Error::invalid(message).with_hint(hint)
}
