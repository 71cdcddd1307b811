//! Settings of an MCP client: from flags, else our variables, else those of microsandbox-mcp.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use frontends::mcp::{HostPolicy, HostRoot, Settings, Toolsets};
use sandbox::{Error, Result};

use crate::{arguments, env, output};

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "MCP")]
pub(crate) struct McpArgs {
    /// Toolsets to list, such as core,files, or all [env: WARREN_MCP_TOOLSETS]
    ///
    /// Every tool can be called by name, listed or not. The tool toolset_list shows them all.
    #[arg(long, value_name = "SETS")]
    toolsets: Option<Toolsets>,
    /// Let tools read a path on this machine, or also write it with :rw; may be repeated [env: WARREN_MCP_HOST_PATHS]
    ///
    /// The variable holds paths separated by colons, all readable and writable. Without either, tools have no access to
    /// this machine's files; WARREN_MCP_HOST_PATH_POLICY=unrestricted gives them access to all.
    #[arg(long = "allow-host-path", value_name = "PATH[:ro|:rw]", value_parser = host_root)]
    host_paths: Vec<HostRoot>,
    /// Maximum length of one text field of a result [default: 24576; 1048576 for dialects]
    /// [env: WARREN_MCP_MAX_OUTPUT_BYTES]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    max_output_bytes: Option<u64>,
    /// Time limit for commands that do not set one [default: 2m] [env: WARREN_MCP_DEFAULT_TIMEOUT_MS]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    default_timeout: Option<Duration>,
    /// Idle time before the stdin of a command is closed [default: 15m] [env: WARREN_MCP_SESSION_TTL_MS]
    #[arg(long, value_name = "SPAN", value_parser = span)]
    session_ttl: Option<Duration>,
    /// Allow destructive calls without confirmation [env: WARREN_MCP_ENABLE_DANGEROUS]
    #[arg(long)]
    enable_dangerous: bool,
}

/// Help text after the options.
pub(crate) const VARIABLES_HELP: &str = "\
If a WARREN_MCP_ variable is not set, that of microsandbox-mcp is used: MICROSANDBOX_MCP_HOST_PATHS,
MICROSANDBOX_MCP_HOST_PATH_POLICY, MICROSANDBOX_MCP_ENABLE_DANGEROUS, MICROSANDBOX_MCP_MAX_OUTPUT_BYTES,
MICROSANDBOX_MCP_DEFAULT_TIMEOUT_MS, MICROSANDBOX_MCP_SESSION_TTL_MS. An invalid value of a WARREN_MCP_
variable is an error; for the others, the default applies, with a warning.";

impl McpArgs {
    /// `working_directory`: the base of relative paths, also in the client's calls.
    pub(crate) fn settings(&self, working_directory: Option<&Path>) -> Result<Settings> {
        self.resolve(working_directory, &|name| env::text(name), &mut |warning| output::warn(&warning))
    }

    fn resolve(
        &self,
        working_directory: Option<&Path>,
        lookup: &dyn Fn(&str) -> Option<String>,
        warn: &mut dyn FnMut(String),
    ) -> Result<Settings> {
        let mut variables = Variables { lookup, warn };
        let defaults = Settings::default();
        let toolsets = match &self.toolsets {
            Some(toolsets) => toolsets.clone(),
            None => variables.ours(env::MCP_TOOLSETS)?.unwrap_or(defaults.toolsets),
        };
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Ok(Settings {
            host: self.host(working_directory, &mut variables)?,
            dangerous_enabled: self.enable_dangerous || variables.dangerous()?,
            max_output_bytes: match self.max_output_bytes {
                Some(bytes) => Some(bytes),
                None => Some(variables.positive("MAX_OUTPUT_BYTES", 0)?).filter(|bytes| *bytes > 0),
            },
            default_timeout_ms: match self.default_timeout {
                Some(span) => millis(span),
                None => variables.positive("DEFAULT_TIMEOUT_MS", defaults.default_timeout_ms)?,
            },
            session_ttl_ms: match self.session_ttl {
                Some(span) => millis(span),
                None => variables.positive("SESSION_TTL_MS", defaults.session_ttl_ms)?,
            },
            toolsets,
        })
    }

