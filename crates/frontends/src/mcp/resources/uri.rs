//! Addresses of resources.

use sandbox::{Error, ExecId, Result};

use super::SCHEMES;
use crate::code::MAX_OUTPUT_NUMBER;

/// The target of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Runtime,
    Sandboxes,
    Volumes,
    Images,
    Snapshots,
    CreateSchema,
    Policy,
    Sandbox {
        name: String,
    },
    File {
        name: String,
        path: String,
    },
    Exec {
        name: String,
        id: ExecId,
    },
    Output {
        name: String,
        id: ExecId,
    },
    /// Something that a cell has shown.
    Shown {
        name: String,
        id: ExecId,
        number: u32,
        mime: Option<String>,
    },
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
        // A text that is no id can name no exec.
        let id: ExecId = decode(uri, id)?.parse().map_err(|_malformed| unknown(uri))?;
        match tail {
            None => Ok(Self::Exec { name, id }),
            Some("output") => Ok(Self::Output { name, id }),
            Some(tail) => {
                let (number, mime) = shown(uri, tail)?;
                Ok(Self::Shown { name, id, number, mime })
            }
        }
    }
}

/// `outputs/3`, or `outputs/3?mime=text/html`.
fn shown(uri: &str, tail: &str) -> Result<(u32, Option<String>)> {
    let rest = tail.strip_prefix("outputs/").ok_or_else(|| unknown(uri))?;
    let (number, query) = match rest.split_once('?') {
        Some((number, query)) => (number, Some(query)),
        None => (rest, None),
    };
    let number = number.parse().ok().filter(|number| (1..=MAX_OUTPUT_NUMBER).contains(number));
    let mime = match query {
        Some(query) => {
            let mime = query.strip_prefix("mime=").ok_or_else(|| unknown(uri))?;
            // A plus in a MIME type means itself, encoded or not.
            Some(decode(uri, mime)?)
        }
        None => None,
    };
    Ok((number.ok_or_else(|| unknown(uri))?, mime))
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

#[cfg(test)]
mod tests {
    use sandbox::ErrorKind;

    use super::*;
    use crate::links::{file_uri, output_uri};

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
    }

    #[test]
    fn what_was_shown_is_numbered_and_may_be_wanted_in_another_form() {
        let id: ExecId = "exc-0000000000000".parse().unwrap();
        let uri = output_uri("a b", &id, 3);
        let target = |mime: Option<&str>| Target::Shown {
            name: "a b".to_owned(),
            id: id.clone(),
            number: 3,
            mime: mime.map(str::to_owned),
        };
        assert_eq!(Target::parse(&uri).unwrap(), target(None));
        assert_eq!(
            Target::parse(&format!("{uri}?mime=image/svg+xml")).unwrap(),
            target(Some("image/svg+xml"))
        );
        assert_eq!(Target::parse(&format!("{uri}?mime=text%2Fhtml")).unwrap(), target(Some("text/html")));
        assert_eq!(file_uri("web", "/a b/ü?"), "warren://sandboxes/web/files/a%20b/%C3%BC%3F");
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
            "warren://sandboxes/web/execs/exc-0000000000000/outputs/0",
            "warren://sandboxes/web/execs/exc-0000000000000/outputs/x",
            "warren://sandboxes/web/execs/exc-0000000000000/outputs/1?type=x",
            "warren://sandboxes/web/execs/exc-0000000000000/outputs/99999999",
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
