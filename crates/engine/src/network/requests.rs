//! Requests for more network than a sandbox's policy allows: an agent asks, a person grants for a time or refuses.
//!
//! Requests are part of the sandbox's record, and what a grant opens is part of its plan. Specs have none of it, so
//! snapshots, forks and restored sandboxes do not either. [`Principal::may_grant`] says who may grant.

use std::time::Duration;

use jiff::Timestamp;
use sandbox::{
    Capability, Error, ErrorKind, Namespace, NetworkGrant, NetworkRequest, NetworkRequestId,
    NetworkRequestSpec, NetworkRequestState, Result, SandboxId, SandboxName, Subject, Thing,
    network::{DEFAULT_GRANT_SECONDS, check_grant_seconds, printable},
};
use serde::{Deserialize, Serialize};
use store::SandboxRecord;

use super::ceilings;
use crate::{
    Engine, Principal, SandboxRef,
    core::{Changeable, Core},
    driver::{Command, RequestStep},
    error,
    lifecycle::{ask, with_timeout},
    names,
    shared::Shared,
};

/// A request, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRequestView {
    pub sandbox: SandboxId,
    pub name: SandboxName,
    pub namespace: Namespace,
    /// Whether the caller may grant it, as far as rights go.
    #[serde(default)]
    pub may_grant: bool,
    #[serde(flatten)]
    pub request: NetworkRequest,
}

impl NetworkRequestView {
    pub(crate) fn new(core: &Core, who: &Principal, shared: &Shared, request: NetworkRequest) -> Self {
        let (name, has_network) = {
            let record = &shared.status.borrow().record;
            (record.name.clone(), core.backends.has(&record.plan, Capability::Network))
        };
        let fits = || NetworkGrant::new(request.id.clone(), &request.rules, &ceilings(core, who)).is_ok();
        let may_grant = has_network && who.may_grant(&request).is_ok() && fits();
        let (sandbox, namespace) = (shared.subject.id.clone(), shared.subject.namespace.clone());
        Self { sandbox, name, namespace, may_grant, request }
    }
}

impl Engine {
    /// Asks for more than the sandbox's policy allows. Nothing opens before somebody grants it. The same request again
    /// returns the first one.
    #[crate::boxed]
    pub async fn request_network(
        &self,
        who: &Principal,
        which: &SandboxRef,
        spec: NetworkRequestSpec,
    ) -> Result<NetworkRequestView> {
        let core = self.core();
        let shared = core.find_to_change(who, which).await?;
        {
            let record = &shared.status.borrow().record;
            spec.check(&record.spec.network)?;
            core.backends.check(&record.plan, Capability::Network)?;
        }
        let request = NetworkRequest {
            id: NetworkRequestId::from_random(names::random_bytes()?),
            state: NetworkRequestState::Pending,
            rules: spec.rules,
            reason: printable(&spec.reason),
            for_seconds: spec.for_seconds,
            asked_at: core.clock.now(),
            asked_by: who.name.clone(),
            key: who.key.clone(),
            answered_at: None,
            answered_by: None,
            answer: None,
            until: None,
            request_id: spec.request_id,
        };
        self.step(who, &shared, RequestStep::Ask(request)).await
    }

    /// Grants a request for a time: the one given, or else the one asked for, or else an hour. A grant that holds
    /// already gets another time.
    #[crate::boxed]
    pub async fn grant_network_request(
        &self,
        who: &Principal,
        which: &SandboxRef,
        id: &NetworkRequestId,
        seconds: Option<u64>,
    ) -> Result<NetworkRequestView> {
        let shared = self.core().find_to_change(who, which).await?;
        let request = shared.network_request(id)?;
        who.may_grant(&request)?;
        self.grant(who, &shared, &request, seconds).await
    }

    /// The person at the client that asked agrees. That grants what the client could have allowed by a change of the
    /// policy, and no more: whoever holds a key can pretend to be a person.
    #[crate::boxed]
    pub async fn confirm_network_request(
        &self,
        who: &Principal,
        which: &SandboxRef,
        id: &NetworkRequestId,
    ) -> Result<NetworkRequestView> {
        let shared = self.core().find_to_change(who, which).await?;
        let request = shared.network_request(id)?;
        if !who.has_asked(&request) {
            let message = format!("{} did not make the request {id}", who.name);
            return Err(Error::new(ErrorKind::Denied, message).with_hint("Grant it instead."));
        }
        self.grant(who, &shared, &request, None).await
    }

    /// Refuses a request, or takes a grant back at once.
    #[crate::boxed]
    pub async fn refuse_network_request(
        &self,
        who: &Principal,
        which: &SandboxRef,
        id: &NetworkRequestId,
        reason: Option<String>,
    ) -> Result<NetworkRequestView> {
        let shared = self.core().find_to_change(who, which).await?;
        self.step(who, &shared, RequestStep::Refuse { id: id.clone(), by: who.name.clone(), reason }).await
    }