    fn host(&self, working_directory: Option<&Path>, variables: &mut Variables<'_>) -> Result<HostPolicy> {
        let unrestricted = self.host_paths.is_empty() && variables.unrestricted()?;
        let roots = if self.host_paths.is_empty() { variables.host_paths() } else { self.host_paths.clone() };
        let absolute = |root: HostRoot| {
            let path = match working_directory {
                Some(directory) => directory.join(&root.path),
                None => std::path::absolute(&root.path).map_err(|error| {
                    Error::invalid(format!("cannot make {:?} an absolute path", root.path)).with_source(error)
                })?,
            };
            Ok(HostRoot { path, write: root.write })
        };
        let policy = HostPolicy {
            roots: roots.into_iter().map(absolute).collect::<Result<_>>()?,
            unrestricted,
            working_directory: working_directory.map(Path::to_owned),
        };
        policy.check()?;
        Ok(policy)
    }
}

struct Variables<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    warn: &'a mut dyn FnMut(String),
}

/// The variable names of one setting.
fn names(setting: &str) -> (String, String) {
    (format!("WARREN_MCP_{setting}"), format!("MICROSANDBOX_MCP_{setting}"))
}

impl Variables<'_> {
    fn ours<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = (self.lookup)(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| Error::invalid(format!("invalid {name}: {error}")))
    }

    fn positive(&mut self, setting: &str, default: u64) -> Result<u64> {
        let (ours, theirs) = names(setting);
        let read = |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0);
        if let Some(text) = (self.lookup)(&ours) {
            let wrong = || Error::invalid(format!("invalid {ours}: {text:?} is not a whole number above 0"));
            return read(&text).ok_or_else(wrong);
        }
        let Some(text) = (self.lookup)(&theirs) else { return Ok(default) };
        Ok(read(&text).unwrap_or_else(|| {
            (self.warn)(format!("invalid {theirs}: {text:?} is not a whole number above 0; using {default}"));
            default
        }))
    }

    fn dangerous(&mut self) -> Result<bool> {
        let (ours, theirs) = names("ENABLE_DANGEROUS");
        if let Some(text) = (self.lookup)(&ours) {
            return match text.as_str() {
                "1" | "true" => Ok(true),
                "0" | "false" => Ok(false),
                _ => Err(Error::invalid(format!("invalid {ours}: {text:?} is neither 1 nor 0"))),
            };
        }
        match (self.lookup)(&theirs).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(text) => {
                (self.warn)(format!("invalid {theirs}: {text:?} is not 1; using 0"));
                Ok(false)
            }
        }
    }

    fn unrestricted(&mut self) -> Result<bool> {
        let (ours, theirs) = names("HOST_PATH_POLICY");
        if let Some(text) = (self.lookup)(&ours) {
            return match text.as_str() {
                "unrestricted" => Ok(true),
                "allowlist" => Ok(false),
                _ => Err(Error::invalid(format!(
                    "invalid {ours}: {text:?} is neither allowlist nor unrestricted"
                ))),
            };
        }
        match (self.lookup)(&theirs).as_deref() {
            Some("unrestricted") => Ok(true),
            None | Some("allowlist") => Ok(false),
            Some(text) => {
                (self.warn)(format!("invalid {theirs}: {text:?} is unknown; using allowlist"));
                Ok(false)
            }
        }
    }

    fn host_paths(&self) -> Vec<HostRoot> {
        let (ours, theirs) = names("HOST_PATHS");
        let Some(text) = (self.lookup)(&ours).or_else(|| (self.lookup)(&theirs)) else { return Vec::new() };
        let entries = text.split(':').map(str::trim).filter(|entry| !entry.is_empty());
        entries.map(|entry| HostRoot { path: PathBuf::from(entry), write: true }).collect()
    }
}

/// A path and its access, which is read-only by default.
fn host_root(text: &str) -> Result<HostRoot, String> {
    let (path, write) = match text.rsplit_once(':') {
        Some((path, "ro")) => (path, false),
        Some((path, "rw")) => (path, true),
        _ => (text, false),
    };
    if path.is_empty() {
        return Err("the path is missing: write PATH, PATH:ro or PATH:rw".to_owned());
    }
    Ok(HostRoot { path: PathBuf::from(path), write })
}

