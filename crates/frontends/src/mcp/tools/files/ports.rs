//! `sandbox_ports` and `sandbox_get_endpoint`: what listens inside, and how it is reached.

use std::{collections::BTreeMap, time::Duration};

use engine::MAX_LINK_TTL;
use sandbox::ErrorKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::explained;
use crate::{
    mcp::{Answer, Call, Failure, Tool, ToolResult, tools::create::Protocol},
    ports::{self, ExposeOptions, listening_processes},
};

const MAX_TTL_SECONDS: u64 = MAX_LINK_TTL.as_secs();

pub(super) fn tools() -> Vec<Tool> {
    tools! { Network;
        "sandbox_ports", "Ports of a sandbox", SETS, ports, core:
            "List the listening TCP ports in a sandbox, and expose or withdraw one.";
        "sandbox_get_endpoint", "Address of a port", FOLLOWS, get_endpoint:
            "Get the URL at which a browser or a program reaches a server in a sandbox, until it expires.";
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
struct PortsArguments {
    name: String,
    expose: Option<Expose>,
    /// Withdraw this exposed port first.
    #[schemars(range(min = 1))]
    withdraw: Option<u16>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Expose {
    #[schemars(range(min = 1))]
    port: u16,
    #[schemars(extend("x-full-only" = true))]
    /// Without a token, for everybody who reaches the daemon
    public: Option<bool>,
    // Also publish it on this port of the host; 0 for any free one. Without words, it fits the short list of tools.
    host_port: Option<u16>,
    #[schemars(extend("x-full-only" = true))]
    /// Default tcp; a UDP port needs hostPort
    protocol: Option<Protocol>,
    #[schemars(extend("x-full-only" = true))]
    /// Default 3600
    #[schemars(range(min = 1, max = MAX_TTL_SECONDS))]
    ttl_seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
struct Port {
    port: u16,
    address: String,
    /// Reachable only from inside.
    loopback: bool,
    uid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Exposed {
    port: u16,
    protocol: &'static str,
    public: bool,
    /// Address and port of the host
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
    /// Why it is not published now
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Ports {
    name: String,
    ports: Vec<Port>,
    exposed: Vec<Exposed>,
    /// Of the port in `expose`
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<Endpoint>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    /// For a browser
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// Whether a server listens there now; unknown for UDP
    #[serde(skip_serializing_if = "Option::is_none")]
    listening: Option<bool>,
    /// For programs, in place of the token in the url
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    published: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EndpointArguments {
    name: String,
    #[schemars(range(min = 1))]
    port: u16,
    /// Default 3600
    #[schemars(range(min = 1, max = MAX_TTL_SECONDS))]
    ttl_seconds: Option<u64>,
}

async fn ports(call: Call, arguments: PortsArguments) -> ToolResult<Ports> {
    let PortsArguments { name, expose, withdraw } = arguments;
    let which = call.sandbox(&name)?;
    if let Some(port) = withdraw {
        call.engine().withdraw_port(&call.who, &which, port).await?;
    }
    let endpoint = match expose {
        Some(Expose { port, public, host_port, protocol, ttl_seconds }) => {
            let options = ExposeOptions {
                protocol: protocol.map(Protocol::meant).unwrap_or_default(),
                public: public.unwrap_or_default(),
                host: host_port,
                address: None,
                ttl: ttl_seconds.map(Duration::from_secs),
            };
            Some(endpoint(&call, &name, port, &options).await?)
        }
        None => None,
    };
    let found = listening_processes(call.engine(), &call.who, &which).await.map_err(explained)?;
    let port = |found: ports::ListeningPort| Port {
        port: found.port,
        address: found.address.to_string(),
        loopback: found.address.is_loopback(),
        uid: found.uid,
        pid: found.pid,
        process: found.process,
    };
    let exposed = call.engine().exposed_ports(&call.who, &which).await?;
    let exposed = exposed.into_iter().map(|view| Exposed {
        port: view.port,
        protocol: view.protocol.as_str(),
        public: view.public,
        published: view.published.map(|at| at.to_string()),
        failed: view.failed,
    });
    let ports = found.into_iter().map(port).collect();
    Ok(Answer::new(Ports { name, ports, exposed: exposed.collect(), endpoint }))
}

async fn get_endpoint(call: Call, arguments: EndpointArguments) -> ToolResult<Endpoint> {
    let EndpointArguments { name, port, ttl_seconds } = arguments;
    let options = ExposeOptions { ttl: ttl_seconds.map(Duration::from_secs), ..ExposeOptions::default() };
    let endpoint = endpoint(&call, &name, port, &options).await?;
    let is_listening = endpoint.listening;
    let answer = Answer::new(endpoint);
    Ok(match is_listening {
        None | Some(true) => answer,
        Some(false) => {
            answer.warn(format!("Nothing listens on port {port} yet. Start a server in the sandbox."))
        }
    })
}

async fn endpoint(call: &Call, name: &str, port: u16, options: &ExposeOptions) -> Result<Endpoint, Failure> {
    let which = call.sandbox(name)?;
    let made = ports::expose(call.engine(), &call.who, &call.links(), &which, port, options).await;
    let made = made.map_err(|error| {
        Failure::from(error).or_hint(
            ErrorKind::WrongState,
            "This daemon has no address for browsers. Call sandbox_ports with expose.hostPort to publish the port.",
        )
    })?;
    Ok(Endpoint {
        url: made.url,
        expires_at: made.expires_at.map(|at| at.to_string()),
        listening: made.listening.or((options.protocol.is_tcp()).then_some(false)),
        headers: Some(made.headers).filter(|headers| !headers.is_empty()),
        published: made.exposed.and_then(|view| view.published).map(|at| at.to_string()),
    })
}
