//! Addresses to listen on: the daemon's own, and further ones, each with a dialect of its own.

use std::{fmt, net::SocketAddr, str::FromStr};

use frontends::{dialects, mcp::Dialect};
use sandbox::{Error, Result};

/// Further listeners of one daemon. There are fewer dialects than this.
pub(crate) const MAX_FURTHER: usize = 16;

/// The address to listen on, on TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    Nowhere,
    At(SocketAddr),
}

impl FromStr for Listen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::Nowhere);
        }
        // The one name that people use and that needs no DNS lookup.
        let numeric = text
            .strip_prefix("localhost:")
            .map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
        numeric.parse().map(Self::At).map_err(|_malformed| {
            Error::invalid(format!("{text:?} is not an address to listen on"))
                .with_hint("Use an address and a port, such as 127.0.0.1:5555 or [::1]:5555, or none.")
        })
    }
}

/// A further address, and what its plain `/mcp` and `/sse` speak: `127.0.0.1:8181=mcp-sandbox`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AlsoListen {
    pub(crate) address: SocketAddr,
    pub(crate) dialect: Dialect,
}

// Two dialects are the same if their names are.
impl PartialEq for AlsoListen {
    fn eq(&self, other: &Self) -> bool {
        (self.address, self.dialect.name) == (other.address, other.dialect.name)
    }
}

impl Eq for AlsoListen {}

impl FromStr for AlsoListen {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let how = "Use an address and a dialect, such as 127.0.0.1:8181=mcp-sandbox.";
        let Some((address, dialect)) = text.split_once('=') else {
            return Err(Error::invalid(format!("{text:?} names no dialect for this address")).with_hint(how));
        };
        let Listen::At(address) = address.parse()? else {
            return Err(Error::invalid(format!("{text:?} names no address to listen on")).with_hint(how));
        };
        let dialect = dialects::named(dialect).ok_or_else(|| {
            let names: Vec<_> = dialects::names().collect();
            Error::invalid(format!("{dialect:?} is not a dialect"))
                .with_hint(format!("The dialects are {}.", names.join(", ")))
        })?;
        Ok(Self { address, dialect })
    }
}

impl fmt::Display for AlsoListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.address, self.dialect.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_wrong_ones_named() {
        let at = |text: &str| Listen::At(text.parse().unwrap());
        assert_eq!("none".parse::<Listen>().unwrap(), Listen::Nowhere);
        assert_eq!("localhost:80".parse::<Listen>().unwrap(), at("127.0.0.1:80"));
        assert_eq!("[::]:0".parse::<Listen>().unwrap(), at("[::]:0"));
        for wrong in ["", "5555", "127.0.0.1", "example.com:80", "localhost:", "127.0.0.1:99999"] {
            let error = wrong.parse::<Listen>().unwrap_err();
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn a_further_address_has_a_dialect() {
        let read = |text: &str| text.parse::<AlsoListen>().map(|also| also.to_string());
        assert_eq!(read("localhost:8181=mcp-sandbox").unwrap(), "127.0.0.1:8181=mcp-sandbox");
        assert_eq!(read("[::1]:0=warren").unwrap(), "[::1]:0=warren");
        for (wrong, named) in [
            ("127.0.0.1:8181", "127.0.0.1:8181"),
            ("none=warren", "none=warren"),
            ("8181=warren", "8181"),
            ("127.0.0.1:1=klingon", "klingon"),
            ("", ""),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.to_string().contains(&format!("{named:?}")), "{error}");
            assert!(crate::error::hint(&error).is_some(), "{error}");
        }
    }
}
