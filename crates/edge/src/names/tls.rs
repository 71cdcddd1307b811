//! The name in a TLS ClientHello. The bytes go on unchanged; nothing is decrypted.

use std::io;

use rustls::server::Acceptor;
use sandbox::network::DnsName;
use tokio::net::TcpStream;

use super::{Checked, Cut, read_until};
use crate::tcp::connection::Pair;

/// A fatal alert, `access_denied`.
pub(crate) const ACCESS_DENIED: &[u8] = &[0x15, 0x03, 0x03, 0, 2, 2, 49];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    Named(DnsName),
    /// Without a name, or with one that is none.
    Nameless,
    NotTls,
}

/// Reads a ClientHello in whatever pieces it comes.
pub(crate) struct HelloReader {
    acceptor: Acceptor,
    seen: usize,
}

impl HelloReader {
    pub(crate) fn new() -> Self {
        Self { acceptor: Acceptor::default(), seen: 0 }
    }

    /// Looks at all bytes so far; `None` as long as more are needed.
    pub(crate) fn look(&mut self, said: &[u8]) -> Option<Hello> {
        while self.seen < said.len() {
            let mut rest = &said[self.seen..];
            match self.acceptor.read_tls(&mut rest) {
                Ok(0) | Err(_) => return Some(Hello::NotTls),
                Ok(read) => self.seen += read,
            }
            match self.acceptor.accept() {
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().and_then(|name| name.parse().ok());
                    return Some(name.map_or(Hello::Nameless, Hello::Named));
                }
                Err(_) => return Some(Hello::NotTls),
            }
        }
        None
    }
}

/// Whether a connection begins TLS for one of the names. `said`: what was read of it before.
pub(crate) async fn check(inside: &TcpStream, mut said: Vec<u8>, names: &[DnsName]) -> io::Result<Checked> {
    let mut reader = HelloReader::new();
    let hello = read_until(inside, &mut said, |said| reader.look(said)).await?;
    Ok(judge(hello, said, names))
}

/// Looks for the name that a connection begins TLS for. It passes, whatever it says, and whoever speaks first.
pub(crate) async fn peek(pair: &Pair) -> io::Result<Checked> {
    let mut said = Vec::new();
    let is_client = tokio::select! {
        biased;
        ready = pair.inside.readable() => ready.map(|()| true)?,
        ready = pair.outside.readable() => ready.map(|()| false)?,
    };
    let mut name = None;
    if is_client {
        let mut reader = HelloReader::new();
        let hello = read_until(&pair.inside, &mut said, |said| reader.look(said)).await?;
        if let Ok(Hello::Named(named)) = hello {
            name = Some(named);
        }
    }
    Ok(Checked::Passes { said, name })
}

fn judge(hello: Result<Hello, Cut>, said: Vec<u8>, names: &[DnsName]) -> Checked {
    let refused = |why: String| Checked::Refused { answer: ACCESS_DENIED, why, name: None };
    match hello {
        Ok(Hello::Named(name)) if names.contains(&name) => Checked::Passes { said, name: Some(name) },
        Ok(Hello::Named(name)) => {
            let why = format!("the TLS connection is for {name}, which no rule allows at this address");
            Checked::Refused { answer: ACCESS_DENIED, why, name: Some(name) }
        }
        Ok(Hello::Nameless) => {
            refused("the TLS connection names no server, and only names are allowed".to_owned())
        }
        Ok(Hello::NotTls) => Checked::Refused {
            answer: b"",
            why: "the connection is not TLS, and only names are allowed".to_owned(),
            name: None,
        },
        Err(Cut::TooLong) => refused("the TLS connection's first message is too long".to_owned()),
        Err(Cut::TooSlow) => refused("the TLS connection's first message took too long".to_owned()),
        Err(Cut::Ended) => {
            Checked::Refused { answer: b"", why: "the connection ended at once".to_owned(), name: None }
        }
    }
}

/// Feeds bytes whole and in pieces, which must come to the same.
#[doc(hidden)]
pub fn fuzz_hello(bytes: &[u8]) {
    let whole = HelloReader::new().look(bytes);
    let mut reader = HelloReader::new();
    let pieces = (0..=bytes.len()).find_map(|end| reader.look(&bytes[..end]));
    if let (Some(Hello::Named(whole)), Some(Hello::Named(pieces))) = (whole, pieces) {
        assert_eq!(whole, pieces);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::ring};

    use super::*;

    fn hello(name: &str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let mut client =
            ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_name_is_found_however_the_bytes_come() {
        let bytes = hello("Api.Example.org");
        let named = Some(Hello::Named("api.example.org".parse().unwrap()));
        assert_eq!(HelloReader::new().look(&bytes), named);

        let mut reader = HelloReader::new();
        let found: Vec<_> = (0..bytes.len()).filter_map(|end| reader.look(&bytes[..end])).collect();
        assert_eq!(found, []);
        assert_eq!(reader.look(&bytes), named);
    }

    #[test]
    fn a_hello_in_many_records_is_one() {
        let bytes = hello("api.example.org");
        let mut records = Vec::new();
        for piece in bytes[5..].chunks(7) {
            records.extend([22, 3, 1, 0, u8::try_from(piece.len()).unwrap()]);
            records.extend(piece);
        }
        let named = Some(Hello::Named("api.example.org".parse().unwrap()));
        assert_eq!(HelloReader::new().look(&records), named);
    }

    #[test]
    fn addresses_and_other_protocols_have_no_name() {
        assert_eq!(HelloReader::new().look(&hello("93.184.216.34")), Some(Hello::Nameless));
        assert_eq!(HelloReader::new().look(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Hello::NotTls));
        assert_eq!(HelloReader::new().look(b"SSH-2.0-x\r\n"), Some(Hello::NotTls));
    }

    #[test]
    fn only_the_allowed_names_pass() {
        let names = ["a.example".parse().unwrap()];
        let said = |name: &str| Ok(Hello::Named(name.parse().unwrap()));
        assert!(
            matches!(judge(said("a.example"), vec![1], &names), Checked::Passes { said, .. } if said == [1])
        );
        for other in [said("b.example"), Ok(Hello::Nameless), Ok(Hello::NotTls), Err(Cut::TooSlow)] {
            assert!(matches!(judge(other, Vec::new(), &names), Checked::Refused { .. }));
        }
    }
}
