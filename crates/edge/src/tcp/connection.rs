//! One connection, from its SYN to its end.

use std::{
    borrow::Cow,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sandbox::network::{DnsName, NetworkEventKind, Protocol};
use tokio::{net::TcpStream, sync::oneshot, time::timeout};

use super::{accept::reset, dial, hold::Hold, named::Accepted, proxy::ProxyFailed, splice};
use crate::{
    dns,
    events::{Decision, count},
    handling::{Check, HTTPS_PORT, Handling},
    hosts::HostCounting,
    names::{self, Checked},
    sandbox::{Opening, Sandbox},
    secrets::{self, Secrets},
};

/// How long the sandbox's kernel may take from the release of a SYN to the connection.
const MAKING: Duration = Duration::from_secs(10);

/// Both ends of a connection. Unless both ways came to their end, they end by a reset.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) inside: TcpStream,
    pub(crate) outside: TcpStream,
    is_done: AtomicBool,
}

impl Pair {
    fn new(inside: TcpStream, outside: TcpStream) -> Self {
        Self { inside, outside, is_done: AtomicBool::new(false) }
    }

    /// Both ways came to their end.
    pub(crate) fn is_done(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if !self.is_done.load(Ordering::Relaxed) {
            reset(&self.inside);
            reset(&self.outside);
        }
    }
}

/// The facts about a connection that go into events.
#[derive(Debug, Clone)]
pub(crate) struct Story {
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) opening: Opening,
    pub(crate) rule: String,
}

impl Story {
    pub(crate) fn tell(&self, kind: NetworkEventKind, name: Option<&DnsName>, rule: String) {
        let Opening { destination, names, .. } = &self.opening;
        self.sandbox.tell(Decision {
            kind,
            protocol: Protocol::Tcp,
            name: name.or(names.first()).cloned(),
            address: Some(destination.ip()),
            port: destination.port(),
            rule,
        });
    }

    /// The sandbox's secrets, if a connection like this can carry any.
    fn secrets(&self) -> Option<Arc<Secrets>> {
        let is_https = self.opening.destination.port() == HTTPS_PORT;
        is_https.then(|| self.sandbox.secrets.borrow().clone()).flatten()
    }

    /// Returns where its bytes are counted.
    pub(crate) fn allowed(&self, name: Option<&DnsName>) -> Arc<HostCounting> {
        self.tell(NetworkEventKind::Allowed, name, self.rule.clone());
        self.made(name)
    }

    /// Counts a connection. Returns where its bytes are counted.
    pub(crate) fn made(&self, name: Option<&DnsName>) -> Arc<HostCounting> {
        let Opening { destination, names, .. } = &self.opening;
        let host = self.sandbox.hosts.of(name.or(names.first()), Some(destination.ip()));
        count(&self.sandbox.counting.connections);
        count(&host.connections);
        host
    }
}

pub(crate) async fn run(
    sandbox: Arc<Sandbox>,
    hold: Hold,
    opening: Opening,
    rule: String,
    inside: oneshot::Receiver<TcpStream>,
) {
    let story = Story { sandbox, opening, rule };
    if story.opening.handling == Handling::Resolve {
        if let Some(inside) = made(hold, inside).await {
            dns::serve_stream(&story.sandbox, inside).await;
        }
        return;
    }
    let outside = match dial(&story).await {
        Ok(outside) => outside,
        Err(error) => {
            story.tell(NetworkEventKind::Failed, None, format!("{}; {}", story.rule, in_words(&error)));
            hold.refuse(dial::refusal(&error));
            return;
        }
    };
    let Some(inside) = made(hold, inside).await else { return };
    if let Err(error) = serve(&story, inside, outside).await {
        tracing::debug!(sandbox = %story.sandbox.id, %error, "a connection ended early");
    }
}

