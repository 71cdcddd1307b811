//! The options of opensandbox-mcp, so that a configuration moves by changing the command only.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use clap::{Args, ValueEnum};
use frontends::{dialects::OPENSANDBOX, http::DevAuth, mcp::Dialect};
use sandbox::{Error, ErrorKind, Result};

use crate::env;

const DEFAULT_PORT: u16 = 8000;

/// A key. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// As a header carries it.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Stdio,
    StreamableHttp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    Http,
    Https,
}

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "With --dialect opensandbox, as of opensandbox-mcp")]
pub(crate) struct OpenSandboxArgs {
    /// How clients are served [default: stdio]
    #[arg(long, hide_short_help = true)]
    transport: Option<Transport>,
    /// Address for streamable-http [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS", hide_short_help = true)]
    host: Option<String>,
    /// Port for streamable-http; the endpoint is /mcp [default: 8000]
    #[arg(long, value_name = "PORT", hide_short_help = true)]
    port: Option<u16>,
    /// The key with whose rights everything is done; needed for streamable-http, whose clients bring none
    /// [env: OPEN_SANDBOX_API_KEY]
    #[arg(long, value_name = "KEY", hide_short_help = true)]
    api_key: Option<Secret>,
    /// Must name this machine: the daemon is found without it [env: OPEN_SANDBOX_DOMAIN]
    #[arg(long, value_name = "HOST", hide_short_help = true)]
    domain: Option<String>,
    /// No effect
    #[arg(long, hide_short_help = true)]
    protocol: Option<Protocol>,
    /// No effect: the daemon is on this machine
    #[arg(long, value_name = "SECONDS", hide_short_help = true)]
    request_timeout_seconds: Option<f64>,
    /// No effect: ports are always reached through the daemon
    #[arg(long, hide_short_help = true)]
    use_server_proxy: bool,
}

/// How `warren mcp` serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// On TCP instead of stdio.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) key: Option<Secret>,
}

impl OpenSandboxArgs {
    /// Returns the settings of `warren mcp` from these arguments. Variables count only in their own dialect.
    pub(crate) fn for_mcp(&self, dialect: Option<Dialect>) -> Result<Way> {
        if !is_opensandbox(dialect) {
            self.refuse_elsewhere()?;
            return Ok(Way { listen: None, key: None });
        }
        self.decide(&|name| env::text(name))
    }

