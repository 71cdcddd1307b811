//! The sandboxes that a call means, and one answer for each of them.

use std::collections::{BTreeMap, BTreeSet};

use engine::{SandboxFilter, SandboxView};
use futures_util::{StreamExt, stream};
use sandbox::{Error, ErrorKind, Label, Namespace, SandboxState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::mcp::{Answer, Call, Failure, ToolResult, words};

/// Most names in one call.
const MAX_NAMES: usize = 1000;
/// Targets that are worked on at the same time.
const MAX_AT_ONCE: usize = 16;

/// Names, labels and a status. Everything that one of the names or the labels picks and that has the status is meant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Selector {
    pub(crate) name: Option<String>,
    pub(crate) names: Option<Vec<String>>,
    /// All must match.
    #[schemars(extend("x-full-only" = true))]
    pub(crate) labels: Option<BTreeMap<String, String>>,
    #[schemars(extend("x-full-only" = true))]
    pub(crate) status: Option<Status>,
}

// The states of a sandbox in the words of this surface; `failed` is another word for `crashed`. No doc comment: it
// would be listed with every tool that takes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    Running,
    Stopped,
    Crashed,
    Draining,
    All,
    Created,
    Starting,
    Paused,
    Stopping,
    Failed,
}

impl Status {
    pub(crate) fn of(view: &SandboxView) -> Self {
        match view.state {
            SandboxState::Running if view.draining => Self::Draining,
            SandboxState::Running => Self::Running,
            SandboxState::Creating => Self::Starting,
            SandboxState::Paused => Self::Paused,
            SandboxState::Stopping => Self::Stopping,
            SandboxState::Stopped => Self::Stopped,
            SandboxState::Failed => Self::Crashed,
        }
    }

    fn fits(self, view: &SandboxView) -> bool {
        let is = Self::of(view);
        match self {
            Self::All => true,
            // Sandboxes made here start at once.
            Self::Created => is == Self::Starting,
            Self::Failed => is == Self::Crashed,
            wanted => is == wanted,
        }
    }
}

/// The namespace in which this caller's names are looked up. Lists keep to it as well, so that every name in an answer
/// means the same sandbox in the next call.
pub(crate) fn namespace(call: &Call) -> Namespace {
    call.namespace.clone().unwrap_or_else(|| call.who.home_namespace())
}

impl Selector {
    /// Returns the sandboxes that are meant, sorted by name. At least one selector must be there.
    pub(crate) async fn resolve(&self, call: &Call) -> Result<Targets, Failure> {
        if !self.has_names() && !self.has_labels() && self.status.is_none() {
            return Err(Failure::invalid("at least one selector is required")
                .with_hint("Give name, names, labels or status; sandbox_list shows all sandboxes."));
        }
        self.resolve_or(call, None).await
    }

    /// As [`Selector::resolve`], for calls that mean everything, or everything of one status, where nothing is said.
    pub(crate) async fn resolve_or(&self, call: &Call, default: Option<Status>) -> Result<Targets, Failure> {
        let status = self.status.or(default).unwrap_or(Status::All);
        // By id too: an operator may name one of another namespace by its id, and it may have the same name.
        let mut found: BTreeMap<(String, String), Target> = BTreeMap::new();
        for name in self.all_names()? {
            let target = match look_up(call, &name).await {
                Ok(view) => Target::Existing(Box::new(view)),
                Err(failure) => Target::Missing(name, failure),
            };
            found.insert(target.key(), target);
        }
        if self.has_labels() || !self.has_names() {
            for view in self.by_labels(call).await? {
                let target = Target::Existing(Box::new(view));
                found.insert(target.key(), target);
            }
        }
        let fits = |target: &Target| match target {
            Target::Existing(view) => status.fits(view),
            Target::Missing(..) => true,
        };
        let all = found.into_values().filter(fits).collect();
        let is_asked = self.has_names() || self.has_labels() || self.status.is_some();
        Ok(Targets { all, is_one_by_name: self.only_name().is_some(), is_asked })
    }

    pub(crate) fn has_names(&self) -> bool {
        self.name.is_some() || self.names.as_ref().is_some_and(|names| !names.is_empty())
    }

