//! Addresses in one canonical form, and ranges of them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// The address that is really meant. IPv6 has forms that carry an IPv4 address: mapped, compatible, translated (SIIT),
/// NAT64 (`64:ff9b::/96`), 6to4, Teredo, and ISATAP where the address inside is not public. All become that IPv4
/// address, so that no form gets past a rule about another.
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => embedded(six).map_or(address, IpAddr::V4),
    }
}

fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let four = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match parts {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(four(high, low)),
        [0x2001, 0, _, _, _, _, high, low] => Some(four(!high, !low)),
        // An ISATAP address on a prefix of the internet may also be an ordinary one, so a public address inside it
        // changes nothing.
        [prefix, _, _, _, 0 | 0x200, 0x5efe, high, low] if prefix & 0xe000 == 0x2000 => {
            Some(four(high, low)).filter(|inside| !is_public_v4(*inside))
        }
        _ => None,
    }
}

/// Whether the address hides another one in a way that only its own network knows: NAT64 with a prefix that operators
/// choose (`64:ff9b:1::/48`).
pub(crate) fn is_opaque(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(six) if matches!(six.segments(), [0x64, 0xff9b, 1, ..]))
}

/// Whether anybody on the internet could reach the address, which is canonical.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_public_v4(four),
        IpAddr::V6(six) => {
            let parts = six.segments();
            // Everything else is local, multicast or reserved; so are, within it, documentation (2001:db8::/32,
            // 3fff::/20), benchmarks and ORCHID.
            let is_global = parts[0] & 0xe000 == 0x2000;
            let is_documentation = matches!(parts, [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..]);
            let is_special = parts[0] == 0x2001 && parts[1] < 0x200;
            is_global && !is_documentation && !is_special
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_protocol = a == 192 && b == 0 && c == 0;
    let is_relay_anycast = a == 192 && b == 88 && c == 99;
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    !(a == 0
        || a >= 224
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_private_v4(address)
        || is_protocol
        || is_relay_anycast
        || is_benchmark)
}

/// Private networks of RFC 1918, and the addresses that providers share among customers (100.64.0.0/10).
fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    address.is_private() || (a == 100 && (64..128).contains(&b))
}

/// Whether the address, which is canonical, belongs to some private network.
pub(crate) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => is_private_v4(four),
        // Unique local, and site-local, which it replaced.
        IpAddr::V6(six) => six.segments()[0] & 0xfe00 == 0xfc00 || six.segments()[0] & 0xffc0 == 0xfec0,
    }
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

/// Multicast and broadcast.
pub(crate) fn is_multicast(address: IpAddr) -> bool {
    address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

/// The machine itself: loopback, and what stands for it when it is dialled (`0.0.0.0`, `::`).
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_loopback() || four.octets()[0] == 0,
        IpAddr::V6(six) => six.is_loopback() || six.is_unspecified(),
    }
}

/// A range of addresses in CIDR form, canonical; a single address is the range of its full length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpNet {
    address: IpAddr,
    prefix: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNet {
    #[error("{0:?} is not an address or a range of addresses")]
    Malformed(String),
    #[error("{address}/{prefix} has bits after its prefix; the range is {meant}")]
    HostBits { address: IpAddr, prefix: u8, meant: IpNet },
    #[error("addresses in {0} carry IPv4 addresses and are matched as those; write the IPv4 range")]
    Embedding(String),
}

impl IpNet {
    /// The range of all addresses that begin with the first `prefix` bits of `address`.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, InvalidNet> {
        if prefix > length(address) {
            return Err(InvalidNet::Malformed(format!("{address}/{prefix}")));
        }
        let masked = mask(address, prefix);
        if masked != address {
            return Err(InvalidNet::HostBits { address, prefix, meant: Self { address: masked, prefix } });
        }
        canonical_net(address, prefix)
    }

    /// One address.
    pub fn single(address: IpAddr) -> Self {
        let address = canonical(address);
        Self { address, prefix: length(address) }
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn is_single(&self) -> bool {
        self.prefix == length(self.address)
    }

    /// Whether the address, in whatever form, is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = canonical(address);
        address.is_ipv4() == self.address.is_ipv4() && mask(address, self.prefix) == self.address
    }

    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn length(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The address with the bits after its first `prefix` cleared.
pub(crate) fn mask(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let kept = u32::MAX.checked_shl(32_u32.saturating_sub(prefix.into())).unwrap_or(0);
            Ipv4Addr::from_bits(four.to_bits() & kept).into()
        }
        IpAddr::V6(six) => {
            let kept = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.into())).unwrap_or(0);
            Ipv6Addr::from_bits(six.to_bits() & kept).into()
        }
    }
}

