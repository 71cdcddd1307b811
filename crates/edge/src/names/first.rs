//! Ports that say nothing about their protocol: whoever speaks first shows it.
//!
//! A server that speaks first speaks neither TLS nor HTTP. A client that speaks first speaks one of them, or something
//! that says no name we could check; then the address decided, as it does for ports that are never looked at. HTTP/2
//! without TLS is refused: each of its requests could be for another name, and nobody would look.

use std::io;

use sandbox::network::DnsName;

use super::{Checked, Cut, read_until, tls};
use crate::tcp::connection::Pair;

/// First byte of a TLS handshake record.
const HANDSHAKE: u8 = 0x16;
/// Longest word that could be a method.
const MAX_METHOD: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spoken {
    Tls,
    Http,
    /// HTTP/2 without TLS.
    BareHttp2,
    Other,
}

pub(crate) async fn check(pair: &Pair, names: &[DnsName]) -> io::Result<Checked> {
    let is_client = tokio::select! {
        biased;
        ready = pair.inside.readable() => ready.map(|()| true)?,
        ready = pair.outside.readable() => ready.map(|()| false)?,
    };
    let mut said = Vec::new();
    if !is_client {
        return Ok(Checked::Passes { said, name: None });
    }
    let spoken = read_until(&pair.inside, &mut said, recognize).await?;
    let refused = |why: &str| Checked::Refused { answer: b"", why: why.to_owned(), name: None };
    Ok(match spoken {
        Ok(Spoken::Tls) => return tls::check(&pair.inside, said, names).await,
        Ok(Spoken::Http) => Checked::IsHttp { said },
        Ok(Spoken::BareHttp2) => refused(
            "HTTP/2 without TLS is not looked into, and could be for any name; use TLS, HTTP/1.1, or a rule for the address",
        ),
        Ok(Spoken::Other) | Err(Cut::Ended) => Checked::Passes { said, name: None },
        Err(Cut::TooSlow) => refused("the connection began like HTTP and did not go on"),
        Err(Cut::TooLong) => refused("the connection's first line is too long"),
    })
}

/// Tells protocols apart; `None` as long as it could be either.
fn recognize(said: &[u8]) -> Option<Spoken> {
    if *said.first()? == HANDSHAKE {
        return Some(Spoken::Tls);
    }
    // Servers skip empty lines before a request.
    let blank = said.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let text = &said[blank..];
    let method = text.iter().take_while(|byte| is_token(**byte)).count();
    match text.get(method) {
        None if method <= MAX_METHOD => return None,
        Some(b' ') if (1..=MAX_METHOD).contains(&method) => {}
        _ => return Some(Spoken::Other),
    }
    match text.iter().position(|byte| *byte == b'\n') {
        None => None,
        Some(_) if text.starts_with(b"PRI * HTTP/2") => Some(Spoken::BareHttp2),
        Some(end) => {
            let is_http = text[..end].windows(6).any(|word| word == b" HTTP/");
            Some(if is_http { Spoken::Http } else { Spoken::Other })
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_told_apart() {
        for (said, spoken) in [
            (&b""[..], None),
            (b"\x16\x03\x01", Some(Spoken::Tls)),
            (b"GET / HTTP/1.1\r\n", Some(Spoken::Http)),
            (b"\r\nwhatever /x HTTP/1.0\n", Some(Spoken::Http)),
            (b"GET / HT", None),
            (b"GE", None),
            (b"NICK someone\r\n", Some(Spoken::Other)),
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", Some(Spoken::Other)),
            (b"*1\r\n$4\r\nPING\r\n", Some(Spoken::Other)),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Some(Spoken::BareHttp2)),
            (b"\r\nPRI * HTTP/2.0\r\n", Some(Spoken::BareHttp2)),
        ] {
            assert_eq!(recognize(said), spoken, "{}", said.escape_ascii());
        }
    }
}
