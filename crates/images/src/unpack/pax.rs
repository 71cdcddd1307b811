//! Extended headers: records of `length key=value\n`, whose values may hold any byte.

use rustix::fs::Timespec;

use crate::error::{Error, Result};

/// What an extended header says about the next entry.
#[derive(Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) mtime: Option<Timespec>,
    /// Name and value, as in the archive.
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
    pub(super) sparse: PaxSparse,
}

/// The three ways in which GNU tar writes holes in this format.
#[derive(Debug, Default)]
pub(super) struct PaxSparse {
    pub(super) version: (u64, u64),
    pub(super) present: bool,
    pub(super) real_size: Option<u64>,
    /// Offset and length in turn: versions 0.0 and 0.1. In 1.0 it is the beginning of the data.
    pub(super) numbers: Vec<u64>,
}

impl Pax {
    pub(super) fn parse(mut records: &[u8]) -> Result<Self> {
        let mut pax = Self::default();
        while !records.is_empty() && records[0] != 0 {
            let (key, value, rest) = record(records)?;
            pax.take(key, value)?;
            records = rest;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &str, value: &[u8]) -> Result<()> {
        match key {
            "path" => self.path = Some(value.to_vec()),
            "linkpath" => self.link = Some(value.to_vec()),
            "size" => self.size = Some(number(value)?),
            "uid" => self.uid = Some(number(value)?),
            "gid" => self.gid = Some(number(value)?),
            "mtime" => self.mtime = Some(time(value)?),
            "GNU.sparse.name" => self.path = Some(value.to_vec()),
            "GNU.sparse.major" => (self.sparse.version.0, self.sparse.present) = (number(value)?, true),
            "GNU.sparse.minor" => (self.sparse.version.1, self.sparse.present) = (number(value)?, true),
            "GNU.sparse.size" | "GNU.sparse.realsize" => {
                (self.sparse.real_size, self.sparse.present) = (Some(number(value)?), true);
            }
            "GNU.sparse.offset" | "GNU.sparse.numbytes" => self.sparse.numbers.push(number(value)?),
            "GNU.sparse.map" => {
                self.sparse.numbers = value
                    .split(|&byte| byte == b',')
                    .filter(|text| !text.is_empty())
                    .map(number)
                    .collect::<Result<_>>()?;
            }
            _ => {
                if let Some(name) = key.strip_prefix("SCHILY.xattr.") {
                    self.xattrs.push((name.to_owned(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

fn record(records: &[u8]) -> Result<(&str, &[u8], &[u8])> {
    let space = records.iter().position(|&byte| byte == b' ').ok_or_else(malformed)?;
    let length = usize::try_from(number(&records[..space])?).unwrap_or(usize::MAX);
    if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
        return Err(malformed());
    }
    let text = &records[space + 1..length - 1];
    let equals = text.iter().position(|&byte| byte == b'=').ok_or_else(malformed)?;
    let Ok(key) = std::str::from_utf8(&text[..equals]) else { return Err(malformed()) };
    Ok((key, &text[equals + 1..], &records[length..]))
}

pub(super) fn number(text: &[u8]) -> Result<u64> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(malformed)
}

/// Seconds since 1970 with an optional sign and fraction.
fn time(text: &[u8]) -> Result<Timespec> {
    let text = std::str::from_utf8(text).ok().ok_or_else(malformed)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok().ok_or_else(malformed)?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed());
    }
    let nanoseconds = fraction
        .bytes()
        .chain(std::iter::repeat(b'0'))
        .take(9)
        .fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    // The fraction of a time before 1970 counts backwards.
    if whole.starts_with('-') && nanoseconds > 0 {
        return Ok(Timespec { tv_sec: seconds.saturating_sub(1), tv_nsec: 1_000_000_000 - nanoseconds });
    }
    Ok(Timespec { tv_sec: seconds, tv_nsec: nanoseconds })
}

fn malformed() -> Error {
    Error::corrupt("an extended tar header", "length key=value", "something else")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_hold_any_byte() {
        let pax = Pax::parse(b"28 SCHILY.xattr.user.a=\n=\0 \n12 path=b/c\n19 mtime=-1.250000\n").unwrap();
        assert_eq!(pax.xattrs, [("user.a".to_owned(), b"\n=\0 ".to_vec())]);
        assert_eq!(pax.path.unwrap(), b"b/c");
        assert_eq!(pax.mtime.unwrap(), Timespec { tv_sec: -2, tv_nsec: 750_000_000 });
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for bad in [
            &b"x"[..],
            b"5 a=b",
            b"99 a=b\n",
            b"0 a=b\n",
            b"6 abc\n",
            b"9 size=x\n",
            b"18446744073709551615 a=b\n",
        ] {
            assert!(matches!(Pax::parse(bad), Err(Error::Corrupt { .. })), "{bad:?}");
        }
    }
}
