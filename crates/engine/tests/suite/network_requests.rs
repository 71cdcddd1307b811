//! Requests for more network than a policy allows. Nobody serves these networks: what is held is read from the plan.

use std::time::Duration;

use engine::{ForkSpec, NetworkRequestView, Principal, RestoreSpec, SandboxRef, Store};
use sandbox::{
    Capability, ErrorKind, EventKind, Namespace, NetworkRequestId, NetworkRequestSpec, NetworkRequestState,
    Preset, Result, SandboxSpec,
    network::{MAX_GRANT_SECONDS, MAX_LIVE_GRANTS, MAX_PENDING_REQUESTS, MAX_REQUESTS},
};

use super::{
    network::{allow, holder, policy, reaching},
    snapshots::which as snapshot,
    support::{World, in_time, open},
};

const HOUR: Duration = Duration::from_secs(3600);

fn asking(rule: &str) -> NetworkRequestSpec {
    let (rules, reason) = (vec![rule.to_owned()], "to read the\u{1b}[2J issue".to_owned());
    NetworkRequestSpec { rules, reason, ..NetworkRequestSpec::default() }
}

impl World {
    async fn ask(&self, who: &Principal, which: &SandboxRef, rule: &str) -> NetworkRequestView {
        self.engine.request_network(who, which, asking(rule)).await.unwrap()
    }

    async fn grant(&self, who: &Principal, which: &SandboxRef, id: &NetworkRequestId) -> Result<()> {
        self.engine.grant_network_request(who, which, id, None).await.map(drop)
    }

    async fn pending(&self, who: &Principal) -> Vec<NetworkRequestId> {
        let listed = self.engine.network_requests(who, None, true).await.unwrap();
        listed.into_iter().map(|view| view.request.id).collect()
    }

    async fn request(&self, which: &SandboxRef, id: &NetworkRequestId) -> NetworkRequestView {
        self.engine.network_request(&self.who, which, id, Duration::ZERO).await.unwrap()
    }

    /// The rules of the grants that hold.
    async fn granted(&self, which: &SandboxRef) -> Vec<String> {
        let grants = self.view(which).await.plan.network.grants;
        grants.iter().flat_map(|grant| &grant.policy.rules).map(|rule| rule.text().to_string()).collect()
    }

    /// The daemon closes, and another one starts later.
    async fn away(self, time: Duration) -> Self {
        let Self { engine, backend, clock, who, config, home, .. } = self;
        in_time(engine.close()).await;
        drop(engine);
        clock.advance(time);
        let store = Store::open(home.path()).unwrap();
        let engine = open(&config, &store, &backend, &clock).await.unwrap();
        Self { engine, store, backend, clock, who, config, home }
    }