    fn has_labels(&self) -> bool {
        self.labels.as_ref().is_some_and(|labels| !labels.is_empty())
    }

    /// The name of the only sandbox that is meant, where one is named and nothing else.
    pub(crate) fn only_name(&self) -> Option<&str> {
        let has_others = self.names.as_ref().is_some_and(|names| !names.is_empty()) || self.has_labels();
        self.name.as_deref().filter(|_| !has_others)
    }

    /// Whether sandboxes are meant that the caller did not name one by one.
    fn picks_unnamed(&self) -> bool {
        self.has_labels() || !self.has_names()
    }

    fn all_names(&self) -> Result<BTreeSet<String>, Failure> {
        let names: BTreeSet<_> = self.name.iter().chain(self.names.iter().flatten()).cloned().collect();
        if names.len() > MAX_NAMES {
            return Err(Failure::invalid(format!(
                "{} names were given; the limit is {MAX_NAMES}",
                names.len()
            ))
            .with_hint("Give fewer names, or select by labels."));
        }
        Ok(names)
    }

    async fn by_labels(&self, call: &Call) -> Result<Vec<SandboxView>, Failure> {
        let labels = self.labels.iter().flatten().map(|(key, value)| Label::new(key, value));
        let labels = labels.collect::<Result<Vec<_>, _>>().map_err(Error::from)?;
        let filter = SandboxFilter { namespace: Some(namespace(call)), labels, ..SandboxFilter::default() };
        Ok(call.engine().sandboxes(&call.who, &filter).await?)
    }

    /// Requires a confirmation before something that cannot be undone is done to sandboxes that were not named one by
    /// one: others may work in them. `deed` is what is asked, in words that stand before "by labels or status".
    pub(crate) fn check_confirmed(
        &self,
        call: &Call,
        tool: &str,
        deed: &str,
        confirm: bool,
    ) -> Result<(), Failure> {
        if confirm || call.settings.dangerous_enabled || !self.picks_unnamed() {
            return Ok(());
        }
        let message = format!("{deed} by labels or status requires confirm: true");
        Err(Failure::unconfirmed(message).with_hint(format!(
            "Call sandbox_list with the same labels and status to check what is affected, then {tool} with confirm: true."
        )))
    }
}

async fn look_up(call: &Call, name: &str) -> Result<SandboxView, Failure> {
    let which = call.sandbox(name)?;
    Ok(call.engine().sandbox(&call.who, &which).await?)
}

/// The sandboxes that a call means.
#[derive(Debug)]
pub(crate) struct Targets {
    all: Vec<Target>,
    /// The caller named exactly one: if that fails, the call fails.
    is_one_by_name: bool,
    /// The caller said which; else all were meant.
    is_asked: bool,
}

#[derive(Debug)]
enum Target {
    Existing(Box<SandboxView>),
    Missing(String, Failure),
}

impl Target {
    fn name(&self) -> &str {
        match self {
            Self::Existing(view) => view.name.as_str(),
            Self::Missing(name, _) => name,
        }
    }

    fn key(&self) -> (String, String) {
        let id = match self {
            Self::Existing(view) => view.id.to_string(),
            Self::Missing(..) => String::new(),
        };
        (self.name().to_owned(), id)
    }
}

/// One target's answer: `{name, ok: true, …}` or `{name, ok: false, error}`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Row<R> {
    pub(crate) name: String,
    pub(crate) ok: bool,
    #[serde(flatten)]
    pub(crate) done: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Map<String, Value>>,
}

impl<R> Row<R> {
    pub(crate) fn done(name: &str, done: R) -> Self {
        Self { name: name.to_owned(), ok: true, done: Some(done), error: None }
    }
}

impl Targets {
    /// Keeps what comes after the name `after`, at most `limit`. Returns the name after which more follows.
    pub(crate) fn page(&mut self, after: Option<&str>, limit: usize) -> Option<String> {
        if let Some(after) = after {
            self.all.retain(|target| target.name() > after);
        }
        let has_more = self.all.len() > limit;
        self.all.truncate(limit);
        self.all.last().filter(|_| has_more).map(|last| last.name().to_owned())
    }

