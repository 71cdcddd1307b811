//! The call that a tool answers, and what the tool knows of it.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use engine::{Engine, Principal, SandboxRef};
use futures_util::future::BoxFuture;
use sandbox::{Namespace, Result};
use tokio_util::sync::CancellationToken;

use super::{Mcp, Settings, Toolset, Toolsets, surface::Surface};
use crate::{
    hostfs::{HostCaller, HostRoot},
    links::{AskersLinks, BaseUrl},
};

/// One call of a tool: who asks, under which settings, and how to reach them meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) mcp: Mcp,
    /// The surface that the caller is served.
    pub(crate) surface: Arc<Surface>,
    pub(crate) who: Principal,
    pub(crate) settings: Arc<Settings>,
    /// The namespace in which names are looked up and sandboxes are made, for callers who may see every namespace.
    pub(crate) namespace: Option<Namespace>,
    /// The address at which the caller reaches us by HTTP.
    pub(crate) base: Option<BaseUrl>,
    pub(crate) session: Arc<Session>,
    /// The caller does not want the answer any more: end what was begun.
    pub(crate) cancelled: CancellationToken,
    pub(crate) progress: Progress,
    pub(crate) person: Person,
}

impl Call {
    /// A call that came by itself, without a session, and whose caller hears nothing but the answer.
    pub(crate) fn alone(mcp: Mcp, surface: Arc<Surface>, who: Principal, base: Option<BaseUrl>) -> Self {
        let settings = Arc::clone(mcp.settings());
        Self {
            mcp,
            surface,
            who,
            settings,
            namespace: None,
            base,
            session: Session::stateless(),
            cancelled: CancellationToken::new(),
            progress: Progress::default(),
            person: Person::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.mcp.engine()
    }

    /// Returns the principal that ends what this call began. A key that was revoked can do nothing any more, but what
    /// it left running must end.
    pub(crate) fn ender(&self) -> Principal {
        Principal { key: None, session: None, ..self.who.clone() }
    }

    /// Links for the caller's browser.
    pub(crate) fn links(&self) -> AskersLinks {
        self.mcp.links().of(&self.who, self.base.as_ref())
    }

    /// The sandbox that a caller means by `name`, which may be an id too.
    pub(crate) fn sandbox(&self, name: &str) -> Result<SandboxRef> {
        SandboxRef::new(name, self.namespace.clone())
    }

    /// Returns the longest text that a field of the answer may hold.
    pub(crate) fn max_bytes(&self, asked: Option<u64>) -> usize {
        let bytes = asked.or(self.settings.max_output_bytes);
        let bytes = bytes.unwrap_or(self.surface.habits.max_output_bytes).min(MAX_OUTPUT_BYTES);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl<'a> From<&'a Call> for HostCaller<'a> {
    fn from(call: &'a Call) -> Self {
        Self { who: &call.who, policy: &call.settings.host }
    }
}

/// No answer holds more in one field, whatever is asked: it is kept in memory whole.
pub(crate) const MAX_OUTPUT_BYTES: u64 = 16 * 1024 * 1024;

/// The state that a connection keeps between calls.
#[derive(Debug)]
pub(crate) struct Session {
    /// `false`: the client's protocol has no sessions, so nothing is remembered.
    is_kept: bool,
    enabled: Mutex<BTreeSet<Toolset>>,
    roots: Mutex<Roots>,
}

/// The roots of a client that the person at it was asked about.
#[derive(Debug, Default)]
struct Roots {
    asked: BTreeSet<PathBuf>,
    granted: Vec<HostRoot>,
}

/// Roots that one connection asks about; further ones are refused.
const MAX_ASKED_ROOTS: usize = 64;

impl Session {
    pub(crate) fn kept() -> Arc<Self> {
        Arc::new(Self { is_kept: true, enabled: Mutex::default(), roots: Mutex::default() })
    }

    pub(crate) fn stateless() -> Arc<Self> {
        Arc::new(Self { is_kept: false, enabled: Mutex::default(), roots: Mutex::default() })
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Shows more tools from now on. Returns whether that changed anything.
    pub(crate) fn enable(&self, sets: &[Toolset]) -> bool {
        let mut enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        let n_before = enabled.len();
        enabled.extend(sets);
        enabled.len() > n_before
    }

    /// Whether a person may be asked about a root: not a second time.
    pub(crate) fn ask_about(&self, root: &Path) -> bool {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        roots.asked.len() < MAX_ASKED_ROOTS && roots.asked.insert(root.to_owned())
    }

    /// Allows a root from now on.
    pub(crate) fn grant(&self, root: HostRoot) {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).granted.push(root);
    }

    /// Returns the client's settings: those it came with, and the host paths granted since.
    pub(crate) fn settings(&self, chosen: &Arc<Settings>) -> Arc<Settings> {
        let roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if roots.granted.is_empty() {
            return Arc::clone(chosen);
        }
        let mut settings = Settings::clone(chosen);
        settings.host.roots.extend(roots.granted.iter().cloned());
        Arc::new(settings)
    }

    /// Returns the toolsets that are shown: the client's choice, and those it enabled since.
    pub(crate) fn toolsets(&self, chosen: &Toolsets) -> Toolsets {
        let enabled = self.enabled.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.clone().with(enabled.iter().copied())
    }
}

/// Tells a waiting caller how far things are. Does nothing for a caller who did not ask.
#[derive(Clone, Default)]
pub(crate) struct Progress {
    send: Option<Arc<dyn Fn(Step) -> BoxFuture<'static, ()> + Send + Sync>>,
}

/// How far things are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Step {
    pub(crate) done: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: String,
}

impl Progress {
    pub(crate) fn new(send: impl Fn(Step) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self { send: Some(Arc::new(send)) }
    }

    /// Whether someone listens: work only for the sake of telling can be left out.
    pub(crate) fn is_wanted(&self) -> bool {
        self.send.is_some()
    }

    pub(crate) async fn tell(&self, done: f64, total: Option<f64>, message: impl Into<String>) {
        if let Some(send) = &self.send {
            send(Step { done, total, message: message.into() }).await;
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("is_wanted", &self.is_wanted()).finish()
    }
}

/// The person at the caller's client, who can be asked where the client can show a question.
#[derive(Clone, Default)]
pub(crate) struct Person {
    ask: Option<Arc<dyn Fn(String) -> BoxFuture<'static, Consent> + Send + Sync>>,
}

/// A person's answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consent {
    Given,
    Refused,
    /// The question was closed, or nobody was there.
    Unanswered,
}

impl Person {
    pub(crate) fn new(ask: impl Fn(String) -> BoxFuture<'static, Consent> + Send + Sync + 'static) -> Self {
        Self { ask: Some(Arc::new(ask)) }
    }

    /// Asks, and waits for the answer; `None` where nobody can be asked.
    pub(crate) async fn consents(&self, question: String) -> Option<Consent> {
        Some(self.ask.as_ref()?(question).await)
    }
}

impl fmt::Debug for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Person").field("can_be_asked", &self.ask.is_some()).finish()
    }
}
