//! The instructions that every client gets when it connects; some put them before the model.

use std::time::Duration;

use engine::Engine;
use sandbox::Defaults;

use super::{Settings, surface::Surface};

/// The instructions of the native surface. Words in braces are filled in by [`filled`].
pub(super) const NATIVE: &str = "Warren runs sandboxes. sandbox_create makes one; then use sandbox_shell, sandbox_run_code \
    (variables persist between calls) and the sandbox_fs_* tools with its name. sandbox_run makes one for a single command; \
    sandbox_run_code makes one if it has to; sandbox_remove removes it.\n\
    Unless you ask otherwise, a sandbox has the programs of this machine (image \"host\": bash, and usually python3 and node), \
    {memory} of memory, {cpus} CPU, {disk} of disk; commands run as {user} in {cwd}, by bash where there is one. Relative \
    paths start there. sandbox_create returns what it really has.\n\
    There is no network unless network.preset of sandbox_create, or sandbox_network, asks for one and the operator allows \
    it: curl, git clone and the like fail. Install packages with sandbox_package_install (pip, npm, apt). \
    A server inside is seen with sandbox_ports.\n\
    A command is stopped after {timeout} (set timeoutMs); start longer ones with sandbox_shell background: true, follow them with \
    sandbox_exec_poll. Output is cut to {output} a stream, with a hint that names the call for the rest.\n\
    Every tool returns {ok: true, data, warnings} or {ok: false, error: {code, message, hint, retryable}}; warnings and hints \
    name the next call. More tools can be called by name at any time: toolset_list shows them, toolset_enable adds them to \
    your list.";

/// The text with what holds here.
pub(super) fn filled(text: &str, engine: &Engine, settings: &Settings, surface: &Surface) -> String {
    let Defaults { limits, cwd, user, .. } = engine.defaults();
    let output = settings.max_output_bytes.unwrap_or(surface.habits.max_output_bytes);
    let values = [
        ("{memory}", limits.memory.to_string()),
        ("{cpus}", limits.cpus.to_string()),
        ("{disk}", limits.disk.to_string()),
        ("{user}", user_name(user).to_owned()),
        ("{cwd}", cwd.clone()),
        ("{timeout}", span(settings.default_timeout())),
        ("{output}", format!("{} KB", output.div_ceil(1024))),
    ];
    values.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
}

/// A user as people write it: the number of root says less than its name.
pub(super) fn user_name(user: &str) -> &str {
    match user {
        "0" | "0:0" => "root",
        other => other,
    }
}

fn span(time: Duration) -> String {
    match time.as_millis() {
        0 => "no time limit".to_owned(),
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::testing::{Client, native};

    #[tokio::test]
    async fn they_tell_what_a_sandbox_has_before_it_is_asked() {
        let settings = Settings { default_timeout_ms: 7000, ..Settings::default() };
        let client = Client::with(settings).await;
        let text = filled(NATIVE, client.call.engine(), &client.call.settings, native());
        for word in [
            "1GiB of memory",
            "/root",
            "as root",
            "after 7 s",
            "24 KB",
            "no network",
            "sandbox_package_install",
            "bash",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains("{memory}") && !text.contains("{user}"), "{text}");
    }
}
