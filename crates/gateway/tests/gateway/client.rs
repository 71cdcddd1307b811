//! A client that says exactly what a test wants said.

use std::{collections::BTreeMap, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Whether as much came as was promised.
    pub(crate) fn is_complete(&self) -> bool {
        self.headers.get("content-length").is_some_and(|length| length.parse() == Ok(self.body.len()))
    }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    get_with(address, path, &[]).await
}

/// `None` where the connection was closed without an answer.
pub(crate) async fn try_get(address: SocketAddr, path: &str) -> Option<Answer> {
    say(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).await
}

pub(crate) async fn get_with(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    say(address, &format!("{request}\r\n")).await.unwrap_or_else(|| panic!("no answer to {path}"))
}

/// Sends bytes as they are and reads until the far end closes. `None`: nothing that looks like an answer.
pub(crate) async fn say(address: SocketAddr, request: &str) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The gateway may close before it took everything.
    drop(stream.write_all(request.as_bytes()).await);
    let mut bytes = Vec::new();
    drop(stream.read_to_end(&mut bytes).await);
    parse(&bytes)
}

pub(crate) fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    Some(Answer { status, headers, body: bytes[end + 4..].to_vec() })
}
