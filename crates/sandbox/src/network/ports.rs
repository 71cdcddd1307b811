//! Ports that a rule is about.

use std::{fmt, ops::RangeInclusive, str::FromStr};

/// Most ranges of one rule.
pub const MAX_PORT_RANGES: usize = 32;

/// A set of ports as `443`, `80,443` or `8000-8999`; empty means all ports. Ranges are sorted and do not touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Ports(Vec<RangeInclusive<u16>>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPorts {
    #[error("{0:?} is not a port: ports go from 1 to 65535")]
    Number(String),
    #[error("the range {0}-{1} ends before it begins")]
    Reversed(u16, u16),
    #[error("a rule has at most {MAX_PORT_RANGES} ports and ranges, but this one has {0}")]
    TooMany(usize),
}

impl Ports {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn one(port: u16) -> Self {
        Self(vec![port..=port])
    }

    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, port: u16) -> bool {
        self.is_all() || self.0.iter().any(|range| range.contains(&port))
    }

    /// Whether every port of `other` is one of these.
    pub fn covers(&self, other: &Self) -> bool {
        let inside = |part: &RangeInclusive<u16>| {
            self.0.iter().any(|range| range.contains(part.start()) && range.contains(part.end()))
        };
        self.is_all() || (!other.is_all() && other.0.iter().all(inside))
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        let meets = |one: &RangeInclusive<u16>| {
            other.0.iter().any(|range| range.start() <= one.end() && one.start() <= range.end())
        };
        self.is_all() || other.is_all() || self.0.iter().any(meets)
    }

    /// The ranges; none means all ports.
    pub fn ranges(&self) -> &[RangeInclusive<u16>] {
        &self.0
    }

    fn sorted(mut ranges: Vec<RangeInclusive<u16>>) -> Self {
        ranges.sort_by_key(|range| *range.start());
        let mut merged: Vec<RangeInclusive<u16>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*last.end().max(range.end());
                }
                _ => merged.push(range),
            }
        }
        match merged.as_slice() {
            [whole] if *whole == (1..=u16::MAX) => Self::all(),
            _ => Self(merged),
        }
    }
}

impl FromStr for Ports {
    type Err = InvalidPorts;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let n_parts = text.split(',').count();
        if n_parts > MAX_PORT_RANGES {
            return Err(InvalidPorts::TooMany(n_parts));
        }
        let ranges = text.split(',').map(|part| match part.split_once('-') {
            None => number(part).map(|port| port..=port),
            Some((first, last)) => match (number(first)?, number(last)?) {
                (first, last) if first > last => Err(InvalidPorts::Reversed(first, last)),
                (first, last) => Ok(first..=last),
            },
        });
        ranges.collect::<Result<Vec<_>, _>>().map(Self::sorted)
    }
}

fn number(text: &str) -> Result<u16, InvalidPorts> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = text.parse().ok().filter(|port| is_number && *port != 0);
    port.ok_or_else(|| InvalidPorts::Number(text.chars().take(40).collect()))
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ports_are_read_sorted_and_joined() {
        for (text, expected) in [
            ("443", "443"),
            ("443,80", "80,443"),
            ("80,81,82-90", "80-90"),
            ("8000-8999,8500", "8000-8999"),
            ("1-65535", ""),
            ("65535", "65535"),
        ] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), expected, "{text}");
        }
        for text in ["", ",", "0", "0-1", "65536", "-1", "+1", "1-", "2-1", "x", "1 ", "443,,80"] {
            assert!(text.parse::<Ports>().is_err(), "{text:?}");
        }
        assert!(vec!["1"; MAX_PORT_RANGES + 1].join(",").parse::<Ports>().is_err());
    }

    fn some() -> impl Strategy<Value = Ports> {
        let range = (1..=100_u16, 0..=20_u16).prop_map(|(first, more)| first..=first + more);
        proptest::collection::vec(range, 0..4).prop_map(Ports::sorted)
    }

    proptest! {
        #[test]
        fn sets_of_ports_compare_by_their_ports(one in some(), other in some()) {
            let covers = (1..=u16::MAX).all(|port| one.contains(port) || !other.contains(port));
            let overlaps = (1..=u16::MAX).any(|port| one.contains(port) && other.contains(port));
            prop_assert_eq!((one.covers(&other), one.overlaps(&other)), (covers, overlaps));
        }
    }
}