    /// One request. Waits for its answer, but no longer than `wait`.
    #[crate::boxed]
    pub async fn network_request(
        &self,
        who: &Principal,
        which: &SandboxRef,
        id: &NetworkRequestId,
        wait: Duration,
    ) -> Result<NetworkRequestView> {
        let shared = self.core().find_to_look(who, which).await?;
        let mut status = shared.status.subscribe();
        let is_answered = |record: &SandboxRecord| {
            let request = record.network_requests.iter().find(|request| request.id == *id);
            request.is_none_or(|request| request.state != NetworkRequestState::Pending)
        };
        let answered = status.wait_for(|status| status.gone.is_some() || is_answered(&status.record));
        tokio::select! {
            answered = with_timeout(Some(wait), answered) => drop(answered),
            () = self.core().closing.cancelled() => return Err(error::closing()),
        }
        Ok(NetworkRequestView::new(self.core(), who, &shared, shared.network_request(id)?))
    }

    /// Requests of all sandboxes that the caller sees, oldest first: those that wait for an answer, or all that are
    /// remembered.
    #[crate::boxed]
    pub async fn network_requests(
        &self,
        who: &Principal,
        namespace: Option<&Namespace>,
        pending_only: bool,
    ) -> Result<Vec<NetworkRequestView>> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let is_listed = |shared: &&std::sync::Arc<Shared>| {
            let own = &shared.subject;
            who.sees_sandbox(own, shared.owner.as_ref())
                && namespace.is_none_or(|namespace| own.namespace == *namespace)
        };
        let mut found = Vec::new();
        for shared in core.all().iter().filter(is_listed) {
            let requests = shared.status.borrow().record.network_requests.clone();
            let wanted =
                |request: &NetworkRequest| !pending_only || request.state == NetworkRequestState::Pending;
            let view = |request| NetworkRequestView::new(core, who, shared, request);
            found.extend(requests.into_iter().filter(wanted).map(view));
        }
        found.sort_by_key(|view| view.request.asked_at);
        Ok(found)
    }

    async fn grant(
        &self,
        who: &Principal,
        shared: &Changeable,
        request: &NetworkRequest,
        seconds: Option<u64>,
    ) -> Result<NetworkRequestView> {
        let seconds = seconds.or(request.for_seconds).unwrap_or(DEFAULT_GRANT_SECONDS);
        check_grant_seconds(seconds)?;
        let ceilings = ceilings(self.core(), who);
        let (id, by, time) = (request.id.clone(), who.name.clone(), Duration::from_secs(seconds));
        self.step(who, shared, RequestStep::Grant { id, by, ceilings, time }).await
    }

    async fn step(
        &self,
        who: &Principal,
        shared: &Changeable,
        step: RequestStep,
    ) -> Result<NetworkRequestView> {
        let step = Box::new(step);
        let request = ask(shared, |reply| Command::StepRequest { step, reply }).await?;
        Ok(NetworkRequestView::new(self.core(), who, shared, request))
    }
}

impl Shared {
    fn network_request(&self, id: &NetworkRequestId) -> Result<NetworkRequest> {
        let requests = &self.status.borrow().record.network_requests;
        let found = requests.iter().find(|request| request.id == *id).cloned();
        found.ok_or_else(|| no_such_request(&self.label(), id))
    }

    /// Returns the requests that wait for an answer.
    pub(crate) fn pending_requests(&self) -> Vec<NetworkRequest> {
        let requests = &self.status.borrow().record.network_requests;
        let is_pending = |request: &&NetworkRequest| request.state == NetworkRequestState::Pending;
        requests.iter().filter(is_pending).cloned().collect()
    }
}

pub(crate) fn no_such_request(of: &Subject, id: &NetworkRequestId) -> Error {
    Error::not_found(format!("{of} has no request {id}"))
        .about(Thing::Sandbox, of.name.clone())
        .with_hint("List its requests; those that were answered long ago are forgotten.")
}

/// Takes grants out of the plan whose time is over.
pub(crate) fn drop_ended(record: &mut SandboxRecord, now: Timestamp) {
    let requests = &record.network_requests;
    record
        .plan
        .network
        .grants
        .retain(|grant| requests.iter().any(|request| request.id == grant.id && request.holds_at(now)));
}

/// Says what a request is about, for events.
pub(crate) fn in_words(request: &NetworkRequest) -> String {
    let rules = request.rules.join(", ");
    let by = request.answered_by.as_deref().unwrap_or_default();
    match (request.state, request.until) {
        (NetworkRequestState::Granted, Some(until)) => {
            format!("{}: {rules}, granted by {by} until {until:.0}", request.id)
        }
        (NetworkRequestState::Refused, _) => {
            let why = request.answer.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{}: {rules}, refused by {by}{why}", request.id)
        }
        (NetworkRequestState::Ended, _) => format!("{}: {rules}", request.id),
        _ => format!("{}: {rules}, asked for by {}: {}", request.id, request.asked_by, request.reason),
    }
}
