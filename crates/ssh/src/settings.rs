//! The operator's settings.

use sandbox::ImageRef;

use crate::{
    Authorities,
    limits::{MAX_CONNECTIONS, MAX_CONNECTIONS_EACH},
};

/// Variables that clients set by themselves and that change how programs look or speak, nothing else.
pub const DEFAULT_ACCEPTED_ENV: [&str; 8] =
    ["LANG", "LC_*", "TZ", "COLORTERM", "NO_COLOR", "EDITOR", "VISUAL", "GIT_PROTOCOL"];

#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of variables that clients may set. A `*` at the end stands for anything.
    pub accepted_env: Vec<String>,
    /// Logging in under this name makes a sandbox, which is removed at log-out.
    pub new_name: Option<String>,
    pub new_image: ImageRef,
    /// The authorities that sign certificates that log in.
    pub authorities: Authorities,
    /// Everybody who reaches the listener may do everything.
    pub is_dev: bool,
    /// Connections at once that have logged in, beside the owner's own.
    pub max_connections: usize,
    /// The same by one key.
    pub max_connections_each: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accepted_env: DEFAULT_ACCEPTED_ENV.map(str::to_owned).to_vec(),
            new_name: None,
            new_image: ImageRef::default(),
            authorities: Authorities::default(),
            is_dev: false,
            max_connections: MAX_CONNECTIONS,
            max_connections_each: MAX_CONNECTIONS_EACH,
        }
    }
}

impl Settings {
    pub(crate) fn accepts_env(&self, name: &str) -> bool {
        self.accepted_env.iter().any(|accepted| match accepted.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => accepted == name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_end() {
        let settings = Settings::default();
        for (name, expected) in
            [("LC_ALL", true), ("LANG", true), ("LANGUAGE", false), ("LD_PRELOAD", false), ("", false)]
        {
            assert_eq!(settings.accepts_env(name), expected, "{name}");
        }
    }
}
