//! Addresses of resources.

use sandbox::{Error, ExecId, Result};

use super::SCHEMES;

/// What an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Runtime,
    Sandboxes,
    Volumes,
    Images,
    Snapshots,
    CreateSchema,
    Policy,
    Sandbox { name: String },
    File { name: String, path: String },
    Exec { name: String, id: ExecId },
    Output { name: String, id: ExecId },
}

pub(super) fn unknown(uri: &str) -> Error {
    let shown: String = uri.chars().take(200).collect();
    Error::not_found(format!("no resource {shown}"))
        .with_hint("List the resources and the resource templates to see what can be read.")
}

impl Target {
    pub(super) fn parse(uri: &str) -> Result<Self> {
        let rest = SCHEMES.into_iter().find_map(|scheme| uri.strip_prefix(scheme)?.strip_prefix("://"));
        let rest = rest.ok_or_else(|| unknown(uri))?;
        if let Some(of_one) = rest.strip_prefix("sandboxes/") {
            return Self::of_sandbox(uri, of_one);
        }
        match rest {
            "runtime" => Ok(Self::Runtime),
            "sandboxes" => Ok(Self::Sandboxes),
            "volumes" => Ok(Self::Volumes),
            "images" => Ok(Self::Images),
            "snapshots" => Ok(Self::Snapshots),
            "schemas/sandbox-create" => Ok(Self::CreateSchema),
            "policy" => Ok(Self::Policy),
            _ => Err(unknown(uri)),
        }
    }

    fn of_sandbox(uri: &str, rest: &str) -> Result<Self> {
        let (name, rest) = match rest.split_once('/') {
            Some((name, rest)) => (name, Some(rest)),
            None => (rest, None),
        };
        let name = decode(uri, name)?;
        if name.is_empty() {
            return Err(unknown(uri));
        }
        let Some(rest) = rest else { return Ok(Self::Sandbox { name }) };
        if let Some(path) = rest.strip_prefix("files/") {
            // Expanded from `/etc/hosts` as well as from `etc/hosts`.
            let path = decode(uri, path)?;
            return Ok(Self::File { name, path: format!("/{}", path.trim_start_matches('/')) });
        }
        let Some(of_exec) = rest.strip_prefix("execs/") else { return Err(unknown(uri)) };
        let (id, tail) = match of_exec.split_once('/') {
            Some((id, tail)) => (id, Some(tail)),
            None => (of_exec, None),
        };
        // What is no id can name no exec.
        let id: ExecId = decode(uri, id)?.parse().map_err(|_malformed| unknown(uri))?;
        match tail {
            None => Ok(Self::Exec { name, id }),
            Some("output") => Ok(Self::Output { name, id }),
            Some(_) => Err(unknown(uri)),
        }
    }
}

/// Where a file of a sandbox is read.
pub(crate) fn file_uri(sandbox: &str, path: &str) -> String {
    let path: Vec<_> = path.trim_start_matches('/').split('/').map(encode).collect();
    format!("warren://sandboxes/{}/files/{}", encode(sandbox), path.join("/"))
}

/// Undoes percent encoding, once.
fn decode(uri: &str, text: &str) -> Result<String> {
    let malformed = || {
        let shown: String = uri.chars().take(200).collect();
        Error::invalid(format!("{shown} is not encoded as a URI"))
            .with_hint("Write a percent sign as %25, and bytes as % and two hexadecimal digits of UTF-8.")
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (digits, after) = after.split_at_checked(2).ok_or_else(malformed)?;
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let (high, low) = (value(digits[0]).ok_or_else(malformed)?, value(digits[1]).ok_or_else(malformed)?);
        bytes.push(high << 4 | low);
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_not_text| malformed())
}

/// Percent encoding of one part of an address.
pub(super) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;

    use super::*;

    #[test]
    fn both_schemes_mean_the_same() {
        for scheme in SCHEMES {
            assert_eq!(Target::parse(&format!("{scheme}://policy")).unwrap(), Target::Policy);
            assert_eq!(
                Target::parse(&format!("{scheme}://schemas/sandbox-create")).unwrap(),
                Target::CreateSchema
            );
        }
    }

    #[test]
    fn paths_are_decoded_once_and_are_absolute() {
        let path = |uri: &str| match Target::parse(uri).unwrap() {
            Target::File { name, path } => {
                assert_eq!(name, "web");
                path
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(path("warren://sandboxes/web/files/etc/hosts"), "/etc/hosts");
        assert_eq!(path("warren://sandboxes/web/files//etc/hosts"), "/etc/hosts");
        assert_eq!(path("warren://sandboxes/web/files/a%20b/%2541"), "/a b/%41");
        assert_eq!(path("warren://sandboxes/web/files/%C3%BC?x#y"), "/ü?x#y");
        assert_eq!(encode("a b/ü"), "a%20b%2F%C3%BC");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for uri in [
            "",
            "warren:policy",
            "http://policy",
            "warren://nothing",
            "warren://sandboxes/",
            "warren://sandboxes//files/x",
            "warren://sandboxes/web/fils/x",
            "warren://sandboxes/web/execs/1/output",
            "warren://sandboxes/web/execs/exc-0000000000000/input",
        ] {
            assert_eq!(Target::parse(uri).unwrap_err().kind(), ErrorKind::NotFound, "{uri}");
        }
        for uri in
            ["warren://sandboxes/web/files/%", "warren://sandboxes/web/files/%zz", "warren://sandboxes/%ff"]
        {
            assert_eq!(Target::parse(uri).unwrap_err().kind(), ErrorKind::InvalidRequest, "{uri}");
        }
    }
}
