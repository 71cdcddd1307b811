//! Every environment variable that Warren reads, in one place.

use std::{env, path::PathBuf};

/// A variable and what it does, for the reference page.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) purpose: &'static str,
}

pub(crate) const HOME_DIRECTORY: &str = "WARREN_HOME";
pub(crate) const RUN_DIRECTORY: &str = "WARREN_RUN";
pub(crate) const CONFIG: &str = "WARREN_CONFIG";
pub(crate) const IDLE_EXIT: &str = "WARREN_IDLE_EXIT";
pub(crate) const LISTEN: &str = "WARREN_LISTEN";
pub(crate) const LOG: &str = "WARREN_LOG";
pub(crate) const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";
pub(crate) const NAMESPACE: &str = "WARREN_NAMESPACE";

/// The variables of mcp-sandbox, for a daemon that speaks its dialect.
pub(crate) const APP_HOST: &str = "APP_HOST";
pub(crate) const APP_PORT: &str = "APP_PORT";

/// The variables of opensandbox-mcp, for `warren mcp` in its dialect.
pub(crate) const OPEN_SANDBOX_API_KEY: &str = "OPEN_SANDBOX_API_KEY";
pub(crate) const OPEN_SANDBOX_DOMAIN: &str = "OPEN_SANDBOX_DOMAIN";

pub(crate) const MCP_TOOLSETS: &str = "WARREN_MCP_TOOLSETS";

pub(crate) const VARIABLES: &[Variable] = &[
    Variable {
        name: HOME_DIRECTORY,
        purpose: "Data directory. Root: /var/lib/warren; otherwise $XDG_DATA_HOME/warren or ~/.local/share/warren.",
    },
    Variable {
        name: RUN_DIRECTORY,
        purpose: "Directory for sockets. Default: that of the data directory's daemon or its last one, or else `run` in the \
                  data directory; root: /run/warren. /tmp/warren-<uid> if your own data directory's path is too long.",
    },
    Variable {
        name: CONFIG,
        purpose: "Configuration file of the daemon. Root: /etc/warren/config.toml; otherwise \
                  $XDG_CONFIG_HOME/warren/config.toml or ~/.config/warren/config.toml.",
    },
    Variable {
        name: LISTEN,
        purpose: "TCP address of the daemon, or none. Default: 127.0.0.1:5555; none if a command starts the daemon.",
    },
    Variable {
        name: APP_HOST,
        purpose: "With `serve --dialect mcp-sandbox`: the IP address to listen on, where WARREN_LISTEN is not set. \
                  Default: 127.0.0.1.",
    },
    Variable {
        name: APP_PORT,
        purpose: "With `serve --dialect mcp-sandbox`: the port to listen on, where WARREN_LISTEN is not set. Default: 8181.",
    },
    Variable {
        name: OPEN_SANDBOX_API_KEY,
        purpose: "With `mcp --dialect opensandbox`: the key with whose rights everything is done. Default: the daemon's \
                  owner's, on stdio.",
    },
    Variable {
        name: OPEN_SANDBOX_DOMAIN,
        purpose: "With `mcp --dialect opensandbox`: accepted if it names this machine, and refused otherwise.",
    },
    Variable {
        name: IDLE_EXIT,
        purpose: "Idle time, with no sandbox alive, before a daemon that a command started exits. Default: 10m.",
    },
    Variable {
        name: LOG,
        purpose: "What the daemon logs: error, warn, info, debug, trace, or a filter by module.",
    },
    Variable { name: NAMESPACE, purpose: "Namespace for commands that do not name one." },
    Variable {
        name: MCP_TOOLSETS,
        purpose: "MCP: the toolsets to list, separated by commas, or all. Default: core.",
    },
    Variable {
        name: "WARREN_MCP_HOST_PATHS",
        purpose: "MCP: paths on this machine that tools may read and write, separated by colons. Default: none.",
    },
    Variable {
        name: "WARREN_MCP_HOST_PATH_POLICY",
        purpose: "MCP: allowlist, or unrestricted to let tools use every path on this machine. Default: allowlist.",
    },
    Variable {
        name: "WARREN_MCP_ENABLE_DANGEROUS",
        purpose: "MCP: 1 allows destructive calls without confirmation. Default: 0.",
    },
    Variable {
        name: "WARREN_MCP_MAX_OUTPUT_BYTES",
        purpose: "MCP: maximum length of one text field of a result, in bytes. Default: 1048576.",
    },
    Variable {
        name: "WARREN_MCP_DEFAULT_TIMEOUT_MS",
        purpose: "MCP: time limit for commands that do not set one, in milliseconds. Default: 120000.",
    },
    Variable {
        name: "WARREN_MCP_SESSION_TTL_MS",
        purpose: "MCP: idle time before the stdin of a command is closed, in milliseconds. Default: 900000.",
    },
    Variable {
        name: "MICROSANDBOX_MCP_*",
        purpose: "The same six settings as WARREN_MCP_* (all but TOOLSETS), used where those are not set.",
    },
    Variable {
        name: "HTTPS_PROXY",
        purpose: "HTTP proxy through which the daemon, and what sandboxes reach of the internet, connects; HTTP_PROXY and \
                  ALL_PROXY where it is not set. `[network] proxy` of the configuration goes before it for sandboxes.",
    },
    Variable {
        name: "NO_PROXY",
        purpose: "Names and ranges that are reached without the proxy, separated by commas.",
    },
    Variable {
        name: "OTEL_EXPORTER_OTLP_ENDPOINT",
        purpose: "Base address of an OpenTelemetry collector that the daemon sends traces to; \
                  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is the whole address. Default: no traces.",
    },
    Variable {
        name: "OTEL_*",
        purpose: "OTEL_EXPORTER_OTLP_HEADERS, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES, \
                  OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG, OTEL_TRACES_EXPORTER and OTEL_SDK_DISABLED, as \
                  OpenTelemetry specifies them.",
    },
    Variable {
        name: "JOURNAL_STREAM",
        purpose: "Set by systemd: the daemon logs to the journal if this names its stderr.",
    },
    Variable {
        name: NOTIFY_SOCKET,
        purpose: "Set by systemd: where `warren serve` says that it is ready, and that it stops (Type=notify).",
    },
    Variable { name: "NO_COLOR", purpose: "Set to anything to disable colours." },
    Variable { name: "TERM", purpose: "Passed into terminals that `-t` opens." },
];

/// A variable's text; unset and empty are the same.
pub(crate) fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The proxy for connections to the internet.
pub(crate) fn proxy() -> Option<String> {
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"]
        .into_iter()
        .find_map(text)
}

pub(crate) fn no_proxy() -> Option<String> {
    ["NO_PROXY", "no_proxy"].into_iter().find_map(text)
}

pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// An absolute path of the XDG family; the specification says that relative ones are to be ignored.
pub(crate) fn xdg(name: &str) -> Option<PathBuf> {
    path(name).filter(|path| path.is_absolute())
}
