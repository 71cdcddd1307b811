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
pub(crate) const BACKEND: &str = "WARREN_BACKEND";
pub(crate) const IDLE_EXIT: &str = "WARREN_IDLE_EXIT";
pub(crate) const LISTEN: &str = "WARREN_LISTEN";
pub(crate) const LOG: &str = "WARREN_LOG";
pub(crate) const NAMESPACE: &str = "WARREN_NAMESPACE";

pub(crate) const MCP_TOOLSETS: &str = "WARREN_MCP_TOOLSETS";

pub(crate) const VARIABLES: &[Variable] = &[
    Variable {
        name: HOME_DIRECTORY,
        purpose: "Data directory. Root: /var/lib/warren; otherwise $XDG_DATA_HOME/warren or ~/.local/share/warren.",
    },
    Variable {
        name: RUN_DIRECTORY,
        purpose: "Directory of sockets. $XDG_RUNTIME_DIR/warren, root: /run/warren, else /tmp/warren-<uid>. \
                  With a data directory of its own choice: `run` beneath it.",
    },
    Variable {
        name: CONFIG,
        purpose: "Configuration file of the daemon. Root: /etc/warren/config.toml; otherwise \
                  $XDG_CONFIG_HOME/warren/config.toml or ~/.config/warren/config.toml.",
    },
    Variable { name: BACKEND, purpose: "Back end of a daemon that a command starts: namespace or fake." },
    Variable {
        name: LISTEN,
        purpose: "Address of the daemon on TCP, or none. `warren serve`: 127.0.0.1:5555; a daemon that a command starts: none.",
    },
    Variable { name: IDLE_EXIT, purpose: "After how long such a daemon leaves when nothing is alive; 10m." },
    Variable {
        name: LOG,
        purpose: "What the daemon logs: error, warn, info, debug, trace, or a filter by module.",
    },
    Variable { name: NAMESPACE, purpose: "Namespace of commands that name none." },
    Variable {
        name: MCP_TOOLSETS,
        purpose: "MCP: which tools are listed, as toolsets with commas between them, or all; core.",
    },
    Variable {
        name: "WARREN_MCP_HOST_PATHS",
        purpose: "MCP: paths of this machine that tools may read and write, with colons between them; none.",
    },
    Variable {
        name: "WARREN_MCP_HOST_PATH_POLICY",
        purpose: "MCP: unrestricted lets tools touch every path of this machine; allowlist.",
    },
    Variable {
        name: "WARREN_MCP_ENABLE_DANGEROUS",
        purpose: "MCP: 1 lets destructive calls through without confirmation; 0.",
    },
    Variable {
        name: "WARREN_MCP_MAX_OUTPUT_BYTES",
        purpose: "MCP: longest text in one field of an answer; 1048576.",
    },
    Variable {
        name: "WARREN_MCP_DEFAULT_TIMEOUT_MS",
        purpose: "MCP: time limit of commands that name none; 120000.",
    },
    Variable {
        name: "WARREN_MCP_SESSION_TTL_MS",
        purpose: "MCP: closes the stdin of a command that nobody talked to for so long; 900000.",
    },
    Variable {
        name: "MICROSANDBOX_MCP_*",
        purpose: "The same six names after WARREN_MCP_ (all but TOOLSETS), read where ours are not set.",
    },
    Variable { name: "NO_COLOR", purpose: "Set to anything: no colours." },
    Variable { name: "TERM", purpose: "Passed into terminals that `-t` opens." },
];

/// A variable's text; unset and empty are the same.
pub(crate) fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// An absolute path of the XDG family; the specification says that relative ones are to be ignored.
pub(crate) fn xdg(name: &str) -> Option<PathBuf> {
    path(name).filter(|path| path.is_absolute())
}
