//! The address on which a dialect's own server listens by default, so that its clients find this one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use frontends::{
    dialects::{MCP_SANDBOX, OPENSANDBOX},
    mcp::Dialect,
};
use sandbox::{Error, Result};

use crate::{config::McpSandboxConfig, env};

const MCP_SANDBOX_PORT: u16 = 8181;
const OPENSANDBOX_PORT: u16 = 8080;

/// None where it is the same as ours.
pub(crate) fn of(dialect: Dialect, configured: &McpSandboxConfig) -> Result<Option<SocketAddr>> {
    if dialect.name == OPENSANDBOX.name {
        return Ok(Some((Ipv4Addr::LOCALHOST, OPENSANDBOX_PORT).into()));
    }
    if dialect.name != MCP_SANDBOX.name {
        return Ok(None);
    }
    let host = env::text(env::APP_HOST).or_else(|| configured.host.clone());
    let port = env::text(env::APP_PORT).or_else(|| configured.port.map(|port| port.to_string()));
    decide(host.as_deref(), port.as_deref()).map(Some)
}

fn decide(host: Option<&str>, port: Option<&str>) -> Result<SocketAddr> {
    let host = match host {
        // The one name that people use and that needs no DNS lookup.
        None | Some("localhost") => IpAddr::V4(Ipv4Addr::LOCALHOST),
        Some(text) => text.parse().map_err(|_malformed| {
            wrong("APP_HOST or server.host", text, "an IP address", "Use an IP address, such as 127.0.0.1.")
        })?,
    };
    let port = match port {
        None => MCP_SANDBOX_PORT,
        Some(text) => text.parse().map_err(|_malformed| {
            wrong("APP_PORT or server.port", text, "a port", "Use a number up to 65535.")
        })?,
    };
    Ok(SocketAddr::new(host, port))
}

fn wrong(setting: &str, text: &str, what: &str, hint: &str) -> Error {
    Error::invalid(format!("invalid {setting}: {text:?} is not {what}")).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_the_address_of_its_own_server() {
        let address = |dialect| of(dialect, &McpSandboxConfig::default()).unwrap();
        let shown = |dialect| address(dialect).map(|address| address.to_string());
        assert_eq!(shown(OPENSANDBOX).as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(shown(frontends::dialects::MICROSANDBOX), None);
        assert_eq!(shown(frontends::mcp::NATIVE), None);
    }

    #[test]
    fn variables_of_mcp_sandbox_are_honoured_and_wrong_ones_named() {
        let address = |host, port| decide(host, port).map(|address| address.to_string());
        assert_eq!(address(None, None).unwrap(), "127.0.0.1:8181");
        assert_eq!(address(Some("localhost"), Some("80")).unwrap(), "127.0.0.1:80");
        assert_eq!(address(Some("::"), None).unwrap(), "[::]:8181");
        for (host, port) in [(Some("example.com"), None), (None, Some("99999")), (None, Some(""))] {
            let error = decide(host, port).unwrap_err();
            assert!(error.to_string().starts_with("invalid APP_"), "{error}");
        }
    }
}
