//! New sandboxes from an existing one: one unnamed snapshot, and as many creates from it as requested.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::{StreamExt, stream};
use sandbox::{
    Error, ErrorKind, ImageRef, Lifetime, Limits, Next, Result, RootfsSpec, SandboxName, SandboxSpec,
    Subject, Thing, check_snapshot_labels,
};

use store::SandboxRecord;
use tokio::sync::oneshot;

use super::{
    make::{self, Wish},
    remove,
};
use crate::{
    CreateRequest, Engine, Force, GivenSecrets, Principal, SandboxRef, SandboxView,
    core::{Changeable, until},
    error, mounts, secrets,
};

/// Most sandboxes of one fork.
pub const MAX_FORKS: usize = 256;
/// Forks made at the same time.
const FORKS_AT_ONCE: usize = 8;

/// The properties of forks that differ from their source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkSpec {
    /// One fork for each name; empty: `count` forks with invented names.
    pub names: Vec<SandboxName>,
    /// One if absent.
    pub count: Option<usize>,
    /// `count` forks called `<prefix>-1`, `<prefix>-2` and so on.
    pub name_prefix: Option<String>,
    /// Added to the source's; these win.
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    /// In place of the source's.
    pub limits: Option<Limits>,
    pub lifetime: Option<Lifetime>,
    /// An agent asks: without a limit of time they get [`EngineConfig::agent_idle`](crate::EngineConfig).
    pub by_agent: bool,
}

impl Engine {
    /// Makes sandboxes with the current files of `which`, running or stopped. All of them or none; they share the files
    /// until they change them. In the order of their names. If the caller goes away before all exist, none are left.
    #[crate::boxed]
    pub async fn fork_sandbox(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: ForkSpec,
    ) -> Result<Vec<SandboxView>> {
        let core = self.core();
        let source = core.find_to_change(who, which).await?;
        let names = names(&spec)?;
        check_snapshot_labels(&spec.labels)?;
        let of = source.status.borrow().record.clone();
        self.check_names(who, &of.namespace, &names).await?;
        let (tell, told) = oneshot::channel();
        let secrets = secrets::carried(core, &of).await?;
        let forks = Forks { engine: self.for_task(), who: who.clone(), source, of, spec, secrets };
        let closing = core.closing.clone();
        core.drivers.spawn(async move {
            let work = async {
                let made = forks.make(names, || tell.is_closed()).await;
                if let Err(Ok(unwanted)) = tell.send(made) {
                    forks.unmake(unwanted).await;
                }
            };
            until(&closing, work).await;
        });
        told.await.map_err(|_dropped| error::closing())?
    }

    /// Before anything is copied: a taken name is the likeliest failure.
    async fn check_names(
        &self,
        who: &Principal,
        namespace: &sandbox::Namespace,
        names: &[Option<SandboxName>],
    ) -> Result<()> {
        for name in names.iter().flatten() {
            let which = SandboxRef::new(name.as_str(), Some(namespace.clone()))?;
            if self.core().find(who, &which).is_ok() {
                let message = format!("the name {name} is taken in the namespace {namespace}");
                let taken = Subject::new(Thing::Sandbox, name.as_str());
                return Err(Error::new(ErrorKind::AlreadyExists, message).with_next(Next::FreeName(taken)));
            }
        }
        Ok(())
    }
}

/// The inputs of one call.
struct Forks {
    engine: Engine,
    who: Principal,
    source: Changeable,
    /// The source's record when it was requested.
    of: SandboxRecord,
    spec: ForkSpec,
    /// Its programs remember the placeholders, and trust the authority.
    secrets: GivenSecrets,
}

impl Forks {
    /// Makes all of them or none; none if they turn out to be unwanted.
    async fn make(
        &self,
        names: Vec<Option<SandboxName>>,
        is_unwanted: impl Fn() -> bool + Sync,
    ) -> Result<Vec<SandboxView>> {
        let core = self.engine.core();
        let wish = Wish { name: None, labels: BTreeMap::new(), replace: false };
        // Held until all are made: nobody uses it before the first one does.
        let held = make::make(core, &self.who, self.source.clone(), wish).await?;
        let snapshot = held.snapshot.record.id.to_string();
        let n_asked = names.len();
        let is_over = AtomicBool::new(false);
        let creates = names.into_iter().map(|name| async {
            if is_over.load(Relaxed) || is_unwanted() {
                return None;
            }
            let (spec, secrets) = (self.spec_of(name, &snapshot), self.secrets.clone());
            let by_agent = self.spec.by_agent;
            let request = CreateRequest { spec, secrets, by_agent, ..CreateRequest::default() };
            let made = self.engine.create_sandbox(&self.who, request).await;
            is_over.fetch_or(made.is_err(), Relaxed);
            Some(made)
        });
        let results: Vec<_> = stream::iter(creates).buffered(FORKS_AT_ONCE).collect().await;
        drop(held);
        let (made, failed) = split(results.into_iter().flatten());
        let n_made = made.len();
        if n_made == n_asked {
            return Ok(made);
        }
        let left = self.unmake(made).await;
        let unwanted = || Error::new(ErrorKind::Cancelled, "the caller no longer waits for the forks");
        let error = failed.into_iter().next().unwrap_or_else(unwanted);
        Err(not_all(&self.source.label(), n_asked, n_made, &left, error))
    }

