//! `warren port`

use std::{net::IpAddr, process::ExitCode, str::FromStr, time::Duration};

use frontends::rest::v1;
use sandbox::{Error, PortSpec, Result, network::Protocol};

use super::Context;
use crate::{arguments, error::CommandResult, output};

/// Reach servers in a sandbox
///
/// Without PORT, lists what listens inside and what is exposed. With PORT, prints an address for a browser, which
/// works until it expires or the sandbox is removed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  warren port dev
  warren port dev 8000 --ttl 8h
  warren port dev 8000 --public
  warren port dev 5432 --publish 15432
  warren port dev 53 --publish 5353/udp
  warren port dev 8000 --remove")]
pub(crate) struct Args {
    /// Name or id
    sandbox: String,
    /// Port inside, such as 80, 80/tcp or 53/udp
    #[arg(value_name = "PORT", value_parser = inside)]
    port: Option<Inside>,
    /// Let everyone who reaches the daemon use it, without a key or a token
    #[arg(long, requires = "port")]
    public: bool,
    /// Also publish it on this port of the host, 0 for any free one [default: TCP on 127.0.0.1]
    #[arg(long, requires = "port", value_name = "[ADDRESS:]PORT[/udp]")]
    publish: Option<HostPort>,
    /// How long the address is valid, up to a week
    #[arg(long, requires = "port", value_name = "SPAN", value_parser = arguments::duration, conflicts_with = "public")]
    ttl: Option<Duration>,
    /// Withdraw it: neither public nor published any more
    #[arg(long, requires = "port", conflicts_with_all = ["public", "publish", "ttl"])]
    remove: bool,
}

/// A port of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inside {
    port: u16,
    protocol: Protocol,
}

fn inside(text: &str) -> std::result::Result<Inside, String> {
    let (number, protocol) = match text.split_once('/') {
        None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
        Some((number, "udp")) => (number, Protocol::Udp),
        Some((_, other)) => return Err(format!("{other:?} is not a protocol: write tcp or udp")),
    };
    match number.parse() {
        Ok(port @ 1..) => Ok(Inside { port, protocol }),
        _ if number.contains(':') => {
            Err("name only the port inside; --publish names that of the host".to_owned())
        }
        _ => Err("write a port from 1 to 65535, such as 80 or 80/tcp".to_owned()),
    }
}

/// A port of the host.
#[derive(Debug, Clone, Copy)]
struct HostPort {
    address: Option<IpAddr>,
    port: u16,
    protocol: Protocol,
}

impl FromStr for HostPort {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // As in `--publish` of a new sandbox, whose last part is the port inside.
        let (plain, protocol) =
            text.split_once('/').map_or((text, ""), |(plain, _)| (plain, &text[plain.len()..]));
        let spec: PortSpec = format!("{plain}:1{protocol}").parse()?;
        Ok(Self { address: spec.address, port: spec.host.unwrap_or_default(), protocol: spec.protocol })
    }
}

pub(crate) async fn run(context: &Context, args: Args) -> CommandResult {
    let client = context.client().await?;
    let Args { sandbox, port, public, publish, ttl, remove } = args;
    match port {
        None => {
            let found = client.ports(&sandbox).await?;
            if context.json {
                output::json(&found)?;
            } else {
                let heading = ["INSIDE", "ADDRESS", "ACCESS", "LISTENING"];
                output::table(heading, found.ports.iter().map(row))?;
            }
        }
        Some(Inside { port, .. }) if remove => client.withdraw_port(&sandbox, port).await?,
        Some(Inside { port, protocol }) => {
            // Rounded up, so that a part of a second does not become zero.
            let ttl_seconds =
                ttl.map(|ttl| u64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(u64::MAX));
            let protocol = match publish {
                Some(HostPort { protocol: Protocol::Udp, .. }) => Protocol::Udp,
                _ => protocol,
            };
            let (host, address) = publish.map(|publish| (publish.port, publish.address)).unzip();
            let address = address.flatten();
            let request = v1::ExposeRequest { port, protocol, public, host, address, ttl_seconds };
            let endpoint = client.expose_port(&sandbox, &request).await?;
            show(context, &endpoint)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, endpoint: &v1::Endpoint) -> CommandResult<()> {
    if context.json {
        output::json(endpoint)?;
        return Ok(());
    }
    if endpoint.listening == Some(false) {
        output::warn(&format!("nothing listens on port {} inside yet", endpoint.port));
    }
    if let Some(published) = endpoint.published {
        output::line(&published.to_string())?;
    }
    if let Some(url) = &endpoint.url {
        output::line(url)?;
    }
    Ok(())
}

fn row(port: &v1::Port) -> [String; 4] {
    let address = match (&port.published, &port.failed) {
        (Some(published), None) => published.to_string(),
        (Some(_), Some(why)) => format!("failed: {why}"),
        (None, _) => String::new(),
    };
    let access = match (port.public, port.published.is_some()) {
        (true, _) => "public",
        (false, true) => "published",
        (false, false) => "key or token",
    };
    let listening = match port.listening {
        Some(true) => port.process.clone().unwrap_or_else(|| "yes".to_owned()),
        Some(false) => "no".to_owned(),
        None if port.protocol == Protocol::Udp => "unknown".to_owned(),
        None => "not running".to_owned(),
    };
    let inside = match port.protocol {
        Protocol::Tcp => port.port.to_string(),
        Protocol::Udp => format!("{}/udp", port.port),
    };
    [inside, address, access.to_owned(), listening]
}
