//! Recognises what a failed command lacked, by its exit code and its last words: a network, a package. Nothing is
//! decided by it: a command that fails for another reason only gets a hint too many.
//!
//! What a sandbox prints may be anything. Only what can be the name of a package is repeated.

pub(crate) mod known;

/// Longest name of a package or program that is repeated in a warning.
const MAX_NAME_BYTES: usize = 64;

/// Printed by programs that do not reach a host.
const NO_NETWORK: [&str; 16] = [
    "Could not resolve host",
    "Couldn't resolve host",
    "Temporary failure in name resolution",
    "Temporary failure resolving",
    "Name or service not known",
    "No address associated with hostname",
    "unable to resolve host",
    "failed to lookup address information",
    "dial tcp: lookup",
    "Network is unreachable",
    "network is unreachable",
    "EAI_AGAIN",
    "getaddrinfo ENOTFOUND",
    "ENETUNREACH",
    "NameResolutionError",
    "getaddrinfo failed",
];
/// Said by our interpreter where nothing compiles TypeScript.
const NO_TYPESCRIPT: &str = "TypeScript needs Node.js";
/// Programs that may fail without a word, and the exit code that tells.
const NO_NETWORK_CODES: [(&str, i32); 2] = [("curl", 6), ("wget", 4)];

/// Whether the end of what a command printed says that it did not reach a host.
pub fn says_no_network(ends: &[&str]) -> bool {
    NO_NETWORK.iter().any(|words| ends.iter().any(|end| end.contains(words)))
}

/// Whether its exit code means that, though it may have printed nothing.
pub fn means_no_network(command: &[String], exit_code: i32) -> bool {
    let words = words(command);
    NO_NETWORK_CODES
        .iter()
        .any(|(program, code)| exit_code == *code && words.iter().any(|word| word == program))
}

/// The words of a command, those of a shell's line one by one.
pub(crate) fn words(command: &[String]) -> Vec<&str> {
    let is_border = |c: char| c.is_whitespace() || ";|&()`\"'$".contains(c);
    command.iter().flat_map(|part| part.split(is_border)).filter(|word| !word.is_empty()).collect()
}

/// The package manager and the package that has the module which Python or Node did not find. A module whose name is
/// mostly that of a file of one's own has none.
pub fn missing_package(end: &str) -> Option<(&'static str, String)> {
    if end.contains(NO_TYPESCRIPT) {
        return Some(("npm", "esbuild".to_owned()));
    }
    if let Some(module) = python_module(end).filter(|module| !known::is_own_name(module)) {
        return Some(("pip", known::pip_package(&module).to_owned()));
    }
    node_module(end).filter(|package| !known::is_own_name(package)).map(|package| ("npm", package))
}

/// Whether a text can be repeated as the name of a package: what a sandbox prints may be anything.
pub(crate) fn is_package(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@/=<>~[]+".contains(&byte);
    word.len() <= MAX_NAME_BYTES
        && word.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '@')
        && word.bytes().all(is_plain)
}

pub(crate) fn python_module(text: &str) -> Option<String> {
    let (_, rest) = text.rsplit_once("No module named ")?;
    let name = rest.trim_start_matches(['\'', '"']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let module = &name[..name.find(|c| !is_part(c)).unwrap_or(name.len())];
    is_package(module).then(|| module.to_owned())
}

pub(crate) fn node_module(text: &str) -> Option<String> {
    let found =
        ["Cannot find module '", "Cannot find package '"].iter().find_map(|words| text.rsplit_once(words));
    let name = found?.1.split('\'').next()?;
    let n_parts = if name.starts_with('@') { 2 } else { 1 };
    let package: Vec<_> = name.split('/').take(n_parts).collect();
    let package = package.join("/");
    (is_package(&package) && !name.starts_with("node:")).then_some(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_known_by_what_was_missed() {
        for (end, expected) in [
            ("ModuleNotFoundError: No module named 'yaml'", Some(("pip", "pyyaml"))),
            ("Error: Cannot find module 'left-pad'", Some(("npm", "left-pad"))),
            (
                "Error: TypeScript needs Node.js 22.13 or newer, or one of the packages",
                Some(("npm", "esbuild")),
            ),
            ("No module named 'utils'", None),
            ("all is well", None),
        ] {
            let found = missing_package(end);
            assert_eq!(found.as_ref().map(|(manager, name)| (*manager, name.as_str())), expected, "{end}");
        }
    }

    #[test]
    fn a_missing_network_is_known_by_words_and_by_exit_codes() {
        let command = ["sh", "-c", "curl -s https://x.example"].map(str::to_owned);
        assert!(says_no_network(&["", "curl: (6) Could not resolve host: x.example"]));
        assert!(means_no_network(&command, 6) && !means_no_network(&command, 1));
    }
}