    async fn grant_ends(&self, which: &SandboxRef) {
        in_time(async {
            while !self.granted(which).await.is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// A world where callers with keys have package indexes, and one of them has a sandbox.
async fn asked() -> Option<(World, Principal, SandboxRef)> {
    let world = World::new().await;
    if !world.has(Capability::Network) {
        return None;
    }
    let ana = holder(&world, None).await;
    let own = world.engine.create_sandbox(&ana, SandboxSpec::default()).await.unwrap().id.into();
    Some((world, ana, own))
}

#[tokio::test]
async fn what_an_agent_asks_for_is_open_once_a_person_grants_it_and_until_its_time_is_over() {
    let Some((world, ana, own)) = asked().await else { return };
    let refused = world.engine.change_network(&ana, &own, allow("api.example:443")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "it may not help itself");
    let spec = NetworkRequestSpec { for_seconds: Some(600), ..asking("api.example:443") };
    let view = world.engine.request_network(&ana, &own, spec).await.unwrap();
    assert_eq!(view.request.state, NetworkRequestState::Pending);
    assert_eq!(view.request.reason, "to read the [2J issue", "nothing in it steers a terminal");
    assert_eq!(world.granted(&own).await, [""; 0]);
    assert!(world.event(EventKind::NetworkRequested).await.detail.contains("api.example:443"));

    let id = view.request.id;
    assert_eq!(world.pending(&world.who).await, std::slice::from_ref(&id));
    let waiting = {
        let (engine, who, own, id) = (world.engine.clone(), ana.clone(), own.clone(), id.clone());
        tokio::spawn(async move { engine.network_request(&who, &own, &id, 24 * HOUR).await })
    };
    let view = world.engine.grant_network_request(&world.who, &own, &id, None).await.unwrap();
    assert_eq!(view.request.state, NetworkRequestState::Granted);
    assert_eq!(view.request.until, Some("2026-01-01T00:10:00Z".parse().unwrap()), "as long as was asked");
    assert!(view.may_grant, "a person may");
    let seen = NetworkRequestView { may_grant: false, ..view.clone() };
    assert_eq!(
        in_time(waiting).await.unwrap().unwrap(),
        seen,
        "who waited hears of it, and may not grant it"
    );
    assert_eq!(world.granted(&own).await, ["api.example:443"]);
    assert_eq!(world.pending(&world.who).await, []);
    world.event(EventKind::NetworkGranted).await;
    // Everything else stays below the sandbox's own ceiling, and its policy is what it was.
    let network = world.network(&own).await;
    assert_eq!(network.ceilings, ["packages"]);
    assert!(network.policy.is_default());
    assert_eq!(network.requests, std::slice::from_ref(&view.request));

    world.clock.advance(HOUR / 6);
    world.grant_ends(&own).await;
    assert_eq!(world.request(&own, &id).await.request.state, NetworkRequestState::Ended);
    world.event(EventKind::NetworkGrantEnded).await;
    let again = world.grant(&world.who, &own, &id).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::WrongState);
}

#[tokio::test]
async fn a_refusal_ends_a_request_and_takes_a_grant_back() {
    let Some((world, ana, own)) = asked().await else { return };
    let refuse = async |id: &NetworkRequestId, why: Option<&str>| {
        world.engine.refuse_network_request(&world.who, &own, id, why.map(str::to_owned)).await
    };
    let id = world.ask(&ana, &own, "api.example").await.request.id;
    let view = refuse(&id, Some("not\nneeded")).await.unwrap();
    assert_eq!(view.request.answer.as_deref(), Some("not needed"));
    assert_eq!(world.grant(&world.who, &own, &id).await.unwrap_err().kind(), ErrorKind::WrongState);
    world.event(EventKind::NetworkRefused).await;

    let id = world.ask(&ana, &own, "api.example").await.request.id;
    world.grant(&world.who, &own, &id).await.unwrap();
    assert_eq!(world.granted(&own).await, ["api.example"]);
    refuse(&id, None).await.unwrap();
    assert_eq!(world.granted(&own).await, [""; 0]);
    assert_eq!(refuse(&id, None).await.unwrap_err().kind(), ErrorKind::WrongState);
    let unknown = NetworkRequestId::from_random([7; 8]);
    assert_eq!(refuse(&unknown, None).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn nobody_grants_their_own_request_or_more_than_their_own_ceilings_allow() {
    let ceiling = policy(Preset::Public, &["deny *.corp.example"]);
    let world = World::with(|config| config.network_ceiling = ceiling).await;
    if !world.has(Capability::Network) {
        return;
    }
    let narrow = holder(&world, Some(policy(Preset::Packages, &[]))).await;
    let wide = holder(&world, None).await;
    let own: SandboxRef =
        world.engine.create_sandbox(&narrow, SandboxSpec::default()).await.unwrap().id.into();
    let id = world.ask(&narrow, &own, "api.example").await.request.id;
    let refused = world.grant(&narrow, &own, &id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    // The person at the client that asked may agree to what the client could have changed, which is nothing here.
    let refused = world.engine.confirm_network_request(&narrow, &own, &id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    let refused = world.engine.confirm_network_request(&wide, &own, &id).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "only whoever asked confirms: {refused}");
    assert_eq!(world.pending(&narrow).await, std::slice::from_ref(&id));
    // Another key grants it within its own ceilings.
    world.grant(&wide, &own, &id).await.unwrap();
    assert_eq!(world.granted(&own).await, ["api.example"]);
    let id = world.ask(&narrow, &own, "db.corp.example").await.request.id;
    assert_eq!(world.grant(&wide, &own, &id).await.unwrap_err().kind(), ErrorKind::Denied);
    let id = world.ask(&wide, &own, "other.example").await.request.id;
    world.engine.confirm_network_request(&wide, &own, &id).await.unwrap();
    assert_eq!(world.granted(&own).await, ["api.example", "other.example"]);
    // A caller without a key cannot be told from another one.
    let developer = Principal::developer("dev");
    let id = world.ask(&developer, &own, "third.example").await.request.id;
    assert_eq!(world.grant(&developer, &own, &id).await.unwrap_err().kind(), ErrorKind::Denied);
    world.grant(&world.who, &own, &id).await.unwrap();
}

#[tokio::test]
async fn a_request_is_seen_in_its_own_namespace_only() {
    let Some((world, ana, own)) = asked().await else { return };
    let id = world.ask(&ana, &own, "api.example").await.request.id;
    let red: Namespace = "red".parse().unwrap();
    let stranger = Principal::of_namespace("stranger", red.clone());
    assert_eq!(world.pending(&stranger).await, []);
    assert_eq!(world.grant(&stranger, &own, &id).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(world.engine.network_requests(&world.who, Some(&red), false).await.unwrap(), []);
    assert_eq!(world.pending(&ana).await, [id]);
}

#[tokio::test]
async fn the_same_request_again_is_the_first_one() {
    let Some((world, ana, own)) = asked().await else { return };
    let spec = |rule: &str, request: &str| NetworkRequestSpec {
        request_id: Some(request.parse().unwrap()),
        ..asking(rule)
    };
    let ask = async |spec| world.engine.request_network(&ana, &own, spec).await.unwrap().request;
    let first = ask(spec("api.example", "r1")).await;
    world.grant(&world.who, &own, &first.id).await.unwrap();
    let again = ask(spec("api.example", "r1")).await;
    assert_eq!((again.id, again.state), (first.id, NetworkRequestState::Granted));
    let other = world.engine.request_network(&ana, &own, spec("other.example", "r1")).await.unwrap_err();
    assert_eq!(other.to_string(), "requestId r1 belongs to another request");
    let second = ask(spec("other.example", "r2")).await;
    let alike = ask(asking("other.example")).await;
    assert_eq!(alike.id, second.id, "what still waits is not asked for twice");
}

#[tokio::test]
async fn requests_and_grants_are_bounded() {
    let Some((world, ana, own)) = asked().await else { return };
    let ask = async |number: usize| {
        world.engine.request_network(&ana, &own, asking(&format!("a{number}.example"))).await
    };
    let mut ids = Vec::new();
    for number in 0..MAX_PENDING_REQUESTS {
        ids.push(ask(number).await.unwrap().request.id);
    }
    assert_eq!(ask(99).await.unwrap_err().kind(), ErrorKind::LimitReached);
    for number in 0..MAX_REQUESTS {
        world.engine.refuse_network_request(&world.who, &own, &ids[number], None).await.unwrap();
        ids.push(ask(100 + number).await.unwrap().request.id);
    }
    assert_eq!(world.network(&own).await.requests.len(), MAX_REQUESTS, "the oldest answers are forgotten");
    for id in &ids[MAX_REQUESTS..] {
        world.grant(&world.who, &own, id).await.unwrap();
    }
    for number in 0..MAX_LIVE_GRANTS - MAX_PENDING_REQUESTS {
        let id = ask(200 + number).await.unwrap().request.id;
        world.grant(&world.who, &own, &id).await.unwrap();
    }
    let id = ask(300).await.unwrap().request.id;
    assert_eq!(world.grant(&world.who, &own, &id).await.unwrap_err().kind(), ErrorKind::LimitReached);
    let too_long =
        world.engine.grant_network_request(&world.who, &own, &id, Some(MAX_GRANT_SECONDS + 1)).await;
    assert_eq!(too_long.unwrap_err().kind(), ErrorKind::InvalidRequest);
    assert_eq!(world.pending(&ana).await, [id]);
}

#[tokio::test]
async fn grants_outlive_the_daemon_and_end_while_it_is_away() {
    let Some((world, ana, own)) = asked().await else { return };
    let short = world.ask(&ana, &own, "short.example").await.request.id;
    let long = world.ask(&ana, &own, "long.example").await.request.id;
    let waits = world.ask(&ana, &own, "waits.example").await.request.id;
    let grant = async |id, seconds| {
        world.engine.grant_network_request(&world.who, &own, id, Some(seconds)).await.unwrap()
    };
    grant(&short, 60).await;
    grant(&long, 7200).await;
    let world = world.crash().await;
    assert_eq!(world.granted(&own).await, ["short.example", "long.example"]);
    assert_eq!(world.pending(&world.who).await, [waits]);
    // A restart of the sandbox keeps what holds.
    world.engine.restart_sandbox(&world.who, &own, None).await.unwrap();
    assert_eq!(world.granted(&own).await, ["short.example", "long.example"]);

    let world = world.away(HOUR).await;
    assert_eq!(world.granted(&own).await, ["long.example"], "from the first moment on");
    world.event(EventKind::NetworkGrantEnded).await;
    assert_eq!(world.request(&own, &short).await.request.state, NetworkRequestState::Ended);
    // Stopped sandboxes lose grants too.
    world.stop(&own).await;
    world.clock.advance(HOUR);
    world.grant_ends(&own).await;
    assert_eq!(world.request(&own, &long).await.request.state, NetworkRequestState::Ended);
}

#[tokio::test]
async fn snapshots_forks_and_changes_of_the_policy_carry_no_grant() {
    let Some((world, ana, own)) = asked().await else { return };
    let id = world.ask(&ana, &own, "api.example").await.request.id;
    world.grant(&world.who, &own, &id).await.unwrap();
    let forks = world.engine.fork_sandbox(&ana, &own, ForkSpec::default()).await.unwrap();
    world.snapshot(&own, "base").await;
    let restored =
        world.engine.restore_snapshot(&ana, &snapshot("base"), RestoreSpec::default()).await.unwrap();
    for made in [&forks[0], &restored] {
        let which = SandboxRef::from(&made.id);
        assert_eq!(world.granted(&which).await, [""; 0]);
        assert_eq!(world.network(&which).await.requests, []);
    }
    // A change of the policy leaves the grant beside it, and does not make it a part of the policy.
    world.engine.change_network(&world.who, &own, allow("other.example")).await.unwrap();
    assert_eq!(world.granted(&own).await, ["api.example"]);
    assert_eq!(world.network(&own).await.policy.allow, ["other.example"]);
}

#[tokio::test]
async fn what_nobody_can_grant_cannot_be_asked_for() {
    let world = World::new().await;
    if !world.has(Capability::Network) {
        return;
    }
    let mut spec = reaching(Preset::None, &["api.example"]);
    spec.network.deny = vec!["*.corp.example".to_owned()];
    let own: SandboxRef = world.create_from(spec).await.id.into();
    for (spec, words) in [
        (asking("db.corp.example"), "rules[0]: "),
        (asking("not a rule"), "rules[0]: "),
        (NetworkRequestSpec { reason: String::new(), ..asking("a.example") }, "reason: "),
    ] {
        let refused = world.engine.request_network(&world.who, &own, spec).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidRequest);
        assert!(refused.to_string().starts_with(words), "{refused}");
    }
    assert_eq!(world.network(&own).await.requests, []);
}
