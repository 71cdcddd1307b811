//! DNS: port 53 of every address ends here.
//!
//! A name that no rule allows is answered by us and never sent on. What comes back is filtered by the policy, and its
//! addresses are pinned to the name for this sandbox. hickory reads and writes messages; the rest is ours.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hickory_proto::{
    op::ResponseCode,
    rr::{RData, Record, RecordType, rdata},
};
use sandbox::network::{DnsName, Group, HOST_ADDRESS, HOST_NAME, NetworkEventKind, Protocol};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};

use self::{
    answer::Answer,
    cache::Cache,
    wire::{MAX_QUESTION, Note, Question},
};
use crate::{
    events::{Decision, count},
    handling::DNS_PORT,
    limits::{MAX_QUESTIONS, Rate},
    sandbox::Sandbox,
};

mod answer;
mod cache;
pub(crate) mod resolv;
mod upstream;
mod wire;

pub use wire::fuzz_message;

/// Largest answer in a datagram.
const MAX_DATAGRAM: usize = 4096;
/// How long a connection may be silent between questions.
const IDLE: Duration = Duration::from_secs(10);
/// Life of the answers that we make up.
const OWN_TTL: u32 = 60;

/// One sandbox's share of the resolver.
#[derive(Debug)]
pub(crate) struct Resolver {
    rate: Rate,
    running: Semaphore,
    cache: Mutex<Cache>,
}

impl Resolver {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self {
            rate: Rate::new(per_second.into(), now),
            running: Semaphore::new(MAX_QUESTIONS),
            cache: Mutex::default(),
        }
    }

    pub(crate) fn change_rate(&self, per_second: u32) {
        self.rate.change(per_second.into());
    }

    /// Forgets answers: they were filtered by a policy that is no more.
    pub(crate) fn forget(&self) {
        self.cache().clear();
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers a question that came in a datagram; `None` if it is dropped.
pub(crate) async fn answer_datagram(sandbox: &Sandbox, question: &[u8]) -> Option<Vec<u8>> {
    answer(sandbox, question, MAX_DATAGRAM).await
}

/// Answers the questions of a connection, one after the other.
pub(crate) async fn serve_stream(sandbox: &Arc<Sandbox>, mut inside: TcpStream) {
    loop {
        match timeout(IDLE, serve_one(sandbox, &mut inside)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) | Err(_) => return,
            Ok(Err(error)) => {
                tracing::debug!(sandbox = %sandbox.id, %error, "a DNS connection ended early");
                return;
            }
        }
    }
}

async fn serve_one(sandbox: &Sandbox, inside: &mut TcpStream) -> io::Result<bool> {
    let length = usize::from(inside.read_u16().await?);
    if length > MAX_QUESTION {
        return Ok(false);
    }
    let mut question = vec![0; length];
    inside.read_exact(&mut question).await?;
    let Some(reply) = answer(sandbox, &question, usize::from(u16::MAX)).await else { return Ok(false) };
    let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
    inside.write_all(&[&length.to_be_bytes()[..], &reply].concat()).await?;
    Ok(true)
}

async fn answer(sandbox: &Sandbox, bytes: &[u8], largest: usize) -> Option<Vec<u8>> {
    count(&sandbox.counting.questions);
    if !sandbox.resolver.rate.try_take(Instant::now()) {
        let limit = sandbox.plan().limits.dns_per_second;
        tell(
            sandbox,
            NetworkEventKind::Denied,
            None,
            format!("denied: more than {limit} DNS questions a second"),
        );
        return None;
    }
    let _turn = sandbox.resolver.running.try_acquire().ok()?;
    let question = match wire::read(bytes) {
        Ok(question) => question,
        Err(refusal) => return refusal,
    };
    let answer = resolve(sandbox, &question).await;
    question.encode(&answer, largest)
}