/// The same for a connection that the kernel made by itself.
pub(crate) async fn run_accepted(sandbox: Arc<Sandbox>, inside: Accepted, opening: Opening, rule: String) {
    let story = Story { sandbox, opening, rule };
    let outside = match &story.opening.handling {
        Handling::Resolve => None,
        Handling::Pass | Handling::Named { .. } => match dial(&story).await {
            Ok(outside) => Some(outside),
            Err(error) => {
                let rule = format!("{}; {}", story.rule, in_words(&error));
                return story.tell(NetworkEventKind::Failed, None, rule);
            }
        },
    };
    match (inside.into_stream(), outside) {
        (None, _) => {}
        (Some(inside), None) => dns::serve_stream(&story.sandbox, inside).await,
        (Some(inside), Some(outside)) => {
            if let Err(error) = serve(&story, inside, outside).await {
                tracing::debug!(sandbox = %story.sandbox.id, %error, "a connection ended early");
            }
        }
    }
}

async fn dial(story: &Story) -> io::Result<TcpStream> {
    let sandbox = &story.sandbox;
    let wait = sandbox.connects.take(1, Instant::now());
    // Timers count whole milliseconds: no time at all would be one.
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
    let _turn = sandbox.dials.acquire().await;
    let proxy = sandbox.shared.proxy_for(&story.opening);
    dial::dial(story.opening.destination, proxy.as_deref()).await
}

/// Releases the SYN and waits for the sandbox's end.
async fn made(hold: Hold, inside: oneshot::Receiver<TcpStream>) -> Option<TcpStream> {
    hold.release();
    hold.accept_at_once();
    timeout(MAKING, inside).await.ok()?.ok()
}

async fn serve(story: &Story, inside: TcpStream, outside: TcpStream) -> io::Result<()> {
    let pair = Pair::new(inside, outside);
    let secrets = story.secrets();
    let passes = Checked::Passes { said: Vec::new(), name: None };
    let (checked, allowed_names) = match &story.opening.handling {
        Handling::Resolve => return Ok(()),
        Handling::Pass if secrets.is_some() => (names::tls::peek(&pair).await?, &[][..]),
        Handling::Pass => (passes, &[][..]),
        Handling::Named { names, check } => {
            let checked = match check {
                Check::Address => passes,
                Check::Tls => names::tls::check(&pair.inside, Vec::new(), names).await?,
                Check::Http => Checked::IsHttp { said: Vec::new() },
                Check::FirstBytes => names::first::check(&pair, names).await?,
            };
            (checked, &names[..])
        }
    };
    match checked {
        Checked::Passes { said, name } => {
            if let (Some(secrets), Some(host)) = (secrets, &name)
                && secrets.are_for(host)
            {
                return secrets::serve(story, pair, said, host.clone(), secrets).await;
            }
            let host = story.allowed(name.as_ref());
            splice::write_all(&pair.outside, &said).await?;
            carry(story, pair, &host).await
        }
        Checked::IsHttp { said } => {
            names::http::serve(story.clone(), pair, said, allowed_names.to_vec()).await
        }
        Checked::Refused { answer, why, name } => {
            story.tell(NetworkEventKind::Denied, name.as_ref(), format!("denied: {why}"));
            names::part(&pair, answer).await
        }
    }
}

async fn carry(story: &Story, pair: Pair, host: &HostCounting) -> io::Result<()> {
    splice::carry(&story.sandbox, host, &pair.inside, &pair.outside).await?;
    pair.is_done();
    Ok(())
}

fn in_words(error: &io::Error) -> Cow<'static, str> {
    if let Some(proxy) = error.get_ref().and_then(|inner| inner.downcast_ref::<ProxyFailed>()) {
        return proxy.to_string().into();
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the server refused the connection",
        io::ErrorKind::TimedOut => "the server did not answer",
        io::ErrorKind::NetworkUnreachable => "the network is unreachable",
        io::ErrorKind::HostUnreachable => "the server is unreachable",
        _ => "the connection could not be made",
    }
    .into()
}
