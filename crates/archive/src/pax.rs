//! Extended headers: records of `length key=value\n`, whose values may hold any byte.

use rustix::fs::Timespec;

use crate::{
    Attribute,
    error::{Result, bad_record},
};

/// The keyword for kinds that tar has no word for, and its value for sockets.
pub(crate) const KIND: &[u8] = b"TREES.kind";
pub(crate) const SOCKET: &[u8] = b"socket";
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// For names of attributes that have an equals sign in them, in hexadecimal: a keyword cannot have one.
const ODD_ATTRIBUTE: &[u8] = b"TREES.xattr.";

pub(crate) fn push(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(length.to_string().as_bytes());
    for piece in [b" ", key, b"=", value, b"\n"] {
        records.extend_from_slice(piece);
    }
}

pub(crate) fn push_attribute(records: &mut Vec<u8>, (name, value): &Attribute) {
    let key = if name.contains(&b'=') {
        let digits = name.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        [ODD_ATTRIBUTE, digits.as_bytes()].concat()
    } else {
        [ATTRIBUTE, name].concat()
    };
    push(records, &key, value);
}

/// Seconds since 1970 with a fraction of nine digits; that of a time before 1970 counts backwards.
pub(crate) fn time_text(time: Timespec) -> String {
    if time.tv_sec < 0 && time.tv_nsec > 0 {
        let (seconds, nanoseconds) = ((time.tv_sec + 1).unsigned_abs(), 1_000_000_000 - time.tv_nsec);
        return format!("-{seconds}.{nanoseconds:09}");
    }
    format!("{}.{:09}", time.tv_sec, time.tv_nsec)
}

/// The fields of an extended header, which describe the next member. Of a key that comes again the last counts.
#[derive(Debug, Default)]
pub(crate) struct Pax {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) uid: Option<u64>,
    pub(crate) gid: Option<u64>,
    pub(crate) mtime: Option<Timespec>,
    pub(crate) kind: Option<Vec<u8>>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) sparse: PaxSparse,
}

/// The three ways in which GNU tar writes holes in this format.
#[derive(Debug, Default)]
pub(crate) struct PaxSparse {
    pub(crate) is_present: bool,
    /// The member's path, which has another in place of it for those who do not read this.
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) version: (u64, u64),
    pub(crate) real_size: Option<u64>,
    /// Offset and length in turn: versions 0.0 and 0.1. In 1.0 they stand before the content.
    pub(crate) numbers: Vec<u64>,
}

impl Pax {
    pub(crate) fn parse(mut records: &[u8]) -> Result<Self> {
        let mut pax = Self::default();
        while !records.is_empty() && records[0] != 0 {
            let (key, value, rest) = record(records)?;
            pax.take(key, value)?;
            records = rest;
        }
        Ok(pax)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.mtime = Some(time(value)?),
            KIND => self.kind = Some(value.to_vec()),
            _ => {
                if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.take(key, value)?;
                } else if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    self.attributes.push((name.to_vec(), value.to_vec()));
                } else if let Some(digits) = key.strip_prefix(ODD_ATTRIBUTE) {
                    self.attributes.push((from_hex(digits)?, value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

impl PaxSparse {
    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match key {
            b"name" => self.path = Some(value.to_vec()),
            b"major" => (self.version.0, self.is_present) = (number(value)?, true),
            b"minor" => (self.version.1, self.is_present) = (number(value)?, true),
            b"size" | b"realsize" => (self.real_size, self.is_present) = (Some(number(value)?), true),
            b"offset" | b"numbytes" => self.numbers.push(number(value)?),
            b"map" => {
                let texts = value.split(|&byte| byte == b',').filter(|text| !text.is_empty());
                self.numbers = texts.map(number).collect::<Result<_>>()?;
            }
            _ => {}
        }
        Ok(())
    }
}

fn record(records: &[u8]) -> Result<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(20).position(|&byte| byte == b' ').ok_or_else(bad_record)?;
    let length = usize::try_from(number(&records[..space])?).unwrap_or(usize::MAX);
    if length <= space + 1 || length > records.len() || records[length - 1] != b'\n' {
        return Err(bad_record());
    }
    let text = &records[space + 1..length - 1];
    let equals = text.iter().position(|&byte| byte == b'=').ok_or_else(bad_record)?;
    Ok((&text[..equals], &text[equals + 1..], &records[length..]))
}

pub(crate) fn number(text: &[u8]) -> Result<u64> {
    let digits = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.and_then(|text| text.parse().ok()).ok_or_else(bad_record)
}

/// Seconds since 1970 with an optional sign and fraction, of which nine digits count.
fn time(text: &[u8]) -> Result<Timespec> {
    let (is_negative, text) = text.strip_prefix(b"-").map_or((false, text), |rest| (true, rest));
    let point = text.iter().position(|&byte| byte == b'.').unwrap_or(text.len());
    let seconds = i64::try_from(number(&text[..point])?).map_err(|_large| bad_record())?;
    let fraction = text.get(point + 1..).unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return Err(bad_record());
    }
    let digits = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
    let nanoseconds = digits.fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Ok(match (is_negative, nanoseconds) {
        (false, _) => Timespec { tv_sec: seconds, tv_nsec: nanoseconds },
        (true, 0) => Timespec { tv_sec: -seconds, tv_nsec: 0 },
        (true, _) => Timespec { tv_sec: -seconds - 1, tv_nsec: 1_000_000_000 - nanoseconds },
    })
}

fn from_hex(digits: &[u8]) -> Result<Vec<u8>> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.is_ascii() && digits.len() % 2 == 0);
    let digits = digits.ok_or_else(bad_record)?;
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok());
    pairs.collect::<Option<_>>().ok_or_else(bad_record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        for length in [0, 1, 2, 3, 4, 5, 6, 7, 8, 90, 91, 92, 93, 94, 95, 989, 990, 991, 992, 993, 994] {
            let mut records = Vec::new();
            push(&mut records, b"path", &vec![b'x'; length]);
            push(&mut records, b"linkpath", b"\n= 1\0");
            let pax = Pax::parse(&records).unwrap();
            assert_eq!(pax.path.unwrap().len(), length);
            assert_eq!(pax.link.unwrap(), b"\n= 1\0");
        }
    }

    #[test]
    fn times_come_back() {
        let nanoseconds = [0, 1, 250_000_000, 999_999_999];
        for tv_sec in [-4_000_000_000, -2, -1, 0, 1, 4_000_000_000_i64] {
            for tv_nsec in nanoseconds {
                let spec = Timespec { tv_sec, tv_nsec };
                assert_eq!(time(time_text(spec).as_bytes()).unwrap(), spec);
            }
        }
        assert_eq!(time_text(Timespec { tv_sec: -1, tv_nsec: 750_000_000 }), "-0.250000000");
    }

    #[test]
    fn attributes_come_back() {
        let mut records = Vec::new();
        let given = [(b"user.a".to_vec(), b"1".to_vec()), (b"user.=\xff\n".to_vec(), b"=\n".to_vec())];
        for attribute in &given {
            push_attribute(&mut records, attribute);
        }
        assert_eq!(Pax::parse(&records).unwrap().attributes, given);
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
            b"10 size=+1\n",
            b"18446744073709551615 a=b\n",
            b"16 mtime=1.2.3\n\0",
            b"22 TREES.xattr.user=1\n",
        ] {
            assert!(Pax::parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
