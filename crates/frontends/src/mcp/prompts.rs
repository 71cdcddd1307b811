//! Prompts: how to begin, and what to do when something fails.

use std::collections::BTreeMap;

use sandbox::{Error, Result};

use super::arguments::nearest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PromptEntry {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) arguments: Vec<ArgumentEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArgumentEntry {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) required: bool,
}

/// Longest value of an argument; it becomes part of a message.
const MAX_VALUE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Name, description, whether it must be given.
    pub(crate) arguments: &'static [(&'static str, &'static str, bool)],
    pub(crate) text: fn(&Values<'_>) -> String,
}

/// The prompts of the native surface.
pub(super) static NATIVE: [Prompt; 3] = [
    Prompt {
        name: "getting-started",
        title: "Getting started",
        description: "How to use sandboxes, in three sentences.",
        arguments: &[("toolset", "A toolset whose tools should be shown", false)],
        text: getting_started,
    },
    Prompt {
        name: "run-code-safely",
        title: "Run code safely",
        description: "Run code in a separate sandbox and report what it did.",
        arguments: &[
            ("code", "The code to run", true),
            ("language", "What it is written in", false),
            ("sandbox", "A sandbox to use instead of a new one", false),
        ],
        text: run_code_safely,
    },
    Prompt {
        name: "debug-a-failure",
        title: "Debug a failure",
        description: "Find out why something failed in a sandbox.",
        arguments: &[
            ("sandbox", "The sandbox in which it failed", true),
            ("problem", "What went wrong, as far as known", false),
        ],
        text: debug_a_failure,
    },
];

/// The arguments that were given.
pub(crate) struct Values<'a>(&'a BTreeMap<String, String>);

impl Values<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }
}

fn getting_started(values: &Values<'_>) -> String {
    let toolset = values.get("toolset").unwrap_or("files");
    format!(
        "Call sandbox_create to get an isolated Linux machine of your own, then sandbox_exec or sandbox_shell to run \
         commands in it, sandbox_run_code to run code that keeps its variables, and sandbox_fs_read, sandbox_fs_write and sandbox_fs_edit to work on its files. \
         For long-running commands call sandbox_exec_start and then sandbox_exec_poll; when you are done call \
         sandbox_remove. \
         toolset_list lists more tools and toolset_enable shows them (try {toolset:?}); the hint of every error says which \
         call comes next."
    )
}

fn run_code_safely(values: &Values<'_>) -> String {
    let code = values.get("code").unwrap_or_default();
    let language =
        values.get("language").map(|language| format!(" (written in {language})")).unwrap_or_default();
    let place = match values.get("sandbox") {
        Some(sandbox) => format!("Use the sandbox {sandbox:?}."),
        None => "Create a sandbox with sandbox_create, and remove it with sandbox_remove when you are done."
            .to_owned(),
    };
    format!(
        "Run the code below{language} in a sandbox, not on my machine. {place} Run it with sandbox_run_code with a \
         timeout, and tell me its output, the value or error it ended with, and which files it created; if \
         sandbox_run_code does not know the language, write the code to a file with sandbox_fs_write and run it with \
         sandbox_exec. If it fails, show me the error before you change anything.\n\n{code}"
    )
}

fn debug_a_failure(values: &Values<'_>) -> String {
    let sandbox = values.get("sandbox").unwrap_or_default();
    let problem =
        values.get("problem").map(|problem| format!(" What is known: {problem}")).unwrap_or_default();
    format!(
        "Something failed in the sandbox {sandbox:?}.{problem} Look at it with sandbox_inspect (state, reason, \
         warnings, limits), at its commands with sandbox_exec_list, and at their output with sandbox_logs_read; \
         then at the files concerned with sandbox_fs_search and sandbox_fs_read. Say what you think the cause is and \
         what shows it, then propose one change, and apply it only when it follows from what you saw."
    )
}

pub(crate) fn list(prompts: &[Prompt]) -> Vec<PromptEntry> {
    let argument = |(name, description, required): &(&str, &str, bool)| ArgumentEntry {
        name: (*name).to_owned(),
        description: (*description).to_owned(),
        required: *required,
    };
    let entry = |prompt: &Prompt| PromptEntry {
        name: prompt.name.to_owned(),
        title: prompt.title.to_owned(),
        description: prompt.description.to_owned(),
        arguments: prompt.arguments.iter().map(argument).collect(),
    };
    prompts.iter().map(entry).collect()
}

/// The messages of a prompt, as the user's.
pub(crate) fn get(
    prompts: &[Prompt],
    name: &str,
    arguments: &BTreeMap<String, String>,
) -> Result<Vec<String>> {
    let prompt = prompts.iter().find(|prompt| prompt.name == name).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        let known: Vec<_> = prompts.iter().map(|prompt| prompt.name).collect();
        Error::not_found(format!("no prompt {shown:?}"))
            .with_hint(format!("The prompts are {}.", known.join(", ")))
    })?;
    for (given, value) in arguments {
        let mut known = prompt.arguments.iter().map(|(known, ..)| *known);
        if !known.clone().any(|known| known == given) {
            let shown: String = given.chars().take(64).collect();
            let hint = match nearest(given, known.clone()) {
                Some(near) => format!("Did you mean {near}?"),
                None => format!("It takes {}.", known.by_ref().collect::<Vec<_>>().join(", ")),
            };
            return Err(
                Error::invalid(format!("the prompt {name} has no argument {shown:?}")).with_hint(hint)
            );
        }
        if value.len() > MAX_VALUE_BYTES {
            let message = format!("{given} has {} bytes; the limit is {MAX_VALUE_BYTES}", value.len());
            return Err(Error::invalid(message).with_hint("Write long text to a file and give its name."));
        }
    }
    let values = Values(arguments);
    let missing =
        prompt.arguments.iter().find(|(known, _, required)| *required && values.get(known).is_none());
    if let Some((missing, ..)) = missing {
        return Err(
            Error::invalid(format!("the prompt {name} needs {missing}")).with_hint("Give it and ask again.")
        );
    }
    Ok(vec![(prompt.text)(&values)])
}

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;

    use super::*;

    fn with(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn beginning_takes_three_sentences() {
        let [text] = &get(&NATIVE, "getting-started", &BTreeMap::new()).unwrap()[..] else {
            panic!("one message")
        };
        assert_eq!(text.matches(". ").count() + 1, 3, "{text}");
    }

    #[test]
    fn what_is_given_is_in_the_text_and_what_is_missing_is_told() {
        let text =
            get(&NATIVE, "run-code-safely", &with(&[("code", "print(1)"), ("language", "Python")])).unwrap();
        assert!(text[0].contains("print(1)") && text[0].contains("Python"), "{text:?}");
        let error = get(&NATIVE, "run-code-safely", &BTreeMap::new()).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::InvalidRequest, "the prompt run-code-safely needs code")
        );
        let error = get(&NATIVE, "debug-a-failure", &with(&[("sandbx", "web")])).unwrap_err();
        assert_eq!(crate::mcp::words::hint(&error).as_deref(), Some("Did you mean sandbox?"));
        assert_eq!(get(&NATIVE, "nothing", &BTreeMap::new()).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
