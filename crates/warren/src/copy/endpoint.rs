//! One side of a copy.

use std::{path::PathBuf, str::FromStr};

/// The source or the target of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// In a sandbox or a volume of this name.
    Inside {
        name: String,
        path: String,
    },
    Local(PathBuf),
    /// On stdin or stdout.
    Stream,
}

impl FromStr for Endpoint {
    type Err = String;

    /// As `scp` and `docker cp` read it: what is before the first colon is a name unless there is a slash in it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        match text.split_once(':') {
            Some(("", _)) => Err("there is no name before the colon".to_owned()),
            Some((name, path)) if !name.contains('/') && name != "." && name != ".." => {
                // A relative path starts at the working directory inside, which is meant by none.
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::Inside { name: name.to_owned(), path: path.to_owned() })
            }
            _ if text.is_empty() => Err("a path must not be empty".to_owned()),
            _ => Ok(Self::Local(PathBuf::from(text))),
        }
    }
}

pub(super) fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_told_apart() {
        let inside =
            |name: &str, path: &str| Ok(Endpoint::Inside { name: name.to_owned(), path: path.to_owned() });
        assert_eq!("dev:/x/".parse(), inside("dev", "/x/"));
        assert_eq!("dev:/a:b".parse(), inside("dev", "/a:b"));
        assert_eq!("dev:a/b".parse(), inside("dev", "a/b"));
        assert_eq!("dev:".parse(), inside("dev", "."));
        assert_eq!("-".parse(), Ok(Endpoint::Stream));
        for local in ["./a:b", "/a:b", "../x", "a", "dir/x:y"] {
            assert_eq!(local.parse(), Ok(Endpoint::Local(PathBuf::from(local))), "{local:?}");
        }
        for wrong in ["", ":/x"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_goes_behind_one_slash() {
        assert_eq!([join("/a/", "b"), join("/", "b")], ["/a/b", "/b"]);
    }
}
