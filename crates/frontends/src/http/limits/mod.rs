//! How much one asker gets: requests a second, failed authentications, open streams. Bodies are bounded by whoever
//! reads them.

mod bucket;
mod streams;

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};

use engine::Principal;
use sandbox::{Error, ErrorKind, KeyId};

pub(super) use self::streams::key_ended;
pub(crate) use self::streams::{StreamLease, StreamPlace};
use self::{bucket::Buckets, streams::Streams};
use super::{auth::Peer, error::Refusal};

/// Requests a second of one principal, unless the operator says otherwise.
pub const DEFAULT_REQUESTS_PER_SECOND: u32 = 2000;
/// Streams that one principal may hold open, unless the operator says otherwise; all together hold
/// [`TOTAL_STREAMS_FACTOR`] times as many.
pub const DEFAULT_STREAMS_PER_PRINCIPAL: usize = 512;
pub const TOTAL_STREAMS_FACTOR: usize = 2;
/// The seconds of the rate that may come at once.
const BURST_SECONDS: f64 = 2.0;
/// Wrong keys from one address that are answered one by one. Right keys from there are let in all the while.
const FAILURES_PER_SECOND: f64 = 10.0;
const FAILURE_BURST: f64 = 20.0;
/// The same of links that nobody made. Counted apart: any page can have a browser ask for such, and must not be able to
/// shut out the keys of its user.
const FORGED_LINKS_PER_SECOND: f64 = 10.0;
const FORGED_LINK_BURST: f64 = 50.0;

/// The limits that an operator can set.
#[derive(Debug, Clone, Copy)]
pub struct LimitSettings {
    /// No limit when absent.
    pub requests_per_second: Option<u32>,
    pub streams_per_principal: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            requests_per_second: Some(DEFAULT_REQUESTS_PER_SECOND),
            streams_per_principal: DEFAULT_STREAMS_PER_PRINCIPAL,
        }
    }
}

/// The state of all limits. Listeners may share one.
#[derive(Debug)]
pub struct Limits {
    requests: Option<Buckets<String>>,
    failures: Buckets<IpAddr>,
    forged_links: Buckets<IpAddr>,
    streams: Arc<Streams>,
}

impl Limits {
    pub fn new(settings: LimitSettings) -> Self {
        let LimitSettings { requests_per_second, streams_per_principal } = settings;
        let requests = requests_per_second.map(|rate| {
            let rate = f64::from(rate.max(1));
            Buckets::new(rate, rate * BURST_SECONDS)
        });
        Self {
            requests,
            failures: Buckets::new(FAILURES_PER_SECOND, FAILURE_BURST),
            forged_links: Buckets::new(FORGED_LINKS_PER_SECOND, FORGED_LINK_BURST),
            streams: Arc::new(Streams::new(
                streams_per_principal,
                streams_per_principal.saturating_mul(TOTAL_STREAMS_FACTOR),
            )),
        }
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Counts a wrong key. Refuses once the address has shown too many: that refusal costs less than one for the key,
    /// which is written to the audit.
    pub(super) fn take_failure(&self, peer: Option<Peer>) -> Result<(), Refusal> {
        let Some(address) = address_of(peer) else { return Ok(()) };
        self.failures.take(&address, Instant::now()).map_err(|wait| {
            too_much(
                format!("too many failed authentications from {address}"),
                "Check the key: `warren key list` shows which exist. A valid key is accepted at once.",
                wait,
            )
        })
    }

    /// The same for a link that nobody made.
    pub(super) fn take_forged_link(&self, peer: Option<Peer>) -> Result<(), Refusal> {
        let Some(address) = address_of(peer) else { return Ok(()) };
        self.forged_links.take(&address, Instant::now()).map_err(|wait| {
            too_much(
                format!("too many links from {address} that do not exist"),
                "Ask for a new link. A valid one opens at once.",
                wait,
            )
        })
    }

    pub(super) fn take_request(&self, who: &Principal) -> Result<(), Refusal> {
        let Some(requests) = &self.requests else { return Ok(()) };
        let account = all_shares(who).unwrap_or_else(|| account(who));
        requests.take(&account, Instant::now()).map_err(|wait| {
            too_much(
                format!("{} sends too many requests", who.name),
                "Wait for the time in Retry-After. The daemon's operator sets the rate with --rate-limit.",
                wait,
            )
        })
    }
}

/// Returns the account for a principal's use: its key, or its name if it has no key. A share has an account of its own,
/// so that its watchers use up nothing of the sharer's.
fn account(who: &Principal) -> String {
    match &who.share {
        // Names and ids never begin with a slash.
        Some(share) => format!("/shares/{share}"),
        None => maker(who).to_owned(),
    }
}

/// Returns the account of all shares by the same sharer, for a watcher. Whoever makes many shares gets no more by it.
fn all_shares(who: &Principal) -> Option<String> {
    who.is_watcher().then(|| format!("/shares of {}", maker(who)))
}

fn maker(who: &Principal) -> &str {
    who.key.as_ref().map_or(&who.name, KeyId::as_str)
}

fn too_much(message: String, hint: &str, wait: Duration) -> Refusal {
    Refusal { error: Error::new(ErrorKind::LimitReached, message).with_hint(hint), retry_after: Some(wait) }
}

fn address_of(peer: Option<Peer>) -> Option<IpAddr> {
    let Some(Peer::Tcp(address)) = peer else { return None };
    Some(owner_of(address.ip()))
}

/// An address that stands for its owner: on IPv6, everyone has a whole network of them.
pub(super) fn owner_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        own => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Option<Peer> {
        Some(Peer::Tcp(text.parse().unwrap()))
    }

    #[test]
    fn twenty_wrong_keys_are_enough_for_one_address_and_count_for_no_other() {
        let limits = Limits::new(LimitSettings::default());
        for _ in 0..20 {
            limits.take_failure(peer("192.0.2.1:1000")).unwrap();
        }
        let refused = limits.take_failure(peer("192.0.2.1:2000")).unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::LimitReached);
        assert!(refused.retry_after.unwrap() <= Duration::from_millis(100));
        assert!(
            limits.take_failure(peer("[::ffff:192.0.2.1]:1")).is_err(),
            "the same address in other words"
        );
        limits.take_failure(peer("192.0.2.2:1000")).unwrap();
    }

    #[test]
    fn an_ipv6_network_is_one_address() {
        let of = |text| address_of(peer(text)).unwrap();
        assert_eq!(of("[2001:db8:1:2:3:4:5:6]:1"), of("[2001:db8:1:2::9]:2"));
        assert_ne!(of("[2001:db8:1:2::]:1"), of("[2001:db8:1:3::]:1"));
        assert_eq!(address_of(Some(Peer::Unix { uid: 0, pid: None })), None);
    }

    #[test]
    fn a_rate_is_for_each_principal() {
        let limits = Limits::new(LimitSettings { requests_per_second: Some(1), ..Default::default() });
        let (ana, bob) = (Principal::operator("ana"), Principal::operator("bob"));
        limits.take_request(&ana).unwrap();
        limits.take_request(&ana).unwrap();
        let refused = limits.take_request(&ana).unwrap_err();
        assert!(refused.error.to_string().contains("ana") && refused.retry_after.is_some());
        limits.take_request(&bob).unwrap();
        let free = Limits::new(LimitSettings { requests_per_second: None, ..Default::default() });
        (0..10_000).for_each(|_| free.take_request(&ana).unwrap());
    }
}