    fn spec_of(&self, name: Option<SandboxName>, snapshot: &str) -> SandboxSpec {
        let (of, spec) = (&self.of, &self.spec);
        let mut forked = SandboxSpec {
            name,
            rootfs: Some(RootfsSpec::Snapshot { snapshot: snapshot.to_owned() }),
            image: ImageRef::default(),
            request_id: None,
            hostname: None,
            // With the paths that a front end allowed its source.
            mounts: mounts::asked_again(of),
            ..of.spec.clone()
        };
        forked.env.extend(spec.env.clone());
        forked.labels.extend(spec.labels.clone());
        forked.limits = spec.limits.clone().unwrap_or(forked.limits);
        forked.lifetime = spec.lifetime.clone().unwrap_or_else(|| of.lifetime.clone());
        forked
    }

    /// Removes the new sandboxes and their snapshot; returns the names of those that could not be removed.
    async fn unmake(&self, made: Vec<SandboxView>) -> Vec<String> {
        let removals = made.into_iter().map(|view| async move {
            let which = SandboxRef::from(&view.id);
            let removed = self.engine.remove_sandbox(&self.who, &which, Force::Yes).await;
            removed.err().map(|_why| view.name.to_string())
        });
        let left = stream::iter(removals).buffer_unordered(FORKS_AT_ONCE).filter_map(std::future::ready);
        let left = left.collect().await;
        remove::collect(self.engine.core()).await;
        left
    }
}

fn split(results: impl Iterator<Item = Result<SandboxView>>) -> (Vec<SandboxView>, Vec<Error>) {
    let (mut made, mut failed) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(view) => made.push(view),
            Err(error) => failed.push(error),
        }
    }
    (made, failed)
}

fn not_all(label: &Subject, n_asked: usize, n_made: usize, left: &[String], error: Error) -> Error {
    if n_asked == 1 {
        return error;
    }
    let what_became = match left {
        [] => "and then removed".to_owned(),
        left => format!("but {} could not be removed afterwards", left.join(", ")),
    };
    let next = error.next().cloned();
    let next = next.unwrap_or_else(|| Next::Advice("Try again, with fewer forks if necessary.".to_owned()));
    error
        .reworded(|words| {
            format!("{n_made} of {n_asked} forks of {label} were created {what_became}: {words}")
        })
        .with_next(next)
}

/// One for each fork; none if it is to be invented.
fn names(spec: &ForkSpec) -> Result<Vec<Option<SandboxName>>> {
    let n = spec.count.unwrap_or(if spec.names.is_empty() { 1 } else { spec.names.len() });
    if n == 0 || n > MAX_FORKS || spec.names.len() > MAX_FORKS {
        return Err(Error::invalid(format!(
            "cannot create {} forks: the number must be between 1 and {MAX_FORKS}",
            n.max(spec.names.len())
        ))
        .with_hint(if n == 0 { "Omit the count for one fork." } else { "Fork in several calls." }));
    }
    if !spec.names.is_empty() {
        if n != spec.names.len() || spec.name_prefix.is_some() {
            return Err(Error::invalid("names cannot be combined with a count or a name prefix")
                .with_hint("Give either names, or a count with or without a name prefix."));
        }
        let different: BTreeSet<_> = spec.names.iter().map(SandboxName::as_str).collect();
        if different.len() != spec.names.len() {
            return Err(Error::invalid("two forks cannot have the same name")
                .with_hint("Give every fork a different name, or use a count with a name prefix."));
        }
        return Ok(spec.names.iter().cloned().map(Some).collect());
    }
    match &spec.name_prefix {
        None => Ok(vec![None; n]),
        Some(prefix) => (1..=n).map(|i| Ok(Some(format!("{prefix}-{i}").parse()?))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_a_list_a_prefix_or_nobody() {
        let given = |spec: ForkSpec| -> Vec<Option<String>> {
            names(&spec).unwrap().into_iter().map(|name| name.map(String::from)).collect()
        };
        let some = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
        assert_eq!(given(ForkSpec::default()), [None]);
        assert_eq!(given(ForkSpec { count: Some(2), ..ForkSpec::default() }), [None, None]);
        let name_prefix = Some("try".to_owned());
        assert_eq!(
            given(ForkSpec { count: Some(2), name_prefix, ..ForkSpec::default() }),
            some(&["try-1", "try-2"])
        );
        let list = vec!["a".parse().unwrap(), "b".parse().unwrap()];
        assert_eq!(given(ForkSpec { names: list, ..ForkSpec::default() }), some(&["a", "b"]));
    }

    #[test]
    fn contradictions_and_too_many_are_refused() {
        let a: SandboxName = "a".parse().unwrap();
        for spec in [
            ForkSpec { count: Some(0), ..ForkSpec::default() },
            ForkSpec { count: Some(MAX_FORKS + 1), ..ForkSpec::default() },
            ForkSpec { names: vec![a.clone(), a.clone()], ..ForkSpec::default() },
            ForkSpec { names: vec![a.clone()], count: Some(2), ..ForkSpec::default() },
            ForkSpec { names: vec![a], name_prefix: Some("b".into()), ..ForkSpec::default() },
            ForkSpec { name_prefix: Some("../x".into()), ..ForkSpec::default() },
        ] {
            assert!(names(&spec).is_err(), "{spec:?}");
        }
    }
}