fn span(text: &str) -> Result<Duration, String> {
    match arguments::duration(text)? {
        Duration::ZERO => Err("it must be longer than zero".to_owned()),
        span => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Try {
        #[command(flatten)]
        mcp: McpArgs,
    }

    fn resolve(flags: &[&str], variables: &[(&str, &str)]) -> (Result<Settings>, Vec<String>) {
        let args = Try::try_parse_from([&["try"], flags].concat()).unwrap().mcp;
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let mut warnings = Vec::new();
        let settings = args.resolve(Some(Path::new("/srv")), &find, &mut |warning| warnings.push(warning));
        (settings, warnings)
    }

    #[test]
    fn nothing_said_is_the_default_and_no_host_path() {
        let (settings, warnings) = resolve(&[], &[]);
        let mut expected = Settings::default();
        expected.host.working_directory = Some("/srv".into());
        assert_eq!((settings.unwrap(), warnings), (expected, vec![]));
    }

    #[test]
    fn flags_come_before_our_variables_and_those_before_microsandboxs() {
        let variables = [
            ("WARREN_MCP_MAX_OUTPUT_BYTES", "10"),
            ("MICROSANDBOX_MCP_MAX_OUTPUT_BYTES", "20"),
            ("MICROSANDBOX_MCP_DEFAULT_TIMEOUT_MS", "30"),
            ("MICROSANDBOX_MCP_SESSION_TTL_MS", "40"),
            ("MICROSANDBOX_MCP_ENABLE_DANGEROUS", "1"),
            ("MICROSANDBOX_MCP_HOST_PATHS", " /a : relative ::"),
        ];
        let settings = resolve(&["--default-timeout", "1s"], &variables).0.unwrap();
        assert_eq!(
            (settings.max_output_bytes, settings.default_timeout_ms, settings.session_ttl_ms),
            (Some(10), 1000, 40)
        );
        assert!(settings.dangerous_enabled && !settings.host.unrestricted);
        let root = |path: &str, write| HostRoot { path: path.into(), write };
        assert_eq!(settings.host.roots, [root("/a", true), root("/srv/relative", true)]);
        let flags = ["--allow-host-path", "/b", "--allow-host-path", "c:rw"];
        let settings = resolve(&flags, &variables).0.unwrap();
        assert_eq!(settings.host.roots, [root("/b", false), root("/srv/c", true)]);
    }

    #[test]
    fn a_path_for_reading_beneath_one_for_writing_is_refused() {
        let flags = ["--allow-host-path", "src:rw", "--allow-host-path", "/srv/src/secret"];
        let error = resolve(&flags, &[]).0.unwrap_err();
        assert!(error.to_string().contains("/srv/src/secret"), "{error}");
        assert!(resolve(&["--allow-host-path", "src", "--allow-host-path", "src/out:rw"], &[]).0.is_ok());
    }

    #[test]
    fn a_wrong_value_is_an_error_in_ours_and_a_warning_in_theirs() {
        for name in [
            "MAX_OUTPUT_BYTES",
            "DEFAULT_TIMEOUT_MS",
            "SESSION_TTL_MS",
            "ENABLE_DANGEROUS",
            "HOST_PATH_POLICY",
        ] {
            let (ours, theirs) = names(name);
            let error = resolve(&[], &[(&ours, "much")]).0.unwrap_err();
            assert!(error.to_string().contains(&ours), "{error}");
            let (settings, warnings) = resolve(&[], &[(&theirs, "much")]);
            assert_eq!(settings.unwrap().max_output_bytes, None);
            assert!(warnings.len() == 1 && warnings[0].contains(&theirs), "{warnings:?}");
        }
        assert!(resolve(&[], &[("WARREN_MCP_TOOLSETS", "cor")]).0.is_err());
        assert_eq!(resolve(&[], &[("WARREN_MCP_TOOLSETS", "all")]).0.unwrap().toolsets, Toolsets::all());
    }
}