async fn resolve(sandbox: &Sandbox, question: &Question) -> Answer {
    let Some(name) = &question.name else {
        return Answer::refused(ResponseCode::NXDomain, Note::filtered("not a host name".to_owned()));
    };
    if let Some(answer) = without_asking(sandbox, question, name) {
        return answer;
    }
    let (plan, now) = (sandbox.plan(), Instant::now());
    let verdict = plan.decide_name(name);
    if verdict.is_denied() {
        let rule = plan.describe(verdict.by());
        tell(sandbox, NetworkEventKind::Denied, Some(name), rule.clone());
        let text = format!("{name} is not allowed by this sandbox's network policy ({rule})");
        return Answer::refused(ResponseCode::Refused, Note::filtered(text));
    }
    if name.as_str() == HOST_NAME {
        return host(question);
    }
    let kind = question.kind();
    if !plan.dns.answers(kind.into()) {
        let text = format!("records of type {kind} are not answered by this sandbox's network policy");
        return Answer::refused(ResponseCode::Refused, Note::filtered(text));
    }
    if kind == RecordType::AAAA && !sandbox.has_ipv6 {
        return Answer::empty();
    }
    let cached = sandbox.resolver.cache().get(name, kind, now);
    let answer = match cached {
        Some(answer) => answer,
        None => match ask(sandbox, question, name).await {
            Ok(answer) => answer,
            Err(failure) => return failure,
        },
    };
    // The plan may have changed while the server was asked.
    if !Arc::ptr_eq(&plan, &sandbox.plan()) && sandbox.plan().decide_name(name).is_denied() {
        return Answer::refused(
            ResponseCode::Refused,
            Note::filtered(format!("{name} is no longer allowed")),
        );
    }
    let mut pins = sandbox.pins();
    for (address, ttl) in answer.addresses() {
        pins.pin(name, address, Duration::from_secs(ttl.into()), Instant::now());
    }
    answer
}

/// Answers that need neither a rule nor a server.
fn without_asking(sandbox: &Sandbox, question: &Question, name: &DnsName) -> Option<Answer> {
    if name.as_str() == "localhost" || name.as_str().ends_with(".localhost") {
        let (ipv4, ipv6) = (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
        return Some(match question.kind() {
            RecordType::A => own(question, RData::A(rdata::A(ipv4))),
            RecordType::AAAA => own(question, RData::AAAA(rdata::AAAA(ipv6))),
            _ => Answer::empty(),
        });
    }
    // Names of private addresses would tell what is around the host.
    if let Ok(net) = question.query.name.parse_arpa_name()
        && sandbox.around().group(net.addr()) != Some(Group::Public)
    {
        return Some(Answer::code(ResponseCode::NXDomain));
    }
    None
}

fn host(question: &Question) -> Answer {
    match question.kind() {
        RecordType::A => own(question, RData::A(rdata::A(HOST_ADDRESS))),
        _ => Answer::empty(),
    }
}

fn own(question: &Question, data: RData) -> Answer {
    Answer {
        records: vec![Record::from_rdata(question.query.name.clone(), OWN_TTL, data)],
        ..Answer::empty()
    }
}

async fn ask(sandbox: &Sandbox, question: &Question, name: &DnsName) -> Result<Answer, Answer> {
    let servers = servers(sandbox);
    let patience = sandbox.plan().dns.query_timeout();
    let response = upstream::ask(&servers, &question.query, patience).await.map_err(|error| {
        tell(sandbox, NetworkEventKind::Failed, Some(name), format!("no DNS server answered: {error}"));
        Answer::refused(ResponseCode::ServFail, Note::network(format!("no DNS server answered for {name}")))
    })?;
    let (plan, around) = (sandbox.plan(), sandbox.around());
    let mut answer =
        answer::filter(&question.query, &response, |address| plan.may_answer(name, address, &around));
    if !answer.removed.is_empty() {
        for address in &answer.removed {
            sandbox.tell(Decision {
                kind: NetworkEventKind::Denied,
                protocol: Protocol::Udp,
                name: Some(name.clone()),
                address: Some(*address),
                port: DNS_PORT,
                rule: format!("denied: {name} leads to an address that no rule opens for it"),
            });
        }
        if answer.addresses().next().is_none() {
            let text =
                format!("{name} leads to addresses that this sandbox's network policy does not open for it");
            answer = Answer::refused(ResponseCode::NXDomain, Note::filtered(text));
        }
    }
    sandbox.resolver.cache().put(name, question.kind(), &answer, Instant::now());
    Ok(answer)
}

/// The servers to ask: the plan's own, else the host's. Which of its own the policies allow, is known only here: one
/// may be an address of this host.
fn servers(sandbox: &Sandbox) -> Vec<SocketAddr> {
    let (plan, around) = (sandbox.plan(), sandbox.around());
    if plan.dns.nameservers.is_empty() {
        return sandbox.shared.resolvers.read().unwrap_or_else(PoisonError::into_inner).to_vec();
    }
    let allowed = plan.dns.nameservers.iter().filter(|address| plan.may_ask(**address, &around));
    allowed.map(|address| SocketAddr::new(*address, DNS_PORT)).collect()
}

fn tell(sandbox: &Sandbox, kind: NetworkEventKind, name: Option<&DnsName>, rule: String) {
    let address: Option<IpAddr> = None;
    sandbox.tell(Decision {
        kind,
        protocol: Protocol::Udp,
        name: name.cloned(),
        address,
        port: DNS_PORT,
        rule,
    });
}