    /// Works on all targets, several at a time, and gathers one row for each, sorted by name.
    pub(crate) async fn each<R, F>(
        self,
        call: &Call,
        work: impl Fn(Call, SandboxView) -> F,
    ) -> ToolResult<Vec<Row<R>>>
    where
        R: Serialize,
        F: Future<Output = Result<R, Failure>>,
    {
        let Self { all, is_one_by_name, is_asked } = self;
        let n_all = all.len();
        let worked = stream::iter(all).map(|target| {
            let name = target.name().to_owned();
            let result = match target {
                Target::Existing(view) => Ok(work(call.clone(), *view)),
                Target::Missing(_, failure) => Err(failure),
            };
            async move {
                match result {
                    Ok(work) => (name, work.await),
                    Err(failure) => (name, Err(failure)),
                }
            }
        });
        let gathered = async {
            let mut worked = std::pin::pin!(worked.buffer_unordered(MAX_AT_ONCE));
            let mut results = Vec::with_capacity(n_all);
            while let Some(result) = worked.next().await {
                results.push(result);
                if n_all > 1 {
                    let told = format!("{} of {n_all} sandboxes", results.len());
                    call.progress.tell(results.len() as f64, Some(n_all as f64), told).await;
                }
            }
            results
        };
        let mut results = tokio::select! {
            results = gathered => results,
            () = call.cancelled.cancelled() => return Err(cancelled()),
        };
        results.sort_by(|one, other| one.0.cmp(&other.0));
        let answer = answer(results, is_one_by_name)?;
        Ok(if is_asked && n_all == 0 { answer.warn("No sandbox matches.") } else { answer })
    }
}

/// Returns the failure for something that is not possible in this state, with the tool that leads to another.
pub(crate) fn refused(error: Error, view: &SandboxView) -> Failure {
    let has_next = error.next().is_some();
    let failure = Failure::from(error);
    if has_next {
        return failure;
    }
    let hint = match view.state {
        SandboxState::Creating => "Call sandbox_status until it is running, then try again.",
        SandboxState::Running => "Call sandbox_stop first, or set force: true.",
        SandboxState::Paused => "Call sandbox_resume first, or sandbox_stop.",
        SandboxState::Stopping => "Call sandbox_wait until it has stopped, then try again.",
        SandboxState::Stopped => "Call sandbox_start first.",
        SandboxState::Failed => "Call sandbox_inspect to see the reason, then sandbox_remove.",
    };
    failure.or_hint(ErrorKind::WrongState, hint)
}

/// Returns the failure for a caller who wants no answer any more, should they still listen.
pub(crate) fn cancelled() -> Failure {
    Failure::new(ErrorKind::Cancelled, "the call was cancelled")
        .with_hint("Call sandbox_list to see what was done before the cancellation.")
}

fn answer<R: Serialize>(
    results: Vec<(String, Result<R, Failure>)>,
    is_one_by_name: bool,
) -> ToolResult<Vec<Row<R>>> {
    let n_all = results.len();
    let failures = results.iter().filter_map(|(_, result)| result.as_ref().err());
    let (n_failed, first) = failures.fold((0, None), |(n, first), failure| (n + 1, first.or(Some(failure))));
    let first = first.cloned();
    let rows: Vec<_> = results.into_iter().map(|(name, result)| row(name, result)).collect();
    match first {
        Some(failure) if is_one_by_name => Err(failure),
        Some(failure) if n_failed == n_all => Err(failure.with_details(json!({ "targets": rows }))),
        Some(_) => {
            Ok(Answer::new(rows).warn(format!("{n_failed} of {n_all} sandboxes failed; see their rows.")))
        }
        None => Ok(Answer::new(rows)),
    }
}

fn row<R>(name: String, result: Result<R, Failure>) -> Row<R> {
    match result {
        Ok(done) => Row::done(&name, done),
        Err(failure) => {
            let error = match json!(failure.worded(words::hint)) {
                Value::Object(error) => error,
                _ => Map::new(),
            };
            Row { name, ok: false, done: None, error: Some(error) }
        }
    }
}