    fn decide(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Way> {
        let domain = self.domain.clone().or_else(|| variable(env::OPEN_SANDBOX_DOMAIN));
        domain.as_deref().map_or(Ok(()), refuse_other_machine)?;
        if let Some(seconds) =
            self.request_timeout_seconds.filter(|seconds| seconds.is_nan() || *seconds <= 0.0)
        {
            return Err(Error::invalid(format!("--request-timeout-seconds {seconds} is not a time"))
                .with_hint("Omit it, or give a number above zero."));
        }
        let key = self.api_key.clone().or_else(|| variable(env::OPEN_SANDBOX_API_KEY).map(Secret));
        let listen = match self.transport {
            Some(Transport::StreamableHttp) => Some(self.address()?),
            Some(Transport::Stdio) | None => None,
        };
        if let Some(address) = listen {
            // Whoever can connect acts with the key.
            DevAuth::for_address(address).map_err(|_reachable| only_here(address))?;
            if key.is_none() {
                return Err(Error::new(ErrorKind::Unauthenticated, "streamable-http needs a key to act with").with_hint(
                    "Create one with `warren key create`, and give it with --api-key or OPEN_SANDBOX_API_KEY.",
                ));
            }
        }
        Ok(Way { listen, key })
    }

    /// Returns the address for `warren serve`, if these options give one, and the options that mean nothing to it.
    pub(crate) fn for_serve(&self, dialect: Dialect) -> Result<(Option<SocketAddr>, Vec<&'static str>)> {
        if !is_opensandbox(Some(dialect)) {
            self.refuse_elsewhere()?;
            return Ok((None, Vec::new()));
        }
        if self.transport == Some(Transport::Stdio) {
            return Err(Error::invalid("the daemon does not serve stdio").with_hint("Use `warren mcp`."));
        }
        let is_asked = self.transport.is_some() || self.host.is_some() || self.port.is_some();
        let listen = is_asked.then(|| self.address()).transpose()?;
        let ignored = [
            ("--api-key", self.api_key.is_some()),
            ("--domain", self.domain.is_some()),
            ("--protocol", self.protocol.is_some()),
            ("--request-timeout-seconds", self.request_timeout_seconds.is_some()),
            ("--use-server-proxy", self.use_server_proxy),
        ];
        Ok((listen, ignored.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()))
    }

    fn address(&self) -> Result<SocketAddr> {
        let host = match self.host.as_deref() {
            // The one name that people use and that needs no DNS lookup.
            None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Some(text) => text.parse().map_err(|_malformed| {
                Error::invalid(format!("--host {text:?} is not an IP address"))
                    .with_hint("Use an IP address, such as 127.0.0.1.")
            })?,
        };
        Ok(SocketAddr::new(host, self.port.unwrap_or(DEFAULT_PORT)))
    }

    fn refuse_elsewhere(&self) -> Result<()> {
        let given = [
            ("--transport", self.transport.is_some()),
            ("--host", self.host.is_some()),
            ("--port", self.port.is_some()),
            ("--api-key", self.api_key.is_some()),
            ("--domain", self.domain.is_some()),
            ("--protocol", self.protocol.is_some()),
            ("--request-timeout-seconds", self.request_timeout_seconds.is_some()),
            ("--use-server-proxy", self.use_server_proxy),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(Error::invalid(format!("{name} belongs to --dialect opensandbox"))
                .with_hint("Add --dialect opensandbox, or omit it.")),
            None => Ok(()),
        }
    }
}

fn is_opensandbox(dialect: Option<Dialect>) -> bool {
    dialect.is_some_and(|dialect| dialect.name == OPENSANDBOX.name)
}

fn only_here(address: SocketAddr) -> Error {
    let message = format!("clients of {address} bring no key, and others than this machine can reach it");
    Error::new(ErrorKind::Denied, message).with_hint(
        "Listen on 127.0.0.1, or use `warren serve --dialect opensandbox --listen`, whose clients bring keys.",
    )
}

/// The domain is where another OpenSandbox server would be. Ours is the daemon of this machine.
fn refuse_other_machine(domain: &str) -> Result<()> {
    let rest = domain.split_once("://").map_or(domain, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or(address),
        None => authority.split(':').next().unwrap_or(authority),
    };
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_here {
        return Ok(());
    }
    let shown: String = host.chars().take(128).collect();
    Err(Error::new(ErrorKind::Unsupported, format!("the domain {shown:?} is not this machine")).with_hint(
        "Omit it to use this machine's daemon, or let the MCP client connect to that server's /mcp itself.",
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: OpenSandboxArgs,
    }

    fn args(line: &[&str]) -> OpenSandboxArgs {
        Line::try_parse_from(std::iter::once(&"x").chain(line)).unwrap().args
    }

    fn decide(line: &[&str], variables: &[(&str, &str)]) -> Result<Way> {
        let find = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        args(line).decide(&find)
    }

    #[test]
    fn their_command_line_is_understood() {
        let key = |text: &str| Some(Secret(text.to_owned()));
        let way =
            decide(&["--api-key", "k", "--domain", "localhost:8080", "--protocol", "http"], &[]).unwrap();
        assert_eq!(way, Way { listen: None, key: key("k") });
        let variables = [("OPEN_SANDBOX_API_KEY", "v"), ("OPEN_SANDBOX_DOMAIN", "http://127.0.0.1:8080")];
        let way = decide(&["--transport", "streamable-http", "--request-timeout-seconds", "30"], &variables)
            .unwrap();
        assert_eq!(way, Way { listen: Some("127.0.0.1:8000".parse().unwrap()), key: key("v") });
        let way =
            decide(&["--transport", "streamable-http", "--host", "::1", "--port", "9"], &variables).unwrap();
        assert_eq!(way.listen, Some("[::1]:9".parse().unwrap()));
        assert!(!format!("{way:?}").contains('v'), "{way:?}");
    }

    #[test]
    fn what_would_be_unsafe_or_elsewhere_is_refused() {
        for (line, part) in [
            (&["--transport", "streamable-http"][..], "needs a key"),
            (&["--transport", "streamable-http", "--host", "0.0.0.0", "--api-key", "k"], "0.0.0.0"),
            (&["--transport", "streamable-http", "--host", "a.example", "--api-key", "k"], "a.example"),
            (&["--domain", "sandboxes.example:8080"], "sandboxes.example"),
            (&["--domain", "https://user@[2001:db8::1]/x"], "user@"),
            (&["--request-timeout-seconds", "0"], "is not a time"),
        ] {
            let error = decide(line, &[]).unwrap_err();
            assert!(
                error.to_string().contains(part) && crate::error::hint(&error).is_some(),
                "{line:?}: {error}"
            );
        }
    }

    #[test]
    fn other_dialects_take_none_of_them() {
        let native = frontends::mcp::NATIVE;
        assert!(
            args(&["--port", "1"]).for_mcp(Some(native)).is_err()
                && args(&["--port", "1"]).for_mcp(None).is_err()
        );
        assert!(args(&["--domain", "x"]).for_serve(native).is_err());
        assert!(args(&[]).for_serve(native).is_ok());
        let (listen, ignored) = args(&["--port", "1", "--api-key", "k"]).for_serve(OPENSANDBOX).unwrap();
        assert_eq!((listen, ignored), (Some("127.0.0.1:1".parse().unwrap()), vec!["--api-key"]));
        assert!(args(&["--transport", "stdio"]).for_serve(OPENSANDBOX).is_err());
    }
}
