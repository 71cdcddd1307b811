//! The language of a piece of code, and the errors for one that the sandbox does not have.

use engine::{Engine, Principal, SandboxRef};
use sandbox::{ContextName, Error, ErrorKind, Language, Next, NotStarted, RequestId, Result, Thing};

/// The language of code that names none.
pub(crate) const DEFAULT: Language = Language::Python;

/// Returns the language of code in this context that names none: the context's own if it exists.
pub(crate) async fn of_context(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    context: Option<&ContextName>,
) -> Language {
    let Some(context) = context else { return DEFAULT };
    // A sandbox that cannot be asked has none.
    let contexts = engine.contexts(who, which).await.unwrap_or_default();
    let known = contexts.iter().find(|known| known.name == context.as_str());
    known.and_then(|known| known.language.parse().ok()).unwrap_or(DEFAULT)
}

/// Says how to go on with a fork that would have broken something.
pub(crate) fn unforked(error: Error, hint: &str) -> Error {
    let has_reasons = error.kind() == ErrorKind::WrongState && error.is_about(Thing::Context);
    if has_reasons && error.next().is_none() { error.with_hint(hint) } else { error }
}

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

/// Returns the error for code that did not start.
pub(crate) async fn not_started(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    language: Language,
    (reason, message): (NotStarted, &str),
    request: Option<&RequestId>,
) -> Error {
    match reason {
        // The same request is answered with the same exec for ever, so it must not be told to try again.
        NotStarted::LimitReached | NotStarted::Lost if request.is_some() => {
            Error::new(ErrorKind::WrongState, message).with_hint("Send it again with another requestId.")
        }
        NotStarted::NotFound | NotStarted::NotExecutable => {
            missing(engine, who, which, language, message).await
        }
        NotStarted::BadWorkingDirectory | NotStarted::BadUser => Error::invalid(message),
        NotStarted::LimitReached => Error::new(ErrorKind::LimitReached, message),
        NotStarted::Lost => Error::new(ErrorKind::Unavailable, message),
        // Its context is of another language, or it was ended before it began.
        NotStarted::Other => Error::new(ErrorKind::WrongState, message),
    }
}

/// Returns the error for a language whose program the sandbox does not have.
pub(crate) async fn missing(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    language: Language,
    told: &str,
) -> Error {
    let message = format!("the sandbox cannot run {language}: {told}");
    let error = refusal(engine, who, which, message).await;
    match (apt_package(language), error.next()) {
        (Some(package), Some(Next::Advice(advice))) => {
            let hint = format!("{advice} The apt package {package} brings {language}.");
            error.with_hint(hint)
        }
        _ => error,
    }
}

/// The package of Debian and Ubuntu with the language's program.
fn apt_package(language: Language) -> Option<&'static str> {
    Some(match language.as_str() {
        "python" => "python3",
        "javascript" => "nodejs",
        "ruby" => "ruby",
        "perl" => "perl",
        "php" => "php-cli",
        "r" => "r-base-core",
        "lua" => "lua5.4",
        "go" => "golang-go",
        "rust" => "rustc",
        "c" => "gcc",
        "cpp" => "g++",
        "java" => "default-jdk-headless",
        _ => return None,
    })
}

/// Returns the error for a name that no language has, where no sandbox is named.
pub(crate) fn unknown(unknown: &sandbox::UnknownLanguage) -> Error {
    Error::invalid(unknown.to_string()).with_hint(all())
}

/// An error as it is, or what it means where the sandbox does not have the language.
pub(crate) async fn explain(
    engine: &Engine,
    who: &Principal,
    which: &SandboxRef,
    language: Language,
    error: Error,
) -> Error {
    let Ok(found) = engine.languages(who, which).await else { return error };
    if found.iter().any(|found| found.name == language.as_str()) {
        return error;
    }
    missing(engine, who, which, language, &error.to_string()).await
}

fn all() -> String {
    let names: Vec<_> = Language::all().map(Language::as_str).collect();
    format!("The languages are {}; a sandbox can run those whose programs it has.", names.join(", "))
}

/// Names those that the sandbox has, as far as it can be asked.
async fn refusal(engine: &Engine, who: &Principal, which: &SandboxRef, message: String) -> Error {
    let hint = match engine.languages(who, which).await {
        Ok(found) if !found.is_empty() => {
            let names: Vec<_> = found.iter().map(|language| language.name.as_str()).collect();
            format!("This sandbox has {}.", names.join(", "))
        }
        // Whether there is a sandbox is said by whoever asks it for something; this is about the word.
        _ => all(),
    };
    Error::invalid(message).with_hint(hint)
}
