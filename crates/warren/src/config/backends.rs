//! The section `backends`: which ones there are beside the default.

use std::path::PathBuf;

use toml::Value;

/// Where the program of a back end is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProgramChoice {
    /// In `PATH`; without it there is no such back end.
    Search,
    At(PathBuf),
    Never,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BackendsConfig {
    /// `runc` or `crun`.
    pub(crate) oci: ProgramChoice,
    /// `runsc`.
    pub(crate) gvisor: ProgramChoice,
    /// Whether sandboxes without any walls may be made.
    pub(crate) process: bool,
}

impl Default for BackendsConfig {
    /// Only what has walls at least as strong as the default's: root in an `oci` sandbox is the host's root.
    fn default() -> Self {
        Self { oci: ProgramChoice::Never, gvisor: ProgramChoice::Search, process: false }
    }
}

impl BackendsConfig {
    /// Sets one key of the section. The error says what is wanted.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<(), &'static str> {
        match key {
            "backends.oci" => self.oci = program(value)?,
            "backends.gvisor" => self.gvisor = program(value)?,
            _ => self.process = value.as_bool().ok_or("true or false")?,
        }
        Ok(())
    }
}

fn program(value: &Value) -> Result<ProgramChoice, &'static str> {
    match value {
        Value::Boolean(true) => Ok(ProgramChoice::Search),
        Value::Boolean(false) => Ok(ProgramChoice::Never),
        Value::String(path) if path.starts_with('/') => Ok(ProgramChoice::At(path.into())),
        _ => Err("true, false, or the absolute path of a program"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_weaker_walls_unless_the_file_says_so() {
        let mut config = BackendsConfig::default();
        assert!(!config.process && config.oci == ProgramChoice::Never);
        for (key, value) in
            [("oci", Value::from(true)), ("gvisor", "/opt/runsc".into()), ("process", true.into())]
        {
            config.set(&format!("backends.{key}"), &value).unwrap();
        }
        let gvisor = ProgramChoice::At("/opt/runsc".into());
        assert_eq!(config, BackendsConfig { oci: ProgramChoice::Search, gvisor, process: true });
        for (key, value) in [("oci", Value::from("runc")), ("gvisor", 1.into()), ("process", "yes".into())] {
            assert!(config.set(&format!("backends.{key}"), &value).is_err(), "{key}");
        }
    }
}
