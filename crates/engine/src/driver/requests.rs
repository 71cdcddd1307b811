//! Requests for more network, on the driver's side: each step is recorded before the back end holds what follows from
//! it. What ends a grant is held even if it cannot be recorded: the record says until when it holds.

use jiff::Timestamp;
use sandbox::{
    Capability, Error, ErrorKind, EventKind, NetworkGrant, NetworkRequest, NetworkRequestId,
    NetworkRequestState, Next, Policy, Result,
    network::{MAX_LIVE_GRANTS, MAX_PENDING_REQUESTS, MAX_REQUESTS},
};

use super::Driver;
use crate::{clock, network, request_hash};

/// One step of a request.
#[derive(Debug)]
pub(crate) enum RequestStep {
    Ask(NetworkRequest),
    Grant {
        id: NetworkRequestId,
        by: String,
        /// The ceilings of whoever grants it.
        ceilings: Vec<Policy>,
        time: std::time::Duration,
    },
    Refuse {
        id: NetworkRequestId,
        by: String,
        reason: Option<String>,
    },
}

impl Driver {
    pub(super) async fn step_request(&mut self, step: RequestStep) -> Result<NetworkRequest> {
        let before = self.record.clone();
        let (request, told) = match self.take_step(step) {
            Ok((request, Some(told))) => (request, told),
            Ok((known, None)) => return Ok(known),
            Err(error) => {
                self.record = before;
                return Err(error);
            }
        };
        if let Err(error) = self.save().await {
            self.record = before;
            return Err(error);
        }
        self.publish();
        self.core.feed.request(&self.record.id, &request);
        self.tell(told, network::in_words(&request)).await;
        if self.record.plan.network != before.plan.network {
            self.hold_network().await?;
        }
        Ok(request)
    }

    /// Changes the record. Returns the request, and what happened; nothing for one that is there already.
    fn take_step(&mut self, step: RequestStep) -> Result<(NetworkRequest, Option<EventKind>)> {
        let now = self.core.clock.now();
        match step {
            RequestStep::Ask(request) => {
                if let Some(known) = self.known_request(&request) {
                    check_repeated(known, &request)?;
                    return Ok((known.clone(), None));
                }
                self.make_room()?;
                self.record.network_requests.push(request.clone());
                Ok((request, Some(EventKind::NetworkRequested)))
            }
            RequestStep::Grant { id, by, ceilings, time } => {
                let until = clock::later(now, time);
                let request = self.grant(&id, by, &ceilings, now, until)?;
                Ok((request, Some(EventKind::NetworkGranted)))
            }
            RequestStep::Refuse { id, by, reason } => {
                let request = self.open_request(&id)?;
                request.refuse(&by, now, reason.as_deref())?;
                let request = request.clone();
                self.record.plan.network.grants.retain(|grant| grant.id != id);
                Ok((request, Some(EventKind::NetworkRefused)))
            }
        }
    }

    /// The same request again, or one that asks for the same and still waits.
    fn known_request(&self, asked: &NetworkRequest) -> Option<&NetworkRequest> {
        let is_same = |known: &&NetworkRequest| {
            let is_repeated = asked.request_id.is_some() && known.request_id == asked.request_id;
            let is_alike = (&known.rules, &known.key, &known.asked_by)
                == (&asked.rules, &asked.key, &asked.asked_by)
                && known.state == NetworkRequestState::Pending;
            is_repeated || is_alike
        };
        self.record.network_requests.iter().find(is_same)
    }

    fn make_room(&mut self) -> Result<()> {
        let requests = &mut self.record.network_requests;
        let n_pending =
            requests.iter().filter(|request| request.state == NetworkRequestState::Pending).count();
        if n_pending >= MAX_PENDING_REQUESTS {
            let message =
                format!("{n_pending} requests of {} already wait for an answer", self.shared.label());
            return Err(Error::new(ErrorKind::LimitReached, message).with_next(Next::Retry));
        }
        let is_over = |request: &NetworkRequest| {
            matches!(request.state, NetworkRequestState::Refused | NetworkRequestState::Ended)
        };
        while requests.len() >= MAX_REQUESTS {
            let Some(oldest) = requests.iter().position(is_over) else { break };
            requests.remove(oldest);
        }
        Ok(())
    }

    /// A request that can still be answered: it waits, or its grant holds.
    fn open_request(&mut self, id: &NetworkRequestId) -> Result<&mut NetworkRequest> {
        let label = self.shared.label();
        let requests = self.record.network_requests.iter_mut();
        let Some(request) = requests.into_iter().find(|request| request.id == *id) else {
            return Err(network::no_such_request(&label, id));
        };
        match request.state {
            NetworkRequestState::Pending | NetworkRequestState::Granted => Ok(request),
            NetworkRequestState::Refused | NetworkRequestState::Ended => {
                let state = request.state.as_str();
                Err(Error::new(ErrorKind::WrongState, format!("the request {id} is {state} already"))
                    .with_hint("Ask again if it is still needed."))
            }
        }
    }

    /// A grant that holds already gets another time.
    fn grant(
        &mut self,
        id: &NetworkRequestId,
        by: String,
        ceilings: &[Policy],
        now: Timestamp,
        until: Timestamp,
    ) -> Result<NetworkRequest> {
        self.core.backends.check(&self.record.plan, Capability::Network)?;
        let rules = self.open_request(id)?.rules.clone();
        let grant = NetworkGrant::new(id.clone(), &rules, ceilings)?;
        let grants = &mut self.record.plan.network.grants;
        grants.retain(|other| other.id != *id);
        if grants.len() >= MAX_LIVE_GRANTS {
            let message = format!("{} has {MAX_LIVE_GRANTS} grants already", self.shared.label());
            return Err(Error::new(ErrorKind::LimitReached, message)
                .with_hint("Refuse one of them, or change the sandbox's policy."));
        }
        grants.push(grant);
        let request = self.open_request(id)?;
        request.state = NetworkRequestState::Granted;
        request.answered_at = Some(now);
        request.answered_by = Some(by);
        request.until = Some(until);
        Ok(request.clone())
    }

    pub(super) fn next_grant_end(&self) -> Option<Timestamp> {
        let holding = |request: &&NetworkRequest| request.state == NetworkRequestState::Granted;
        self.record.network_requests.iter().filter(holding).filter_map(|request| request.until).min()
    }

    pub(super) async fn end_grants(&mut self) {
        let now = self.core.clock.now();
        let mut ended = Vec::new();
        for request in &mut self.record.network_requests {
            if request.state == NetworkRequestState::Granted && !request.holds_at(now) {
                request.state = NetworkRequestState::Ended;
                ended.push(request.clone());
            }
        }
        if ended.is_empty() {
            return;
        }
        network::drop_ended(&mut self.record, now);
        self.save_if_possible().await;
        self.publish();
        if let Err(error) = self.hold_network().await {
            tracing::error!(sandbox = %self.record.id, %error, "could not end a grant");
        }
        for request in ended {
            self.core.feed.request(&self.record.id, &request);
            self.tell(EventKind::NetworkGrantEnded, network::in_words(&request)).await;
        }
    }
}

/// Refuses another request under the id of a known one.
fn check_repeated(known: &NetworkRequest, asked: &NetworkRequest) -> Result<()> {
    let is_same =
        (&known.rules, &known.reason, known.for_seconds) == (&asked.rules, &asked.reason, asked.for_seconds);
    match &asked.request_id {
        Some(request) if !is_same && known.request_id.as_ref() == Some(request) => {
            Err(request_hash::taken(request))
        }
        _ => Ok(()),
    }
}