/// A range of mapped or NAT64 addresses is the IPv4 range in it. Ranges of the other forms are refused: they cannot be
/// written as one.
fn canonical_net(address: IpAddr, prefix: u8) -> Result<IpNet, InvalidNet> {
    let IpAddr::V6(six) = address else { return Ok(IpNet { address, prefix }) };
    let parts = six.segments();
    if prefix == 128 {
        return Ok(IpNet::single(address));
    }
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] if prefix >= 96 => {
            let four = Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
            Ok(IpNet { address: four.into(), prefix: prefix - 96 })
        }
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] if prefix >= 96 => embedding(address, prefix),
        [0x2002, ..] if prefix >= 16 => embedding(address, prefix),
        [0x2001, 0, ..] if prefix >= 32 => embedding(address, prefix),
        _ => Ok(IpNet { address, prefix }),
    }
}

fn embedding(address: IpAddr, prefix: u8) -> Result<IpNet, InvalidNet> {
    Err(InvalidNet::Embedding(format!("{address}/{prefix}")))
}

impl FromStr for IpNet {
    type Err = InvalidNet;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || InvalidNet::Malformed(text.chars().take(80).collect());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let address: IpAddr = match bare {
            Some(six) => IpAddr::V6(six.parse().map_err(|_not_six| malformed())?),
            None => address.parse().map_err(|_not_one| malformed())?,
        };
        let Some(prefix) = prefix else { return Ok(Self::single(address)) };
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse().ok().filter(|_| is_number).ok_or_else(malformed)?;
        Self::new(address, prefix)
    }
}

/// IPv6 stands in brackets, so that a port can follow.
impl fmt::Display for IpNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(four) => write!(f, "{four}")?,
            IpAddr::V6(six) => write!(f, "[{six}]")?,
        }
        if self.is_single() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

impl TryFrom<String> for IpNet {
    type Error = InvalidNet;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<IpNet> for String {
    fn from(net: IpNet) -> Self {
        net.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_address_is_the_address() {
        for (form, expected) in [
            ("::ffff:169.254.169.254", "169.254.169.254"),
            ("::169.254.169.254", "169.254.169.254"),
            ("::ffff:0:169.254.169.254", "169.254.169.254"),
            ("64:ff9b::a9fe:a9fe", "169.254.169.254"),
            ("2002:a9fe:a9fe::1", "169.254.169.254"),
            ("2001:0:4136:e378:8000:63bf:5601:5601", "169.254.169.254"),
            ("2001:db9::5efe:a9fe:a9fe", "169.254.169.254"),
            ("2001:db9::200:5efe:10.0.0.1", "10.0.0.1"),
            // Nothing inside, or nothing that matters.
            ("2001:db9::5efe:8.8.8.8", "2001:db9::5efe:808:808"),
            ("fe80::5efe:8.8.8.8", "fe80::5efe:808:808"),
            ("::", "::"),
            ("::1", "::1"),
            ("2606:4700::1", "2606:4700::1"),
            ("10.0.0.1", "10.0.0.1"),
        ] {
            let read = |text: &str| text.parse::<IpAddr>().unwrap();
            assert_eq!(canonical(read(form)), read(expected), "{form}");
        }
    }

    #[test]
    fn ranges_are_read_and_shown() {
        for (text, expected) in [
            ("10.2.0.0/16", "10.2.0.0/16"),
            ("10.2.0.7", "10.2.0.7"),
            ("10.2.0.7/32", "10.2.0.7"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::/32", "[2001:db8::]/32"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("::/0", "[::]/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("64:ff9b::/96", "0.0.0.0/0"),
            ("2002:a00:1::/128", "10.0.0.1"),
        ] {
            assert_eq!(text.parse::<IpNet>().map(|net| net.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "",
            "/",
            "10/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.1/8",
            "[10.0.0.1]",
            "::/129",
            "2002::/16",
            "2001::/32",
            "::/96",
            "1.2.3.4/-1",
            "[::",
            "fe80::1%eth0",
        ] {
            assert!(text.parse::<IpNet>().is_err(), "{text:?}");
        }
        let meant = "10.2.3.4/16".parse::<IpNet>().unwrap_err().to_string();
        assert_eq!(meant, "10.2.3.4/16 has bits after its prefix; the range is 10.2.0.0/16");
    }

    #[test]
    fn ranges_contain_addresses_in_any_form() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let contains = |range: &str, address: &str| net(range).contains(address.parse().unwrap());
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.0"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.1.1") && contains("0.0.0.0/0", "1.2.3.4"));
        assert!(!contains("::/0", "10.0.0.1") && !contains("::/0", "::ffff:10.0.0.1"));
        assert!(contains("::/0", "2606:4700::1") && contains("2606::/16", "2606:4700::1"));
        assert!(
            net("10.0.0.0/8").covers(&net("10.2.0.0/16")) && !net("10.2.0.0/16").covers(&net("10.0.0.0/8"))
        );
        assert!(
            net("10.2.0.0/16").overlaps(&net("10.0.0.0/8")) && !net("10.2.0.0/16").overlaps(&net("::/0"))
        );
    }
}
