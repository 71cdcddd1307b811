//! One nftables chain: what is for the sandbox itself passes, TCP and UDP for elsewhere go to our sockets, and all else
//! is dropped.

use std::{io, net::IpAddr};

use super::{NetworkEnd, PROXY_PORT, PROXY_V4, PROXY_V6};
use crate::netlink::{ACKNOWLEDGE, APPEND, Attributes, CREATE, EXCLUSIVE, NETFILTER, Request};

const TABLE: &str = "warren";
const CHAIN: &str = "outward";

/// Messages. All of a batch take effect, or none.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;
const NFTABLES: u16 = 10;
const NEW_TABLE: u16 = NFTABLES << 8;
const DELETE_TABLE: u16 = NFTABLES << 8 | 2;
const NEW_CHAIN: u16 = NFTABLES << 8 | 3;
const NEW_RULE: u16 = NFTABLES << 8 | 6;

/// Families of packets, as netfilter numbers them.
const BOTH: u8 = 1;
const V4: u8 = 2;
const V6: u8 = 10;

const TCP: u8 = 6;
const UDP: u8 = 17;

const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// Prerouting, at the priority where packets are usually changed.
const HOOK: u32 = 0;
const PRIORITY: i32 = -150;

pub(super) fn set(end: &NetworkEnd) -> io::Result<()> {
    set_in(Batch::begin(), end)
}

/// For a namespace that may have the rules already: they are replaced at once.
pub(super) fn set_again(end: &NetworkEnd) -> io::Result<()> {
    let mut batch = Batch::begin();
    batch.no_table();
    set_in(batch, end)
}

fn set_in(mut batch: Batch, end: &NetworkEnd) -> io::Result<()> {
    batch.table_and_chain();
    batch.rule(0, |rule| rule.family(V4).payload(Base::Network, 16, 1).equals(&[127]).verdict(ACCEPT));
    batch.rule(0, |rule| rule.to(end.v4.into()).verdict(ACCEPT));
    if let Some(own) = end.v6 {
        batch.rule(0, |rule| rule.to(std::net::Ipv6Addr::LOCALHOST.into()).verdict(ACCEPT));
        batch.rule(0, |rule| rule.to(own.into()).verdict(ACCEPT));
    }
    // A first packet has SYN and no ACK.
    batch.rule(0, |rule| {
        rule.protocol(TCP).payload(Base::Transport, 13, 1).mask(0x12).equals(&[0x02]);
        rule.meta(Meta::Mark).differs(&end.mark.to_ne_bytes()).verdict(DROP);
    });
    let ends = [Some((end.v4.into(), PROXY_V4.into())), end.v6.map(|own| (own.into(), PROXY_V6.into()))];
    let ways: Vec<(IpAddr, IpAddr, u8)> =
        ends.into_iter().flatten().flat_map(|(own, proxy)| [(own, proxy, TCP), (own, proxy, UDP)]).collect();
    for (position, (own, proxy, protocol)) in ways.iter().enumerate() {
        // The kernel reports an error in any message; success is asked for once.
        let flags = if position + 1 == ways.len() { ACKNOWLEDGE } else { 0 };
        batch.rule(flags, |rule| rule.from(*own).protocol(*protocol).tproxy(*proxy).verdict(ACCEPT));
    }
    batch.send()
}

struct Batch(Request);

impl Batch {
    fn begin() -> Self {
        let mut request = Request::default();
        request.add(BATCH_BEGIN, 0, &head(0, NFTABLES), |_| {});
        Self(request)
    }

    fn send(mut self) -> io::Result<()> {
        self.0.add(BATCH_END, 0, &head(0, NFTABLES), |_| {});
        self.0.send(NETFILTER)
    }

    /// Only a table that is there can be deleted, so it is made first.
    fn no_table(&mut self) {
        for (message, flags) in [(NEW_TABLE, CREATE), (DELETE_TABLE, 0)] {
            self.0.add(message, flags, &head(BOTH, 0), |table| {
                table.text(1 /* name */, TABLE);
            });
        }
    }

    fn table_and_chain(&mut self) {
        self.0.add(NEW_TABLE, CREATE | EXCLUSIVE, &head(BOTH, 0), |table| {
            table.text(1 /* name */, TABLE);
        });
        self.0.add(NEW_CHAIN, CREATE | EXCLUSIVE, &head(BOTH, 0), |chain| {
            chain.text(1 /* table */, TABLE).text(3 /* name */, CHAIN).text(7 /* type */, "filter");
            chain.network_number(5 /* policy */, DROP).nested(4 /* hook */, |hook| {
                hook.network_number(1 /* number */, HOOK);
                hook.network_number(2 /* priority */, PRIORITY as u32);
            });
        });
    }

    /// Appends a rule: its expressions are evaluated in order, until one does not match.
    fn rule(&mut self, flags: u16, fill: impl FnOnce(&mut Rule<'_, '_>)) {
        self.0.add(NEW_RULE, CREATE | APPEND | flags, &head(BOTH, 0), |rule| {
            rule.text(1 /* table */, TABLE).text(2 /* chain */, CHAIN);
            rule.nested(4 /* expressions */, |list| fill(&mut Rule(list)));
        });
    }
}

