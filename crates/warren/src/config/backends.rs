//! The section `backends`: which back ends to offer besides the default.

use std::path::PathBuf;

use toml::Value;

/// The place in which to find the program of a back end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProgramChoice {
    /// In `PATH`; if it is not there, the back end is not offered.
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
    /// Whether sandboxes without isolation may be created.
    pub(crate) process: bool,
}

impl Default for BackendsConfig {
    /// Only back ends that isolate at least as well as the default; root in an `oci` sandbox is the host's root.
    fn default() -> Self {
        Self { oci: ProgramChoice::Never, gvisor: ProgramChoice::Search, process: false }
    }
}

impl BackendsConfig {
    /// Sets one key of the section. The error describes the expected value.
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
