//! The host's own HTTP proxy, where the internet is reached through one only. It is asked to connect to the address
//! that was checked, never to a name: it could resolve that to another.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
};

use sandbox::network::{DnsName, Group, IpNet, Surroundings};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt as _, net::TcpStream};

use super::splice;

/// Longest head of a proxy's answer.
const MAX_HEAD: usize = 16 * 1024;

/// An HTTP proxy, and what is reached without it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpstreamProxy {
    /// Where it listens. None if its name is not resolved: then nothing is reached through it, nor past it.
    pub addresses: Vec<SocketAddr>,
    /// The value of `Proxy-Authorization`, which sandboxes never see.
    pub authorization: Option<String>,
    /// The ranges that are reached without it, beside everything that is not the internet.
    pub direct: Vec<IpNet>,
    /// The same, by name: these and all beneath them.
    pub direct_names: Vec<DnsName>,
}

/// Without its secret.
impl fmt::Debug for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamProxy").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl UpstreamProxy {
    /// Whether a connection is made through it.
    pub(crate) fn serves(&self, address: IpAddr, names: &[DnsName], around: &Surroundings) -> bool {
        let is_direct_name =
            |name: &DnsName| self.direct_names.iter().any(|own| name == own || name.is_beneath(own));
        matches!(around.group(address), Some(Group::Public) | None)
            && !self.direct.iter().any(|net| net.contains(address.to_canonical()))
            && !names.iter().any(is_direct_name)
    }

    /// Has the proxy connect to an address.
    pub(crate) async fn connect(&self, destination: SocketAddr) -> io::Result<TcpStream> {
        let mut failed = failure(io::ErrorKind::HostUnreachable, "its name could not be resolved");
        for address in &self.addresses {
            match TcpStream::connect(address).await {
                Ok(mut stream) => {
                    stream.set_nodelay(true)?;
                    self.ask(&mut stream, destination).await?;
                    return Ok(stream);
                }
                Err(error) => failed = failure(io::ErrorKind::HostUnreachable, error.kind()),
            }
        }
        Err(failed)
    }

    async fn ask(&self, stream: &mut TcpStream, destination: SocketAddr) -> io::Result<()> {
        let own = self.authorization.as_ref().map(|value| format!("Proxy-Authorization: {value}\r\n"));
        let own = own.unwrap_or_default();
        let request = format!("CONNECT {destination} HTTP/1.1\r\nHost: {destination}\r\n{own}\r\n");
        splice::write_all(stream, request.as_bytes()).await?;
        let head = read_head(stream).await?;
        match status(&head) {
            Some(200..=299) => Ok(()),
            Some(407) => Err(failure(io::ErrorKind::ConnectionRefused, "it wants other credentials (407)")),
            Some(status) => {
                Err(failure(io::ErrorKind::ConnectionRefused, format!("it answered with status {status}")))
            }
            None => Err(failure(io::ErrorKind::ConnectionRefused, "its answer is not HTTP")),
        }
    }
}

/// Reads up to the end of the head, and nothing of what follows: a server may speak first.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut head, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let n = stream.peek(&mut buffer).await?;
        let before = head.len();
        head.extend_from_slice(&buffer[..n]);
        let end = head.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let taken = end.map_or(n, |end| end.saturating_sub(before));
        stream.read_exact(&mut buffer[..taken]).await?;
        head.truncate(before + taken);
        if end.is_some() {
            return Ok(head);
        }
        if n == 0 || head.len() > MAX_HEAD {
            return Err(failure(io::ErrorKind::ConnectionRefused, "its answer has no end"));
        }
    }
}

fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
    let (version, rest) = line.split_once(' ')?;
    version.starts_with("HTTP/1.").then(|| rest.get(..3)?.parse().ok())?
}

/// A failure of the proxy, not of the server behind it.
#[derive(Debug)]
pub(crate) struct ProxyFailed(String);

impl fmt::Display for ProxyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host's proxy could not be used: {}", self.0)
    }
}

impl std::error::Error for ProxyFailed {}

fn failure(kind: io::ErrorKind, why: impl fmt::Display) -> io::Error {
    io::Error::new(kind, ProxyFailed(why.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_internet_is_reached_through_it() {
        let proxy = UpstreamProxy {
            direct: vec!["93.184.216.0/28".parse().unwrap()],
            direct_names: vec!["corp.example".parse().unwrap()],
            ..UpstreamProxy::default()
        };
        let around = Surroundings { host: vec![[8, 8, 4, 4].into()], ..Surroundings::default() };
        let serves = |address: &str, name: Option<&str>| {
            let names: Vec<DnsName> = name.into_iter().map(|name| name.parse().unwrap()).collect();
            proxy.serves(address.parse().unwrap(), &names, &around)
        };
        assert!(serves("93.184.216.34", None) && serves("2606:4700::1", Some("example.org")));
        for direct in
            ["10.0.0.1", "127.0.0.1", "169.254.1.2", "8.8.4.4", "93.184.216.9", "::ffff:93.184.216.9"]
        {
            assert!(!serves(direct, None), "{direct}");
        }
        assert!(
            !serves("93.184.216.34", Some("corp.example"))
                && !serves("93.184.216.34", Some("a.corp.example"))
        );
        assert!(serves("93.184.216.34", Some("xcorp.example")));
    }

    #[test]
    fn an_answer_has_a_status_or_is_none() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407\r\n\r\n"), Some(407));
        for bad in [&b""[..], b"HTTP/2 200\r\n", b"HTTP/1.1 20", b"HTTP/1.1 +20 x", b"\xff\xff"] {
            assert_eq!(status(bad).filter(|status| *status >= 100), None, "{bad:?}");
        }
    }
}