/// `struct nfgenmsg`: family, version, resource.
fn head(family: u8, resource: u16) -> Vec<u8> {
    [&[family, 0][..], &resource.to_be_bytes()].concat()
}

/// Registers: a verdict is put in the first one, values in the others.
const VERDICT: u32 = 0;
const VALUE: u32 = 1;
const SECOND_VALUE: u32 = 2;

/// Facts about a packet, by the kernel's numbers.
#[derive(Debug, Clone, Copy)]
enum Meta {
    Mark = 3,
    Family = 15,
    Protocol = 16,
}

/// The header that positions in a packet count from.
#[derive(Debug, Clone, Copy)]
enum Base {
    Network = 1,
    Transport = 2,
}

#[derive(Debug, Clone, Copy)]
enum Comparison {
    Equal = 0,
    Different = 1,
}

/// The expressions of one rule.
struct Rule<'a, 'b>(&'a mut Attributes<'b>);

impl Rule<'_, '_> {
    /// Only packets of this family.
    fn family(&mut self, family: u8) -> &mut Self {
        self.meta(Meta::Family).equals(&[family])
    }

    /// Only packets of this transport protocol.
    fn protocol(&mut self, protocol: u8) -> &mut Self {
        self.meta(Meta::Protocol).equals(&[protocol])
    }

    /// Only packets for this address.
    fn to(&mut self, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(address) => self.family(V4).payload(Base::Network, 16, 4).equals(&address.octets()),
            IpAddr::V6(address) => self.family(V6).payload(Base::Network, 24, 16).equals(&address.octets()),
        }
    }

    /// Only packets from this address.
    fn from(&mut self, address: IpAddr) -> &mut Self {
        match address {
            IpAddr::V4(address) => self.family(V4).payload(Base::Network, 12, 4).equals(&address.octets()),
            IpAddr::V6(address) => self.family(V6).payload(Base::Network, 8, 16).equals(&address.octets()),
        }
    }

    /// Gives the packet to our socket, whatever its destination; it does not match if there is none.
    fn tproxy(&mut self, proxy: IpAddr) -> &mut Self {
        let family = match proxy {
            IpAddr::V4(address) => {
                self.value(VALUE, &address.octets());
                V4
            }
            IpAddr::V6(address) => {
                self.value(VALUE, &address.octets());
                V6
            }
        };
        self.value(SECOND_VALUE, &PROXY_PORT.to_be_bytes()).expression("tproxy", |data| {
            data.network_number(1 /* family */, family.into());
            data.network_number(2 /* address */, VALUE).network_number(3 /* port */, SECOND_VALUE);
        })
    }

    fn meta(&mut self, fact: Meta) -> &mut Self {
        self.expression("meta", |data| {
            data.network_number(1 /* into */, VALUE).network_number(2 /* key */, fact as u32);
        })
    }

    fn payload(&mut self, base: Base, offset: u32, length: u32) -> &mut Self {
        self.expression("payload", |data| {
            data.network_number(1 /* into */, VALUE).network_number(2 /* base */, base as u32);
            data.network_number(3 /* offset */, offset).network_number(4 /* length */, length);
        })
    }

    /// Keeps these bits of one byte.
    fn mask(&mut self, bits: u8) -> &mut Self {
        self.expression("bitwise", |data| {
            data.network_number(1 /* from */, VALUE).network_number(2 /* into */, VALUE);
            data.network_number(3 /* length */, 1);
            for (kind, value) in [(4 /* and */, bits), (5 /* exclusive or */, 0)] {
                data.nested(kind, |constant| {
                    constant.bytes(1, &[value]);
                });
            }
        })
    }

    fn equals(&mut self, value: &[u8]) -> &mut Self {
        self.compare(Comparison::Equal, value)
    }

    fn differs(&mut self, value: &[u8]) -> &mut Self {
        self.compare(Comparison::Different, value)
    }

    fn compare(&mut self, comparison: Comparison, value: &[u8]) -> &mut Self {
        self.expression("cmp", |data| {
            data.network_number(1 /* from */, VALUE).network_number(2 /* how */, comparison as u32);
            data.nested(3 /* with */, |constant| {
                constant.bytes(1, value);
            });
        })
    }

    fn value(&mut self, register: u32, value: &[u8]) -> &mut Self {
        self.expression("immediate", |data| {
            data.network_number(1 /* into */, register).nested(2, |constant| {
                constant.bytes(1, value);
            });
        })
    }

    /// Ends the rule.
    fn verdict(&mut self, code: u32) {
        self.expression("immediate", |data| {
            data.network_number(1 /* into */, VERDICT).nested(2, |constant| {
                constant.nested(2 /* a verdict */, |verdict| {
                    verdict.network_number(1 /* code */, code);
                });
            });
        });
    }

    fn expression(&mut self, name: &str, fill: impl FnOnce(&mut Attributes<'_>)) -> &mut Self {
        self.0.nested(1 /* element */, |element| {
            element.text(1 /* name */, name).nested(2 /* data */, fill);
        });
        self
    }
}
